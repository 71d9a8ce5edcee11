"""Advance submitted runs on this machine until Ctrl+C or SIGTERM: then runs are left at their next boundary.

Each run works in a directory of its own below --root, brought to where the run stands. Other workers take over what
this one had when it dies; what it leaves is free at once. `holdfast worker --trial` shows it in a minute.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.queue_engine import engine_of
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("--queue", metavar="NAME", action="append", help="a queue to serve (default); may be repeated")
    parser.add_argument("--engine", choices=("absurd", "temporal"), help="what delivers runs (workers.engine)")
    parser.add_argument("--slots", metavar="N", type=int, default=4, help="runs at once, of each queue (4)")
    parser.add_argument("--root", metavar="DIR", help="where the runs' directories are made")
    parser.add_argument("--lease", metavar="SECONDS", type=float, default=10.0, help="how long a claim holds (10)")
    parser.add_argument(
        "--functions", metavar="MODULE", action="append", default=[], help="a module whose functions runs may call"
    )
    parser.add_argument("--drain", action="store_true", help="leave when no run is due")
    parser.add_argument(
        "--limit", metavar="N", type=int, help="claim no more while the queue has N runs under way, on all workers"
    )
    parser.add_argument(
        "--trial", action="store_true", help="try it here: a PostgreSQL and two workers that are gone afterwards"
    )


def execute(arguments: Namespace, session: Session) -> int:
    if arguments.trial:
        from holdfast.worker.trial import run_trial  # noqa: PLC0415

        def tell(line: str) -> None:
            session.out.line(line)
            session.out.flush()

        run_trial(tell)
        return 0
    from holdfast.worker.delivery import Worker  # noqa: PLC0415 - help does without
    from holdfast.worker.port import check_queue  # noqa: PLC0415

    if arguments.root is None:
        raise UsageError("name the folder for the runs' directories with --root DIR")
    if min(arguments.slots, arguments.lease, 1 if arguments.limit is None else arguments.limit) < 1:
        raise UsageError("--slots, --lease and --limit: give 1 or more")
    queues = list(dict.fromkeys(check_queue(name) for name in arguments.queue or ["default"]))
    try:
        Path(arguments.root).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--root {arguments.root}: {error.strerror}") from error
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    worker = Worker(
        partial(session.handle, lease_s=arguments.lease),
        Path(arguments.root).absolute(),
        functions=functions_of(arguments.functions),
        stop=stop,
    )
    engine = engine_of(session, arguments.engine)
    session.handle().close()  # a store that cannot be reached is noticed now, not at the first run
    session.out.note(f"Serving queue {', '.join(queues)} with {arguments.slots} slots in {arguments.root}.")
    session.out.flush()
    serve = partial(
        engine.serve, worker.handle, slots=arguments.slots, lease_s=arguments.lease, stop=stop, drain=arguments.drain,
        limit=arguments.limit,
    )  # fmt: skip
    with closing(engine), ThreadPoolExecutor(len(queues)) as threads:
        serving = [threads.submit(serve, queue=queue) for queue in queues]
        try:
            for one in as_completed(serving):
                one.result()
        finally:
            stop.set()  # a queue that cannot be served ends the worker: the others' runs are left in order
    return 0


def functions_of(modules: list[str]) -> dict[str, Callable[..., Any]]:
    """Return the functions of modules by `module:name`; they may lie in this directory."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    found: dict[str, Callable[..., Any]] = {}
    for name in modules:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            raise UsageError(f"--functions {name}: {error}") from error
        found |= {f"{name}:{key}": value for key, value in vars(module).items() if callable(value) and key[0] != "_"}
    return found
