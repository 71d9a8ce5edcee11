"""Names and paths of a workspace: bytes inside, text with surrogate escapes outside; hostile names are refused."""

from __future__ import annotations

from holdfast.lazy import pattern

RESERVED = (b".git", b".holdfast")
_MAX_NAME_BYTES = 255
_HARMLESS = pattern(rb"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # almost every name: seen at once
_HARMLESS_PATH = pattern(rb"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99})*")
_CONTROL = pattern("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DRIVE = pattern(rb"[A-Za-z]:\\")
# Characters that HFS+ drops when it compares names, so that ".g\u200cit" opens ".git" there.
_IGNORABLE = pattern("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


def text(path: bytes) -> str:
    """Return a path for people and JSON; `raw` gives the same bytes back."""
    return path.decode("utf-8", "surrogateescape")


def raw(path: str) -> bytes:
    """Return the bytes of a path that `text` made."""
    return path.encode("utf-8", "surrogateescape")


def in_a_line(path: str) -> str:
    """Return a path that stays on its line, for diffs and lists: control characters are written out."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], path)


def join(parent: bytes, name: bytes) -> bytes:
    """Return the path of a name below a directory; the workspace itself is the empty path."""
    return parent + b"/" + name if parent else name


def is_reserved(name: bytes) -> bool:
    """Return whether a file system could take this name for `.git` or for our own store."""
    if len(name) > 64 or name.lstrip()[:1] not in (b".", b"g", b"G", b"\xe2", b"\xef", b"h", b"H"):  # noqa: PLR2004
        return False
    plain = _IGNORABLE.sub("", text(name)).split(":")[0].rstrip(". ").lower()
    return raw(plain) in RESERVED or plain in ("git~1", "holdfa~1")


def fault(name: bytes) -> str | None:
    """Return why a name may not stand in a tree, or None."""
    if _HARMLESS.fullmatch(name):
        return None
    if not name or name in (b".", b".."):
        return "is empty, . or .."
    if len(name) > _MAX_NAME_BYTES:
        return f"is longer than {_MAX_NAME_BYTES} bytes"
    if b"/" in name or b"\0" in name:
        return "holds a slash or a NUL"
    if b"\\" in name and (name.startswith(b"\\") or b".." in name.split(b"\\") or _DRIVE.match(name)):
        return "would leave the directory on another system"
    if is_reserved(name):
        return "is reserved for git or for the store"
    return None


def split(path: str) -> tuple[bytes, ...]:
    """Return the names on a relative path; ValueError unless each of them may stand in a tree."""
    whole = raw(path)
    names = tuple(whole.split(b"/"))
    for name in () if _HARMLESS_PATH.fullmatch(whole) else names:
        problem = fault(name)
        if problem:
            raise ValueError(f"{path!r}: {text(name)!r} {problem}")
    return names
