"""Serve this project's runs to an MCP client on standard input and output; `confirm` says yes to what one asked for.

A client may look. `--allow-write` lets it take checkpoints and set labels. `--allow-restore` lets it ask for a restore,
which a person confirms with `holdfast mcp confirm CODE` in a terminal of their own. Deleting, pruning, keys and
approvals are never served.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.cli.errors import Declined
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.engine import Holdfast


def configure(parser: CommandParser) -> None:
    parser.add_argument("what", nargs="?", choices=("confirm",), help="confirm what a client asked for")
    parser.add_argument("code", nargs="?", metavar="CODE", help="which request; else the only one that waits")
    parser.add_argument(
        "--run", metavar="PATTERN", action="append", default=[], help="only these runs; may be repeated"
    )
    parser.add_argument("--allow-write", action="store_true", help="let it take checkpoints and set labels")
    parser.add_argument("--allow-restore", action="store_true", help="let it ask for restores, which you confirm")


def execute(arguments: Namespace, session: Session) -> int:
    """Serve, or confirm."""
    return _confirm(arguments.code, session) if arguments.what == "confirm" else _serve(arguments, session)


def _serve(arguments: Namespace, session: Session) -> int:
    try:
        from holdfast.mcp.server import make_server  # noqa: PLC0415 - the SDK takes a second to load
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError("the MCP server needs its extra: pip install 'holdfast[mcp]'") from None
    from holdfast.cli.commands.hook import place_of  # noqa: PLC0415
    from holdfast.cli.place import local_path  # noqa: PLC0415
    from holdfast.engine import open as open_holdfast  # noqa: PLC0415
    from holdfast.mcp.scope import Grants, Scope  # noqa: PLC0415
    from holdfast.settings.values import Settings  # noqa: PLC0415

    place = place_of(str(session.root), session.options.store)
    file = local_path(place.url)

    def opened(for_writing: bool) -> Holdfast:  # noqa: FBT001
        only: dict[str, Any] = (
            {"read_only": True} if not for_writing and file is not None and file.suffix == ".db" else {}
        )
        if only and not file.exists():  # type: ignore[union-attr]
            raise UsageError("this project has no runs yet: nothing was begun here")
        return open_holdfast(place.url, settings=place.settings or Settings(), reveal=False, **only)

    grants = Grants(write=arguments.allow_write, restore=arguments.allow_restore)
    scope = Scope(place.root, opened, tuple(arguments.run), grants)
    make_server(scope, place.for_hooks() if grants.write else None).run("stdio")
    return 0


def _confirm(code: str | None, session: Session) -> int:
    """Show a request and ask; only a terminal can say yes, so that no program agrees to its own request."""
    from holdfast.mcp.confirm import confirm, find_request  # noqa: PLC0415

    pending = find_request(session.root, code, time.time())
    for line in pending.lines:
        session.out.line(line)
    if session.options.yes or not session.ask.can_ask:
        raise UsageError("a confirmation is typed by a person: run this in a terminal, without --yes and --json")
    if not session.ask.agreed(f"Let the client carry this out ({pending.code})?"):
        raise Declined
    confirm(session.root, pending)
    session.out.note("Confirmed for ten minutes from when it was asked for; the client's next call carries it out.")
    return 0
