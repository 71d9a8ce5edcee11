"""Section values on their way in and out: typed ones are validated, with the path of what is wrong."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from holdfast.errors import SectionInvalid, UsageError
from holdfast.model.ids import check_section_name
from holdfast.model.sections import SECTION_TYPES, WORKSPACE, SectionValue

if TYPE_CHECKING:
    from collections.abc import Mapping

FREE_SECTIONS = frozenset({"state"})
_KNOWN = frozenset(SECTION_TYPES) | FREE_SECTIONS
_USERS_OWN = (Any, list[Any], dict[str, Any])  # fields whose content is the user's: passed on as it is
_LEVELS = 2  # no section has one of our types further down, and looking on would walk the user's own data
_fields_of: dict[type[SectionValue], tuple[tuple[str, bool], ...]] = {}


def gather(given: Mapping[str, Any], custom: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return all sections of one checkpoint by name; an unknown keyword is named with the nearest known one."""
    for name in given:
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, n=1)
            hint = f"did you mean {near[0]!a}?" if near else f"known are {', '.join(sorted(_KNOWN))}."
            raise UsageError(f"there is no section {name!a}: {hint} One of your own goes into sections={{...}}")
    both = dict(given)
    for name, value in (custom or {}).items():
        if name == WORKSPACE:
            raise UsageError(
                f"section {name!a} holds the run's files: open the run with hf.run(..., workspace=directory)"
            )
        if check_section_name(name) in both:
            raise UsageError(f"section {name!a} is given twice")
        both[name] = value
    return both


def typed(name: str, value: Any) -> Any:
    """Return a typed section as its type, SectionInvalid if it does not fit; a free one as it is."""
    wanted = SECTION_TYPES.get(name)
    if wanted is None:
        return value
    try:
        return msgspec.convert(_plain(value, _LEVELS), wanted)
    except msgspec.ValidationError as error:
        raise SectionInvalid(str(error), name) from None


def plain(name: str, value: Any) -> Any:
    """Return a typed section as plain data for packing; a free one as it is."""
    return _plain(value, _LEVELS) if name in SECTION_TYPES else value


def _plain(value: Any, levels: int) -> Any:
    """Return section types as mappings of their fields; whatever is not ours stays as it is."""
    if isinstance(value, SectionValue):
        return {
            field: getattr(value, field) if is_users else _plain(getattr(value, field), levels - 1)
            for field, is_users in _fields(type(value))
        }
    if type(value) is list and levels:
        return [_plain(item, levels - 1) for item in value]
    if type(value) is dict and levels:
        return {key: _plain(item, levels - 1) for key, item in value.items()}
    return value


def _fields(cls: type[SectionValue]) -> tuple[tuple[str, bool], ...]:
    """Return a section type's fields, each with whether its content is the user's."""
    if cls not in _fields_of:
        hints = get_type_hints(cls)
        _fields_of[cls] = tuple((field, hints[field] in _USERS_OWN) for field in cls.__struct_fields__)
    return _fields_of[cls]
