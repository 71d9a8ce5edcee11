"""Advance one submitted run by hand, as a worker would: the body of a cron line or of a job elsewhere.

Exits with 0 when nothing is left to do, with 9 when the run waits; --json says until when. SIGTERM leaves the run at
its next boundary.
"""

from __future__ import annotations

import signal
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.cli.commands.worker import functions_of

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session

_WAITS = 9


def configure(parser: CommandParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run")
    parser.add_argument("--root", metavar="DIR", required=True, help="where the runs' directories are made")
    parser.add_argument("--lease", metavar="SECONDS", type=float, help="how long others wait for it if it dies (30)")
    parser.add_argument(
        "--functions", metavar="MODULE", action="append", default=[], help="a module whose functions runs may call"
    )


def execute(arguments: Namespace, session: Session) -> int:
    from holdfast.worker.delivery import Worker  # noqa: PLC0415 - help does without
    from holdfast.worker.port import Delivery, Done  # noqa: PLC0415

    session.run_id(arguments.run)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    worker = Worker(
        partial(session.handle, lease_s=arguments.lease),
        Path(arguments.root).absolute(),
        functions=functions_of(arguments.functions),
        stop=stop,
    )
    outcome = worker.handle(Delivery(arguments.run, 1, threading.Event()))
    name = type(outcome).__name__.lower()
    session.out.document({"run": arguments.run, "outcome": name, **msgspec.to_builtins(outcome)})
    session.out.note(f"{arguments.run}: {outcome.status if isinstance(outcome, Done) else name}")
    return 0 if isinstance(outcome, Done) else _WAITS
