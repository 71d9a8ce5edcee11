"""Patterns as git reads them from a .gitignore, matched against bytes; the last pattern that matches decides."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_CLASSES = {
    b"alnum": b"0-9A-Za-z",
    b"alpha": b"A-Za-z",
    b"blank": b" \\t",
    b"cntrl": b"\\x00-\\x1f\\x7f",
    b"digit": b"0-9",
    b"graph": b"\\x21-\\x7e",
    b"lower": b"a-z",
    b"print": b"\\x20-\\x7e",
    b"punct": b"\\x21-\\x2f\\x3a-\\x40\\x5b-\\x60\\x7b-\\x7e",
    b"space": b" \\t\\n\\r\\f\\v",
    b"upper": b"A-Z",
    b"xdigit": b"0-9A-Fa-f",
}
_MAGIC = re.compile(rb"[*?\[\\]")
_LONGEST = 4096
_STAR, _DEEP = b"[^/]*", b"(?:.*/)?"


class _Rule(NamedTuple):
    expression: bytes  # compiled when a name comes near: of 200 patterns in use, few are ever asked
    negated: bool
    directories_only: bool
    by_path: bool


@lru_cache(maxsize=4096)
def _compiled(expression: bytes) -> re.Pattern[bytes]:
    return re.compile(expression, re.DOTALL)


class Patterns:
    """The patterns of one ignore file."""

    def __init__(self, content: bytes) -> None:
        self._rules: list[_Rule] = []
        names: set[bytes] = set()
        suffixes: list[bytes] = []
        by_name: list[bytes] = []
        by_path: list[bytes] = []
        for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            parsed = _parse(line)
            if parsed is None:
                continue
            pattern, negated, directories_only, anchored = parsed
            expression = _translate(pattern)
            if expression is None:
                continue
            self._rules.append(_Rule(expression, negated, directories_only, anchored))
            last = pattern.rpartition(b"/")[2]
            if anchored and (not last or _MAGIC.search(last)):
                by_path.append(expression)
            elif anchored:
                names.add(last)  # the rule itself then looks at the whole path
            elif not _MAGIC.search(pattern):
                names.add(pattern)
            elif pattern.startswith(b"*") and not _MAGIC.search(pattern[1:]):
                suffixes.append(pattern[1:])
            else:
                by_name.append(expression)
        self._rules.reverse()
        # Most names match nothing: a set, a suffix test and one joint expression find that out in a microsecond.
        self._names = frozenset(names)
        self._suffixes = tuple(suffixes)
        self._by_name = b"|".join(by_name)
        self._by_path = b"|".join(by_path)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def mentions(self, name: bytes, path: bytes) -> bool:
        """Return whether some pattern could match; almost always False, and quick to say so."""
        return (
            name in self._names
            or name.endswith(self._suffixes)
            or (self._by_name != b"" and _compiled(self._by_name).match(name) is not None)
            or (self._by_path != b"" and _compiled(self._by_path).match(path) is not None)
        )

    def verdict(self, name: bytes, path: bytes, *, is_directory: bool) -> bool | None:
        """Return True for ignored, False for taken back by a `!`, None when no pattern matches.

        `path` is relative to the directory of the ignore file.
        """
        if not self.mentions(name, path):
            return None
        for rule in self._rules:
            if rule.directories_only and not is_directory:
                continue
            if _compiled(rule.expression).match(path if rule.by_path else name):
                return not rule.negated
        return None


@lru_cache(maxsize=512)
def parse(content: bytes) -> Patterns:
    """Return the patterns of an ignore file's bytes."""
    return Patterns(content)


def _parse(line: bytes) -> tuple[bytes, bool, bool, bool] | None:
    """Return a line's pattern, whether it is negated, for directories only, and anchored; None if it holds none."""
    line = _stripped(line.removesuffix(b"\r"))
    if not line or line.startswith(b"#"):
        return None
    negated = line.startswith(b"!")
    if negated:
        line = line[1:]
    directories_only = line.endswith(b"/")
    if directories_only:
        line = line[:-1]
    anchored = b"/" in line
    line = line.removeprefix(b"/")
    return (line, negated, directories_only, anchored) if line else None


