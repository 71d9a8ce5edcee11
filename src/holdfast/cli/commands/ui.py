"""Show the store as a page in your browser: runs, checkpoints, comparisons, recovery plans, approvals.

Only this machine can reach it, and only with the address that is printed, which works once. It shows and changes
nothing unless --write is given.
"""

from __future__ import annotations

import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import Paint
from holdfast.cli.people import me
from holdfast.cli.place import local_path
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.place import StorePlace
    from holdfast.cli.session import Session
    from holdfast.engine import Holdfast

_MOST_PORTS = 65_535


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--write", action="store_true", help="allow answers, recoveries and other changes")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port (any that is free)")
    parser.add_argument("--no-open", action="store_true", help="print the address and open no browser")
    parser.add_argument("--workspace", metavar="DIR", help="the directory of the runs (the project's folder)")


def execute(arguments: Namespace, session: Session) -> int:
    """Serve until it is stopped."""
    check_extra()
    from holdfast.web.serve import serve  # noqa: PLC0415 - needs the extra

    if not 0 <= arguments.port <= _MOST_PORTS:
        raise UsageError(f"--port {arguments.port}: give a number from 0 to {_MOST_PORTS}")
    session.place.check_is_there()
    session.hf.close()  # whether it can be opened is told at once, and not by the page
    workspace = Path(arguments.workspace) if arguments.workspace else session.root

    def ready(address: str) -> None:
        session.out.document({"address": address, "write": arguments.write})
        session.out.line(Paint(address, "bold"))
        what = "You can change things there." if arguments.write else "It only shows; --write allows changes."
        session.out.note(f"The address works once, for a minute. {what} Ctrl+C stops it.")
        session.out.flush()
        if not arguments.no_open:
            webbrowser.open(address)

    serve(
        lambda to_write: _open(session.place, to_write=to_write),
        port=arguments.port,
        writes=arguments.write,
        workspace=workspace.resolve(),
        user=me(session.out.environment),
        ready=ready,
    )
    return 0


def check_extra() -> None:
    """Refuse where the page's extra is not installed."""
    if not (find_spec("starlette") and find_spec("uvicorn")):
        raise UsageError("the page needs the extra: pip install 'holdfast[web]'")


def _open(place: StorePlace, *, to_write: bool) -> Holdfast:
    """Open the store for one thread of the page: for reading where that will do, and with no secret filled in again."""
    from holdfast.engine import open as open_holdfast  # noqa: PLC0415 - as every command does
    from holdfast.settings.values import Settings  # noqa: PLC0415

    file = local_path(place.url)
    is_sqlite = file is not None and not place.url.startswith("file:")
    options: dict[str, Any] = {"read_only": True} if is_sqlite and not to_write else {}
    return open_holdfast(place.url, settings=place.settings or Settings(), reveal=False, **options)
