"""Save a script's own state with its run: a JSON file, or standard input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.commands.checkpoint import read_sections
from holdfast.cli.json_values import value_or_text
from holdfast.documents import checkpoint_document
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("--state", metavar="FILE", help="the state section: a JSON file, or - for standard input")
    parser.add_argument(
        "--section",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="any other section, likewise; may be repeated",
    )
    parser.add_argument(
        "--path", metavar="NAME=PATH", action="append", default=[], help="where artifacts lie; may be repeated"
    )
    parser.add_argument(
        "--note",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="context metadata, JSON or text; may be repeated",
    )
    parser.add_argument("--label", metavar="NAME", help="a name for this checkpoint")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, in words")
    script.add_run_option(parser)


def execute(arguments: Namespace, session: Session) -> int:
    notes = {name: value_or_text(value) for name, value in map(_pair, arguments.note)}
    paths = dict(map(_pair, arguments.path))
    has_sections = arguments.state is not None or arguments.section
    values = read_sections(arguments.state, arguments.section) if has_sections or not (notes or paths) else {}
    run = script.open_run(session, script.meant_run(session, arguments))
    with script.held(run):
        if paths:
            notes["artifact_paths"] = {**run.context.metadata.get("artifact_paths", {}), **paths}
        if notes:
            run.context.note(**notes)
        taken = run.checkpoint(reason=arguments.reason, label=arguments.label, sections=values)
    if not taken.saved:
        raise UsageError("checkpointing is disabled in the settings (enabled: false), so nothing was saved")
    session.out.document(checkpoint_document(taken))
    session.out.note(f"Saved as {taken.run}@{taken.seq}.")
    return 0


def _pair(given: str) -> tuple[str, str]:
    name, is_pair, value = given.partition("=")
    if not name or not is_pair:
        raise UsageError(f"{given!r}: give NAME=VALUE")
    return name, value