def _stripped(line: bytes) -> bytes:
    """Drop trailing blanks, except one that a backslash protects."""
    end = len(line)
    while end and line[end - 1 : end] == b" ":
        backslashes = 0
        while end - 2 - backslashes >= 0 and line[end - 2 - backslashes : end - 1 - backslashes] == b"\\":
            backslashes += 1
        if backslashes % 2:
            break
        end -= 1
    return line[:end]


def _translate(pattern: bytes) -> bytes | None:
    """Return a pattern as a regular expression for a whole name or path; None if git would never match it."""
    out: list[bytes] = []
    position, end = 0, len(pattern)
    if end > _LONGEST:
        return None  # no path is so long
    stars = int(pattern.startswith(b"*"))
    if not _MAGIC.search(pattern, stars):  # almost every one: a name, or what a name ends with
        return b"(?:" + _STAR * stars + re.escape(pattern[stars:]) + b")\\Z"
    while position < end:
        char = pattern[position : position + 1]
        if char == b"*":
            piece, position = _star(pattern, position)
            out.append(piece)
        elif char == b"?":
            out.append(b"[^/]")
            position += 1
        elif char == b"[":
            bracket = _bracket(pattern, position)
            if bracket is None:
                return None
            piece, position = bracket
            out.append(piece)
        elif char == b"\\":
            if position + 1 >= end:
                return None
            out.append(re.escape(pattern[position + 1 : position + 2]))
            position += 2
        else:
            out.append(re.escape(char))
            position += 1
    return b"(?:" + _joined(out, _DEEP, b"(?:.*?/)??", lambda part: _joined(part, _STAR, b"[^/]*?", b"".join)) + b")\\Z"


def _joined(parts: list[bytes], star: bytes, shortest: bytes, inner: Callable[[list[bytes]], bytes]) -> bytes:
    """Join what stands between stars so that matching never tries all ways: a repository may bring the pattern.

    What stands between two stars is matched where it first fits, once: the star behind it takes the rest anyway. Only
    what follows the last star must be tried at every place.
    """
    pieces: list[list[bytes]] = [[]]
    for part in parts:
        if part is star:
            pieces.append([])
        else:
            pieces[-1].append(part)
    first, *between = pieces
    if not between:
        return inner(first)
    *between, last = between
    return inner(first) + b"".join(b"(?>" + shortest + inner(one) + b")" for one in between) + star + inner(last)


def _star(pattern: bytes, position: int) -> tuple[bytes, int]:
    """Return the expression for one or more stars and the position after them."""
    stop = position
    while pattern[stop : stop + 1] == b"*":
        stop += 1
    whole = position == 0 or pattern[position - 1 : position] == b"/"
    if stop - position == 2 and whole:  # noqa: PLR2004 - the ** that crosses directories
        if stop == len(pattern):
            return (b".+" if position else b".*"), stop
        if pattern[stop : stop + 1] == b"/":
            return _DEEP, stop + 1
    return _STAR, stop


def _bracket(pattern: bytes, position: int) -> tuple[bytes, int] | None:  # noqa: C901 - the grammar of one token
    """Return the expression for a bracket and the position after it; None if it is never closed."""
    start = position + 1
    negated = pattern[start : start + 1] in (b"!", b"^")
    current = start + negated
    members: list[bytes] = []
    first = True
    while True:
        char = pattern[current : current + 1]
        if not char:
            return None
        if char == b"]" and not first:
            break
        first = False
        if pattern.startswith(b"[:", current) and (close := pattern.find(b":]", current)) > 0:
            known = _CLASSES.get(pattern[current + 2 : close])
            if known is None:
                return None
            members.append(known)
            current = close + 2
            continue
        low, current = _member(pattern, current)
        if low is None:
            return None
        if pattern[current : current + 1] == b"-" and pattern[current + 1 : current + 2] not in (b"]", b""):
            high, current = _member(pattern, current + 1)
            if high is None:
                return None
            if low <= high:
                members.append(re.escape(low) + b"-" + re.escape(high))
        else:
            members.append(re.escape(low))
    inside = b"".join(members)
    if not inside:
        return (b"[^/]" if negated else b"(?!)"), current + 1
    return b"(?!/)[" + (b"^" if negated else b"") + inside + b"]", current + 1


def _member(pattern: bytes, position: int) -> tuple[bytes | None, int]:
    """Return one byte of a bracket, unescaped, and the position after it."""
    if pattern[position : position + 1] == b"\\":
        position += 1
    char = pattern[position : position + 1]
    return (char or None), position + 1
