"""Take a checkpoint of a run; a new run begins with its first one. What is not given is carried over."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from holdfast.cli import script
from holdfast.cli.filters import add_attribute, attributes_of
from holdfast.cli.ids import Short
from holdfast.cli.json_values import MOST_BYTES, read_value
from holdfast.cli.output import Paint
from holdfast.cli.times import number, size
from holdfast.documents import checkpoint_document
from holdfast.encode.documents import read_regular
from holdfast.errors import DocumentInvalid, NotFound, UsageError
from holdfast.model.triggers import Trigger

if TYPE_CHECKING:
    from argparse import Namespace
    from contextlib import AbstractContextManager

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.model.checkpoint import CheckpointRecord


def configure(parser: CommandParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run")
    parser.add_argument("--label", metavar="NAME", help="a name for this checkpoint")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, in words")
    parser.add_argument(
        "--trigger", metavar="NAME", choices=tuple(map(str, Trigger)), default="manual", help="what caused it (manual)"
    )
    parser.add_argument("--key", metavar="KEY", help="a key of yours, by which `holdfast log --key` finds it")
    add_attribute(parser, "an attribute of yours, by which `holdfast log --attribute` finds it; may be repeated")
    parser.add_argument(
        "--run-key", metavar="KEY", help="a key of yours for the run, by which `holdfast ls --key` finds it"
    )
    parser.add_argument(
        "--run-attribute",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an attribute of the run, by which `holdfast ls --attribute` finds it; may be repeated",
    )
    parser.add_argument("--pin", action="store_true", help="keep it whatever the retention says")
    parser.add_argument("--state", metavar="FILE", help="the state section: a JSON file, or - for standard input")
    parser.add_argument(
        "--section",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="any other section, likewise; may be repeated",
    )
    parser.add_argument(
        "--workspace", metavar="DIR", nargs="?", const="", help="with the files of a directory (the project's folder)"
    )


def execute(arguments: Namespace, session: Session) -> int:
    values = read_sections(arguments.state, arguments.section)
    hf, out = session.open(), session.out
    workspace = None if arguments.workspace is None else arguments.workspace or session.root
    about = attributes_of(arguments.run_attribute)
    run = hf.run(arguments.run, workspace=workspace, key=arguments.run_key, attributes=about)
    with script.held(run), session.progress("Capturing") as progress:
        before = run.recorder.head_record
        edits: dict[str, Any] = {}
        around: AbstractContextManager[Any] = nullcontext((edits, ()))
        if run.host.has_workspace:
            from holdfast.run_files import captured_for_others  # noqa: PLC0415 - loaded when it is used

            around = captured_for_others(run)
            run.workspace.capture.progress = lambda files, _size, path: progress.update(files, None, path)
        with around as (edits, _):
            taken = run.checkpoint(
                trigger=arguments.trigger,
                reason=arguments.reason,
                label=arguments.label,
                pinned=arguments.pin,
                sections={**values, **edits},
                key=arguments.key,
                attributes=attributes_of(arguments.attribute),
            )
    if not taken.saved:
        raise UsageError("checkpointing is disabled in the settings (enabled: false), so nothing was saved")
    _warn_of_damage(before, taken, session)
    out.document(checkpoint_document(taken))
    out.line(
        Paint(Short()(taken.id), "yellow"), f" {taken.run} @{taken.seq}, {size(taken.stored_bytes)} new in the store"
    )
    if taken.redacted_count:
        out.note(
            f"{number(taken.redacted_count, 'value')} kept out for looking like a secret; "
            f"`holdfast show {taken.run}` tells."
        )
    return 0


def _warn_of_damage(before: CheckpointRecord | None, taken: Checkpoint, session: Session) -> None:
    """Check the sections that were carried over unread: a script that never reads them would not notice."""
    from holdfast.verify.check import faults_carried  # noqa: PLC0415 - loaded when it is used

    if before is None:
        return
    for fault in faults_carried(session.hf.store, taken.record, before):
        session.out.warn(
            f"section {fault.section}, carried over from {taken.run}@{before.envelope.seq}, is damaged: "
            f"{fault.detail}. Give it again, or `holdfast resume {taken.run}` goes back to the newest sound checkpoint"
        )


def read_sections(state: str | None, others: list[str]) -> dict[str, Any]:
    """Return the sections that files give; UsageError says which is not JSON."""
    given = [("state", state)] if state is not None else []
    for one in others:
        name, equals, file = one.partition("=")
        if not (name and equals and file):
            raise UsageError(f"--section {one!r}: write NAME=FILE, with - for standard input")
        given.append((name, file))
    if sum(file == "-" for _, file in given) > 1:
        raise UsageError("standard input can give one section only: put the others into files")
    return {name: read_json(file) for name, file in given}


def read_json(file: str) -> Any:
    """Return the JSON in a file, or on standard input for `-`."""
    if file == "-" and sys.stdin is None:
        raise UsageError("standard input is closed: give a file")
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            data = read_regular(file, limit=MOST_BYTES, follow=True)
    except FileNotFoundError:
        raise NotFound("file", file) from None
    except DocumentInvalid as error:
        raise UsageError(f"{file!r} {error.detail}: give a plain file, or - for standard input") from None
    return read_value(data, "standard input" if file == "-" else repr(file))
