"""A fast yes or no: might these packed bytes hold a secret? One native pass; a yes is then looked at closely.

Hyperscan reads a megabyte in about 0.6 ms; where it is not installed, `re` gives the same answers in about 0.6 s.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
from threading import local
from typing import TYPE_CHECKING, Any

from holdfast.capture import compiled
from holdfast.capture.credentials import FORMATS, VERSION
from holdfast.capture.literals import make_possible
from holdfast.capture.patterns import ASSIGNMENTS, PASSWORD_FLAGS, TELLING
from holdfast.capture.secret_keys import SECRET_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

# Packed text or bytes of at least 8 characters.
_TEXT = r"(?:[\xa8-\xbf]|\xd9[\x00-\xff]|\xda[\x00-\xff]{2}|\xdb[\x00-\xff]{4}|\xc4[\x00-\xff]|\xc5[\x00-\xff]{2})"
_FIELD = r"[\xa3\xa5]val(?:ue)?"  # of a pair: {"name": ..., "value": ...}
_TELLING_VALUE = rf"(?i){TELLING}[A-Za-z0-9_\-.]*(?:{_FIELD})?{_TEXT}[!-~]*[0-9]"
_ANY = r"[\x81-\x8f\x91-\x9f\xa1-\xbf\xc4-\xdf]"  # the first byte of a packed value that is not empty, nil or a bool
_CHOSEN_VALUE = (  # any text, a number, or a structure
    rf"(?i)(?:pass|pwd|secret|[^A-Za-z0-9]pw)[A-Za-z0-9_\-.]*(?:{_ANY}|\Z)"
)
_VALUE_TELLING = (
    rf"(?i){_FIELD}{_TEXT}[!-~]*[0-9][!-~]*"
    rf"[\xa3-\xa9][a-z]*(?:[\xa1-\xbf]|\xd9[\x00-\xff])[A-Za-z0-9_\-.]*{TELLING}"
)
_LOGIN = r"(?:\xa2-[uU]|--(?:proxy-)?user)(?:=|[\xa3-\xbf]|\xd9[\x00-\xff])[!-~]*:"  # one or two items of a list
_PROGRAMS = "|".join(sorted(PASSWORD_FLAGS))
_COMMAND = rf"(?:{_PROGRAMS})[\xa2-\xbf\xd9]"  # with a short flag for a password, and further items of a list
_WRAPPED = r"holdfast\.(?:Secret|Redacted)"
INVISIBLE = r"\xc2\xad|\xe2\x80[\x8b-\x8f]|\xe2\x81\xa0|\xef\xbb\xbf"  # soft hyphens, characters without width
_HIDDEN = rf"\x1b[ -~]|[!-~][\x00\x08][!-~]|{INVISIBLE}"  # what it stands between may be one credential
_OTHERS = (_TELLING_VALUE, _CHOSEN_VALUE, _VALUE_TELLING, _LOGIN, _COMMAND, _WRAPPED, _HIDDEN)
_TAIL = 512  # longer than an excluded key: where one that must be the last text can stand
MARGIN = 8 * 1024  # wider than any pattern: what is new is looked at with this much of what stands around it


def key_pattern(key: str) -> str:
    """Return the pattern of one excluded key: any case, its words joined by one of _ - . or nothing."""
    words = [re.escape(word) for word in re.split(r"[_\-. ]+", key) if word]
    return r"[_\-. ]?".join(words)


@lru_cache(maxsize=8)
def make_scan(keys: tuple[str, ...], patterns: tuple[str, ...]) -> Callable[[bytes], bool]:
    """Return the scan for these excluded keys and further patterns."""
    encoded = [source.encode() for source in sources(keys, patterns)]
    try:
        return _hyperscan(encoded)
    except ImportError:
        return _plain_scan(encoded)


def sources(keys: tuple[str, ...], patterns: tuple[str, ...]) -> list[str]:
    """Return all that the scan looks for in packed bytes."""
    found = [one.native for one in (*FORMATS, *ASSIGNMENTS)]
    found += [*_OTHERS, *patterns]
    found += [_packed_key(key) for key in keys if not any(_ends_in(key, other) for other in keys)]
    found += [_packed_own_key(key) for key in keys if key not in SECRET_KEYS]
    found.append(_packed_flag(keys))
    return [*found, _packed_last(keys)] if keys else found


def _ends_in(key: str, other: str) -> bool:
    """Tell whether whatever is found by `other` includes what `key` would find: client_secret by secret."""
    return key != other and re.sub(r"[_\-. ]", "", key.lower()).endswith(re.sub(r"[_\-. ]", "", other.lower()))


def _packed_key(key: str) -> str:
    """Return the pattern of a packed name that ends in a key and is followed by text, a number or a structure."""
    return rf"(?i){key_pattern(key)}{_ANY}"


def _packed_own_key(key: str) -> str:
    """Return the pattern of a packed key of the user's, followed by anything but nil, a bool or what is empty."""
    header = r"(?:[\xa0-\xbf]|[\xd9\xc4][\x00-\xff]|[\xda\xc5][\x00-\xff]{2})"  # text or bytes, short or long
    return rf"(?i){header}-*{key_pattern(key)}[^\xa0\xc0\xc2\xc3\x80\x90]"


