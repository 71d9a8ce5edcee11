"""Texts with values in them: `{failure}`, `{phases.research.summary}`, `{params.goal}`.

Strict: every brace is a name or doubled (`{{`), and `${NAME}` belongs to the shell. In a shell command a value is
always data: it is quoted for the place where it stands (`flow/quoting.py`). `{name:raw}` puts it in as it is.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.flow.quoting import Shell, TemplateError, quote_in_double, quote_in_single, quote_word

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.flow.quoting import Place

_NAME = re.compile(r"\{\s*([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)\s*(?::\s*(raw)\s*)?\}")
_SHELL_NAME = re.compile(r"\$\{[#!]?([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])([^{}]*)\}")
_LONGEST_WORD = 100_000  # the kernel refuses an argument of 131,072 bytes
_MOST_HOLES = 500  # of one command: each is looked at with all that stands before it


class Hole(NamedTuple):
    """A name in a template, and how its value is put there."""

    name: str
    raw: bool
    at: int


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
                raise TemplateError(f"{text[at : at + 20]!r} is no name; write {{{{ for a plain brace")
            parts += ["".join(literal), Hole(match[1], match[2] is not None, at)]
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
    """Return the variables of the shell that a command uses as `${NAME}`."""
    return [match[1] for match in _SHELL_NAME.finditer(text)]


def fill(text: str, value_of: Callable[[str], Any]) -> str:
    """Return a text with its values in it, as they are: for prompts, environment variables, summaries."""
    return "".join(
        part if isinstance(part, str) else shown(value_of(part.name), part.name) for part in parse_template(text)
    )


def fill_value(value: Any, value_of: Callable[[str], Any]) -> Any:
    """Return a value with every text in it filled in; a text that is one name alone becomes the value itself."""
    if isinstance(value, str):
        parts = parse_template(value)
        if len(parts) == 1 and isinstance(parts[0], Hole) and not parts[0].raw:
            return value_of(parts[0].name)
        return fill(value, value_of)
    if isinstance(value, dict):
        return {key: fill_value(item, value_of) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill_value(item, value_of) for item in value]
    return value


def fill_shell(text: str, value_of: Callable[[str], Any]) -> str:
    """Return a shell command with its values in it, each quoted so that it is data wherever it stands."""
    places = iter(shell_places(text))
    done: list[str] = []
    for part in parse_template(text):
        if isinstance(part, str):
            done.append(part)
            continue
        value = shown(value_of(part.name), part.name)
        if len(value.encode("utf-8", "surrogateescape")) > _LONGEST_WORD:
            raise TemplateError(
                f"{{{part.name}}} is {len(value):,} characters, too long for a command: hand it over in a file"
            )
        done.append(_QUOTE[next(places)](value))
    return "".join(done)


def shown(value: Any, name: str = "") -> str:
    """Return a value as text: nothing is empty, data is JSON."""
    if value is None:
        text = ""
    elif isinstance(value, str):
        text = value
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            raise TemplateError(f"{{{name}}} is a {type(value).__name__}, which is no text") from None
    if "\0" in text:
        raise TemplateError(f"{{{name}}} holds a zero byte, which no command can take")
    return text


_QUOTE: dict[Place, Callable[[str], str]] = {
    "word": quote_word,
    "single": quote_in_single,
    "double": quote_in_double,
    "raw": str,
}


@lru_cache(4096)
def shell_places(text: str) -> tuple[Place, ...]:
    """Return for each hole of a command how the shell reads the place; TemplateError where no quoting is safe."""
    if len(text) > _LONGEST_WORD:
        raise TemplateError(f"a command of {len(text):,} characters is too long: put it into a script")
    parts = parse_template(text)
    if sum(isinstance(part, Hole) for part in parts) > _MOST_HOLES:
        raise TemplateError(f"a command with more than {_MOST_HOLES} names in it: put it into a script")
    lexer = Shell()
    places: list[Place] = []
    for part in parts:
        if isinstance(part, str):
            lexer.feed(part)
        else:
            place: Place = "raw" if part.raw else lexer.place(part.name)
            places.append(place)
            lexer.take_value(part.name, raw=part.raw)
    lexer.finish()
    return tuple(places)
