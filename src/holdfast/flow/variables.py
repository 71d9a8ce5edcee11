"""Facts as environment variables: `$HOLDFAST_PHASES_PLAN_SUMMARY` in a command is the fact `phases.plan.summary`.

The text of a shell is never put together from values. The variables that it names say which facts it uses: so they are
checked when the flow is read, and count for what a task depends on. A variable that ends in `_FILE` is the name of a
file that has the value, for what is too large for a variable; it is removed when the command has ended.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.flow.names import ANY, VARIABLE_WORDS, NameUnknown
from holdfast.flow.template import LONGEST_WORD, TemplateError, names_in, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.flow.model import CommandLine

PREFIX = "HOLDFAST_"
_FILE = "_FILE"
_VARIABLE = re.compile(r"(?<![A-Za-z0-9_])HOLDFAST_[A-Z0-9_]*[A-Z0-9]")
_OTHER = re.compile(r"[^A-Za-z0-9]")


class Fact(NamedTuple):
    """The fact that a variable stands for."""

    variable: str
    """The variable, without `_FILE`."""
    name: str
    """As a template has it, as far as it is known before the flow runs."""
    below: str = ""
    """Where to continue in the fact's data, in the spelling of variables."""
    is_file: bool = False


@lru_cache(4096)
def variable_of(name: str) -> str:
    """Return the variable that a fact has: `phases.plan.summary` is HOLDFAST_PHASES_PLAN_SUMMARY."""
    return PREFIX + _spelled(name)


@lru_cache(4096)
def _spelled(name: str) -> str:
    return _OTHER.sub("_", name).upper()


def variables_in(command: CommandLine) -> list[str]:
    """Return the variables of Holdfast that a command names, wherever they stand in it."""
    texts = [command] if isinstance(command, str) else command
    return list(dict.fromkeys(word for text in texts for word in _VARIABLE.findall(text)))


class Variables:
    """Which fact each variable stands for, in a tree of names."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self._tree = tree
        self._spellings: dict[int, dict[str, list[str]]] = {}

    def find(self, variable: str) -> Fact | None:
        """Return the fact of a variable, None if there is none; TemplateError if it could be one of several."""
        spelled = variable.removeprefix(PREFIX)
        if variable in VARIABLE_WORDS:
            return None
        plain = [Fact(variable, *found) for found in self._walk(spelled, self._tree, "")]
        exact = [fact for fact in plain if not fact.below]
        if not exact and spelled.endswith(_FILE):
            whole = spelled.removesuffix(_FILE)
            filed = [Fact(PREFIX + whole, *found, is_file=True) for found in self._walk(whole, self._tree, "")]
            plain = [fact for fact in filed if not fact.below] or filed or plain
        found = exact or plain
        if len(found) > 1:
            names = " and ".join(sorted(fact.name for fact in found))
            raise TemplateError(
                f"${variable} could be {names}: rename one, or give it in env (env: {{VALUE: '{{{found[0].name}}}'}})"
            )
        return found[0] if found else None

    def used_in(self, command: CommandLine) -> list[Fact]:
        """Return the facts that a command names by their variables."""
        return [fact for variable in variables_in(command) if (fact := self.find(variable)) is not None]

    def names_in(self, command: CommandLine) -> list[str]:
        """Return the names of all facts that a command uses, by variables and in its arguments."""
        arguments = [] if isinstance(command, str) else command
        return [fact.name for fact in self.used_in(command)] + [name for text in arguments for name in names_in(text)]

    def _walk(self, spelled: str, tree: dict[str, Any], above: str) -> Iterator[tuple[str, str]]:
        """Yield each name that is spelled so, with what is left of the spelling below data."""
        known = self._spellings.get(id(tree))
        if known is None:
            known = self._spellings[id(tree)] = {}
            for key in tree:
                known.setdefault(_spelled(key), []).append(key)
        ends = [at for at, char in enumerate(spelled) if char == "_"]
        for end in (*ends, len(spelled)):
            for key in known.get(spelled[:end], ()):
                name, rest, node = f"{above}{key}", spelled[end + 1 :], tree[key]
                if not rest or node is ANY:
                    yield name, rest
                elif isinstance(node, dict):
                    yield from self._walk(rest, node, f"{name}.")


def value_below(value: Any, spelled: str, variable: str) -> Any:
    """Return what a spelling finds in a fact's data; NameUnknown if there is nothing, or more than one thing."""
    found = list(_below(value, spelled))
    if len(found) != 1:
        raise NameUnknown(f"there {'are several values' if found else 'is no value'} for ${variable}")
    return found[0]


def _below(value: Any, spelled: str) -> Iterator[Any]:
    if not spelled:
        yield value
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, item in items:
        part = _spelled(str(key))
        if spelled == part or spelled.startswith(f"{part}_"):
            yield from _below(item, spelled[len(part) + 1 :])


@contextlib.contextmanager
def given_facts(
    command: CommandLine, variables: Variables, value_of: Callable[[str], Any], always: Iterable[str] = ()
) -> Iterator[dict[str, str]]:
    """Yield the variables that a command is to have, those of `always` unasked; their files are there for as long."""
    used = variables.used_in(command)
    named = set(variables_in(command))
    folder: Path | None = None
    given: dict[str, str] = {}
    try:
        for fact in dict.fromkeys((*(Fact(variable_of(name), name) for name in always), *used)):
            text = shown(value_below(value_of(fact.name), fact.below, fact.variable), fact.name)
            size = len(text.encode("utf-8", "surrogatepass"))
            if size > LONGEST_WORD and fact.variable in named:
                raise TemplateError(
                    f"${fact.variable} is {size:,} bytes, too long for a variable: read it from "
                    f'"${fact.variable}{_FILE}"'
                )
            if fact.is_file or size > LONGEST_WORD:
                folder = folder or Path(tempfile.mkdtemp(prefix="holdfast-"))
                path = folder / fact.variable.lower()
                path.write_bytes(text.encode("utf-8", "surrogatepass"))
                given[f"{fact.variable}{_FILE}"] = str(path)
            else:
                given[fact.variable] = text
        yield given
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