def _packed_flag(keys: tuple[str, ...]) -> str:
    """Return the pattern of a flag joined to its value, as an item of a list: --db-password=..."""
    names = "|".join([TELLING, "pw", *map(key_pattern, keys)])
    return rf"(?i)-[!-~]*(?:{names})[A-Za-z0-9_\-.]*=[!-~]"


def _packed_last(keys: tuple[str, ...]) -> str:
    """Return the pattern of a key as the last text of all: the value that it names may stand before it."""
    return rf"(?i)(?:{'|'.join(map(key_pattern, keys))})\Z"


def _plain_scan(sources: list[bytes]) -> Callable[[bytes], bool]:
    patterns = [(re.compile(source).search, source.endswith(rb")\Z")) for source in sources]
    possible = make_possible(sources)

    def scan(data: bytes) -> bool:
        tail = max(0, len(data) - _TAIL)
        for number in possible(data):
            search, is_last = patterns[number]
            if search(data, tail if is_last else 0):
                return True
        return False

    return scan


def _hyperscan(sources: list[bytes]) -> Callable[[bytes], bool]:
    import hyperscan  # noqa: PLC0415 - 7 ms, and not needed by those who only read

    database = _database(sources, hyperscan.HS_FLAG_SINGLEMATCH)
    if database is None:
        return _plain_scan(sources)
    scratches, terminated = _Scratches(database), hyperscan.ScanTerminated

    def scan(data: bytes) -> bool:
        try:
            database.scan(data, match_event_handler=_stop, scratch=scratches.one)
        except terminated:
            return True
        return False

    return scan


def _stop(*_match: object) -> bool:
    return True


@lru_cache(maxsize=8)
def make_find(sources: tuple[str, ...]) -> Callable[[bytes], list[tuple[int, int]]] | None:
    """Return what finds the number of each pattern and where a match of it ends, None without Hyperscan."""
    try:
        database = _database([source.encode() for source in sources], 0)
    except ImportError:
        return None
    if database is None:
        return None
    scratches = _Scratches(database)

    def find(data: bytes) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        database.scan(
            data,
            match_event_handler=lambda number, _start, end, *_rest: found.append((number, end)),
            scratch=scratches.one,
        )
        return found

    return find


def _database(sources: list[bytes], flag: int) -> Any:
    """Return patterns compiled, from the cache if they are there; None if one is beyond Hyperscan: `re` knows more."""
    import hyperscan  # noqa: PLC0415

    about = (VERSION, vars(hyperscan)["__version__"], os.uname().machine, str(flag))
    name = compiled.name_of([part.encode() for part in about] + sources)
    known = compiled.load(name)
    if known is not None:
        with suppress(hyperscan.error):
            return hyperscan.loadb(known, hyperscan.HS_MODE_BLOCK)
    database = hyperscan.Database()
    numbers = list(range(len(sources)))
    try:
        database.compile(expressions=sources, ids=numbers, elements=len(sources), flags=[flag] * len(sources))
    except hyperscan.error:
        return None
    compiled.keep(name, hyperscan.dumpb(database))
    return database


class _Scratches(local):
    """Room for a scan to work in, one for each thread."""

    def __init__(self, database: Any) -> None:
        import hyperscan  # noqa: PLC0415

        self.one = hyperscan.Scratch(database)


def changed_part(old: bytes, new: bytes) -> bytes:
    """Return what is new in `new`, with MARGIN bytes of what stands around it; empty if nothing is."""
    if old == new:
        return b""
    start = _common_prefix(old, new)
    end = _common_suffix(old, new, min(len(old), len(new)) - start)
    return new[max(0, start - MARGIN) : len(new) - end + MARGIN]


def _common_prefix(old: bytes, new: bytes) -> int:
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_suffix(old: bytes, new: bytes, most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]:
            low = middle
        else:
            high = middle - 1
    return low
