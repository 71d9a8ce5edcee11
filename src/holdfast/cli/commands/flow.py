"""Check a flow file without running it, or print the JSON Schema of flow files for an editor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.parser import CommandParser
from holdfast.cli.times import number
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True, parser_class=CommandParser)
    about = "say what is wrong with a flow file, and what is probably a mistake"
    check = parts.add_parser("check", help=about, description=about)
    check.add_argument("flow", metavar="FLOW", help="the flow's file, or a plan in Markdown")
    parser.parts["check"] = check
    about = "print the JSON Schema of flow files"
    parser.parts["schema"] = parts.add_parser("schema", help=about, description=about)


def execute(arguments: Namespace, session: Session) -> int:
    """Do the part that is named; a file that cannot be followed is an error with every problem."""
    if arguments.part == "schema":
        from holdfast.flow.schema import schema_text  # noqa: PLC0415 - help does without

        session.out.stdout.write(schema_text())
        return 0
    return _check(Path(arguments.flow), session)


def _check(file: Path, session: Session) -> int:
    from holdfast.flow.check import warnings_of  # noqa: PLC0415
    from holdfast.flow.load import read_flow, sentences  # noqa: PLC0415

    if not file.exists():
        raise NotFound("flow file", str(file))
    flow, document = read_flow(file)
    warnings = sentences(warnings_of(flow), document)
    out = session.out
    out.document({"flow": flow.name, "phases": list(flow.phases), "problems": warnings})
    for warning in warnings:
        out.line(f"warning: {warning}")
    out.line(f"{flow.name}: {number(len(flow.phases), 'phase')}, {number(len(warnings), 'warning')}")
    return 0
