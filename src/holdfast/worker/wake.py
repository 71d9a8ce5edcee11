"""Waking a submitted run through its queue when something is said to it, from whatever process that is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.worker.port import QUEUE

if TYPE_CHECKING:
    from holdfast.store.store import Store

_log = logging.getLogger("holdfast")


def wake_queue(store: Store, run: str, mark: int) -> None:
    """Tell a run's queue that its inbox has a new entry; a run that was never submitted has none.

    What fails here is logged and made up for: a waiting run is looked at every few minutes all the same.
    """
    try:
        queue = store.row_of(run).attributes.get(QUEUE)
        if queue is None:
            return
        from holdfast.worker.absurd import AbsurdEngine  # noqa: PLC0415 - submitted runs only

        engine = AbsurdEngine(store.medium.conninfo)  # type: ignore[attr-defined]
        try:
            engine.wake(run, queue=str(queue), mark=mark)
        finally:
            engine.close()
    except HoldfastError as error:
        _log.warning("run %s is woken later: its queue cannot be told (%s)", run, error)
