"""Resuming a run from the store alone: until it finishes, waits or loses its lease; safe to call twice.

What is resumed are commands that the store holds: use it with stores that you trust as you trust your own scripts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import FlowInvalid, LeaseHeld, UsageError
from holdfast.flow.load import flow_from
from holdfast.flow.position import DEFINITION, FlowRecord
from holdfast.flow.result import FlowResult
from holdfast.flow.runner import run_flow

if TYPE_CHECKING:
    import os
    import threading
    from collections.abc import Callable, Mapping

    from holdfast.engine import Holdfast
    from holdfast.flow.events import Observer
    from holdfast.flow.model import Flow
    from holdfast.run import Run


def stored_flow(hf: Holdfast, run: str) -> tuple[Flow, dict[str, Any]]:
    """Return the flow that a run follows and its parameters; UsageError if the run follows none."""
    head = hf.latest(run, required=True)
    if DEFINITION not in head.sections:
        raise UsageError(f"run {run!r} follows no flow, so it cannot be resumed from the store: run its program")
    try:
        record = msgspec.convert(head.section(DEFINITION), FlowRecord)
        return flow_from(record.flow, f"run {run}"), record.params
    except (msgspec.ValidationError, FlowInvalid) as error:
        raise UsageError(
            f"run {run!r}: the flow in the store cannot be followed as it is, because parts were kept out of it as "
            f"secret or were written by another version; resume it with its file ({error})"
        ) from None


def advance(
    hf: Holdfast,
    run: str,
    *,
    workspace: str | os.PathLike[str] | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    observer: Observer | None = None,
    stop: threading.Event | None = None,
    lost: threading.Event | None = None,
    lease_s: float | None = None,
    prepare: Callable[[Run], object] = lambda _run: None,
) -> FlowResult:
    """Advance a run until it ends, waits or fails; `elsewhere` if another process moves it now.

    Its functions are those that are given. Into a workspace that is empty or not there, the run's files are brought
    first, and `prepare` is called there. When `stop` is set the run is left at its next boundary (`left`), when `lost`
    is set its commands are ended at once: another worker may have it. `lease_s` is how long another process waits for
    this one when it dies, if not as the settings say. A result `waiting` says on what (`waits_for`) and `until` when.
    """
    flow, params = stored_flow(hf, run)
    if workspace is not None:
        Path(workspace).mkdir(parents=True, exist_ok=True)
    try:
        return run_flow(
            hf,
            flow,
            run_id=run,
            workspace=workspace,
            params=params,
            observer=observer,
            waiting="leave",
            functions=functions,
            trusted=False,
            stop=stop,
            lost=lost,
            lease_s=lease_s,
            prepare=prepare,
        )
    except LeaseHeld as held:
        return FlowResult(run=run, flow=flow.name, status="elsewhere", detail=str(held))
