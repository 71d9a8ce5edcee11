"""List the files of a checkpoint, with mode, size and hash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.output import Cell, Paint
from holdfast.cli.paths import check_fits, fits, inside
from holdfast.cli.times import number, size
from holdfast.errors import UsageError
from holdfast.model.sections import WORKSPACE

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.workspace.tree import FileRecord

_TYPES = {"file": "-", "directory": "d", "link": "l"}


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="an id or a part of it, a label, RUN, RUN@7, RUN~2 or RUN#812"
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", help="only these, what is below them, or what fits *.py")
    parser.add_argument("-l", "--long", action="store_true", help="with mode, size and hash")
    parser.add_argument("--workspace", metavar="DIR", help="the directory that was captured (the project's folder)")
    parser.add_argument("--left-out", action="store_true", help="list what was not captured, and why")


def execute(arguments: Namespace, session: Session) -> int:
    checkpoint = session.find(arguments.checkpoint)
    check_has_files(checkpoint)
    if arguments.left_out:
        return _left_out(checkpoint, session)
    found = checkpoint.files()
    wanted = [inside(path, Path(arguments.workspace or session.root)) for path in arguments.paths]
    check_fits(wanted, [one.path for one in found])
    records = [one for one in found if fits(one.path, wanted)]
    out = session.out
    out.document(
        {
            "id": checkpoint.id,
            "files": [
                {
                    "path": one.path,
                    "kind": one.kind,
                    "size_bytes": one.size,
                    "mode": f"{one.mode:04o}",
                    "hash": one.hash or None,
                    "target": one.target or None,
                }
                for one in records
            ],
        }
    )
    with out.paged():
        if arguments.long:
            out.table([_row(one) for one in records])
        else:
            for one in records:
                if one.kind != "directory":
                    out.line(one.path)
    if not records:
        out.note("No files were captured.")
    return 0


def check_has_files(checkpoint: Checkpoint) -> None:
    """Raise UsageError if a checkpoint holds no directory."""
    if WORKSPACE not in checkpoint.sections:
        raise UsageError(
            f"checkpoint {checkpoint.run}@{checkpoint.seq} holds no files: "
            f"`holdfast checkpoint {checkpoint.run} --workspace DIR` captures them"
        )


def _row(one: FileRecord) -> list[Cell]:
    target = f" -> {one.target}" if one.kind == "link" else ""
    return [
        Cell.of(Paint(f"{_TYPES.get(one.kind, '?')}{one.mode:04o}", "dim")),
        Cell.of(size(one.size) if one.kind == "file" else "-", right=True),
        Cell.of(Paint(one.hash[:12] or "-", "dim")),
        Cell.of(one.path + target),
    ]


def _left_out(checkpoint: Checkpoint, session: Session) -> int:
    skips, out = checkpoint.not_captured, session.out
    shown = [(one.path.decode("utf-8", "surrogateescape"), one.reason) for one in skips.listed]
    out.document(
        {
            "id": checkpoint.id,
            "counts": dict(skips.counts),
            "left_out": [{"path": path, "reason": reason} for path, reason in shown],
        }
    )
    with out.paged():
        out.table([[Cell.of(Paint(reason, "dim")), Cell.of(path)] for path, reason in shown])
    total = sum(skips.counts.values())
    if total > len(shown):
        out.note(f"{number(total - len(shown), 'more path')} not listed.")
    if not total:
        out.note("Everything was captured.")
    return 0
