"""Secrets in a text, exactly: what the native scan suspects ends up here.

Works on bytes, so that a native scan's positions hold; patterns are ASCII, so text in UTF-8 is cut between characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from holdfast.capture.credentials import FORMATS, Format
from holdfast.capture.literals import make_possible
from holdfast.capture.names import (
    Kind,
    is_evidently_harmless,
    is_login,
    kind_of,
    looks_generated,
    looks_random,
    looks_secret,
)
from holdfast.capture.patterns import ASSIGNMENTS
from holdfast.capture.scan import INVISIBLE, key_pattern, make_find
from holdfast.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SHORTEST = 6  # no pattern matches less
_COMMAND = 4096  # so far before its login may a command begin
_LONGEST_NAME = 64
_DIGIT_WITHIN = 64  # as the native scan looks for it
_STARTS = r"(?<![A-Za-z0-9])"  # not in the middle of a word
_ENDS = r"(?![A-Za-z0-9])"
_CURL = pattern(rb"\bcurl(?:\.exe)?[ \t](?:[^\n]|\\\n)*\Z")
_NAME_BEFORE = pattern(rb"[A-Za-z0-9_\-.]*\Z")
_NAME_AT = pattern(rb"[A-Za-z0-9_\-. ]*[A-Za-z0-9_\-.]")
_CODE = pattern(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z"  # an attribute
    r"|(?:self|this|os|env|process|settings|config|args|opts|options|request|params|data|input|form)[.:]"
    r"|[A-Za-z_]*(?:pass|passwd|password|token|secret|key|pwd|cred)[a-z_]*\d?\Z",  # a variable of such a name
    re.IGNORECASE,
)
_IDENTIFIER = pattern(r"[A-Z][A-Za-z]*\Z|[a-z]+(?:[A-Z][a-z]+)+\Z|[a-z]+(?:_[a-z]+)+\Z")
_DIGIT, _LETTER = pattern("[0-9]"), pattern("[A-Za-z]")  # of ASCII: bytes of other letters are not digits
_ARN = pattern(rb"arn:[\w:/\-]*\Z")
_MARKER = b"[redacted:"
_COOKIE = pattern(r"[^=;]*=([^;]*)")
_ESCAPE = (
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours and cursor
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # a title, a link
    r"|[ -/]*[0-OQ-WYZ\\`-~])"
)
_HIDDEN = pattern(rf"{_ESCAPE}|[\x00\x08]|{INVISIBLE}".encode())  # what a reader does not see
_WRITTEN = pattern(  # escapes as JSON, a program's source or an address writes them: \n, \u001b[31m, \x1b[0m, %20
    rb"\\+(?:u001[bB]|x1[bB]|033|e)\[[0-9;]*[A-Za-z]|\\+(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[0-7]{1,3}|[abfnrtv])"
    rb"|%[0-9A-Fa-f]{2}"
)
TEXT_ESCAPE = pattern(_ESCAPE)


class FoundSecret(NamedTuple):
    """A stretch of text that is a secret, and the rule that says so."""

    start: int
    end: int
    rule: str


class _Shown:
    """What a reader sees of a text: without escapes for terminals and characters that have no width."""

    def __init__(self, data: bytes) -> None:
        parts: list[bytes] = []
        self._starts: list[int] = []  # of each part, in what is shown
        self._origins: list[int] = []  # and in the whole text
        position = size = 0
        for start, end in [*(match.span() for match in _HIDDEN.finditer(data)), (len(data), len(data))]:
            if start > position:
                parts.append(data[position:start])
                self._starts.append(size)
                self._origins.append(position)
                size += start - position
            position = end
        self.data = b"".join(parts)

    def at(self, position: int) -> int:
        """Return where in the whole text a byte stands that is shown."""
        part = bisect_right(self._starts, position) - 1
        return self._origins[part] + position - self._starts[part]


class _Exact:
    """One format, compiled when it is first needed: most never are."""

    def __init__(self, given: Format) -> None:
        self.given = given
        self.rule = given.name
        self.native = given.native.encode()
        self.check = _CHECKS[given.check] if given.check else None
        self._pattern: re.Pattern[bytes] | None = None

    @property
    def pattern(self) -> re.Pattern[bytes]:
        if self._pattern is None:
            given = self.given
            flags = "(?i)" if given.pattern.startswith("(?i)") else ""
            starts, ends = _STARTS if given.starts else "", _ENDS if given.ends else ""
            self._pattern = re.compile(f"{flags}{starts}(?:{given.pattern.removeprefix('(?i)')}){ends}".encode())
        return self._pattern

    def matches(self, data: bytes, start: int, end: int) -> Iterator[re.Match[bytes]]:
        """Yield what is a secret in a window; a match that begins in it is made again without its end."""
        while (match := self.pattern.search(data, start, end)) is not None:
            whole = self.pattern.match(data, match.start()) if end < len(data) else match
            if whole is None:
                start = match.start() + 1
            elif self.check is None or self.check(data, whole):
                yield whole
                start = max(whole.end(), match.start() + 1)
            else:
                # What was taken for a value may be a name itself: url=https://x?token=...
                start = max(whole.start(1) if whole.re.groups else whole.end(), match.start() + 1)


class SecretFinder:
    """Finds every secret in a text: all known formats, assignments, and the user's own patterns."""

    def __init__(self, own: tuple[tuple[str, str], ...] = ()) -> None:
        given = [*FORMATS, *ASSIGNMENTS]
        given += [Format(name, pattern, starts=False, noticed_by=pattern) for name, pattern in own]
        self._exact = [_Exact(one) for one in given]
        self._find = make_find(tuple(one.native for one in given))

    @cached_property
    def _possible(self) -> Callable[[bytes], list[int]]:
        return make_possible([one.native for one in self._exact])

    def find(self, data: bytes) -> list[FoundSecret]:
        """Return the stretches that are secrets, in order and without overlap; escapes of no kind hide one."""
        if len(data) < _SHORTEST:
            return []
        found = self._found_in(data)
        if _WRITTEN.search(data):
            found += self._found_in(_WRITTEN.sub(lambda escape: b" " * len(escape[0]), data))
        if _HIDDEN.search(data):
            shown = _Shown(data)
            found += [
                FoundSecret(shown.at(one.start), shown.at(one.end - 1) + 1, one.rule)
                for one in self._found_in(shown.data)
            ]
        return _without_overlap(found)

    def _found_in(self, data: bytes) -> list[FoundSecret]:
        return [
            FoundSecret(*match.span(match.re.groups and 1), exact.rule)
            for exact, start, end in self._windows(data)
            for match in exact.matches(data, start, end)
        ]

    def clean(self, text: str) -> str:
        """Return a text without secrets."""
        data = text.encode("utf-8", "surrogatepass")
        found = self.find(data)
        return redacted(data, found).decode("utf-8", "surrogatepass") if found else text

    def _windows(self, data: bytes) -> Iterator[tuple[_Exact, int, int]]:
        """Yield which patterns to look for where: around what the native scan noticed, or everywhere without one."""
        if self._find is None:
            yield from ((self._exact[number], 0, len(data)) for number in self._possible(data))
            return
        windows: dict[int, list[tuple[int, int]]] = {}
        for number, noticed in sorted(self._find(data)):
            given = self._exact[number].given
            start, end = max(0, noticed - given.before), min(len(data), noticed + given.behind)
            known = windows.setdefault(number, [])
            if known and start <= known[-1][1]:
                known[-1] = (known[-1][0], end)
            else:
                known.append((start, end))
        for number, found in windows.items():
            yield from ((self._exact[number], start, end) for start, end in found)


