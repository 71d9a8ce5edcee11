"""Patches that `git apply` takes: the difference of two trees as bytes, with modes, links and binary files."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import TYPE_CHECKING

from holdfast.errors import LimitExceeded
from holdfast.workspace.compare import differing
from holdfast.workspace.diff import is_binary, unified
from holdfast.workspace.directory import FILE, LINK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.workspace.compare import Tree
    from holdfast.workspace.directory import Entry

MOST_BYTES = 64 * 1024 * 1024
_MOST_TEXT = 1024 * 1024
_LINE = 52  # bytes on one line of a binary patch
_NOTHING = "0" * 40
_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_PLAIN = range(32, 127)


def git_patch(old: Tree, new: Tree) -> bytes:
    """Return what became of the files between two trees as a patch; LimitExceeded if it would be too large to hold."""
    parts: list[bytes] = []
    size = 0
    for part in _parts(old, new):
        size += len(part)
        if size > MOST_BYTES:
            raise LimitExceeded("the patch is not made", "bytes in it", size, MOST_BYTES)
        parts.append(part)
    return b"".join(parts)


def _parts(old: Tree, new: Tree) -> Iterator[bytes]:
    for path, before, after in sorted(differing(old, new), key=lambda pair: pair[0]):
        one, two = _file(before), _file(after)
        if one is None and two is None:
            continue  # of directories git knows nothing
        if one is not None and two is not None and one.kind != two.kind:
            yield _file_patch(path, one, None, old, new)
            yield _file_patch(path, None, two, old, new)
        else:
            yield _file_patch(path, one, two, old, new)


def _file(entry: Entry | None) -> Entry | None:
    return entry if entry is not None and entry.kind in (FILE, LINK) else None


def _file_patch(path: bytes, before: Entry | None, after: Entry | None, old: Tree, new: Tree) -> bytes:
    """Return the patch of one file."""
    was, now = _content(old, path, before), _content(new, path, after)
    a, b = _quoted(b"a/" + path), _quoted(b"b/" + path)
    lines = [f"diff --git {a} {b}"]
    if before is None and after is not None:
        lines.append(f"new file mode {_mode(after)}")
    elif after is None and before is not None:
        lines.append(f"deleted file mode {_mode(before)}")
    elif before is not None and after is not None and _mode(before) != _mode(after):
        lines += [f"old mode {_mode(before)}", f"new mode {_mode(after)}"]
        if was == now:
            return _joined(lines)
    lines.append(f"index {_object(before, was)}..{_object(after, now)}")
    is_text = not (is_binary(was) or is_binary(now)) and max(len(was), len(now)) <= _MOST_TEXT
    if not is_text:
        return _joined([*lines, "GIT binary patch"]) + _literal(now) + b"\n" + _literal(was) + b"\n"
    if was == now:  # an empty file that came or went
        return _joined(lines)
    names = ("/dev/null" if before is None else a, "/dev/null" if after is None else b)
    return _joined(lines) + unified(was, now, *names).encode("utf-8", "surrogateescape")


def _content(tree: Tree, path: bytes, entry: Entry | None) -> bytes:
    if entry is None:
        return b""
    if entry.kind == LINK:
        return entry.target
    content = tree.content(path, entry, MOST_BYTES)
    if content is None:
        raise LimitExceeded(
            "the patch is not made", f"bytes of {path.decode(errors='replace')!r}", entry.size, MOST_BYTES
        )
    return content


def _mode(entry: Entry) -> str:
    if entry.kind == LINK:
        return "120000"
    return "100755" if entry.mode & 0o100 else "100644"


def _object(entry: Entry | None, content: bytes) -> str:
    """Return the name that git gives the content; a binary patch is checked by it."""
    if entry is None:
        return _NOTHING
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).hexdigest()


def _literal(content: bytes) -> bytes:
    packed = zlib.compress(content)
    lines = [b"literal %d" % len(content)]
    for at in range(0, len(packed), _LINE):
        piece = packed[at : at + _LINE]
        sign = chr(ord("A") + len(piece) - 1) if len(piece) <= 26 else chr(ord("a") + len(piece) - 27)  # noqa: PLR2004
        lines.append(sign.encode() + base64.b85encode(piece, pad=True))
    return b"\n".join(lines) + b"\n"


def _quoted(path: bytes) -> str:
    """Return a name as git writes it: as it is, or in quotes with what is odd escaped."""
    if all(byte in _PLAIN and byte not in (34, 92) for byte in path):
        return path.decode("ascii")
    inside = (
        f"\\{_ESCAPES[byte]}" if byte in _ESCAPES else chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in path
    )
    return f'"{"".join(inside)}"'


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
