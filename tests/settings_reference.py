"""docs/reference/settings.md, made from the settings themselves and the words of holdfast.example.yaml."""

from __future__ import annotations

import re
import types
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.settings.values import Settings, SettingsPart

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_DEFAULT = 60
_WORDS_OF_TYPES = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
_INTRODUCTION = """\
# Settings

Every setting with its default. This page is made from the program: `make docs`. To begin, `holdfast init` writes a
file, and [holdfast.example.yaml](../../holdfast.example.yaml) has all of them to copy from.

They stand in `holdfast.yaml` of the project's folder, or in `[tool.holdfast]` of its pyproject.toml. Arguments in code
win over the file. A name that is not known is refused, with the nearest that is. Your own `holdfast.yaml` for all
projects is in `~/.config/holdfast`; a project's file wins over it. What it
may say only after `holdfast trust`: [SECURITY.md](../SECURITY.md).

`preset: workflow` (the defaults below), `plan`, `issue`, `task` or `episode` says what holds where nothing is set; see
[presets](../CAPTURE.md#presets).
"""


def settings_reference(example: str) -> str:
    """Return the whole page; the meaning of each setting is its comment in the example."""
    words = _words(example)
    lines = [_INTRODUCTION, "## At the top", *_table(Settings, "", words)]
    for field in msgspec.structs.fields(Settings):
        kind = field.type
        if isinstance(kind, type) and issubclass(kind, SettingsPart):
            lines += ["", f"## {field.name}", _sentence(words[field.name]), "", *_table(kind, f"{field.name}.", words)]
    return "\n".join(lines) + "\n"


def _words(example: str) -> dict[str, str]:
    """Return the comment beside each setting, by its dotted name."""
    found: dict[str, str] = {}
    above = ""
    for line in example.splitlines():
        match = re.match(r"( *)([a-z_]+):(.*)$", line)
        if match is None:
            continue
        inner, name, rest = bool(match[1]), match[2], match[3]
        above = above if inner else name
        found[f"{above}.{name}" if inner else name] = rest.rpartition("  # ")[2].strip().removeprefix("# ")
    return found


def _table(part: type[SettingsPart], above: str, words: dict[str, str]) -> Iterator[str]:
    yield "| setting | value | default | |\n|---|---|---|---|"
    hints = get_type_hints(part, include_extras=True)
    for field in msgspec.structs.fields(part):
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, SettingsPart):
            continue
        meaning = words[f"{above}{field.name}"].replace("|", "\\|")
        yield f"| `{field.name}` | {_value(hint)} | {_default(field)} | {meaning} |"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix(', and')}."


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    shown = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else str(value)
    if value in (None, [], {}):
        return ""
    if isinstance(value, list):
        shown = ", ".join(value)
    assert shown is not None
    return f"`{shown}`" if len(shown) <= _LONGEST_DEFAULT else f"{len(value)} of them, see the example"


def _value(hint: Any) -> str:
    """Return a type as a person says it."""
    if hint in _WORDS_OF_TYPES:
        return _WORDS_OF_TYPES[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _value(inner[0])
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_value(one) for one in inner if one is not type(None))
    if origin is list:
        return f"a list: {_value(inner[0])}"
    if origin is dict:
        return f"a mapping to {_value(inner[1])}"
    return "a mapping"


if __name__ == "__main__":
    import sys

    sys.stdout.write(settings_reference(sys.stdin.read()))
