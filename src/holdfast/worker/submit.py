"""Submit a run: it is stored whole, with its files, and its queue is told; nothing of it is done here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.flow.runner import store_flow
from holdfast.worker.delivery import ENTRY, change_attributes
from holdfast.worker.port import ENGINE, QUEUE

if TYPE_CHECKING:
    import os
    from datetime import datetime

    from holdfast.engine import Holdfast
    from holdfast.flow.model import Flow
    from holdfast.worker.port import Engine


def submit_flow(
    hf: Holdfast,
    flow: Flow,
    engine: Engine,
    *,
    queue: str = "default",
    run_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    params: dict[str, Any] | None = None,
    file: str | None = None,
    at: datetime | None = None,
) -> str:
    """Store a run of a flow and submit it; return its id. The same run submitted twice is one delivery."""
    run = store_flow(hf, flow, run_id=run_id, workspace=workspace, params=params, file=file)
    return _submit(hf, run, engine, queue, at)


def submit_program(
    hf: Holdfast,
    run: str,
    entry: str,
    engine: Engine,
    *,
    queue: str = "default",
    workspace: str | os.PathLike[str] | None = None,
    at: datetime | None = None,
) -> str:
    """Store a run of a program of the workers' own (`module:function`, called with the run) and submit it."""
    if entry.count(":") != 1:
        raise UsageError(f"{entry!r} is not a valid program: write module:function")
    opened = hf.run(run, workspace=workspace)
    try:
        if opened.head is None:
            opened.checkpoint(reason="submitted")
    finally:
        opened.close()
    return _submit(hf, run, engine, queue, at, **{ENTRY: entry})


def _submit(hf: Holdfast, run: str, engine: Engine, queue: str, at: datetime | None, **attributes: str) -> str:
    """Note the queue before it is told: a process that dies in between leaves a run that can be submitted again."""
    change_attributes(hf, run, **{QUEUE: queue, ENGINE: engine.kind}, **attributes)
    engine.submit(run, queue=queue, at=at)
    return run
