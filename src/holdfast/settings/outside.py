"""What settings take from outside the project: the key, and the variables that fill redacted values again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.encode.documents import read_regular
from holdfast.errors import DocumentInvalid, SettingsInvalid
from holdfast.settings.environment import variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.settings.values import RedactionSettings, Settings

_LARGEST_KEY = 64 << 10


def refill(settings: RedactionSettings) -> Callable[[str], str | None] | None:
    """Return what fills redacted values from the environment, for the variables that the user named and no others.

    A stored marker names a variable too, but stored bytes are not to be believed: it must be one of the user's.
    """
    names = frozenset((*settings.fill.values(), *settings.fill_env))
    return (lambda name: variable(name) if name in names else None) if names else None


def read_key_file(place: str) -> str:
    """Return the text of a key's file; SettingsInvalid for anything but a short, regular file of text."""
    try:
        path = Path(place).expanduser()
        return read_regular(path, limit=_LARGEST_KEY, follow=True).decode()
    except (OSError, ValueError, RuntimeError, DocumentInvalid) as error:
        why = error.detail if isinstance(error, DocumentInvalid) else error
        raise SettingsInvalid(f"the key file cannot be read ({why})", place) from error


def read_key(settings: Settings) -> str | None:
    """Return the encryption key's text from its file or variable, None if none is set."""
    encryption = settings.encryption
    if encryption.key_file is not None:
        return read_key_file(encryption.key_file)
    if encryption.key_env is not None:
        text = variable(encryption.key_env)
        if text is None:
            raise SettingsInvalid(
                f"the environment variable {encryption.key_env} with the key is not set", "encryption"
            )
        return text
    return None
