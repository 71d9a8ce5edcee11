"""Is this text, or this value under this key, a secret? Exact: what the native scan suspects ends up here.

Works on bytes, so that a native scan's positions hold; patterns are ASCII, so text in UTF-8 is cut between characters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from holdfast.capture.patterns import ASSIGNED, ASSIGNED_NATIVE, CURL, INNOCENT, PRIVATE_KEY_BODY, SHAPES, TELLING
from holdfast.capture.scan import key_pattern, make_find

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHORTEST = 6  # no pattern matches less
_SHORTEST_RANDOM = 16
_LEAST_BITS = 3.2  # a character; words of a language have less, random hex has 3.5 and more
_DIGIT_WITHIN = 64
_BEFORE = 256  # a match begins at most so far before the place where the native scan noticed it
_AFTER = 512  # and its shortest form ends at most so far behind it
_COMMAND = 4096  # so far before its login may a command begin
_PRIVATE_KEY = "private-key"
_telling = re.compile(rf"(?i){TELLING}[A-Za-z0-9_\-.]*\Z")
_innocent = re.compile(INNOCENT)
_innocent_bytes = re.compile(INNOCENT.encode())
_attribute = re.compile(rb"[A-Za-z_]\w*(?:\.\w+)+\Z")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINT = re.compile(r"(?<=[A-Za-z0-9])[_\-.]+")
_BEGINS = r"(?<![A-Za-z0-9])"  # not in the middle of a word


class Found(NamedTuple):
    """A stretch of text that is a secret, and the rule that says so."""

    start: int
    end: int
    rule: str


class _Exact(NamedTuple):
    rule: str
    pattern: re.Pattern[bytes]
    random: bool = False


class SecretFinder:
    """Finds every secret in a text: all known shapes, assignments, and the user's own patterns."""

    def __init__(self, own: tuple[tuple[str, str], ...] = ()) -> None:
        self._exact = [_compiled(shape.name, shape.pattern, random=shape.random) for shape in SHAPES]
        self._exact += [_Exact(name, re.compile(pattern.encode())) for name, pattern in own]
        self._exact.append(_Exact("assigned", re.compile(ASSIGNED.encode())))
        natives = [shape.native for shape in SHAPES] + [pattern for _, pattern in own] + [ASSIGNED_NATIVE]
        self._find = make_find(tuple(natives))

    def find(self, data: bytes) -> list[Found]:
        """Return the stretches that are secrets, in order and without overlap."""
        if len(data) < _SHORTEST:
            return []
        found: list[Found] = []
        for exact, start, end in self._windows(data):
            for match in _matches(exact.pattern, data, start, end):
                span = match.span(match.re.groups and 1)
                if exact.rule == "assigned" and not _is_assigned_secret(data, match):
                    continue
                if exact.rule == "curl-user" and not _is_curl_login(data, match):
                    continue
                if not exact.random or looks_random(data[slice(*span)].decode("latin-1")):
                    found.append(Found(*span, exact.rule))
        return _without_overlap(found)

    def clean(self, text: str) -> str:
        """Return a text without secrets."""
        data = text.encode("utf-8", "surrogatepass")
        found = self.find(data)
        return redacted(data, found).decode("utf-8", "surrogatepass") if found else text

    def _windows(self, data: bytes) -> Iterator[tuple[_Exact, int, int]]:
        """Yield which patterns to look for where: around what the native scan noticed, or everywhere without one."""
        if self._find is None:
            yield from ((exact, 0, len(data)) for exact in self._exact)
            return
        windows: dict[int, list[tuple[int, int]]] = {}
        for number, noticed in sorted(self._find(data)):
            start, end = max(0, noticed - _BEFORE), min(len(data), noticed + _AFTER)
            known = windows.setdefault(number, [])
            if known and start <= known[-1][1]:
                known[-1] = (known[-1][0], end)
            else:
                known.append((start, end))
        for number, found in windows.items():
            yield from ((self._exact[number], start, end) for start, end in found)


