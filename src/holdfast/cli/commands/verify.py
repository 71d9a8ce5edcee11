"""Check every record, link, head and chunk of the store, and name each fault; nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.errors import told_text
from holdfast.cli.output import Paint
from holdfast.cli.times import number
from holdfast.documents import plain
from holdfast.errors import IntegrityError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "--remembered",
        metavar="RUN=ID",
        action="append",
        default=[],
        help="a head that you kept elsewhere: history that was cut off or rolled back shows; may be repeated",
    )


def execute(arguments: Namespace, session: Session) -> int:
    out = session.out
    remembered = {}
    for one in arguments.remembered:
        run, equals, head = one.rpartition("=")
        if not equals:
            raise UsageError(f"--remembered {one!r}: write RUN=ID")
        remembered[run] = head
    with session.progress("Verifying") as progress:
        report = session.hf.verify(
            progress=lambda what, count: progress.update(count, None, what), remembered=remembered
        )
    out.document({"sound": report.sound, **plain(report)})
    for fault in report.faults:
        place = " ".join(word for word in (fault.run, fault.checkpoint, fault.section) if word)
        out.line(Paint(f"{fault.kind:<11}", "red"), f"{place}: " if place else "", told_text(fault.detail))
    for note in report.notes:
        out.line(Paint(f"{'note':<11}", "yellow"), note)
    found = (
        f"{number(report.runs, 'run')}, {number(report.checkpoints, 'checkpoint')}, {number(report.chunks, 'chunk')}"
    )
    if report.sound:
        out.line(Paint("Sound: ", "green"), f"{found} checked.")
        return 0
    out.line(Paint(f"{number(len(report.faults), 'fault')}: ", "red"), f"{found} checked.")
    out.note("Other checkpoints stay readable. `holdfast repair` repairs what it can.")
    return IntegrityError.exit_code
