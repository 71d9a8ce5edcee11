"""Values in shell commands: where a place is, how the shell reads it, and how a value stays data there.

A place where no quoting is certain to hold is refused, when the flow is read and not when it runs.
"""

from __future__ import annotations

import re
from typing import Literal

from holdfast.errors import UsageError
from holdfast.flow.programs import CLOSING, HOLE, OPENING, behind_own, leading, read_command

Place = Literal["word", "single", "double", "raw"]

_ODD_EXPANSION = re.compile(r"\$\{[^}]*(?:['\"`(\\]|\s#)")
_DELIMITERS = " \t\n;&|()<>"
_UNSAFE = {"`": "between backticks", "#": "in a comment"}
_LOSES = {
    "'$": "after $'...', which shells read differently",
    "<<": "after <<, in or beside a here-document",
    "[$": "after $[, where bash computes",
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


class _Frame:
    """The commands between two parentheses: the words of the present one, and where values are in it.

    A value is told apart by its name: `made` is one in what a command puts out, `fed` one in what it is given.
    """

    def __init__(self, fed: str = "", *, is_word: bool = False) -> None:
        self.is_word = is_word  # what it prints stands in a word of the command around it
        self.words: list[str] = []
        self.word: str | None = None
        self.redirect = ""
        self.holds = ""  # a value anywhere in it
        self.made = ""
        self.fed = self._given = fed
        self.depth = 0  # of loops and groups that are open
        self.is_awaited = False  # a pipe stands right before it, perhaps on the line above

    def add(self, text: str) -> None:
        """Let the present word go on."""
        self.is_awaited = False
        self.word = (self.word or "") + text

    def add_value(self, name: str) -> None:
        """Let the present word go on with a value; TemplateError where it is code."""
        self.add(HOLE)
        self.holds = self.made = name
        if self.redirect:
            return
        role = read_command([*self.words, str(self.word)]).roles[-1]
        if role == "program":
            raise TemplateError(
                f"{{{name}}} stands where a command has its program, which no value can be: write the program's name, "
                f"or {{{name}:raw}} if nobody else has a say in that value"
            )
        if role == "code":
            raise _unsafe(name, "in a text that is read as code once more")

    def end_word(self) -> None:
        """End the present word, if there is one."""
        if self.word is not None and not self.redirect:
            self.words.append(self.word)
        elif self.word is not None and self.redirect == "<" and HOLE in self.word:
            self.fed = self.fed or self.made
        if self.word is not None:
            self.word, self.redirect = None, ""

    def end_name(self) -> None:
        """Let a command begin behind the () of a function that is defined."""
        self.end_word()
        begins = behind_own(self.words)
        if len(self.words) == begins + 1:
            del self.words[begins]

    def end_line(self) -> None:
        """End the present command, unless its pipe is still to be followed by one."""
        if not self.is_awaited:
            self.end_command()

    def end_command(self, *, is_piped: bool = False) -> None:
        """End the present command; TemplateError if it reads as code what a value was piped into."""
        self.end_word()
        if self.fed and read_command(self.words).runs_input:
            raise _unsafe(self.fed, f"in what is piped into {self.words[0]!r}")
        begun = leading(self.words)
        if CLOSING.intersection(begun):
            self.made = self.made or self.holds
        change = sum((word in OPENING) - (word in CLOSING) for word in begun)
        self.depth = max(0, self.depth + change)
        if is_piped:
            self.fed = self.fed or self.made
        elif self.depth == 0:
            self.fed = self._given
        if not is_piped:
            self.made = ""
        self.words, self.redirect = [], ""
        self.is_awaited = is_piped


def _unsafe(name: str, reason: str) -> TemplateError:
    return TemplateError(
        f"{{{name}}} stands {reason}, where a value could become code: give it as an environment variable "
        f"(env: {{VALUE: '{{{name}}}'}}, then \"$VALUE\")"
    )


class Shell:
    """Follows a POSIX shell's quoting through a command, as far as it can be followed for certain."""

    def __init__(self) -> None:
        self._open: list[str] = []  # what is open, the innermost last: ' " ( (( ` #
        self._lost = ""  # why the place is not known any more
        self._pending = ""  # a `$`, `\\`, `<`, `(` or `)` whose meaning the next character decides
        self._word = ""  # the unquoted word under way
        self._word_starts = True
        self._frames = [_Frame()]  # one, and one for each ( that is open

    def place(self, name: str) -> Place:
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
        else:
            return place
        raise _unsafe(name, reason)

    def take_value(self, name: str, *, raw: bool) -> None:
        """Go past a value; TemplateError where it is code."""
        if raw:
            self._lose("after a raw value, whose quotes are not known")
            self._frame.add("$")
        else:
            self._frame.add_value(name)
        self._pending = ""
        self._word_starts = False
        self._word += "_"

    def finish(self) -> None:
        """Come to the end; TemplateError if a value is piped into a program that reads it as code."""
        for frame in reversed(self._frames):
            frame.end_command()

    def feed(self, text: str) -> None:
        """Go past literal text."""
        if _ODD_EXPANSION.search(text):
            self._lose("beside a ${...} with quotes in it")
        for char in text:
            self._step(char)

    def _lose(self, reason: str) -> None:
        self._lost = self._lost or reason

    @property
    def _frame(self) -> _Frame:
        return self._frames[-1]

    def _step(self, char: str) -> None:
        inner = self._open[-1] if self._open else ""
        pending, self._pending = self._pending, ""
        if inner == "'":
            self._in_single(char)
        elif inner == "#":
            if char == "\n":
                self._open.pop()
                self._word_starts = True
                self._frame.end_line()
        elif pending == "\\":
            self._word_starts = False
            self._word += "_"
            if char != "\n":
                self._frame.add(char)
        elif char == "\\":
            self._pending = "\\"
        elif inner == "`":
            if char == "`":
                self._open.pop()
        elif inner == '"':
            self._in_double(char, pending)
        else:
            self._unquoted(char, pending)

    def _in_single(self, char: str) -> None:
        if char == "'":
            self._open.pop()
        else:
            self._frame.add(char)

    def _in_double(self, char: str, pending: str) -> None:
        if char == '"':
            self._open.pop()
        elif char == "`":
            self._open.append("`")
            self._frame.add("$")
        elif char == "(" and pending == "$":
            self._enter(pending)
            self._word, self._word_starts = "", True
        else:
            self._frame.add(char)
            if char + pending == "[$":
                self._lose(_LOSES["[$"])
            if char == "$":
                self._pending = "$"

    def _unquoted(self, char: str, pending: str) -> None:
        starts = self._word_starts
        self._follow_word(char)
        if char + pending in _LOSES:
            self._lose(_LOSES[char + pending])
        if char in "'\"`":
            self._open.append(char)
            self._frame.add("$" if char == "`" else "")
        elif char == "#" and starts:
            self._open.append("#")
        elif char == "(":
            if pending == "(":
                self._open[-1] = "(("
            self._enter(pending)
        elif char == ")":
            self._pending = ")"
            self._leave()
        elif char in _DELIMITERS:
            self._delimit(char, pending)
        else:
            self._frame.add(char)
            if char == "$":
                self._pending = "$"

    def _delimit(self, char: str, pending: str) -> None:
        """Go past what ends a word, and perhaps a command."""
        frame = self._frame
        if char in "<>":
            if frame.word is not None and frame.word.isdecimal():
                frame.word = None  # the number of a stream
            frame.end_word()
            frame.redirect = char
            self._pending = char
        elif char in " \t":
            frame.end_word()
        elif char == "|" and pending != ">":
            frame.end_command(is_piped=pending != "|")
            self._pending = "|"
        elif char == "\n":
            frame.end_line()
        elif char == ";" or (char == "&" and pending not in ("<", ">", "|")):
            frame.end_command()

    def _enter(self, pending: str) -> None:
        """Go into parentheses: commands of their own, whose output may stand in a word."""
        around = self._frame
        fed = (around.made or around.fed) if pending == ">" else around.fed
        around.is_awaited = False
        if pending in ("<", ">"):
            around.redirect = ""
        self._open.append("(")
        self._frames.append(_Frame(fed, is_word=pending in ("$", "<", ">")))
        self._pending = "("

    def _leave(self) -> None:
        if not self._open:
            self._lose("after a ) that closes nothing")
            return
        self._open.pop()
        left = self._frames.pop()
        is_empty = left.word is None and not left.words
        left.end_command()
        if not left.is_word:
            self._frame.made = self._frame.made or left.holds
            self._frame.holds = self._frame.holds or left.holds
            if is_empty:
                self._frame.end_name()
        elif left.holds:
            self._frame.add("$")
            self._frame.add_value(left.holds)
        else:
            self._frame.add("$")

    def _follow_word(self, char: str) -> None:
        self._word_starts = char in _DELIMITERS
        if not self._word_starts:
            self._word += char
            return
        if self._word == "case":
            self._lose("after the word case, whose ) are not followed")
        self._word = ""
