"""Submit a run: it is stored whole, with its files, and its queue is told; nothing of it is done here."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from holdfast.errors import FlowInvalid, NotFound, UsageError
from holdfast.flow.load import check_flow, load_flow
from holdfast.flow.model import Flow
from holdfast.flow.runner import run_name, store_flow
from holdfast.settings.carried import carried_by
from holdfast.store.commit import Commit
from holdfast.worker.port import AT, ENGINE, ENTRY, QUEUE, SETTINGS, SETUP, check_queue
from holdfast.worker.wake import engine_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from holdfast.engine import Holdfast
    from holdfast.worker.port import Engine


class Order(TypedDict, total=False):
    """What a submission may say of its run; before `at` it does not begin."""

    queue: str
    run_id: str | None
    workspace: str | os.PathLike[str] | None
    params: Mapping[str, Any] | None
    at: datetime | None
    setup: str | None
    """A command for what is not captured (dependencies): run once in each directory that the run is brought to."""
    priority: int | None
    """1 is the most urgent; only Temporal has priorities."""
    engine: Engine | None
    """What delivers the run, if it is not the one of the settings."""


def submit(hf: Holdfast, work: Flow | str | os.PathLike[str], **order: Unpack[Order]) -> str:
    """Store a run and hand it to a queue; return its id. Submitted twice it is one; ended, it is delivered again.

    `work` is a flow, its file, or `module:function`: a program of the workers' own, called with the run.
    """
    given, priority = order.get("engine"), order.get("priority")
    with nullcontext(given) if given is not None else closing(_engine(hf)) as engine:
        if priority is not None and priority < 1:
            raise UsageError(f"priority {priority} is not valid: 1 is the most urgent")
        if priority is not None and not engine.has_priorities:
            raise UsageError(
                "a queue in PostgreSQL has no priorities: give urgent runs a queue and workers of their own"
            )
        run = _stored(hf, work, order, engine)
        engine.submit(run, queue=order.get("queue", "default"), priority=priority)
    return run


def _engine(hf: Holdfast) -> Engine:
    workers, url = hf.settings.workers, getattr(hf.store.medium, "conninfo", None)
    if url is None:
        raise UsageError(
            f"{hf.store.url} is a store of this machine alone: workers need one that they all reach, postgresql://..."
        )
    return engine_of(workers.engine, url, workers.temporal)


def _stored(hf: Holdfast, work: Flow | str | os.PathLike[str], order: Order, engine: Engine) -> str:
    """Store the run, with its queue noted before that is told: who dies in between can submit it again."""
    about: dict[str, Any] = {
        QUEUE: check_queue(order.get("queue", "default")),
        ENGINE: engine.kind,
        SETUP: order.get("setup"),
    }
    carried = carried_by(hf.settings)
    about[SETTINGS] = json.dumps(carried) if carried else None
    if (at := order.get("at")) is not None:
        about[AT] = at.timestamp()
    workspace, run_id = order.get("workspace"), order.get("run_id")
    file = None
    if not isinstance(work, Flow):
        if is_program(work):
            return _program(hf, str(work), run_id, workspace, about, engine=engine)
        file, work = Path(work).name, load_flow(work)
    params = dict(order.get("params") or {})
    _check_secrets(hf, work, params)
    run = run_id or run_name(check_flow(work), params)
    _check_place(hf, run, about, engine)
    store_flow(hf, work, run_id=run, workspace=workspace, params=params, file=file)
    note(hf, run, about)
    return run


def is_program(work: str | os.PathLike[str]) -> bool:
    """Tell whether a text means a function of a module, and not a flow's file."""
    module, _, function = str(work).partition(":")
    return function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _program(
    hf: Holdfast,
    entry: str,
    run: str | None,
    workspace: str | os.PathLike[str] | None,
    about: dict[str, Any],
    *,
    engine: Engine,
) -> str:
    if run is None:
        raise UsageError(f"{entry}: name its run with --run-id RUN (in Python run_id=)")
    _check_place(hf, run, about, engine)
    opened = hf.run(run, workspace=workspace)
    try:
        if opened.head is None:
            opened.checkpoint(reason="submitted")
    finally:
        opened.close()
    note(hf, run, {**about, ENTRY: entry})
    return run


def _check_secrets(hf: Holdfast, flow: Flow, params: dict[str, Any]) -> None:
    """Refuse values that redaction takes out: a worker would get the flow without them."""
    packer = hf.internals.journal_packer()
    said = {"flow": msgspec.to_builtins(flow), "params": params}
    lost = list(_differing(said, packer.unpack(packer.pack(said, "flow"), "flow"), ""))
    if lost:
        told = "is a secret, so it stays out of the store: set it where workers run, and name it in env_from: [NAME]"
        raise FlowInvalid("it cannot travel", flow.name, tuple(f"{path}: {told}" for path in lost))


def _differing(said: Any, stored: Any, path: str) -> Iterator[str]:
    if isinstance(said, dict) and isinstance(stored, dict):
        for name, value in said.items():
            yield from _differing(value, stored.get(name), f"{path}.{name}" if path else name)
    elif isinstance(said, list) and isinstance(stored, list):
        for at, (value, other) in enumerate(zip(said, stored, strict=True)):
            yield from _differing(value, other, f"{path}.{at}")
    elif said != stored:
        yield path


def _check_place(hf: Holdfast, run: str, about: Mapping[str, Any], engine: Engine) -> None:
    """Refuse a run that another queue or engine delivers: two of them would take it from each other.

    One that is not there may have been deleted while it waited: what is left of its delivery ends.
    """
    try:
        known = hf.store.row_of(run).attributes
    except NotFound:
        engine.cancel(run, queue=about[QUEUE])
        return
    for name in (QUEUE, ENGINE):
        if known.get(name, about[name]) != about[name]:
            raise UsageError(
                f"run {run!r} was submitted to queue {known[QUEUE]} of {known[ENGINE]}: submit it there, or choose "
                "another run id"
            )


def note(hf: Holdfast, run: str, changes: Mapping[str, Any]) -> None:
    """Change attributes of a run; None removes one."""
    row = hf.store.row_of(run).attributes
    kept = {name: value for name, value in {**row, **changes}.items() if value is not None}
    if kept != row:
        hf.store.write(Commit(run=run, run_changes={"attributes": kept}))
