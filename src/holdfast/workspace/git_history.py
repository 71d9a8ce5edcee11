"""History of a repository: the commits, refs and settings that a checkpoint keeps, so that the repository travels.

`GitHistory` names what is kept: packs of objects, each with what the ones before it do not have, and one blob of
details (refs, a few settings, the flags of the index). A history up to the bound is kept whole; of a larger one only
what the remotes did not have when they were last seen, if that is less.

The packs are written by git, in a directory of ours that knows the repository's refs and objects and nothing else of
it (`holdfast.workspace.git`): no setting, hook or filter of the repository is there to obey.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import msgspec

from holdfast.encode.tree import leaf_id
from holdfast.lazy import pattern
from holdfast.workspace import git
from holdfast.workspace.contents import SMALL_BYTES, put_open
from holdfast.workspace.descriptors import open_below, read_below
from holdfast.workspace.gitdir import GitDirectory, GitFailed, is_ref, read_settings
from holdfast.workspace.objects import Objects
from holdfast.workspace.position import MAX_PACKS, GitHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.encode.tree import Ref
    from holdfast.workspace.index import GitIndex
    from holdfast.workspace.position import Base
    from holdfast.workspace.sink import Sink

_MAX_REFS = 20_000
_MAX_TIPS = 200  # noted, to pack only what they do not reach
_MAX_INFO_BYTES = 256 * 1024
_MAX_FLAGGED = 200_000
_OBJECT = pattern(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SWITCH = pattern(rb"true|false|yes|no|on|off|1|0", re.IGNORECASE)
_PLAIN_TEXT = pattern(rb"[^\x00-\x1f\x7f\"\\#;]{1,200}")
_REFSPEC = pattern(rb"\+?refs/[^\x00-\x20\x7f:\\\"]+:refs/remotes/[^\x00-\x20\x7f:\\\"]+")
_HOST = rb"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
_USER = rb"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?"
_PATH = rb"[^\x00-\x20\x7f\"\\#;]*"
_URL = pattern(
    rb"https?://" + _HOST + rb"/" + _PATH  # a name or password before the host is left out when it is read
    + rb"|ssh://" + _USER + _HOST + rb"/" + _PATH
    + rb"|" + _USER + rb"[A-Za-z0-9_][A-Za-z0-9_.-]+:(?!:)(?!//)" + _PATH  # as scp has it; never `helper::address`
    + rb"|(?:file://)?/" + _PATH
)  # fmt: skip
_SETTINGS: tuple[tuple[re.Pattern[bytes], re.Pattern[bytes]], ...] = (
    (pattern(rb"core\.(filemode|ignorecase|symlinks|precomposeunicode|sparsecheckout|sparsecheckoutcone)"), _SWITCH),
    (pattern(rb"core\.autocrlf"), pattern(rb"true|false|input")),
    (pattern(rb"core\.eol"), pattern(rb"lf|crlf|native")),
    (pattern(rb"status\.showuntrackedfiles"), pattern(rb"no|normal|all")),
    (pattern(rb"user\.(name|email)"), _PLAIN_TEXT),
    (pattern(rb"remote\.[^\x00-\x1f\"\\\]]+\.fetch"), _REFSPEC),
    (pattern(rb"remote\.[^\x00-\x1f\"\\\]]+\.url"), _URL),
    (pattern(rb"branch\.[^\x00-\x1f\"\\\]]+\.remote"), _PLAIN_TEXT),
    (pattern(rb"branch\.[^\x00-\x1f\"\\\]]+\.merge"), pattern(rb"refs/[^\x00-\x20\x7f\"\\#;]+")),
)
"""The settings that travel, with the values that they may have: what a repository is, never what it runs."""
_INFO = (b"info/exclude", b"info/sparse-checkout", b"info/attributes")


class Details(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rest of a repository: refs with their objects, settings, small files of `info/`, flags of the index."""

    refs: dict[bytes, str] = {}
    heads: list[str] = []
    """Commits that no ref may name: of HEAD, and of what is in progress."""
    settings: list[tuple[bytes, bytes]] = []
    info: dict[bytes, bytes] = {}
    shallow: bytes = b""
    sha256: bool = False
    stashes: bytes = b""
    skipped: list[bytes] = []
    assumed: list[bytes] = []
    intended: list[tuple[bytes, int]] = []

    def remotes(self) -> list[bytes]:
        """Return the addresses that it may be cloned from."""
        return [value for name, value in self.settings if name.startswith(b"remote.") and name.endswith(b".url")]


