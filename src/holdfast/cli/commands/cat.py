"""Write a file of a checkpoint to standard output, byte for byte; on a terminal what it would obey is written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.commands.files import check_has_files
from holdfast.cli.paths import inside
from holdfast.errors import NotFound, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "file",
        metavar="CHECKPOINT:PATH",
        help="the file, from the top as in issue-42~2:src/main.py, or from here as in issue-42:./main.py",
    )
    parser.add_argument("--raw", action="store_true", help="byte for byte on a terminal, too")


def execute(arguments: Namespace, session: Session) -> int:
    out = session.out
    checkpoint, path = _found(arguments.file, session)
    data = checkpoint.read(path)
    if out.json:
        import base64  # noqa: PLC0415 - only for --json

        content = {"base64": base64.b64encode(data).decode(), "size_bytes": len(data)}
        out.document({"id": checkpoint.id, "path": path, **content})
    elif out.interactive and not arguments.raw:
        with out.paged():
            out.block(data.decode("utf-8", "surrogateescape"))
    else:
        out.raw(data)
    return 0


def _found(spec: str, session: Session) -> tuple[Checkpoint, str]:
    """Return checkpoint and path; names such as RUN:label hold colons, so the longest that names one counts."""
    ends = [i for i, char in enumerate(spec) if char == ":"]
    if not ends or spec.endswith(":"):
        raise UsageError(f"{spec!r}: write CHECKPOINT:PATH, as in issue-42:src/main.py")
    shortest: NotFound | None = None
    for end in reversed(ends):
        try:
            checkpoint = session.find(spec[:end])
        except NotFound as error:
            shortest = error
            continue
        check_has_files(checkpoint)
        path = spec[end + 1 :]
        is_here = path.startswith(("/", "./", "../"))
        return checkpoint, inside(path, session.root) if is_here else path
    assert shortest is not None
    raise shortest
