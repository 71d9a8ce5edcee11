"""Two checkpoints beside each other, section by section; what has the same root is known to be equal and not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.checkpoint import CALLS, NOTES
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.differences import Difference, compare
from holdfast.recovery.find import find
from holdfast.recovery.short_form import jsonable, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import SectionRecord
    from holdfast.workspace.compare import Change
    from holdfast.workspace.diff import FileDiff

__all__ = [
    "AgentDelta",
    "BudgetDelta",
    "Difference",
    "SectionDiff",
    "StateDiff",
    "agent_deltas",
    "budget_delta",
    "compare",
    "compare_places",
    "compare_sections",
]

Number = float | int
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_MOST_SHOWN = 10_000


class BudgetDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one budget; None where it was not there, or has no limit."""

    name: str
    used_before: Number | None
    used_after: Number | None
    limit_before: Number | None = None
    limit_after: Number | None = None

    @property
    def spent(self) -> Number:
        """How much more is used than before."""
        return (self.used_after or 0) - (self.used_before or 0)

    def __str__(self) -> str:
        limit = "" if self.limit_after is None else f" of {self.limit_after:,}"
        raised = f", limit was {self.limit_before}" if self.limit_before != self.limit_after else ""
        return (
            f"{self.name}: {_amount(self.used_before)} -> {_amount(self.used_after)}{limit} ({self.spent:+,}{raised})"
        )


class AgentDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one agent; a status of None says that it was not there."""

    id: str
    status_before: str | None
    status_after: str | None
    attempts: int = 0
    tokens_input: int = 0
    tokens_output: int = 0

    def __str__(self) -> str:
        amounts = (
            ("attempts", self.attempts),
            ("input tokens", self.tokens_input),
            ("output tokens", self.tokens_output),
        )
        more = "".join(f", {amount:+,} {name}" for name, amount in amounts if amount)
        return f"{self.id}: {self.status_before or 'absent'} -> {self.status_after or 'absent'}{more}"


class SectionDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one section; of one that is there on one side only, the whole is the difference."""

    name: str
    kind: Literal["added", "removed", "changed"]
    differences: tuple[Difference, ...] = ()


class StateDiff(msgspec.Struct, frozen=True, kw_only=True):
    """All that differs between the sections of two checkpoints; files are compared apart."""

    old: str = ""
    new: str = ""
    sections: tuple[SectionDiff, ...] = ()
    unchanged: tuple[str, ...] = ()
    budget: tuple[BudgetDelta, ...] = ()
    agents: tuple[AgentDelta, ...] = ()
    files_differ: bool = False

    def __bool__(self) -> bool:
        return bool(self.sections) or self.files_differ

    def to_json(self, *, max_chars: int = 2_000, most: int = _MOST_SHOWN) -> dict[str, Any]:
        """Return the same as plain data for JSON; values that are too long are shortened and say so."""
        return {
            "old": self.old,
            "new": self.new,
            "sections": [
                {
                    "name": section.name,
                    "kind": section.kind,
                    "count": len(section.differences),
                    "differences": [_plain(one, max_chars) for one in section.differences[:most]],
                }
                for section in self.sections
            ],
            "unchanged": list(self.unchanged),
            "budget": [msgspec.to_builtins(delta) | {"spent": delta.spent} for delta in self.budget],
            "agents": msgspec.to_builtins(self.agents),
            "files_differ": self.files_differ,
        }

    def lines(self, *, width: int = 100, most: int = 200) -> list[str]:
        """Return the same for people, a line for each difference and so many for each section at most."""
        return list(self._lines(width, most))

    def _lines(self, width: int, most: int) -> Iterator[str]:
        if not self:
            yield "no difference"
        for section in self.sections:
            yield f"{_SIGNS[section.kind]} {section.name} ({_count(len(section.differences))})"
            yield from (f"  {_line(one, width)}" for one in section.differences[:most])
            if len(section.differences) > most:
                yield f"  ... and {len(section.differences) - most:,} more"
        for title, deltas in (("budget", self.budget), ("agents", self.agents)):
            if deltas:
                yield f"{title}:"
                yield from (f"  {_printable(str(delta))[: 2 * width]}" for delta in deltas[:most])
            if len(deltas) > most:
                yield f"  ... and {len(deltas) - most:,} more"


