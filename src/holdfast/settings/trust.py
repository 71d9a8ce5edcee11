"""Settings of a repository: which it may say by itself, and which only once this user trusts them.

A settings file that is found in a folder may come with a cloned repository. What it says of when checkpoints are taken
and how many stay is followed. What sends data elsewhere, changes redaction, reads keys, variables or files, or may take
unbounded time is a wish: it is refused until the user has said `holdfast trust` for this folder and these very values.
The user's own file, the environment, the command line and code need no trust.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
from blake3 import blake3

from holdfast.capture.secret_keys import SECRET_KEYS
from holdfast.encode.documents import read_regular
from holdfast.errors import DocumentInvalid, SettingsInvalid, SettingsUntrusted
from holdfast.home import close_to_others, make_private
from holdfast.model.ids import is_in_git
from holdfast.settings.environment import config_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_USUAL_SECTION_MB = 64
_LONGEST_SHOWN = 200
_LARGEST = 1 << 20
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_FIELD = re.compile(r"\{([^{}]*)\}")


class Wish(NamedTuple):
    """A setting that needs trust, by its dotted name, and what the file gives it."""

    name: str
    value: Any

    def __str__(self) -> str:
        text = msgspec.json.encode(self.value).decode()
        return f"{self.name}: {text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + '...'}"


def filled(location: str, root: Path, file: str) -> str:
    """Return a location with {project} and {root} filled in; SettingsInvalid for any other field."""
    fields = {"project": root.name, "root": str(root)}
    unknown = [name for name in _FIELD.findall(location) if name not in fields]
    if unknown or {"{", "}"} & set(_FIELD.sub("", location)):
        raise SettingsInvalid(f"location {location!r:.200}: only {{project}} and {{root}} are filled in", file)
    return _FIELD.sub(lambda match: fields[match[1]], location)


def wishes_of(data: Any, root: Path, *, is_located: bool = False) -> list[Wish]:
    """Return what plain settings of a file in `root` ask for that needs trust; `is_located`: the store is named."""
    found = [wish for wish in _wishes(data, root) if not (is_located and wish.name == "location")]
    return sorted(found, key=lambda wish: wish.name)


def check_trust(wishes: list[Wish], file: Path) -> None:
    """Raise SettingsUntrusted if this user has not trusted these wishes of this file."""
    if wishes and not is_trusted(wishes, file):
        detail = "asks for what a repository may not say by itself"
        raise SettingsUntrusted(detail, str(file), tuple(map(str, wishes)))


def is_trusted(wishes: list[Wish], file: Path) -> bool:
    """Tell whether this user trusts all of these, as they are, in this place."""
    with suppress(OSError, DocumentInvalid):
        folder = _folder()
        name = _name(wishes, file)
        kept = folder / name
        kept.lstat()  # nothing is closed for what is not there
        for place in (folder.parent, folder):
            close_to_others(place)
        # Whoever could write to the folder could rename what this user trusted, but not write its name into it.
        return _exposed(folder, kept) is None and read_regular(kept, limit=_LARGEST).startswith(f"{name}\n".encode())
    return False


def _exposed(folder: Path, kept: Path) -> Path | None:
    """Return the first of the places which trust rests on that others may write to; OSError if one is not there."""
    for place in (folder.parent, folder, kept):
        status = place.lstat()
        is_kind = stat.S_ISREG if place is kept else stat.S_ISDIR
        if not is_kind(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS:
            return place
    return None


def trust(wishes: list[Wish], file: Path) -> None:
    """Remember that this user trusts these wishes of this file."""
    distrust(file)
    try:
        folder = _folder()
        kept = folder / _name(wishes, file)
        make_private(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(kept, flags, 0o600), "wb") as opened:  # noqa: PTH123 - a descriptor
            opened.write(
                b"\n".join(os.fsencode(one) for one in (kept.name, str(_place(file)), *map(str, wishes))) + b"\n"
            )
        exposed = _exposed(folder, kept)
    except OSError as error:
        raise SettingsInvalid(f"trust cannot be remembered ({error.strerror})", str(error.filename or file)) from error
    if exposed is not None:
        raise SettingsInvalid(
            "belongs to somebody else, or others may write to it, so it is not believed: make it yours alone with "
            f"`sudo chown $USER {exposed} && chmod go-w {exposed}`",
            str(exposed),
        )


def distrust(file: Path) -> int:
    """Forget all trust in a file; return how often it was trusted."""
    with suppress(OSError):
        prefix = _prefix(file)
        kept = [place for place in _folder().iterdir() if place.name.startswith(prefix)]
        for place in kept:
            place.unlink(missing_ok=True)
        return len(kept)
    return 0


def _wishes(data: Any, root: Path) -> Iterator[Wish]:
    if not isinstance(data, dict):
        return
    for name, value in data.items():
        if name in _FREE:
            continue
        if name in _SECTIONS and isinstance(value, dict):
            for inner, given in value.items():
                yield from _judged(f"{name}.{inner}", given, root)
        else:
            yield from _judged(str(name), value, root)


def _judged(name: str, value: Any, root: Path) -> Iterator[Wish]:
    allowed = _ALLOWED.get(name)
    if value is not None and (allowed is None or not allowed(value, root)):
        yield Wish(name, value)


def _is_inside(value: Any, root: Path) -> bool:
    """Tell whether a location is a path in the project's folder, also where links lead."""
    if not isinstance(value, str):
        return False
    if not value:
        return True
    try:
        place = _FIELD.sub("x", filled(value.replace("{run}", "x").replace("{task}", "x"), root, ""))
        parts = urlsplit(place) if ":" in place.partition("/")[0] else None
    except (SettingsInvalid, ValueError):
        return False
    if parts is not None:
        if parts.scheme not in ("sqlite", "file") or parts.netloc or parts.query or parts.fragment:
            return False
        place = unquote(parts.path)
    if "\0" in place or ".." in Path(place).parts or is_in_git(place, os.path.realpath(root / place)):
        return False
    real = os.path.realpath(root)
    return os.path.realpath(root / place).startswith(real.rstrip("/") + "/")


