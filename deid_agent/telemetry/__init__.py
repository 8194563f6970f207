"""Typed events: each is one log line and its metric samples at once."""