def compare_sections(
    old: Iterable[SectionRecord],
    new: Iterable[SectionRecord],
    read_old: Callable[[str], Any],
    read_new: Callable[[str], Any],
    *,
    names: tuple[str, str] = ("", ""),
) -> StateDiff:
    """Compare two checkpoints by their section records; only sections whose roots differ are read."""
    olds, news = ({one.name: (one.kind, one.root, one.size) for one in side} for side in (old, new))
    return _compared(olds, news, read_old, read_new, names=names)


def _compared(
    olds: Mapping[str, object],
    news: Mapping[str, object],
    read_old: Callable[[str], Any],
    read_new: Callable[[str], Any],
    *,
    names: tuple[str, str],
) -> StateDiff:
    """Compare sections; what has the same key on both sides is known to be equal and not read."""
    found: list[SectionDiff] = []
    unchanged: list[str] = []
    pairs: dict[str, tuple[Any, Any]] = {}
    for name in [*olds, *(name for name in news if name not in olds)]:
        before, after = olds.get(name), news.get(name)
        if before is not None and before == after:
            unchanged.append(name)
        elif name != WORKSPACE:
            values = (read_old(name) if before else None, read_new(name) if after else None)
            pairs[name] = values
            section = _section(name, *values, is_old=before is not None, is_new=after is not None)
            (found.append(section) if section else unchanged.append(name))
    return StateDiff(
        old=names[0],
        new=names[1],
        sections=tuple(found),
        unchanged=tuple(unchanged),
        budget=budget_delta(*pairs["budget"]) if "budget" in pairs else (),
        agents=agent_deltas(*pairs["agents"]) if "agents" in pairs else (),
        files_differ=WORKSPACE in {*olds, *news} and WORKSPACE not in unchanged,
    )


def budget_delta(old: Any, new: Any) -> tuple[BudgetDelta, ...]:
    """Return what became of every budget that is not as it was; sections may be typed, plain or None."""
    before, after = _field(old, "spending", {}), _field(new, "spending", {})
    deltas = (
        BudgetDelta(
            name=name,
            used_before=_field(before.get(name), "used"),
            used_after=_field(after.get(name), "used"),
            limit_before=_field(before.get(name), "limit"),
            limit_after=_field(after.get(name), "limit"),
        )
        for name in [*before, *(name for name in after if name not in before)]
    )
    return tuple(d for d in deltas if d.used_before != d.used_after or d.limit_before != d.limit_after)


def agent_deltas(old: Sequence[Any] | None, new: Sequence[Any] | None) -> tuple[AgentDelta, ...]:
    """Return what became of every agent whose status, attempts or tokens changed."""
    before = {_field(agent, "id"): agent for agent in old or ()}
    after = {_field(agent, "id"): agent for agent in new or ()}
    deltas: list[AgentDelta] = []
    for name in [*before, *(name for name in after if name not in before)]:
        one, other = before.get(name), after.get(name)
        deltas.append(
            AgentDelta(
                id=str(name),
                status_before=_field(one, "status"),
                status_after=_field(other, "status"),
                attempts=_field(other, "attempts", 0) - _field(one, "attempts", 0),
                tokens_input=_tokens(other, "input") - _tokens(one, "input"),
                tokens_output=_tokens(other, "output") - _tokens(one, "output"),
            )
        )
    return tuple(
        d for d in deltas if d.status_before != d.status_after or d.attempts or d.tokens_input or d.tokens_output
    )


def _section(name: str, old: Any, new: Any, *, is_old: bool, is_new: bool) -> SectionDiff | None:
    if not is_new:
        return SectionDiff(name=name, kind="removed", differences=(Difference(name, "removed", old, None),))
    if not is_old:
        return SectionDiff(name=name, kind="added", differences=(Difference(name, "added", None, new),))
    differences = tuple(compare(old, new, where=name))
    return SectionDiff(name=name, kind="changed", differences=differences) if differences else None


