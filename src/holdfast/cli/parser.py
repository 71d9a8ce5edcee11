"""Arguments: options that every command takes, anywhere on the line, and parsers that raise instead of exiting."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from holdfast.cli.errors import CommandInvalid

GLOBALS = (
    ("--json", "", "one JSON document on standard output; `COMMAND --help` says where it is otherwise"),
    ("--store", "URL", "the store: a path, sqlite:///path, file:///folder or postgresql://host/database"),
    ("-C", "DIR", "as if started in that directory"),
    ("-q, --quiet", "", "only what was asked for, no notes"),
    ("-v, --verbose", "", "more notes"),
    ("-y, --yes", "", "agree beforehand to what would be asked"),
    ("--no-color", "", "no colours; so does NO_COLOR in the environment"),
    ("--debug", "", "a traceback when something goes wrong"),
)
_FLAGS = {
    "--json": "json",
    "-q": "quiet",
    "--quiet": "quiet",
    "-v": "verbose",
    "--verbose": "verbose",
    "--yes": "yes",
    "-y": "yes",
    "--no-color": "no_color",
    "--debug": "debug",
}
_VALUES = {"--store": "store", "-C": "directory"}
WIDTH = 100
_Action = TypeVar("_Action", bound=argparse.Action)


@dataclass
class Globals:
    """What the line says for every command."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    yes: bool = False
    no_color: bool = False
    debug: bool = False
    store: str | None = None
    directory: str | None = None


def split_globals(words: list[str]) -> tuple[Globals, list[str]]:
    """Take the options that every command has out of a line, wherever they stand before `--`; return the rest."""
    found = Globals()
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            return found, [*rest, word, *waiting]
        name, equals, value = word.partition("=")
        if word in _FLAGS:
            setattr(found, _FLAGS[word], True)
        elif name in _VALUES:
            given = value if equals else next(waiting, None)
            if given is None or given == "":
                raise CommandInvalid(f"{name} needs a value")
            setattr(found, _VALUES[name], given)
        else:
            rest.append(word)
    return found, rest


class CommandParser(argparse.ArgumentParser):
    """A parser whose complaints are errors of ours, and that knows its own arguments for the reference."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.arguments: list[argparse.Action] = []
        self.parts: dict[str, CommandParser] = {}
        self.words_before: int | None = None
        """How many words stand before a command that is run, as `guard` and `bisect` do; None if none is."""
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", _Formatter)
        super().__init__(*args, **options)

    def _add_action(self, action: _Action) -> _Action:
        """Add an argument, also one of a group, and remember it."""
        if action.dest != "help" and not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the only name it has
            self.arguments.append(action)
        return super()._add_action(action)

    def parsed(self, words: list[str]) -> argparse.Namespace:
        """Parse a line: options may stand between its other words, too, unless `--` ends them."""
        if self.parts or "--" in words:
            return self.parse_args(words)
        return self.parse_intermixed_args(words)

    def check_dashes(self, words: list[str]) -> None:
        """Refuse an option behind a command that is run, unless `--` before it says that it is the command's."""
        if self.words_before is None or "--" in words:
            return
        plain: list[int] = []
        is_value = False
        for at, word in enumerate(words):
            if is_value or not word.startswith("-"):
                plain += [] if is_value else [at]
                is_value = False
            elif len(plain) > self.words_before:
                begins = plain[self.words_before]
                typed = shlex.join([*self.prog.split(), *words[:begins], "--", *words[begins:]])
                raise CommandInvalid(f"it is not clear whose option {word} is: put -- before the command, `{typed}`")
            else:
                action = self._option_string_actions.get(word)
                is_value = word in _VALUES or (action is not None and action.nargs != 0)

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting."""
        usage = " ".join(self.format_usage().split()).removeprefix("usage: ")
        raise CommandInvalid(f"{message}. Usage: {usage}")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=WIDTH)


def globals_help(of_json: str) -> str:
    """Return the options of every command for the help text of one, with what its --json writes."""
    told = {"--json": of_json}
    lines = [f"  {f'{name} {value}'.rstrip():<24}  {told.get(name, text)}" for name, value, text in GLOBALS]
    return "everywhere on the line:\n" + "\n".join(lines)
