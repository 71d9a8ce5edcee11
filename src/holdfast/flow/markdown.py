"""A plan file: Markdown with `## Phase 1: ...` headings, as people and planners write them.

The run's id follows from the plan's name and place, so that the same plan finds its own run again; in the run, a phase
is its number, whatever its title says now.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import FlowInvalid
from holdfast.flow.text import BOUNDS
from holdfast.lazy import lazily, pattern

with lazily():  # a script that names a phase follows no flow
    from holdfast.flow import load, model

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

_HEADING = pattern(r"^ {0,3}(#{1,6})[ \t]+(.*)$")
_PHASE = pattern(r"(?i)^(?:phase|step|stage)\s+([0-9]{1,4}(?:\.[0-9]{1,4})?)\s*(?:[:.\u2013\u2014-]\s*(.*))?$")
_FENCE = pattern(r"^ {0,3}(`{3,}|~{3,})[ \t]*([A-Za-z0-9_+-]*)")
_TASK = pattern(r"^\s{0,8}[-*+]\s+\[([ xX])\]\s+(.*)$")
_WORD = pattern(r"[^a-z0-9]+")
_NUMBERED = pattern(r"([0-9]+(?:_[0-9]+)?)(?:-(.*))?\Z")
_RUNS = {"sh", "bash", "shell", "console"}
_LONGEST_NAME = 48


class PlanPhase(NamedTuple):
    """One phase of a plan: a name for it, its title, its text, its check list and the command it gives, if any."""

    name: str
    number: str
    title: str
    text: str
    line: int
    checklist: tuple[tuple[str, bool], ...] = ()
    command: str | None = None


def plan_phases(text: str, file: str = "plan") -> list[PlanPhase]:
    """Return the phases of a plan in their order; FlowInvalid if it has none, or one twice."""
    if len(text) > BOUNDS.size_bytes:
        raise FlowInvalid(f"it is larger than {BOUNDS.size_bytes:,} characters, which no plan needs", file, ())
    found: list[PlanPhase] = []
    problems: list[str] = []
    seen: dict[str, int] = {}
    lines = text.splitlines()
    for begin, end, number, title in _spans(lines):
        name = _name_of(number, title)
        first = seen.setdefault(number, begin + 1)
        if first != begin + 1:
            problems.append(f"line {begin + 1}: phase {number} stands on line {first} already")
        body = lines[begin + 1 : end]
        checks = tuple((match[2].strip(), match[1] != " ") for line in body if (match := _TASK.match(line)))
        found.append(PlanPhase(name, number, title, "\n".join(body).strip(), begin + 1, checks, _command(body)))
    if not found:
        problems.append("there is no heading like '## Phase 1: what is done'")
    if problems:
        raise FlowInvalid("it cannot be followed as a plan", file, tuple(problems))
    return found


def flow_from_plan(text: str, file: str = "plan", *, run: str | None = None, **parts: Any) -> model.Plan:
    """Return a flow with the plan's phases; `run` is the command for those that give none, their text its input.

    Further parts of a flow (agents, budget, on_failure, ...) are given as in a file.
    """
    phases = plan_phases(text, file)
    missing = [phase for phase in phases if phase.command is None]
    if missing and run is None:
        said = tuple(
            f"line {phase.line}: phase {phase.number} has no ```sh block, and no command is given" for phase in missing
        )
        raise FlowInvalid("it does not say what to run", file, said)
    made = {phase.name: _phase_data(phase, run) for phase in phases}
    name = _slug(PurePath(file).stem) or "plan"
    flow = load.flow_from({"flow": name, "phases": made, **parts}, file)
    return model.Plan(**msgspec.structs.asdict(flow))


def renamed(old: Iterable[str], new: Iterable[str]) -> dict[str, str]:
    """Return which phase of a plan that was changed is which of before: a phase is its number, whatever its title."""
    before, after = list(old), list(new)
    by_number = {number: name for name in after if (number := split_name(name)[0])}
    return {
        name: by_number[number]
        for name in before
        if name not in after and (number := split_name(name)[0]) in by_number and by_number[number] not in before
    }


def split_name(name: str) -> tuple[str, str]:
    """Return the number and the title of a phase's name; no number if it has none."""
    match = _NUMBERED.match(name)
    return (match[1], match[2] or "") if match else ("", name)


def plan_run_id(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> str:
    """Return the run id of a plan file: the same for the same place below `root`, however it is written."""
    import os.path  # noqa: PLC0415 - only here

    whole = os.path.normpath(os.path.join(os.path.abspath(root or "."), path))  # noqa: PTH100, PTH118 - no link is followed
    place = os.path.relpath(whole, os.path.abspath(root)) if root is not None else whole  # noqa: PTH100
    posix = PurePath(place).as_posix()
    stem = _slug(PurePath(posix).stem)[:_LONGEST_NAME].strip("-") or "plan"
    return f"{stem}-{hashlib.sha256(posix.encode('utf-8', 'surrogateescape')).hexdigest()[:10]}"


def _phase_data(phase: PlanPhase, run: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {"description": phase.title}
    if phase.command is not None:
        return {**data, "run": phase.command}
    text = phase.text.replace("{", "{{").replace("}", "}}")
    return {**data, "run": run, "input": f"{{description}}\n\n{text}".strip()}  # by name: a title is not the work


def _spans(lines: list[str]) -> list[tuple[int, int, str, str]]:
    """Return where each phase begins and ends, its number and its title; headings in code are none."""
    found: list[tuple[int, int, str, str]] = []
    begun: tuple[int, int, str, str] | None = None  # line, level, number, title
    fence = ""
    for at, line in enumerate(lines):
        match = _FENCE.match(line)
        if match:
            if not fence:
                fence = match[1]
            elif line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        heading = None if fence else _HEADING.match(line)
        if heading is None:
            continue
        level = len(heading[1])
        phase = _PHASE.match(_without_closing(heading[2]))
        if begun is not None and (level <= begun[1]):
            found.append((begun[0], at, begun[2], begun[3]))
            begun = None
        if phase is not None and begun is None:
            begun = (at, level, phase[1], (phase[2] or "").strip() or f"Phase {phase[1]}")
    if begun is not None:
        found.append((begun[0], len(lines), begun[2], begun[3]))
    return found


def _without_closing(heading: str) -> str:
    """Return the text of a heading without spaces and #s at its end; a pattern for that takes its length squared."""
    text = heading.rstrip(" \t")
    bare = text.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else text


def _command(body: list[str]) -> str | None:
    """Return the shell blocks of a phase as one command, None if it has none."""
    blocks: list[str] = []
    block: list[str] | None = None
    fence = ""
    for line in body:
        match = _FENCE.match(line)
        if match and not fence:
            fence = match[1]
            block = [] if match[2].lower() in _RUNS else None
        elif match and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            if block:
                blocks.append("\n".join(block))
            fence, block = "", None
        elif block is not None:
            block.append(line)
    return "\n".join(["set -e", *blocks]) if blocks else None


def _name_of(number: str, title: str) -> str:
    slug = _slug(title)[:_LONGEST_NAME].strip("-")
    return f"{number.replace('.', '_')}-{slug}" if slug else f"{number.replace('.', '_')}"


def _slug(text: str) -> str:
    return _WORD.sub("-", text.lower()).strip("-")
