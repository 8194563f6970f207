"""Scores and corpora: built on top of everything, imported by the command line and by tests only."""
