"""Values in shell commands: where a place is, how the shell reads it, and how a value stays data there.

A place where no quoting is certain to hold is refused, when the flow is read and not when it runs.
"""

from __future__ import annotations

import re
from typing import Literal

from holdfast.errors import UsageError

Place = Literal["word", "single", "double", "raw"]

_ODD_EXPANSION = re.compile(r"\$\{[^}]*(?:['\"`(\\]|\s#)")
_EVALUATES = re.compile(r"(?<![\w./-])(?:eval|ssh)\s")  # reads all its words as code again, here or elsewhere
_OPTIONS = r"(?:\s+(?:[-+]\w*[oO]\s+\w+|-[WX]\s+\S+|--(?:rcfile|init-file)\s+\S+|[-+][-+\w=.:/]*))*?"
_INNER_SHELL = re.compile(
    rf"\b(?:ba|da|z|k|a|fi)?sh{_OPTIONS}\s+-\w*c\b"
    rf"|\b(?:python[0-9.]*|perl|ruby|node|php){_OPTIONS}\s+(?:-\w*[cepr]|--eval|--print)\b"
    r"|\b(?:su|runuser|script|flock)\s(?:[^;|&\n]*\s)?(?:-\w*c|--command)\b"
)
_PROGRAM = re.compile(  # between the quotes of what is a program itself, and can start others
    r"\b(?:trap|sed|[gmn]?awk)(?:\s+-\S*(?:\s+(?:'[^']*'|\"[^\"]*\"|[^\s'\"-]\S*(?=\s)))?)*\s+(['\"])(?:(?!\1).)*\Z",
    re.DOTALL,
)
_DELIMITERS = " \t\n;&|()<>"
_UNSAFE = {"`": "between backticks", "#": "in a comment"}
_LOSES = {
    "'$": "after $'...', which shells read differently",
    "<<": "after <<, in or beside a here-document",
    "#)": "after )#, where a comment begins or does not",
}


class TemplateError(UsageError):
    """A text that cannot be filled in."""


def quote_word(value: str) -> str:
    """Return a value as one word of a shell command."""
    return "'" + quote_in_single(value) + "'"


def quote_in_single(value: str) -> str:
    """Return a value for a place between single quotes."""
    return value.replace("'", "'\"'\"'")


def quote_in_double(value: str) -> str:
    """Return a value for a place between double quotes."""
    return re.sub(r'([\\"$`])', r"\\\1", value)


def _is_code(before: str, place: Place) -> bool:
    """Tell whether what follows is handed to something that reads it as a program."""
    joined = before.replace("\\\n", "")
    bare = joined.replace("'", "").replace('"', "")
    if _EVALUATES.search(bare):
        return True
    return place != "word" and bool(_INNER_SHELL.search(bare) or _PROGRAM.search(joined))


class Shell:
    """Follows a POSIX shell's quoting through a command, as far as it can be followed for certain."""

    def __init__(self) -> None:
        self._open: list[str] = []  # what is open, the innermost last: ' " ( (( ` #
        self._lost = ""  # why the place is not known any more
        self._pending = ""  # a `$`, `\\`, `<`, `(` or `)` whose meaning the next character decides
        self._word = ""  # the unquoted word under way
        self._word_starts = True

    def place(self, name: str, before: str) -> Place:
        """Return how the shell reads this place; TemplateError where a value could become code."""
        inner = self._open[-1] if self._open else ""
        place: Place = "single" if inner == "'" else "double" if inner == '"' else "word"
        if self._lost:
            reason = self._lost
        elif inner in _UNSAFE:
            reason = _UNSAFE[inner]
        elif "((" in self._open:
            reason = "in an arithmetic (("
        elif self._pending in {"\\", "$"}:
            reason = f"right after {self._pending}"
        elif _is_code(before, place):
            reason = "in a text that is read as code once more"
        else:
            return place
        raise TemplateError(
            f"{{{name}}} stands {reason}, where a value could become code: give it as an environment variable "
            f"(env: {{VALUE: '{{{name}}}'}}, then \"$VALUE\")"
        )

    def take_value(self, *, raw: bool) -> None:
        """Go past a value."""
        if raw:
            self._lose("after a raw value, whose quotes are not known")
        self._pending = ""
        self._word_starts = False
        self._word += "_"

    def feed(self, text: str) -> None:
        """Go past literal text."""
        if _ODD_EXPANSION.search(text):
            self._lose("beside a ${...} with quotes in it")
        for char in text:
            self._step(char)

    def _lose(self, reason: str) -> None:
        self._lost = self._lost or reason

    def _step(self, char: str) -> None:
        inner = self._open[-1] if self._open else ""
        pending, self._pending = self._pending, ""
        if inner == "'":
            if char == "'":
                self._open.pop()
        elif inner == "#":
            if char == "\n":
                self._open.pop()
                self._word_starts = True
        elif pending == "\\":
            self._word_starts = False
            self._word += "_"
        elif char == "\\":
            self._pending = "\\"
        elif inner == "`":
            if char == "`":
                self._open.pop()
        elif inner == '"':
            self._in_double(char, pending)
        else:
            self._unquoted(char, pending)

    def _in_double(self, char: str, pending: str) -> None:
        if char == '"':
            self._open.pop()
        elif char == "`":
            self._open.append("`")
        elif char == "(" and pending == "$":
            self._open.append("(")
            self._pending = "("
            self._word, self._word_starts = "", True
        elif char == "$":
            self._pending = "$"

    def _unquoted(self, char: str, pending: str) -> None:
        starts = self._word_starts
        self._follow_word(char)
        if char + pending in _LOSES:
            self._lose(_LOSES[char + pending])
        if char in "'\"`":
            self._open.append(char)
        elif char == "#" and starts:
            self._open.append("#")
        elif char == "(":
            if pending == "(":
                self._open[-1] = "(("
            self._open.append("(")
            self._pending = "("
        elif char == ")":
            self._pending = ")"
            if self._open:
                self._open.pop()
            else:
                self._lose("after a ) that closes nothing")
        elif char in "$<":
            self._pending = char

    def _follow_word(self, char: str) -> None:
        self._word_starts = char in _DELIMITERS
        if not self._word_starts:
            self._word += char
            return
        if self._word == "case":
            self._lose("after the word case, whose ) are not followed")
        self._word = ""
