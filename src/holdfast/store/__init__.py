"""Bytes to durable media and back: one small protocol, a file for each medium."""
