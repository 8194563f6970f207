"""Conditional random fields: labels, features and models, shared by training and tagging."""
