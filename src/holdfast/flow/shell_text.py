"""Shell text as far as advice needs it: how the shell reads a place, so that a message can show the line to write.

Nothing is executed or put together with this. Where it is wrong, only a hint is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.flow.variables import variable_of

if TYPE_CHECKING:
    from collections.abc import Container

_HOLE = re.compile(r"(?<![${])\{([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)(?::raw)?\}(?!\})")
_REFERENCE = re.compile(r"\$(?:\{[#!]?)?(HOLDFAST_[A-Z0-9_]*[A-Z0-9])")
_ASSIGNED = re.compile(r"(?:^|[\s;&|(])[A-Za-z_][A-Za-z0-9_]*=[^\s;&|]*\Z")
_CODE_OPTION = re.compile(r"(?:^|\s)(?:-[A-Za-z]*[ce]|--eval|eval)\s+\Z")
_HERE = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_Place = Literal["bare", "single", "double", "here"]


class _Quote(NamedTuple):
    place: _Place
    begin: int


def references_in(text: str) -> list[str]:
    """Return the variables of Holdfast that the shell is to expand."""
    return [match[1] for match in _REFERENCE.finditer(text)]


def holes_in(text: str, roots: Container[str]) -> list[str]:
    """Return the names in braces that stand in a text for the shell as if they were filled in."""
    return [match[1] for match in _HOLE.finditer(text) if match[1].partition(".")[0] in roots]


def rewritten(text: str, roots: Container[str]) -> str:
    """Return a command with each `{name}` written as the variable of that fact, quoted for its place."""
    places = _places(text)
    pieces: list[str] = []
    end = 0
    for match in _HOLE.finditer(text):
        if match[1].partition(".")[0] not in roots:
            continue
        variable = variable_of(match[1])
        quote = places[match.start()]
        is_code = quote.place in ("single", "double") and _CODE_OPTION.search(text[: quote.begin]) is not None
        written = {
            ("bare", False): f'"${variable}"',
            ("single", False): f"'\"${variable}\"'",
            ("single", True): f'"${variable}"',
            ("double", True): f'\\"\\${variable}\\"',
        }.get((quote.place, is_code), f"${{{variable}}}")
        pieces += [text[end : match.start()], written]
        end = match.end()
    return "".join((*pieces, text[end:]))


def warnings_in(text: str) -> list[str]:
    """Return what is probably a mistake in how a command uses its variables."""
    places = _places(text)
    found: list[str] = []
    for match in _REFERENCE.finditer(text):
        quote = places[match.start()]
        if quote.place == "bare" and not _ASSIGNED.search(text[: match.start()]):
            found.append(f'${match[1]} is not quoted, so the shell splits it into words: write "${match[1]}"')
        elif (
            quote.place == "double"
            and text[match.start() - 1 : match.start()] != "\\"
            and _CODE_OPTION.search(text[: quote.begin])
        ):
            found.append(
                f"${match[1]} becomes part of a text that is run as code: put that text into single quotes, so that "
                "the variable is expanded where it is used"
            )
    return list(dict.fromkeys(found))


def _places(text: str) -> list[_Quote]:
    """Return for each character how the shell reads it."""
    places: list[_Quote] = []
    stack = [_Quote("bare", 0)]
    awaited: list[str] = []  # the ends of here-documents that begin on the next line
    while (at := len(places)) < len(text):
        char, mode = text[at], stack[-1].place
        size = 1
        if mode == "single":
            if char == "'":
                stack.pop()
        elif char == "\\":
            size = 2
        elif char == '"':
            stack.pop() if mode == "double" else stack.append(_Quote("double", at))
        elif text.startswith("$(", at):
            places.append(stack[-1])
            stack.append(_Quote("bare", at))
        elif mode == "bare":
            is_comment = char == "#" and (at == 0 or text[at - 1] in " \t\n;&|(")
            if is_comment or (char == "\n" and awaited):
                end = re.compile("$" if is_comment else rf"^\t*{awaited.pop(0)}$", re.MULTILINE).search(text, at + 1)
                places += [_Quote("here", at)] * ((end.start() if end else len(text)) - at)
                continue
            size = _bare(text, at, stack, awaited)
        places += [stack[-1] if char != "'" else _Quote(mode, at)] * size
    return places[: len(text)]


def _bare(text: str, at: int, stack: list[_Quote], awaited: list[str]) -> int:
    """Take a character that stands in no quotes; return how many it is read together with."""
    char = text[at]
    if char == "'":
        stack.append(_Quote("single", at))
    elif char == "(":
        stack.append(_Quote("bare", at))
    elif char == ")" and len(stack) > 1:
        stack.pop()
    elif here := _HERE.match(text, at):
        awaited.append(here[2])
        return here.end() - at
    return 1
