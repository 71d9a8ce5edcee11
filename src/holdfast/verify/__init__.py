"""Checking a whole store against its own hashes."""
