"""Show what became of a file over the checkpoints of a run: which call made each version, at what cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.errors import told_text
from holdfast.cli.output import Paint
from holdfast.cli.paths import inside
from holdfast.cli.times import age
from holdfast.documents import plain

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the file, as it is named from here")
    script.add_shown_run(parser)


def execute(arguments: Namespace, session: Session) -> int:
    """Show it, oldest first."""
    out, now = session.out, session.now()
    run = script.shown_run(session, arguments)
    path = inside(arguments.file, session.directory_of(run, reads_only=True))
    versions = session.hf.files.history(run, path)
    out.document({"run": run, "path": path, "versions": [plain(one) for one in versions]})
    for one in versions:
        author = one.author
        out.line(Paint(f"@{author.seq:<5}", "yellow"), f"{one.status:<8} ", told_text(str(author)))
        out.note(f"       {age(author.at, now)}" + (f", given {author.prompt!r}" if author.prompt else ""))
    return 0
