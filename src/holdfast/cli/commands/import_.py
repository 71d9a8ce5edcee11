"""Take over the runs of an exported file; everything in it is verified, and nothing here is overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.commands.copy import show_copied
from holdfast.settings.outside import read_key_file
from holdfast.store.keys import has_keys

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the exported file")
    parser.add_argument("runs", metavar="RUN", nargs="*", help="these runs only; without any, all")
    parser.add_argument("--key-file", metavar="FILE", help="the key of the store that it was exported from")


def execute(arguments: Namespace, session: Session) -> int:
    key = read_key_file(arguments.key_file) if arguments.key_file else None
    hf = session.open()
    with session.progress("Importing") as progress:
        copied = hf.transfer.import_from(
            arguments.file,
            *arguments.runs,
            key=key,
            progress=lambda run, done, of: progress.update(done, of, run),
        )
    show_copied(copied, session)
    if not hf.keys.ids() and has_keys(hf.store):
        session.out.note(
            "This store was empty and is locked as the file is. Name its key in holdfast.yaml, then run "
            "`holdfast trust`:"
        )
        session.out.note(f"  encryption: {{key_file: {arguments.key_file}}}")
    return 0
