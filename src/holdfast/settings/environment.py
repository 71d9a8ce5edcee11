"""The one place where the library reads environment variables: only those whose names the caller gave."""

from __future__ import annotations

import os


def variable(name: str) -> str | None:
    """Return the value of a variable that the user named in code or settings, None if it is not set."""
    return os.environ.get(name)
