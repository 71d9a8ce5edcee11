"""Show who wrote each line of a file: a call of the run, a person, or whoever was there before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.commands.history import configure
from holdfast.cli.errors import told_text
from holdfast.cli.output import Paint
from holdfast.cli.paths import inside
from holdfast.documents import plain

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.session import Session

__all__ = ["configure", "execute"]
_WIDEST = 40


def execute(arguments: Namespace, session: Session) -> int:
    """Show the file as the newest checkpoint has it."""
    out = session.out
    run = script.shown_run(session, arguments)
    path = inside(arguments.file, session.directory_of(run, reads_only=True))
    lines = session.hf.files.blame(run, path)
    out.document({"run": run, "path": path, "lines": [plain(one) for one in lines]})
    names = [str(one.author)[:_WIDEST] for one in lines]
    width = max(map(len, names), default=0)
    with out.paged():
        for one, name in zip(lines, names, strict=True):
            out.line(Paint(f"@{one.author.seq:<4} {name:<{width}} ", "dim"), told_text(one.text))
    return 0
