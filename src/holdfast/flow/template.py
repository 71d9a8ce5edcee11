"""Texts with values in them: `{failure}`, `{phases.research.summary}`, `{params.goal}`.

For prompts, questions, summaries, environment variables and the arguments of a command that is a list; never for the
text of a shell. Strict: every brace is a name or doubled (`{{`), and `${NAME}` belongs to a shell further on.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import UsageError
from holdfast.model.redaction import Redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NAME = re.compile(r"\{\s*([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)\s*\}")
_SHELL_NAME = re.compile(r"\$\{[#!]?([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])([^{}]*)\}")
LONGEST_WORD = 100_000
"""Bytes of one argument or variable: the kernel refuses 131,072."""


class TemplateError(UsageError):
    """A text whose braces are wrong, or a value that cannot stand where it is to."""


class Hole(NamedTuple):
    """A name in a template."""

    name: str


@lru_cache(4096)
def parse_template(text: str) -> tuple[str | Hole, ...]:
    """Return the literal pieces and holes of a template; TemplateError says which brace is wrong."""
    parts: list[str | Hole] = []
    literal: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char in "{}" and text[at : at + 2] == char * 2:
            literal.append(char)
            at += 2
        elif char == "$" and (shell := _SHELL_NAME.match(text, at)):
            literal.append(shell[0])
            at = shell.end()
        elif char == "{":
            match = _NAME.match(text, at)
            if match is None:
                raise TemplateError(f"{text[at : at + 20]!r} is not a name; write {{{{ for a plain brace")
            parts += ["".join(literal), Hole(match[1])]
            literal = []
            at = match.end()
        elif char == "}":
            raise TemplateError(f"a }} stands alone after {text[max(0, at - 20) : at]!r}; write }}}} for a plain brace")
        else:
            literal.append(char)
            at += 1
    parts.append("".join(literal))
    return tuple(part for part in parts if part != "")


def names_in(text: str) -> list[str]:
    """Return the names that a template uses."""
    return [part.name for part in parse_template(text) if isinstance(part, Hole)]


def shell_names_in(text: str) -> list[str]:
    """Return the variables of the shell that a text uses as `${NAME}`."""
    return [match[1] for match in _SHELL_NAME.finditer(text)]


def fill(text: str, value_of: Callable[[str], Any]) -> str:
    """Return a text with its values in it, as they are."""
    return "".join(
        part if isinstance(part, str) else shown(value_of(part.name), part.name) for part in parse_template(text)
    )


def fill_value(value: Any, value_of: Callable[[str], Any]) -> Any:
    """Return a value with every text in it filled in; a text that is one name alone becomes the value itself."""
    if isinstance(value, str):
        parts = parse_template(value)
        if len(parts) == 1 and isinstance(parts[0], Hole):
            return value_of(parts[0].name)
        return fill(value, value_of)
    if isinstance(value, dict):
        return {key: fill_value(item, value_of) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill_value(item, value_of) for item in value]
    return value


def fill_arguments(arguments: Sequence[str], value_of: Callable[[str], Any]) -> list[str]:
    """Return the arguments of a command with their values.

    One that begins with `-` only because of its value could be read as an option: it is refused unless `--` is before.
    """
    filled: list[str] = []
    for template in arguments:
        argument = fill(template, value_of)
        size = len(argument.encode("utf-8", "surrogateescape"))
        if size > LONGEST_WORD:
            raise TemplateError(
                f"the argument {template!r} is {size:,} bytes, too long for a command: use a text for the shell, and "
                "the fact's variable that ends in _FILE"
            )
        first = next(iter(parse_template(template)), "")
        if argument.startswith("-") and isinstance(first, Hole) and "--" not in arguments[: len(filled)]:
            raise TemplateError(
                f"the argument {template!r} is {argument[:40]!r}, which a program reads as an option because of its "
                "value: put '--' before it, or write --option={...}"
            )
        filled.append(argument)
    return filled


def _marker(value: Any) -> str:
    """Return what stands for a secret that was taken out; nothing else that is not JSON is text."""
    if isinstance(value, Redacted):
        return str(value)
    raise TypeError(type(value).__name__)


def shown(value: Any, name: str = "") -> str:
    """Return a value as text: nothing is empty, data is JSON."""
    if value is None:
        text = ""
    elif isinstance(value, str | Redacted):
        text = str(value)
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_marker)
        except (TypeError, ValueError):
            raise TemplateError(f"{{{name}}} is a {type(value).__name__}, which is not text") from None
    if "\0" in text:
        raise TemplateError(f"{{{name}}} has a zero byte in it, which no command can take")
    return text
