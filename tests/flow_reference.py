"""docs/reference/flow.md, made from the model itself, so that it cannot say what is not so."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.flow import model
from holdfast.flow.keys import KEYS
from holdfast.flow.model import Part
from holdfast.flow.names import NAME_WORDS, SOME_VARIABLE_WORDS, VARIABLE_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTS = (
    model.Flow, model.Phase, model.Task, model.Work, model.Action, model.Gate, model.Agent, model.Approve,
    model.OnFailure, model.Replan, model.Repeat, model.Route, model.Budget, model.Hooks, model.Hook, model.Param,
    model.Subject, model.Team, model.Message, model.Conflict, model.Knowledge, model.Entry,
)  # fmt: skip
_WORDS_OF_TYPES = {str: "text", bool: "true or false", int: "a whole number", float: "a number", Any: "anything"}
_NAMED = {
    model.Name: "a name",
    model.Text: "text",
    model.Count: "a whole number from 1",
    model.Number: "a whole number",
}
_INTRODUCTION = """\
# Flow files

Every key, its values and its default. This page is made from the program: `make docs`. What a flow does with them is
told in [FLOWS.md](../FLOWS.md); for editors there is [flow.schema.json](../flow.schema.json).

YAML or JSON. A list of one may be written as that one, a duration as `30s`, `2h` or `1h30m`, an ordered mapping as a
list of one-key mappings. A plain value where a part is expected is its short form. Unknown keys are refused.
Names are made of a-z, A-Z, 0-9, `_` and `-`, at most 64 of them, with no `-` at the beginning.
"""
_NAMES = """\
## Names
As `{phases.plan.summary}` in `input`, `approve`, `summary`, `env` and the arguments of a command that is a list; in a
text for the shell as the variable `$HOLDFAST_PHASES_PLAN_SUMMARY`; in conditions without braces. Below `result`,
`params` and other data, a name continues: `phases.plan.result.files.0`. A name that is unknown is refused when the
file is read."""
_VARIABLES = """
## Environment variables
Every command has those of `env`, those of the [names](#names) above that its text uses (upper case, `_` for `.` and
`-`; with `_FILE` at the end the name of a file that has the value, while the command runs), and these:"""


def flow_reference() -> str:
    """Return the whole page."""
    lines = [_INTRODUCTION]
    for part in _PARTS:
        lines += [*_part(part), ""]
    lines += [_NAMES, "\n| name | value |\n|---|---|"]
    lines += [f"| `{name}` | {word} |" for name, word in NAME_WORDS.items()]
    lines += [_VARIABLES, "\n| variable | value |\n|---|---|"]
    lines += [f"| `{name}` | {word} |" for name, word in (VARIABLE_WORDS | SOME_VARIABLE_WORDS).items()]
    lines += [""]
    return "\n".join(lines[:-1]) + "\n"


def _part(part: type[Part]) -> Iterator[str]:
    yield f"## {part.__name__}"
    short = f" Short form: a plain value is its `{part.short}`." if part.short else ""
    yield f"{part.__doc__}{short}"
    above = next((one for one in part.__mro__[1:] if one in _PARTS and one is not part), None)
    known = set(above.__struct_fields__) if above else set()
    if above is not None:
        yield f"\nAll keys of [{above.__name__}](#{above.__name__.lower()}), and:"
    yield "\n| key | value | default | |\n|---|---|---|---|"
    hints = get_type_hints(part, include_extras=True)
    for field in sorted(msgspec.structs.fields(part), key=lambda one: not one.required):
        if field.name not in known:
            word = KEYS[field.encode_name].replace("|", "\\|")
            yield f"| `{field.encode_name}` | {_value(hints[field.name])} | {_default(field)} | {word} |"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "must be given"
    value = field.default if field.default is not msgspec.NODEFAULT else None
    if value in (None, "", msgspec.UNSET) or isinstance(value, Part):
        return f"`{getattr(value, value.short)}`" if isinstance(value, Part) and value.short else ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _value(hint: Any) -> str:
    """Return a type as a person says it."""
    if hint in _NAMED:
        return _NAMED[hint]
    if hint in _WORDS_OF_TYPES:
        return _WORDS_OF_TYPES[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        is_duration = any((getattr(meta, "extra", None) or {}).get("duration") for meta in inner[1:])
        return "a duration" if is_duration else _value(inner[0])
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_value(one) for one in inner if one is not type(None) and one is not msgspec.UnsetType)
    if origin is list:
        return f"a list: {_value(inner[0])}"
    if origin is dict:
        return f"a mapping to {_value(inner[1])}"
    if isinstance(hint, type) and issubclass(hint, Part):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return str(hint)


if __name__ == "__main__":
    import sys

    sys.stdout.write(flow_reference())
