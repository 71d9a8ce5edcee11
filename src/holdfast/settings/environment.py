"""Environment variables that the library reads: those whose names the caller gave, and XDG_CONFIG_HOME."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.home import in_base

if TYPE_CHECKING:
    from pathlib import Path


def variable(name: str) -> str | None:
    """Return the value of a variable that the user named in code or settings, None if it is not set."""
    return os.environ.get(name)


def config_folder() -> Path | None:
    """Return the folder of this user's own settings: `holdfast` in XDG_CONFIG_HOME, by default in ~/.config.

    None for a user without a home.
    """
    return in_base(os.environ.get("XDG_CONFIG_HOME", ""), ".config")