def read_details(data: bytes) -> Details:
    """Return details from their bytes, all of which may be hostile; GitFailed unless each could be a repository's."""
    try:
        found = msgspec.msgpack.decode(data, type=Details)
    except (ValueError, msgspec.DecodeError) as error:
        raise GitFailed("its kept details cannot be read") from error
    is_sound = (
        all(is_ref(name) and _OBJECT.fullmatch(value.encode()) for name, value in found.refs.items())
        and all(_OBJECT.fullmatch(value.encode()) for value in found.heads)
        and all(_travels(name, value) for name, value in found.settings)
        and set(found.info) <= set(_INFO)
        and all(_OBJECT.fullmatch(line) for line in found.shallow.split())
        and all(_LOG_LINE.fullmatch(line) for line in found.stashes.split(b"\n") if line)
    )
    if not is_sound:
        raise GitFailed("its kept details are not of a repository")
    return found


_LOG_LINE = pattern(rb"[0-9a-f]{40,64} [0-9a-f]{40,64} [^\x00\n]*")


def keep(
    directory: GitDirectory,
    index: GitIndex,
    sink: Sink,
    *,
    limit: int,
    old: GitHistory | None,
    more_tips: Iterable[str] = (),
    is_left_out: Callable[[], str | None] = lambda: None,
) -> GitHistory | None:
    """Put what `old` does not have of a repository's history, and return it; None if there is none to keep.

    `more_tips` are commits that no ref names. `is_left_out` says why the history must not be kept, if it must not.
    """
    try:
        details = _details(directory, index, more_tips)
    except (GitFailed, OSError) as error:
        return GitHistory(problem=str(error))
    data = msgspec.msgpack.encode(details)
    is_same = old is not None and old.details is not None and leaf_id(data) == old.details.id
    if old is not None and is_same and (old.problem is None or old.size_bytes in (0, limit + 1)):
        return old
    if len(data) > SMALL_BYTES:
        return GitHistory(problem=f"its refs and flags of {len(data):,} bytes are too many to keep")
    kept = GitHistory(details=sink.leaf(data))
    with Objects(directory) as objects:
        tips = _tips(details, objects)
    if not tips:
        return kept
    if old is not None and old.problem and old.size_bytes == limit + 1:
        return replace(old, details=kept.details)  # too large for the same bound: to try again costs as much each time
    problem = is_left_out()
    try:
        if problem is not None:
            return replace(kept, problem=problem)
        return _packed(directory, details, tips, sink, kept=kept, limit=limit, old=old)
    except (GitFailed, OSError) as error:
        return replace(kept, problem=str(error))


def _packed(
    directory: GitDirectory,
    details: Details,
    tips: tuple[str, ...],
    sink: Sink,
    *,
    kept: GitHistory,
    limit: int,
    old: GitHistory | None,
) -> GitHistory:
    """Pack what is new since `old`, or everything if that is not enough; a history that is too large says so."""
    pushed = [value for name, value in sorted(details.refs.items()) if name.startswith(b"refs/remotes/")]
    bases: list[Base] = ["nothing"]
    if pushed and details.remotes():
        bases = ["remote"] if _size(directory) > limit else ["nothing", "remote"]
    if old is not None and old.packs and old.base in bases and len(old.packs) < MAX_PACKS:
        without = [*old.tips, *(pushed if old.base == "remote" else ())]
        made = _pack(directory, tips, without, sink, limit - old.size_bytes)
        if made is not None:
            ref, size = made
            packs = old.packs if ref is None else (*old.packs, ref)
            return replace(kept, base=old.base, tips=tips[:_MAX_TIPS], packs=packs, size_bytes=old.size_bytes + size)
    for base in bases:
        made = _pack(directory, tips, pushed if base == "remote" else [], sink, limit)
        if made is not None:
            ref, size = made
            packs = () if ref is None else (ref,)
            return replace(kept, base=base, tips=tips[:_MAX_TIPS], packs=packs, size_bytes=size)
    wanted = "what its remotes do not have" if bases[-1] == "remote" else "its history"
    problem = f"{wanted} takes more than {limit / (1 << 20):,.0f} MB (workspace.git_history_mb), so it is not kept"
    return replace(kept, size_bytes=limit + 1, problem=problem)


