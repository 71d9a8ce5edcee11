"""A fast yes or no: might these packed bytes hold a secret? One native pass; a yes is then looked at closely.

Hyperscan reads a megabyte in about 0.3 ms; where it is not installed, `re` gives the same answers in about 12 ms.
"""

from __future__ import annotations

import re
from functools import lru_cache
from threading import local
from typing import TYPE_CHECKING, Any

from holdfast.capture.patterns import ASSIGNED_NATIVE, SHAPES, TELLING

if TYPE_CHECKING:
    from collections.abc import Callable

_LONG = r"(?:[\xb0-\xbf]|\xd9[\x00-\xff]|\xda[\x00-\xff]{2}|\xdb[\x00-\xff]{4}|\xc4[\x00-\xff]|\xc5[\x00-\xff]{2})"
_FIELD = r"[\xa3\xa5]val(?:ue)?"  # of a pair: {"name": ..., "value": ...}
_TELLING_VALUE = rf"(?i){TELLING}[A-Za-z0-9_\-.]*(?:{_FIELD})?{_LONG}[!-~]*[0-9]"
_VALUE_TELLING = (
    rf"(?i){_FIELD}{_LONG}[!-~]*[0-9][!-~]*"
    rf"[\xa3-\xa9][a-z]*(?:[\xa1-\xbf]|\xd9[\x00-\xff])[A-Za-z0-9_\-.]*{TELLING}"
)
_LOGIN = r"(?:\xa2-[uU]|--(?:proxy-)?user)(?:=|[\xa3-\xbf]|\xd9[\x00-\xff])[!-~]*:"  # one or two items of a list
_WRAPPED = r"holdfast\.(?:Secret|Redacted)"
OTHERS = (ASSIGNED_NATIVE, _TELLING_VALUE, _VALUE_TELLING, _LOGIN, _WRAPPED)
MARGIN = 8 * 1024  # wider than any pattern: what is new is looked at with this much of what stands around it


def key_pattern(key: str) -> str:
    """Return the pattern of one excluded key: any case, its words joined by one of _ - . or nothing."""
    words = [re.escape(word) for word in re.split(r"[_\-. ]+", key) if word]
    return r"[_\-. ]?".join(words)


@lru_cache(maxsize=8)
def make_scan(keys: tuple[str, ...], patterns: tuple[str, ...]) -> Callable[[bytes], bool]:
    """Return the scan for these excluded keys and further patterns."""
    sources = [shape.native for shape in SHAPES]
    sources += [*OTHERS, *patterns]
    sources += [_packed_key(key) for key in keys]
    sources += [_packed_last(keys)] if keys else []
    encoded = [source.encode() for source in sources]
    try:
        return _hyperscan(encoded)
    except ImportError:
        return _plain_scan(encoded)


def _packed_key(key: str) -> str:
    """Return the pattern of a packed key that is followed by a value worth hiding: not nil, a bool or empty text."""
    header = r"(?:[\xa0-\xbf]|[\xd9\xc4][\x00-\xff]|[\xda\xc5][\x00-\xff]{2})"  # text or bytes, short or long
    return rf"(?i){header}[A-Za-z0-9_\-.]*{key_pattern(key)}[^\xa0\xc0\xc2\xc3\x80\x90]"


def _packed_last(keys: tuple[str, ...]) -> str:
    """Return the pattern of an excluded key as the last text of all: the value that it names may stand before it."""
    return rf"(?i)(?:{'|'.join(map(key_pattern, keys))})\Z"


def _plain_scan(sources: list[bytes]) -> Callable[[bytes], bool]:
    compiled = [re.compile(source) for source in sources]
    return lambda data: any(pattern.search(data) for pattern in compiled)


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
    """Compile patterns; None if one of them is beyond Hyperscan, which knows less than `re`."""
    import hyperscan  # noqa: PLC0415

    database = hyperscan.Database()
    numbers = list(range(len(sources)))
    try:
        database.compile(expressions=sources, ids=numbers, elements=len(sources), flags=[flag] * len(sources))
    except hyperscan.error:
        return None
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
