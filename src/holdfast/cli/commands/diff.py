"""Compare two checkpoints or positions, or one with now: state, calls and notes, files as unified diffs.

`diff A B` shows what became of A until B, `diff A` what became of it until now, `diff A --parent` what A changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import script
from holdfast.cli.output import Paint
from holdfast.cli.paths import check_fits, fits, inside
from holdfast.cli.times import number
from holdfast.errors import UsageError
from holdfast.model.sections import WORKSPACE

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.output import Output
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.recovery.compare import StateDiff
    from holdfast.workspace.diff import FileDiff

_LETTERS = {"created": "A", "modified": "M", "deleted": "D", "renamed": "R", "mode": "T"}


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "old",
        metavar="CHECKPOINT",
        nargs="?",
        help="the earlier one: an id, RUN@7, a label, or RUN#812, a position in its journal; otherwise the newest of "
        "the run that moved last",
    )
    parser.add_argument("new", metavar="CHECKPOINT", nargs="?", help="the later one; without it, the directory now")
    parser.add_argument("--parent", action="store_true", help="compare the checkpoint with the one it was taken on")
    parser.add_argument("--path", metavar="PATH", action="append", default=[], help="only these files; may be repeated")
    parser.add_argument("--stat", action="store_true", help="one line a section and a file")
    parser.add_argument("--names", action="store_true", help="only the names, with a letter: A, M, D, R, T (mode)")
    parser.add_argument("--only", choices=("state", "files"), help="only one of the two")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if anything differs")
    parser.add_argument("--workspace", metavar="DIR", help="the directory now (the project's folder)")


def execute(arguments: Namespace, session: Session) -> int:
    out = session.out
    session.hf.internals.types.show_unknown()
    old, new = _sides(arguments, session)
    state = _state_diff(old, new, session) if arguments.only != "files" and not arguments.path else None
    found: list[FileDiff] = []
    if arguments.only != "state":
        wanted = _wanted(old, new, arguments, session)
        found = [one for one in _file_diffs(old, new, arguments, session) if fits(one.change.path, wanted)]
    out.document(
        {
            "old": old.id if old is not None else None,
            "new": new.id if new is not None else None,
            "old_place": old.place if old is not None else None,
            "new_place": new.place if new is not None else None,
            "state": state.to_json() if state is not None else None,
            "files": [_document(one) for one in found],
        }
    )
    for side in (old, new):
        if side is not None and side.capture_note:
            out.note(f"{side.place}: {side.capture_note}.")
    with out.paged():
        if state is not None and state.sections and not arguments.names:
            _show_state(state, out, heads_only=arguments.stat)
        _show(found, arguments, session)
    differs = bool(found or (state is not None and state.sections))
    if not differs:
        out.note("No differences.")
    return 1 if differs and arguments.exit_code else 0


def _wanted(old: Checkpoint | None, new: Checkpoint | None, arguments: Namespace, session: Session) -> list[str]:
    """Return the paths to compare as checkpoints name them; NotFound for one that neither side has."""
    root = Path(arguments.workspace or session.root)
    wanted = [inside(path, root) for path in arguments.path]
    sides = [one for one in (old, new) if one is not None and WORKSPACE in one.sections] if wanted else []
    known = {file.path for one in sides for file in one.files()}
    here = [path for path in wanted if new is None and (root / path).exists()]
    check_fits([path for path in wanted if path not in here], sorted(known))
    return wanted


def _state_diff(old: Checkpoint | None, new: Checkpoint | None, session: Session) -> StateDiff | None:
    """Return what became of the state; until now means until the run's head."""
    if old is None:
        return None
    until = new or session.hf.find(old.run, sound=False)
    return session.hf.diff(old, until).state if until.place != old.place else None


def _show_state(state: StateDiff, out: Output, *, heads_only: bool) -> None:
    for line in state.lines(width=(out.width or 200) // 2):
        if heads_only and (line.startswith(" ") or line.endswith(":")):
            continue
        sign = line.strip()[:1]
        out.line(Paint(line, {"+": "green", "-": "red", "~": "yellow"}.get(sign, "bold")))


def _sides(arguments: Namespace, session: Session) -> tuple[Checkpoint | None, Checkpoint | None]:
    """Return both checkpoints; no old one is nothing at all, no new one is now."""
    first = session.find(script.spec_or_last(session, arguments.old))
    if arguments.parent:
        if arguments.new is not None:
            raise UsageError("--parent compares one checkpoint with the one before it: name only one")
        return (session.hf.get(first.parent) if first.parent else None), first
    return first, session.find(arguments.new) if arguments.new is not None else None


def _file_diffs(
    old: Checkpoint | None, new: Checkpoint | None, arguments: Namespace, session: Session
) -> list[FileDiff]:
    if new is not None:
        return new.diff(old) if WORKSPACE in new.sections else []
    if old is None or WORKSPACE not in old.sections:
        return []
    run = session.hf.run(old.run, workspace=session.directory_of(old.run, arguments.workspace))
    return run.workspace.diff(old)


def _show(found: Sequence[FileDiff], arguments: Namespace, session: Session) -> None:
    out = session.out
    if not found:
        return
    if arguments.names:
        for one in found:
            out.line(Paint(_LETTERS[one.change.status], "yellow"), " ", one.change.path)
        return
    if arguments.stat:
        from holdfast.workspace.diff import summary  # noqa: PLC0415 - only for --stat

        out.block(summary(found))
        return
    show_files(found, session)


def show_files(found: Sequence[FileDiff], session: Session) -> None:
    """Show how files differ, line by line."""
    out = session.out
    for one in found:
        _show_one(one, out)
    added, removed = sum(one.added for one in found), sum(one.removed for one in found)
    out.detail(f"{number(len(found), 'path')} differ, {added} lines more, {removed} less.")


def _show_one(one: FileDiff, out: Output) -> None:
    change = one.change
    title = f"{change.status} {change.path}"
    if change.status == "renamed" and change.before is not None:
        title = f"renamed {change.before.path} -> {change.path}"
    if change.before is not None and change.after is not None and change.before.mode != change.after.mode:
        title += f" (mode {change.before.mode:04o} -> {change.after.mode:04o})"
    out.line(Paint(title, "bold"), Paint(f" ({one.note})" if one.note else "", "dim"))
    for line in one.text.removesuffix("\n").split("\n") if one.text else ():
        show_diff_line(line, out)


def show_diff_line(line: str, out: Output) -> None:
    """Write one line of a unified diff in its colour; tabs stay."""
    colour = "bold" if line.startswith(("---", "+++")) else {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
    out.line(Paint(line.expandtabs(8), colour) if out.interactive else Paint(line, colour))


def _document(one: FileDiff) -> dict[str, Any]:
    before = one.change.before
    return {
        "path": one.change.path,
        "status": one.change.status,
        "old_path": before.path if before is not None else None,
        "added": one.added,
        "removed": one.removed,
        "note": one.note or None,
        "diff": one.text or None,
    }
