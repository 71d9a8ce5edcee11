"""Waking a submitted run through its queue when something is said to it, from whatever process that is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, UsageError
from holdfast.worker.port import ENGINE, QUEUE, text_of

if TYPE_CHECKING:
    from holdfast.store.store import Store
    from holdfast.worker.port import Engine

_log = logging.getLogger("holdfast")


def wake_queue(store: Store, run: str, mark: int, *, temporal: str | None) -> None:
    """Tell a run's queue that its inbox has a new entry; a run that was never submitted has none.

    What fails here is logged and made up for: a waiting run is looked at every few minutes all the same.
    """
    try:
        row = store.row_of(run)
        queue, url = text_of(row.attributes, QUEUE), getattr(store.medium, "conninfo", None)
        if queue is None or url is None:  # a copy of a submitted run may be in a store of one machine
            return
        engine = engine_of(str(text_of(row.attributes, ENGINE)), url, temporal)
        try:
            engine.wake(run, queue=queue, mark=mark, of=row.n)
        finally:
            engine.close()
    except HoldfastError as error:
        _log.warning("run %s is woken later: its queue cannot be told (%s)", run, error)


def engine_of(kind: str, store_url: str, temporal: str | None) -> Engine:
    """Return the engine of a kind; Temporal's address is the user's own setting, never a stored one."""
    if kind == "temporal":
        if temporal is None:
            raise UsageError("the address of Temporal is not known: set workers.temporal in your own settings")
        from holdfast.worker.temporal import TemporalEngine  # noqa: PLC0415 - only who has it needs it

        return TemporalEngine(temporal, store_url)
    from holdfast.worker.absurd import AbsurdEngine  # noqa: PLC0415

    return AbsurdEngine(store_url)
