"""Section values on their way in and out: typed ones are validated, with the path of what is wrong."""

from __future__ import annotations

import difflib
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from holdfast.errors import SectionInvalid, UsageError
from holdfast.model.ids import check_section_name
from holdfast.model.sections import SECTION_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

FREE_SECTIONS = frozenset({"state"})
_KEPT_AS_THEY_ARE = (bytes, bytearray, datetime, date, time, timedelta, UUID, Decimal)


def gather(given: Mapping[str, Any], custom: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return all sections of one checkpoint by name; an unknown keyword is named with the nearest known one."""
    known = [*SECTION_TYPES, *FREE_SECTIONS]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!a}?" if near else f"known are {', '.join(sorted(known))}."
            raise UsageError(f"there is no section {name!a}: {hint} One of your own goes into sections={{...}}")
    both = dict(given)
    for name, value in (custom or {}).items():
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
        return msgspec.convert(msgspec.to_builtins(value, builtin_types=_KEPT_AS_THEY_ARE), wanted)
    except msgspec.ValidationError as error:
        raise SectionInvalid(str(error), name) from None
    except TypeError as error:
        raise SectionInvalid(f"{error}; free-form values go into state", name) from None


def plain(name: str, value: Any) -> Any:
    """Return a typed section as plain data for packing; a free one as it is."""
    return msgspec.to_builtins(value, builtin_types=_KEPT_AS_THEY_ARE) if name in SECTION_TYPES else value
