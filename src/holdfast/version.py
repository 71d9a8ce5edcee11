"""The program's version, written into every checkpoint."""

__version__ = "0.1.0"