@lru_cache(maxsize=8)
def make_finder(own: tuple[tuple[str, str], ...] = ()) -> SecretFinder:
    """Return the finder for these further patterns; compiling it takes a while."""
    return SecretFinder(own)


def redacted(data: bytes, found: list[FoundSecret]) -> bytes:
    """Return the bytes with each secret replaced by its rule's name."""
    parts: list[bytes] = []
    position = 0
    for start, end, rule in found:
        parts += [data[position:start], f"[redacted:{rule}]".encode()]
        position = end
    return b"".join(parts) + data[position:]


def is_secret_key(key: str, keys: re.Pattern[str]) -> bool:
    """Tell whether a name is one of these keys."""
    return keys.fullmatch(key) is not None


def ends_in_secret_key(key: str, keys: re.Pattern[str]) -> bool:
    """Tell whether a name ends in one of these keys, behind other words: dbPassword."""
    split = _CAMEL.sub("_", key)
    return any(keys.fullmatch(split, match.end()) is not None for match in _JOINT.finditer(split))


_CAMEL = pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINT = pattern(r"(?<=[A-Za-z0-9])[_\-.]+")


@lru_cache(maxsize=8)
def keys_pattern(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Return one pattern for all of these keys."""
    return re.compile("|".join(map(key_pattern, keys)) or r"(?!)", re.IGNORECASE | re.ASCII)


def is_telling(key: str) -> bool:
    """Tell whether a key's name says that its value is a secret."""
    return kind_of(key) is not None


def _value(match: re.Match[bytes]) -> str:
    return match[match.re.groups and 1].decode("latin-1")


def _is_random(_data: bytes, match: re.Match[bytes]) -> bool:
    return looks_random(_value(match))


def _is_generated(_data: bytes, match: re.Match[bytes]) -> bool:
    return looks_generated(_value(match))


def _is_basic(_data: bytes, match: re.Match[bytes]) -> bool:
    return is_login(_value(match))


def _is_password(data: bytes, match: re.Match[bytes]) -> bool:
    """Tell whether a login's password is one: not a reference to it, nor the digest of `image:tag@sha256:...`."""
    if data[match.end() : match.end() + 7] == b"sha256:":
        return False
    value = _value(match)
    return not value.startswith("-") and not is_evidently_harmless(value)


def _is_curl_login(data: bytes, match: re.Match[bytes]) -> bool:
    command = data[max(0, match.start() - _COMMAND) : match.start() + 1]
    return _CURL.search(command) is not None and _is_password(data, match)


def _is_no_compound(data: bytes, match: re.Match[bytes]) -> bool:
    """Tell whether it does not end a longer name: cache-key-0f3a..., my-sdk-0f3a..."""
    return data[match.start() - 1 : match.start()] not in (b"-", b"_", b".") or match.start() == 0


def _is_cookie(_data: bytes, match: re.Match[bytes]) -> bool:
    return any(looks_random(value.strip()) for value in _COOKIE.findall(_value(match)))


def _name_of(data: bytes, match: re.Match[bytes]) -> str:
    """Return the whole name before a value, of which the pattern saw only the telling part."""
    before = _NAME_BEFORE.search(data, max(0, match.start() - _LONGEST_NAME), match.start())
    start = before.start() if before is not None else match.start()
    if data[max(0, start - len(_MARKER)) : start] == _MARKER:
        return ""  # the name of a rule, in what stands for a secret
    name = _NAME_AT.match(data, start, match.start(1))
    return name[0].decode("latin-1").strip("-_. ").removesuffix(" is").removesuffix(" was") if name is not None else ""


def _kind_of_assigned(data: bytes, match: re.Match[bytes]) -> Kind | None:
    """Return the kind of an assignment's name, None if its value is code: a call, an index, a variable."""
    after = data[match.end(1) : match.end(1) + 1]
    value = _value(match)
    if after in (b"(", b"[") or value.startswith("--") or _CODE.match(value) or is_evidently_harmless(value):
        return None
    if _ARN.search(data, max(0, match.start() - 2 * _LONGEST_NAME), match.start()):
        return None  # arn:aws:secretsmanager:...:secret:name-1a2b3c
    return kind_of(_name_of(data, match))


def _is_assigned(data: bytes, match: re.Match[bytes]) -> bool:
    kind, value = _kind_of_assigned(data, match), _value(match)
    if kind is None or kind is Kind.LOGIN:
        return False
    if kind is Kind.PASSWORD:
        return _DIGIT.search(value, 0, _DIGIT_WITHIN) is not None and _LETTER.search(value) is not None
    return looks_secret(kind, value)


def _is_assigned_word(data: bytes, match: re.Match[bytes]) -> bool:
    """Tell whether what is quoted, or stands behind NAME=, is a password: it needs no digit there."""
    kind, value = _kind_of_assigned(data, match), _value(match)
    if kind is not Kind.PASSWORD:
        return False
    name = _name_of(data, match)
    is_quoted = data[match.start(1) - 1 : match.start(1)] in (b'"', b"'")
    # login(user, password=credential): a variable, where an environment file has DB_PASSWORD=swordfish
    is_code = data[match.end(1) : match.end(1) + 1] in (b")", b",", b";", b"]", b"}")
    return is_quoted or name.isupper() or not (is_code or _IDENTIFIER.match(value))


def _is_assigned_line(data: bytes, match: re.Match[bytes]) -> bool:
    """Tell whether `password: word` is alone on its line, as in YAML: a type or a variable is not a password."""
    line = data.rfind(b"\n", 0, match.start()) + 1
    if data[line : match.start()].strip(b" \t-_.\"'").translate(None, _NAME_BYTES):
        return False
    kind, value = _kind_of_assigned(data, match), _value(match)
    return kind is Kind.PASSWORD and not _IDENTIFIER.match(value)


_NAME_BYTES = bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123)) + b"_-."
_CHECKS = {
    "random": _is_random,
    "generated": _is_generated,
    "basic": _is_basic,
    "login": _is_password,
    "curl": _is_curl_login,
    "not-compound": _is_no_compound,
    "cookie": _is_cookie,
    "assigned": _is_assigned,
    "assigned word": _is_assigned_word,
    "assigned line": _is_assigned_line,
}


def _without_overlap(found: list[FoundSecret]) -> list[FoundSecret]:
    kept: list[FoundSecret] = []
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if kept and one.start < kept[-1].end:
            last = kept[-1]
            kept[-1] = FoundSecret(last.start, max(last.end, one.end), last.rule)
        else:
            kept.append(one)
    return kept


__all__ = [
    "TEXT_ESCAPE", "FoundSecret", "SecretFinder", "ends_in_secret_key", "is_secret_key", "is_telling",
    "keys_pattern", "looks_random", "make_finder", "redacted",
]  # fmt: skip
