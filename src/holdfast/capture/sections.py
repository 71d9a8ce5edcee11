"""Section values on their way in and out: typed ones are validated, with the path of what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from holdfast.errors import SectionInvalid, UsageError
from holdfast.model.failure import failure_of
from holdfast.model.ids import check_section_name
from holdfast.model.nearest import hint
from holdfast.model.runtime_sections import LOG_TYPES, RUNTIME_TYPES
from holdfast.model.sections import SECTION_TYPES, WORKSPACE, SectionValue

if TYPE_CHECKING:
    from collections.abc import Mapping

FREE_SECTIONS = frozenset({"state"})
_KNOWN = frozenset(SECTION_TYPES) | FREE_SECTIONS
_LEVELS = 2  # no value has one of our types further down, and looking on would walk the user's own data


def gather(given: Mapping[str, Any], custom: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return all sections of one checkpoint by name; an unknown keyword is named with the nearest known one."""
    for name in given:
        if name not in _KNOWN:
            meant = hint(name, _KNOWN)
            raise UsageError(f"there is no section {name!r}: {meant} (one of your own goes into sections={{...}})")
    both = dict(given)
    for name, value in (custom or {}).items():
        if name == WORKSPACE:
            raise UsageError(
                f"section {name!r} holds the run's files: open the run with hf.run(..., workspace=directory)"
            )
        if check_section_name(name) in both:
            raise UsageError(f"section {name!r} is given twice")
        if name in LOG_TYPES:
            raise UsageError(f"section {name!r} shows what the run's journal has: give yours another name")
        check_runtime(name, value)
        both[name] = value
    if isinstance(both.get("error"), BaseException):
        both["error"] = failure_of(both["error"])
    return both


def is_runs_own(name: str) -> bool:
    """Tell whether a run keeps this section of itself and has it in its journal; an error is of one checkpoint only."""
    return (name in SECTION_TYPES and name != "error") or name in RUNTIME_TYPES


def check_runtime(name: str, value: Any) -> None:
    """Raise SectionInvalid if one of the run's own sections is not in the form that the run reads."""
    is_log = name in LOG_TYPES
    wanted = LOG_TYPES[name] if is_log else RUNTIME_TYPES.get(name)
    if wanted is None:
        return
    try:
        # The times of logs are compared as they are, those of the others are converted when they are read.
        msgspec.convert(value, wanted, builtin_types=(datetime,) if is_log else ())
    except msgspec.ValidationError as error:
        raise SectionInvalid(f"{error}; a run keeps this section of itself: name yours otherwise", name) from None


def typed(name: str, value: Any) -> Any:
    """Return a typed section as its type, SectionInvalid if it does not fit; a free one as it is."""
    wanted = SECTION_TYPES.get(name)
    if wanted is None:
        return value
    try:
        return msgspec.convert(_plain(value, _LEVELS), wanted)
    except msgspec.ValidationError as error:
        raise SectionInvalid(str(error), name) from None


class PlainMemo:
    """Section values that were made plain for the last checkpoint; those that are still there are not made again."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[SectionValue, dict[str, Any]]] = {}
        self._now: dict[int, tuple[SectionValue, dict[str, Any]]] = {}

    def begin(self) -> None:
        """Begin a new checkpoint: what it does not use is forgotten."""
        self._last, self._now = self._now, {}

    def fields(self, value: SectionValue) -> dict[str, Any]:
        """Return a value's fields as plain data; a frozen value that is the same object has the same ones."""
        shape = _shape(type(value))
        known = self._last.get(id(value)) if shape.is_frozen else None
        if known is None or known[0] is not value:
            known = value, _fields(value, shape, self)
        if shape.is_frozen:
            self._now[id(value)] = known
        return known[1]

    def mapping(self, items: dict[Any, Any], levels: int) -> dict[Any, Any]:
        """Return a mapping with its values made plain; those that are known are not even asked what they are."""
        last, now = self._last, self._now
        made = {}
        for key, item in items.items():
            known = last.get(id(item))
            if known is not None and known[0] is item:
                now[id(item)] = known
                made[key] = known[1]
            else:
                made[key] = _plain(item, levels, self)
        return made


def plain(name: str, value: Any, memo: PlainMemo | None = None) -> Any:
    """Return a typed section as plain data for packing; a free one as it is."""
    return _plain(value, _LEVELS, memo) if name in SECTION_TYPES else value


def plain_value(value: Any) -> Any:
    """Return a part of a typed section as plain data for packing."""
    return _plain(value, _LEVELS)


def _plain(value: Any, levels: int, memo: PlainMemo | None = None) -> Any:
    """Return section types as mappings of their fields; whatever is not ours stays as it is."""
    if isinstance(value, SectionValue):
        return memo.fields(value) if memo is not None else _fields(value, _shape(type(value)), None)
    if type(value) is list and levels:
        return [_plain(item, levels - 1, memo) for item in value]
    if type(value) is dict and levels:
        if memo is not None:
            return memo.mapping(value, levels - 1)
        return {key: _plain(item, levels - 1) for key, item in value.items()}
    return value


def _fields(value: SectionValue, shape: _Shape, memo: PlainMemo | None) -> dict[str, Any]:
    fields = msgspec.structs.asdict(value)
    for field in shape.ours:
        fields[field] = _plain(fields[field], _LEVELS, memo)
    for field in shape.times:
        time = fields[field]
        # As text, because the native encoder has no aware times: 1,000 of them cost 15 ms as extensions, 0.5 as text.
        if type(time) is datetime and time.tzinfo is UTC:
            fields[field] = time.isoformat()
    return fields


class _Shape(NamedTuple):
    """What is known of a section type: fields that can hold one of our types, times, and whether none can change."""

    ours: tuple[str, ...]
    times: tuple[str, ...]
    is_frozen: bool


@cache
def _shape(cls: type[SectionValue]) -> _Shape:
    hints = get_type_hints(cls)
    ours = tuple(field for field in cls.__struct_fields__ if _names_ours(hints[field]))
    times = tuple(field for field in cls.__struct_fields__ if datetime in (hints[field], *get_args(hints[field])))
    is_frozen = not any(get_origin(part) in (list, dict) for field in ours for part in _parts(hints[field]))
    return _Shape(ours, times, is_frozen)


def _parts(hint: Any) -> tuple[Any, ...]:
    return (hint, *(deeper for part in get_args(hint) for deeper in _parts(part)))


def _names_ours(hint: Any) -> bool:
    return any(isinstance(part, type) and issubclass(part, SectionValue) for part in _parts(hint))
