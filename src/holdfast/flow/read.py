"""Plain data to the flow's values, collecting every problem on the way instead of stopping at the first."""

from __future__ import annotations

import difflib
import types
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.flow.duration import parse_duration
from holdfast.flow.model import Part
from holdfast.flow.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.flow.text import Path

P = TypeVar("P", bound=Part)
_BAD: Any = object()
_MOST_COMPARED = 1000  # with more names than that, a file full of wrong ones takes minutes


class Problem(NamedTuple):
    """One thing that is wrong with a flow, and where."""

    path: Path
    detail: str


class _Field(NamedTuple):
    name: str  # as Python has it
    hint: Any
    required: bool


def read_part(cls: type[P], data: Any, path: Path, problems: list[Problem]) -> P | None:
    """Return a value of a class from plain data; what does not fit is left out, with the reason in `problems`.

    None if something is missing without which there can be no value.
    """
    if isinstance(data, cls):
        return data
    fields = _fields(cls)
    if not isinstance(data, dict):
        if data is None and not path:
            problems.append(Problem(path, "it is empty; the least is a name (`flow: NAME`) and what to do (`phases:`)"))
            return None
        if cls.short is None or data is None:
            problems.append(Problem(path, f"this is a mapping of {', '.join(fields)}, not {_called(data)}"))
            return None
        data = {cls.short: data}
    given: dict[str, Any] = {}
    for key, value in data.items():
        field = fields.get(key) if isinstance(key, str) else None
        if field is None:
            problems.append(Problem((*path, str(key)), f"there is no {quoted(key)} here{nearest(key, fields)}"))
        elif value is not None or _takes_null(field.hint):
            given[field.name] = _read(field.hint, value, (*path, key), problems)
    missing = [key for key, field in fields.items() if field.required and field.name not in given]
    problems += [Problem(path, f"{key!r} is missing") for key in missing]
    given = {name: value for name, value in given.items() if value is not _BAD}
    return cls(**given) if all(field.name in given for field in fields.values() if field.required) else None


def nearest(name: object, known: Iterable[object]) -> str:
    """Return the end of a sentence that names what was probably meant."""
    names = [str(one) for one in known]
    near = difflib.get_close_matches(str(name)[:80], names, n=1) if len(names) <= _MOST_COMPARED else ()
    if near:
        return f"; did you mean {quoted(near[0])}?"
    shown = ", ".join(sorted(names)[:20]) + (" ..." if len(names) > 20 else "")  # noqa: PLR2004
    return f"; known are {shown}" if names else "; there are none"


def _read(hint: Any, value: Any, path: Path, problems: list[Problem]) -> Any:
    hint, extra = _unwrapped(hint, value)
    origin = get_origin(hint)
    if isinstance(hint, type) and issubclass(hint, Part):
        part = read_part(hint, value, path, problems)
        return _BAD if part is None else part
    if origin is dict:
        return _read_mapping(hint, value, path, problems)
    if origin is list:
        items = value if isinstance(value, (list, tuple)) else [value]
        read = [_read(get_args(hint)[0], item, (*path, at), problems) for at, item in enumerate(items)]
        return [item for item in read if item is not _BAD]
    if "duration" in extra and isinstance(value, str):
        try:
            value = parse_duration(value)
        except ValueError as error:
            problems.append(Problem(path, str(error)))
            return _BAD
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        problems.append(Problem(path, _refusal(str(error), hint, value)))
        return _BAD


def _read_mapping(hint: Any, value: Any, path: Path, problems: list[Problem]) -> Any:
    key_hint, item_hint = get_args(hint)
    if isinstance(value, (list, tuple)):
        return _read_pairs(hint, value, path, problems)
    if not isinstance(value, dict):
        problems.append(Problem(path, f"this is a mapping of names, not {_called(value)}"))
        return _BAD
    read: dict[str, Any] = {}
    for key, item in value.items():
        try:
            msgspec.convert(key, key_hint)
        except msgspec.ValidationError:
            problems.append(Problem((*path, str(key)), _no_name(key)))
        one = _read(item_hint, {} if item is None else item, (*path, str(key)), problems)
        if one is not _BAD:
            read[str(key)] = one
    return read


def _read_pairs(hint: Any, items: Any, path: Path, problems: list[Problem]) -> Any:
    """Read a list of one-key mappings, the form that keeps an order in every tool."""
    read: dict[str, Any] = {}
    for at, item in enumerate(items):
        if not isinstance(item, dict) or len(item) != 1:
            problems.append(Problem((*path, at), "each item of this list is one name with its value: - name: ..."))
            continue
        if next(iter(item)) in read:
            problems.append(Problem((*path, at), f"{quoted(next(iter(item)))} is there twice"))
        read |= _read_mapping(hint, item, (*path, at), problems)
    return read


def _unwrapped(hint: Any, value: Any) -> tuple[Any, dict[str, Any]]:
    """Return the member of `hint` that a value is for, and what its annotation says."""
    extra: dict[str, Any] = {}
    if get_origin(hint) in {Union, types.UnionType}:
        members = [one for one in get_args(hint) if one is not types.NoneType]
        if len(members) != 1 or value is None:
            return hint, extra
        hint = members[0]
    if get_origin(hint) is Annotated:
        for meta in get_args(hint)[1:]:
            extra |= getattr(meta, "extra", None) or {}
        inner = get_args(hint)[0]
        if get_origin(inner) in {dict, list} or (isinstance(inner, type) and issubclass(inner, Part)):
            return inner, extra
    return hint, extra


def _takes_null(hint: Any) -> bool:
    return hint is Any or types.NoneType in get_args(hint)


@cache
def _fields(cls: type[Part]) -> dict[str, _Field]:
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.encode_name: _Field(field.name, hints[field.name], field.required)
        for field in msgspec.structs.fields(cls)
    }


def _refusal(refused: str, hint: Any, value: Any) -> str:
    """Return msgspec's sentence in words that someone who wrote YAML can use."""
    choices = [one for member in (hint, *get_args(hint)) for one in get_args(member) if isinstance(one, str)]
    if "enum value" in refused and choices:
        return f"{quoted(value)} is not a choice here{nearest(value, choices)}"
    if "matching regex" in refused:
        return _no_name(value)
    refused, _, at = refused.partition(" - at ")
    if refused.startswith("Expected `str`, got `") and "[" in at:
        return "each argument of a command is text: put numbers and words like true in quotes"
    return f"{refused.replace('`', '')} for {_told(value)}"


def _no_name(value: object) -> str:
    return f"{quoted(value)} cannot be a name: a-z, A-Z, 0-9, _ and -, at most 64, no - at its beginning"


def _told(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else quoted(value)[1:-1]


def _called(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", type(None): "nothing", bool: "true or false"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")
