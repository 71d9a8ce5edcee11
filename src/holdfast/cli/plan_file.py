"""A plan in Markdown as a script follows it: its phases by their headings, and which of them a person means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.errors import NotFound, UsageError
from holdfast.flow.markdown import plan_phases, plan_run_id, split_name
from holdfast.flow.text import read_flow_file

if TYPE_CHECKING:
    from pathlib import Path

_ANY_PHASE = re.compile(r"^ {0,3}#{1,6}[ \t]+(?:phase|step|stage)\s+[0-9]", re.IGNORECASE | re.MULTILINE)


def read_plan(path: Path) -> dict[str, str]:
    """Return the phases of a plan file in their order, with their titles; none if it has no such headings."""
    if not path.exists():
        hint = "give the path of a Markdown file with headings such as `## Phase 1: ...`"
        raise NotFound("plan", str(path), hint)
    text = read_flow_file(path).decode("utf-8", "replace")
    if not _ANY_PHASE.search(text):
        return {}
    return {phase.name: phase.title for phase in plan_phases(text, str(path))}


def run_of(path: Path, root: Path) -> str:
    """Return the run of a plan: the same for the same file of a project, wherever the project lies."""
    return plan_run_id(path.absolute(), root=root)


def phase_named(name: str, order: list[str], known: list[str]) -> str:
    """Return the phase that a person means: by name, by number, or by how it begins if that is one only."""
    names = list(dict.fromkeys([*order, *known]))
    if not name.strip():
        raise UsageError("a phase needs a name")
    if name in names:
        return name
    fitting = _fitting(name, names)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"phase {name!r} may be {' or '.join(fitting)}: give more of its name")
    if order:
        raise UsageError(f"there is no phase {name!r}: the plan has {', '.join(order)}")
    return name


def _fitting(name: str, names: list[str]) -> list[str]:
    """Return the phases with this number, else those of this title, else those that begin so."""
    wanted = slug(name)
    numbered = [one for one in names if split_name(one)[0] == name.replace(".", "_")]
    titled = [one for one in names if wanted and wanted in (slug(one), slug(split_name(one)[1]))]
    begun = [
        one for one in names if wanted and (slug(one).startswith(wanted) or slug(split_name(one)[1]).startswith(wanted))
    ]
    return numbered or titled or begun


def slug(text: str) -> str:
    """Return a text as letters and digits, joined by dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