def _is_nothing(value: Any, _root: Path) -> bool:
    return value is None or value is False or value in ([], {}, "")


def _is_true(value: Any, _root: Path) -> bool:
    return value is True


def _is_anything(_value: Any, _root: Path) -> bool:
    return True


def _are_usual_keys(value: Any, _root: Path) -> bool:
    return isinstance(value, list) and sorted(map(str, value)) == sorted(SECRET_KEYS)


def _is_usual_size(value: Any, _root: Path) -> bool:
    """Tell whether a bound of memory is at most the usual one."""
    return isinstance(value, (int, float)) and value <= _USUAL_SECTION_MB


def is_unsaid(name: str, value: Any) -> bool:
    """Tell whether a repository says nothing by this value, so that the user's own stays."""
    return value is None or (_ALLOWED.get(name) is _is_nothing and _is_nothing(value, Path()))


# A setting that is in none of these tables needs trust: a new one is refused until somebody has thought about it.
_FREE = frozenset({
    "enabled", "automatic", "compression", "interval_s", "lease_s", "triggers", "workspace_on",
    "on_checkpoint_failure", "strategy", "destructive", "session", "retention", "recovery",
    "preset",  # it holds nothing but what is free by itself
})  # fmt: skip
_SECTIONS = frozenset({"workspace", "redaction", "encryption", "mirror", "workers"})
_ALLOWED: dict[str, Callable[[Any, Path], bool]] = {
    "location": _is_inside,
    "max_section_mb": _is_usual_size,
    "mirror.form": _is_anything,
    "mirror.location": _is_inside,
    "workspace.ignore": _is_anything,
    "workspace.include": _is_nothing,
    "workspace.use_gitignore": _is_true,
    "workspace.use_git": _is_anything,
    "workspace.max_files": _is_anything,
    "workspace.max_file_mb": _is_anything,
    "workspace.max_total_mb": _is_anything,
    "workspace.git_history_mb": _is_anything,
    "workspace.clone": _is_nothing,
    "redaction.enabled": _is_true,
    "redaction.keys": _are_usual_keys,
    "redaction.more_keys": _is_nothing,  # what is taken out is gone: these three could wipe every state
    "redaction.paths": _is_nothing,
    "redaction.patterns": _is_nothing,
    "redaction.fill": _is_nothing,
    "redaction.fill_env": _is_nothing,
    "redaction.reversible": _is_nothing,
    "encryption.key_file": _is_nothing,
    "encryption.key_env": _is_nothing,
    "encryption.sign": _is_nothing,
    "workers.engine": _is_anything,
    "workers.temporal": _is_nothing,
}


def _folder() -> Path:
    folder = config_folder()
    if folder is None:
        raise FileNotFoundError(errno.ENOENT, "this user has no home")
    return folder / "trusted"


def _place(file: Path) -> Path:
    return Path(os.path.realpath(file.parent)) / file.name


def _prefix(file: Path) -> str:
    return blake3(os.fsencode(_place(file))).hexdigest()[:32]


def _name(wishes: list[Wish], file: Path) -> str:
    values = msgspec.json.encode([list(wish) for wish in wishes], order="deterministic")
    return f"{_prefix(file)}-{blake3(values).hexdigest()}"
