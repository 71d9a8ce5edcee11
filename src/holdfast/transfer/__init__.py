"""Runs on their way between stores, and as one file."""
