"""Where in a typed section a value is the user's own, so that a marker may stand there; elsewhere text stays text."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any, get_args, get_origin, get_type_hints

from holdfast.model.sections import SECTION_TYPES, SectionValue

_STEP = re.compile(r"\.(\w+)|\[([^\]]*)\]")
_INDEX = re.compile(r"\[\d+\]")


def is_users_own(section: str, path: str) -> bool:
    """Tell whether the value at this path may be of any type."""
    return section not in SECTION_TYPES or _is_free(section, _INDEX.sub("[0]", path))


@lru_cache(maxsize=4096)
def _is_free(section: str, path: str) -> bool:
    hint: Any = SECTION_TYPES[section]
    for name, _index in _STEP.findall(path.removeprefix(section)):
        if hint is Any:
            return True
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is list:
            hint = arguments[0]
        elif origin is dict:
            hint = arguments[1]
        elif isinstance(hint, type) and issubclass(hint, SectionValue):
            hint = _hints_of(hint).get(name, Any)
        else:
            return False
    return hint is Any


@cache
def _hints_of(kind: type[SectionValue]) -> dict[str, Any]:
    return get_type_hints(kind)  # some 0.2 ms, and asked for at every task of a graph
