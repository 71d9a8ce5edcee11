"""Write runs with their checkpoints and files into one file that can be imported elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.commands.copy import show_copied

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="the runs")
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the file; one that is there is not touched"
    )


def execute(arguments: Namespace, session: Session) -> int:
    runs = [session.run_id(run) for run in arguments.runs]
    with session.progress("Exporting") as progress:
        copied = session.hf.transfer.export(
            arguments.output, *runs, progress=lambda run, done, of: progress.update(done, of, run)
        )
    show_copied(copied, session)
    session.out.note(f"Written to {arguments.output}; `holdfast import {arguments.output}` takes it over.")
    return 0
