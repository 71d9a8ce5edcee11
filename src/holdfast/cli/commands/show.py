"""Show a checkpoint or a position: when and why it was taken, where the run stood, what is in it; or sections."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.cli import script
from holdfast.cli.describe import marks, status, trigger
from holdfast.cli.errors import told
from holdfast.cli.escape import json_text
from holdfast.cli.ids import Short
from holdfast.cli.output import Cell, Paint
from holdfast.cli.times import age, moment, number, size
from holdfast.documents import checkpoint_document, plain
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.gather import info_of
from holdfast.store.tables import MAIN

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session

_PREVIEW = 60


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        nargs="?",
        help="an id or a part of it, a label, RUN, RUN@7, RUN~2 or RUN#812; otherwise the newest of the run that moved "
        "last",
    )
    parser.add_argument("sections", metavar="SECTION", nargs="*", help="show the content of these sections instead")


def execute(arguments: Namespace, session: Session) -> int:
    out = session.out
    session.hf.internals.types.show_unknown()
    checkpoint = session.find(script.spec_or_last(session, arguments.checkpoint))
    if arguments.sections:
        return _sections(checkpoint, arguments.sections, session)
    if out.json:
        out.document(_document(checkpoint))
        return 0
    with out.paged():
        _facts(checkpoint, session)
        out.line()
        rows = [_section_row(checkpoint, name) for name in checkpoint.sections]
        out.table(rows, ("SECTION", "SIZE", "CONTENT"))
    return 0


def _facts(checkpoint: Checkpoint, session: Session) -> None:
    out, short = session.out, Short()
    out.line(Paint(checkpoint.id, "yellow"), " ", *marks(checkpoint))
    out.fact("name", checkpoint.readable_id)
    _place_facts(checkpoint, session)
    out.fact("taken", f"{moment(checkpoint.created_at)} ({age(checkpoint.created_at, session.now())})")
    out.fact("trigger", trigger(checkpoint.trigger))
    if checkpoint.reason:
        out.fact("reason", checkpoint.reason)
    if checkpoint.parent:
        out.fact("parent", short(checkpoint.parent))
    summary = checkpoint.summary
    if summary.status:
        out.fact("status", status(summary.status))
    for name, value in (("phase", summary.phase), ("state", summary.state)):
        if value:
            out.fact(name, value)
    if summary.steps:
        out.fact("calls", number(summary.steps, "record"))
    if summary.agents:
        out.fact("agents", ", ".join(f"{count} {name}" for name, count in summary.agents.items()))
    if summary.budget_used:
        out.fact("used", ", ".join(f"{name} {amount:g}" for name, amount in summary.budget_used.items()))
    _recovery_facts(checkpoint, session)
    if checkpoint.redacted_count:
        rules = sorted({one.rule for one in checkpoint.redacted})
        out.fact("kept out", f"{number(checkpoint.redacted_count, 'secret')} ({', '.join(rules)})")
    out.fact("size", f"{size(checkpoint.size_bytes)}, of which {size(checkpoint.stored_bytes)} new in the store")
    _workspace_facts(checkpoint, session)


def _place_facts(checkpoint: Checkpoint, session: Session) -> None:
    out = session.out
    out.fact("run", Paint(checkpoint.run, "bold"), f" @{checkpoint.seq}")
    if checkpoint.line != MAIN:
        out.fact("line", checkpoint.line)
    if checkpoint.capture_note:
        out.fact("position", Paint(checkpoint.place, "bold"), f": {checkpoint.capture_note}")


def _recovery_facts(checkpoint: Checkpoint, session: Session) -> None:
    recovery, out = info_of(session.hf, checkpoint), session.out
    if recovery.can_resume:
        places = (recovery.resume_phase, recovery.resume_state, recovery.resume_agent, recovery.resume_task)
        named = ", ".join(dict.fromkeys(place for place in places if place))
        out.fact("resume", Paint("yes", "green"), f", from {named}" if named else "")
    else:
        out.fact("resume", Paint("no", "red"), f": {'; '.join(recovery.blockers)}")
    for need in recovery.prerequisites:
        out.fact("needs", need)
    for warning in recovery.warnings:
        out.fact("", Paint(warning, "yellow"))


def _workspace_facts(checkpoint: Checkpoint, session: Session) -> None:
    if WORKSPACE not in checkpoint.sections:
        return
    out = session.out
    try:
        files = checkpoint.workspace
    except HoldfastError as error:
        out.warn(str(error))
        return
    out.fact("files", f"{number(files.files, 'file')}, {size(files.size_bytes)}")
    git = files.git
    if git.head != "none":
        words = [git.branch or git.head, (git.commit or "")[:12]]
        words += ["changed"] if git.dirty else []
        words += [f"{git.operation} under way"] if git.operation else []
        out.fact("git", ", ".join(word for word in words if word))
    if files.skips:
        out.fact("left out", ", ".join(f"{count} {reason}" for reason, count in files.skips.counts.items()))


def _section_row(checkpoint: Checkpoint, name: str) -> list[Cell]:
    stored = [size(one.size) for one in checkpoint.record.envelope.sections if one.name == name]
    taken = stored[0] if stored else ""  # what only the journal has is not a section of its own yet
    return [Cell.of(Paint(name, "bold")), Cell.of(taken, right=True), Cell.of(_preview(checkpoint, name))]


def _preview(checkpoint: Checkpoint, name: str) -> str | Paint:
    if name == WORKSPACE:
        return Paint("`holdfast files` lists them", "dim")
    try:
        value = plain(checkpoint.section(name))
    except HoldfastError as error:
        return Paint(told(error), "red")
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 3] + "..."


def _sections(checkpoint: Checkpoint, names: list[str], session: Session) -> int:
    out = session.out
    for name in names:
        if name not in checkpoint.sections:
            raise NotFound(
                "section", name, f"{checkpoint.run}@{checkpoint.seq} has {', '.join(checkpoint.sections) or 'none'}"
            )
    values = {name: section_value(checkpoint, name) for name in names}
    out.document({"id": checkpoint.id, "run": checkpoint.run, "seq": checkpoint.seq, "sections": values})
    shown = values[names[0]] if len(names) == 1 else values
    with out.paged():
        out.block(json_text(shown))
    return 0


def section_value(checkpoint: Checkpoint, name: str) -> Any:
    """Return a section as plain JSON; of the workspace its summary."""
    if name != WORKSPACE:
        return plain(checkpoint.section(name))
    files = checkpoint.workspace
    return {
        "files": files.files,
        "directories": files.directories,
        "size_bytes": files.size_bytes,
        "not_captured": dict(files.not_captured.counts),
        "git": [
            {
                "path": one.path,
                "head": one.head,
                "branch": one.branch,
                "commit": one.commit,
                "operation": one.operation,
                "staged": [list(change) for change in one.staged],
                "unstaged": [list(change) for change in one.unstaged],
            }
            for one in files.positions
        ],
    }


def _document(checkpoint: Checkpoint) -> dict[str, Any]:
    summary, recovery = checkpoint.summary, checkpoint.recovery
    envelope = checkpoint.record.envelope
    document = checkpoint_document(checkpoint)
    document |= {
        "checksum": checkpoint.checksum,
        "format_version": envelope.format_version,
        "program_version": envelope.program_version,
        "codec": envelope.codec,
        "agents": dict(summary.agents),
        "budget_used": dict(summary.budget_used),
        "recovery": plain(recovery),
        "redacted": [{"path": one.path, "rule": one.rule} for one in checkpoint.redacted],
        "sections": {
            one.name: {"size_bytes": one.size, "root": one.root.hex(), "redacted": one.redacted_count}
            for one in envelope.sections
        },
    }
    if WORKSPACE in checkpoint.sections:
        document["workspace"] = section_value(checkpoint, WORKSPACE)
    return document
