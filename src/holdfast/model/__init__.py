"""Frozen values without I/O: ids, records, sections, recovery information."""
