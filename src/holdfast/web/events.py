"""Events of a run, kept up as it moves: its journal is read once, and of a long one the newest part."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast.checkpoint import CALLS, NOTES
from holdfast.runtime import audit
from holdfast.store.lineage import head_of
from holdfast.store.ranges import cut

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.runtime.audit import Event
    from holdfast.store.ranges import Ranges
    from holdfast.web.site import Handle

_MOST_RECORDS = 5000  # of a journal of 100,000 all took 0.7 s of CPU, beside which no row came up


class EventIndex:
    """What happened in a run, oldest first, each record of the journal read once."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.is_cut = False
        """Whether there is more than the newest part, which is all that was read."""
        self._lock = threading.Lock()
        self._ranges: Ranges = ()
        self._events: list[Event] = []

    def of(self, handle: Handle) -> tuple[Checkpoint, list[Event]]:
        """Return where the run stands, and its events up to there."""
        store = handle.hf.store
        present = handle.hf.internals.present(self.run, head_of(store, store.run(self.run)))
        with self._lock:
            known = self._ranges[-1][1] if self._ranges else 0
            if cut(present.ranges, known) != self._ranges:  # it went back, or was begun again
                known, self._events, self.is_cut = 0, [], False
            after = max(known, present.number - _MOST_RECORDS)
            if after < present.number:
                fresh = audit.events(present.view_after(NOTES, after), present.view_after(CALLS, after))
                everything = sorted([*self._events, *fresh], key=lambda event: event.at)
                self.is_cut = self.is_cut or after > known or len(everything) > _MOST_RECORDS
                self._events = everything[-_MOST_RECORDS:]
            self._ranges = present.ranges
            return present, list(self._events)
