"""A glance: whether `stat` says the same of a project as at the session's last capture; loads next to nothing.

The stamps lie beside the store, one file a session. What they cannot vouch for (another store, changed settings, a
store that somebody wrote to) counts as changed, and the full capture decides.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.own_folder import open_folder, remove_old, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.hook.event import HookEvent
    from holdfast.workspace.stamps import Stamp

FOLDER = os.path.join(".holdfast", "hook")  # noqa: PTH118 - pathlib alone takes longer than this whole module
SETTINGS = ("holdfast.yaml", "holdfast.yml", "pyproject.toml", ".holdfastignore")
_VERSION = 1
_GIT_FILES = (
    "HEAD", "index", "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD",
    "rebase-merge", "rebase-apply", "BISECT_LOG", "commondir",
)  # fmt: skip
_SHARED = ("packed-refs", "reftable/tables.list", "info/exclude", "config")
_MAX_BYTES = 64 * 1024 * 1024
_MAX_LINE = 64 * 1024
_FORGOTTEN_S = 30 * 24 * 3600


def needs_nothing(event: HookEvent, named_store: str | None) -> bool:
    """Tell whether an event causes nothing, because it never does or because the newest checkpoint has everything."""
    if event.rule is None or event.rule.do == "close":
        return True
    if event.rule.do not in ("capture", "destructive"):
        return False
    if event.rule.do == "destructive":
        from holdfast.hook.destructive import destructive  # noqa: PLC0415 - of the other events none needs it

        if destructive(event.command) is None:
            return True
    state = find_state(event.cwd, event.run)
    return state is not None and is_unchanged(read_state(state), named_store)


def state_file(root: str, run: str) -> str:
    """Return where the stamps of a session are kept."""
    return os.path.join(root, FOLDER, f"{run}.json")  # noqa: PTH118


def find_state(start: str, run: str) -> str | None:
    """Return the state of a session, from a directory up; None if it has none."""
    place = os.path.abspath(start) if start else ""  # noqa: PTH100
    while place:
        file = state_file(place, run)
        if os.path.exists(file):  # noqa: PTH110
            return file
        above = os.path.dirname(place)  # noqa: PTH120
        place = "" if above == place else above
    return None


def read_state(file: str) -> dict[str, Any]:
    """Return what is known of a session; empty if nothing can be read."""
    try:
        state = json.loads(_read(file, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) and state.get("version") == _VERSION else {}


def write_state(file: str, state: Mapping[str, Any]) -> bool:
    """Replace what is known of a session; False if it cannot be written, and then the next event captures in full."""
    try:
        make_folder(os.path.dirname(file))  # noqa: PTH120
        write_whole(file, json.dumps({"version": _VERSION, **state}, separators=(",", ":")).encode("ascii"))
    except OSError:
        return False
    return True


def make_folder(folder: str) -> None:
    """Make a folder below `.holdfast`, which git leaves alone even where the store is elsewhere; OSError at a link."""
    os.close(open_folder(folder))
    rules = os.path.join(os.path.dirname(folder), ".gitignore")  # noqa: PTH118, PTH120
    if not os.path.lexists(rules):
        write_whole(rules, b"*\n")


def tidy_states(root: str, now: float) -> None:
    """Remove what is known of sessions that nobody heard of for a month; their runs stay."""
    with suppress(OSError):  # the next session tries again
        remove_old(os.path.join(root, FOLDER), now - _FORGOTTEN_S)  # noqa: PTH118


def drop_stamps(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state whose next glance sees a change."""
    return {name: value for name, value in state.items() if name not in ("tree", "watched", "version")}


def is_unchanged(state: Mapping[str, Any], named_store: str | None) -> bool:
    """Tell whether everything is as the state's stamps say, in the store that was named then."""
    try:
        if state.get("unprotected") or state["store"] != named_store:
            return False
        root, tree, watched = state["root"], state["tree"], state["watched"]
        if not tree or any(key_of(place) != key for place, key in watched):
            return False
        lstat, join = os.lstat, os.path.join
        for path, key, names, files in tree:
            place = join(root, path)
            if key_of(place) != key:
                return False
            for name, (size, changed) in zip(names, files, strict=True):
                status = lstat(join(place, name))
                if status.st_ctime_ns != changed or status.st_size != size:
                    return False
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return True


def packed(tree: Iterable[Stamp]) -> list[Any]:
    """Return stamps in the form of a state."""
    decode = os.fsdecode
    return [[decode(one.path), list(one.key), [decode(name) for name in one.names], one.files] for one in tree]


def key_of(place: str) -> list[int] | None:
    """Return what changes when a file or directory is written; None if there is none."""
    try:
        status = os.lstat(place)
    except (OSError, ValueError):
        return None
    return [status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode]


def watched_files(root: str) -> list[str]:
    """Return the files outside of the tree that a capture depends on: settings, the repository around, ignore rules."""
    join = os.path.join
    found = [join(root, name) for name in SETTINGS]
    place = root
    while True:
        found.append(join(place, ".gitignore"))
        git = join(place, ".git")
        if not os.path.isdir(git):  # noqa: PTH112 - the times of a directory move with every command
            found.append(git)
        if os.path.lexists(git):
            found += _git_files(place)
            break
        above = os.path.dirname(place)  # noqa: PTH120
        if above == place:
            break
        place = above
    return found


def _git_files(top: str) -> list[str]:
    """Return the files of a repository that move when its position does."""
    own = os.path.join(top, ".git")  # noqa: PTH118
    if not os.path.isdir(own):  # noqa: PTH112
        named = _line(own).removeprefix("gitdir: ")
        own = os.path.join(top, named)  # noqa: PTH118
    common = os.path.join(own, _line(os.path.join(own, "commondir")) or ".")  # noqa: PTH118
    found = [os.path.join(own, name) for name in _GIT_FILES]  # noqa: PTH118
    found += [os.path.join(common, name) for name in _SHARED]  # noqa: PTH118
    head = _line(os.path.join(own, "HEAD"))  # noqa: PTH118
    if head.startswith("ref: "):
        found += [os.path.join(folder, head[5:]) for folder in (own, common)]  # noqa: PTH118
    return found


def _read(file: str, limit: int) -> bytes:
    """Return a regular file's bytes, as `encode.documents` does without what a hook has no time to load."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise ValueError("not a small regular file")
        return stream.read(limit)


def _line(file: str) -> str:
    try:
        return os.fsdecode(_read(file, _MAX_LINE)).partition("\n")[0]
    except (OSError, ValueError):
        return ""