def _pack(
    directory: GitDirectory, tips: Sequence[str], without: Sequence[str], sink: Sink, limit: int
) -> tuple[Ref | None, int] | None:
    """Put one pack of what these commits reach and those do not; None if it is larger than the limit."""
    with TemporaryFile() as file:
        wanted = "".join([*(f"{tip}\n" for tip in tips), "--not\n", *(f"{tip}\n" for tip in without)])
        if not git.write_pack(directory, wanted.encode(), file, limit):
            return None
        size = file.tell()
        head = os.pread(file.fileno(), 12, 0)
        if int.from_bytes(head[8:12], "big") == 0:
            return None, 0
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        ref, _, _ = put_open(file.fileno(), size, sink)
        return ref, size


def _size(directory: GitDirectory) -> int:
    """Return about how many bytes a repository's objects take."""
    total = 0
    for name in ("pack", *(f"{number:02x}" for number in range(256))):
        try:
            handle = open_below(directory.common, b"objects/" + name.encode())
        except OSError:
            continue
        try:
            with os.scandir(handle) as items:
                total += sum(item.stat(follow_symlinks=False).st_size for item in items)
        finally:
            os.close(handle)
    return total


def _tips(details: Details, objects: Objects) -> tuple[str, ...]:
    """Return the objects that a history has to reach: the commit of HEAD, then branches, then the rest."""
    stashed = [line.split(b" ", 2)[1].decode() for line in details.stashes.split(b"\n") if line]
    named = sorted(details.refs.items(), key=lambda item: (not item[0].startswith(b"refs/heads/"), item[0]))
    wanted = [*details.heads, *(value for _, value in named), *stashed]
    return tuple(value for value in dict.fromkeys(wanted) if objects.has(value))


def _details(directory: GitDirectory, index: GitIndex, more: Iterable[str]) -> Details:
    refs = directory.refs()
    if len(refs) > _MAX_REFS:
        raise GitFailed(f"it has more than {_MAX_REFS:,} refs")
    flagged = [entry for entry in index.entries if (entry.is_assumed or entry.is_intended) and not entry.stage]
    if len(flagged) > _MAX_FLAGGED:
        raise GitFailed(f"its index has more than {_MAX_FLAGGED:,} entries with flags")
    info = {name: content for name in _INFO if (content := _info(directory, name))}
    stashes = read_below(directory.common, b"logs/refs/stash", _MAX_INFO_BYTES) or b""
    stashes = b"".join(line + b"\n" for line in stashes.split(b"\n")[:-1] if _LOG_LINE.fullmatch(line))
    shallow = read_below(directory.common, b"shallow", _MAX_INFO_BYTES) or b""
    is_shallow = all(_OBJECT.fullmatch(line) for line in shallow.split())
    return Details(
        refs=dict(sorted(refs.items())),
        heads=[name for name in (directory.resolve(b"HEAD"), *more) if name is not None],
        settings=_settings(directory),
        info=info,
        shallow=shallow if is_shallow else b"",
        sha256=directory.facts.sha256,
        stashes=stashes,
        skipped=[entry.path for entry in flagged if entry.is_skipped],
        assumed=[entry.path for entry in flagged if entry.is_assumed and not entry.is_skipped],
        intended=[(entry.path, entry.mode) for entry in flagged if entry.is_intended],
    )


def _info(directory: GitDirectory, name: bytes) -> bytes | None:
    place = directory.own if name == b"info/sparse-checkout" else directory.common
    content = read_below(place, name, _MAX_INFO_BYTES)
    return content if content and len(content) < _MAX_INFO_BYTES else None


def _settings(directory: GitDirectory) -> list[tuple[bytes, bytes]]:
    """Return the settings that travel, of the repository and of this work tree alone."""
    own = read_below(directory.own, b"config.worktree", _MAX_INFO_BYTES) or b""
    found: list[tuple[bytes, bytes]] = []
    for name, value in (*directory.facts.settings, *read_settings(own)):
        if name.startswith(b"remote.") and name.endswith(b".url"):
            value = re.sub(rb"\A(https?://)[^/@]*@", rb"\1", value)  # noqa: PLW2901 - no password travels
            value = re.sub(rb"\A(ssh://[^/@:]*):[^/@]*@", rb"\1@", value)  # noqa: PLW2901
        if _travels(name, value):
            found.append((name, value))
    return found


def _travels(name: bytes, value: bytes) -> bool:
    return any(known.fullmatch(name) and allowed.fullmatch(value) for known, allowed in _SETTINGS)


def is_address(url: bytes) -> bool:
    """Tell whether git may be given this address: one of a known kind, which is not an option and no helper's."""
    return _URL.fullmatch(url) is not None
