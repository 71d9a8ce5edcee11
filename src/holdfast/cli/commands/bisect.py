"""Find the first checkpoint at whose files a command fails, and the call that made it.

The command runs in a scratch directory with the files of about log2 of the checkpoints; 125 says that one cannot be
tried. What was tried is remembered, so that the same line continues a search that was interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.errors import told_text
from holdfast.documents import plain
from holdfast.errors import NotFound, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run")
    parser.words_before = 1
    parser.add_argument("command_line", metavar="COMMAND", nargs="*", help="what to try, after --")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, help="a command that takes longer counts as failed")


def execute(arguments: Namespace, session: Session) -> int:
    """Search, and say what was found."""
    if not arguments.command_line:
        raise UsageError("say what to try after --, as in `holdfast bisect RUN -- pytest -q`")
    out = session.out
    found = session.hf.files.bisect(
        session.run_id(arguments.run),
        arguments.command_line,
        tell=lambda seq, outcome: out.note(f"checkpoint {seq}: {outcome}"),
        timeout_s=arguments.timeout,
    )
    out.document(plain(found))
    for line in found.lines():
        out.line(told_text(line))
    return 0 if found.first_bad is not None else NotFound.exit_code