def _line(one: Difference, width: int) -> str:
    if one.kind == "changed":
        return f"~ {one.path}: {short(one.old, width)} -> {short(one.new, width)}"
    return f"{_SIGNS[one.kind]} {one.path}: {short(one.new if one.kind == 'added' else one.old, width)}"


def _plain(one: Difference, max_chars: int) -> dict[str, Any]:
    shown: dict[str, Any] = {"path": one.path, "kind": one.kind}
    if one.kind != "added":
        shown["old"] = jsonable(one.old, max_chars=max_chars)
    if one.kind != "removed":
        shown["new"] = jsonable(one.new, max_chars=max_chars)
    return shown


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _count(differences: int) -> str:
    return "1 difference" if differences == 1 else f"{differences:,} differences"


def _amount(value: Number | None) -> str:
    return "none" if value is None else f"{value:,}"


def _tokens(agent: Any, name: str) -> int:
    return int(_field(_field(agent, "tokens"), name, 0))


def _field(value: Any, name: str, default: Any = None) -> Any:
    """Return a field of a typed value or of plain data, the default where there is none or it is None."""
    found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return default if found is None else found


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """What differs between two checkpoints, the old one first; files are read when they are asked for."""

    old: Checkpoint
    new: Checkpoint
    state: StateDiff

    def __bool__(self) -> bool:
        return bool(self.state)

    @property
    def has_files(self) -> bool:
        """Whether there are files to compare: both differ, and the new one holds some."""
        return self.state.files_differ and WORKSPACE in self.new.sections

    def file_changes(self) -> list[Change]:
        """Return the paths that differ."""
        return self.new.changes(self.old) if self.has_files else []

    def file_diffs(self) -> list[FileDiff]:
        """Return the same as unified diffs."""
        return self.new.diff(self.old) if self.has_files else []

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data for JSON, files as paths with what became of them."""
        files = [{"path": change.path, "status": change.status} for change in self.file_changes()]
        return {**self.state.to_json(), "files": files}

    def lines(self) -> list[str]:
        """Say it in words, a line each."""
        told = self.state.lines() if self.state.sections or not self.state.files_differ else []
        if self.state.files_differ and not self.has_files:
            told.append("the new one holds no files")
        return [*told, *(f"{change.status} {change.path!r}" for change in self.file_changes())]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def diff(hf: Holdfast, old: str | Checkpoint, new: str | Checkpoint, *, run: str | None = None) -> CheckpointDiff:
    """Compare two checkpoints or positions, of one run or of two."""
    before, after = (find(hf, one, run=run, sound=False) if isinstance(one, str) else one for one in (old, new))
    return CheckpointDiff(before, after, compare_places(before, after))


def compare_places(old: Checkpoint, new: Checkpoint) -> StateDiff:
    """Compare two checkpoints or positions by their sections, their calls and their notes."""
    found = _compared(old.content_keys(), new.content_keys(), old.section, new.section, names=(old.id, new.id))
    if (old.run, old.line, old.ranges) == (new.run, new.line, new.ranges):
        return found
    shared = _shared_until(old, new)
    views = [_view(name, old, new, shared) for name in (CALLS, NOTES)]
    return msgspec.structs.replace(found, sections=(*found.sections, *(one for one in views if one.differences)))


def _shared_until(old: Checkpoint, new: Checkpoint) -> int:
    """Return the journal number up to which two places have the same records, 0 if they share none."""
    if (old.run, old.line) != (new.run, new.line):
        return 0
    shared = 0
    for one, other in zip(old.ranges, new.ranges, strict=False):
        if one[0] != other[0]:
            break
        shared = min(one[1], other[1])
        if one != other:
            break
    return shared


def _view(name: str, old: Checkpoint, new: Checkpoint, shared: int) -> SectionDiff:
    """Return what differs in a view of the journal; what both places share is not read."""
    where = f"{name} after #{shared}" if shared else name
    before, after = (one.view_after(name, shared) for one in (old, new))
    return SectionDiff(name=name, kind="changed", differences=tuple(compare(before, after, where=where)))