def _matches(pattern: re.Pattern[bytes], data: bytes, start: int, end: int) -> Iterator[re.Match[bytes]]:
    """Yield the matches that begin in a window; one that is cut off by its end is looked at again without that end."""
    for match in pattern.finditer(data, start, end):
        whole = pattern.match(data, match.start()) if match.end() == end else None
        yield whole or match


@lru_cache(maxsize=8)
def make_finder(own: tuple[tuple[str, str], ...] = ()) -> SecretFinder:
    """Return the finder for these further patterns; compiling it takes a while."""
    return SecretFinder(own)


def _compiled(name: str, pattern: str, *, random: bool) -> _Exact:
    if name == _PRIVATE_KEY:
        return _Exact(name, re.compile(PRIVATE_KEY_BODY.encode()))
    flags = "(?i)" if pattern.startswith("(?i)") else ""
    source = pattern.removeprefix("(?i)")
    begins = _BEGINS if source[0].isalnum() or source.startswith(("(?:A", "(?:n", "[sprk]k", "[0-9]")) else ""
    return _Exact(name, re.compile(f"{flags}{begins}{source}".encode()), random)


def redacted(data: bytes, found: list[Found]) -> bytes:
    """Return the bytes with each secret replaced by its rule's name."""
    parts: list[bytes] = []
    position = 0
    for start, end, rule in found:
        parts += [data[position:start], f"[redacted:{rule}]".encode()]
        position = end
    return b"".join(parts) + data[position:]


def is_secret_key(key: str, keys: re.Pattern[str]) -> bool:
    """Tell whether all that stands under this key is taken out."""
    return keys.fullmatch(key) is not None


def ends_in_secret_key(key: str, keys: re.Pattern[str]) -> bool:
    """Tell whether text under this key is taken out: behind other words it ends in an excluded key (dbPassword)."""
    split = _CAMEL.sub("_", key)
    return any(keys.fullmatch(split, match.end()) is not None for match in _JOINT.finditer(split))


@lru_cache(maxsize=8)
def keys_pattern(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Return one pattern for all excluded keys."""
    return re.compile("|".join(map(key_pattern, keys)) or r"(?!)", re.IGNORECASE | re.ASCII)


def is_telling(key: str) -> bool:
    """Tell whether a key's name says that a random-looking value under it is a secret."""
    return _telling.search(key) is not None and _innocent.search(key) is None


def looks_random(text: str) -> bool:
    """Tell whether text has the length, mixture and entropy of a generated credential."""
    if len(text) < _SHORTEST_RANDOM or not any(char.isdigit() for char in text[:_DIGIT_WITHIN]):
        return False
    sample = text[: 8 * _DIGIT_WITHIN]
    if not all("!" <= char <= "~" for char in sample):
        return False
    bits = -sum(n / len(sample) * math.log2(n / len(sample)) for n in Counter(sample).values())
    return bits >= _LEAST_BITS and any(char.isalpha() for char in sample)


def _is_assigned_secret(data: bytes, match: re.Match[bytes]) -> bool:
    value = match[1]
    if not re.search(rb"[0-9]", value[:_DIGIT_WITHIN]) or not re.search(rb"[A-Za-z]", value):
        return False
    if data[match.end(1) : match.end(1) + 1] in (b"(", b"["):
        return False  # a call or an index: code, not a value
    if _attribute.match(value) or value.startswith((b"$", b"%", b"*", b"os.", b"env")):
        return False  # a reference to where the secret is, not the secret
    name = data[match.start() : match.start(1)]
    return _innocent_bytes.search(name) is None and b"[redacted" not in value


def _is_curl_login(data: bytes, match: re.Match[bytes]) -> bool:
    command = data[max(0, match.start() - _COMMAND) : match.start() + 1]
    return CURL.search(command) is not None and not match[1].startswith((b"$", b"%", b"[redacted"))


def _without_overlap(found: list[Found]) -> list[Found]:
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if kept and one.start < kept[-1].end:
            last = kept[-1]
            kept[-1] = Found(last.start, max(last.end, one.end), last.rule)
        else:
            kept.append(one)
    return kept
