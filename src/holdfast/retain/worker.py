"""Retention behind a run's back: a thread that acts when commits have been quiet for a moment, or too much piled up.

It knows the run's checkpoints from the commits themselves and reads the store once, so that a commit pays for an append
to a list and nothing else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import HoldfastError, NotFound
from holdfast.retain.policy import decide, row_of
from holdfast.retain.prune import carry_out, fork_points, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.retain.policy import Decision, RetentionPolicy, Row
    from holdfast.store.api import Store

_log = logging.getLogger("holdfast")
_QUIET_S = 0.2
_PILE = 2_000
_REST_S = 0.002


class RetentionWorker:
    """Keeps one run within its policy while it is open."""

    def __init__(
        self,
        store: Store,
        run: str,
        policy: RetentionPolicy,
        *,
        clock: Callable[[], float],
        open_reader: Callable[[], Store | None] = lambda: None,
        quiet_s: float = _QUIET_S,
    ) -> None:
        self._store = store
        self._run = run
        self._policy = policy
        self._clock = clock
        self._open_reader = open_reader
        self._quiet_s = quiet_s
        self._rows: dict[int, Row] | None = None
        self._new: deque[CheckpointRecord] = deque()  # commits append while we take from the other end
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """What the last attempt met, None if it went well."""

    def start(self) -> None:
        """Begin with what is too old already."""
        self._thread = threading.Thread(target=self._work, name="holdfast-retention", daemon=True)
        self._thread.start()
        self._wake.set()

    def note(self, record: CheckpointRecord) -> None:
        """Hear of a commit."""
        self._new.append(record)
        self._wake.set()

    def stop(self) -> None:
        """Finish what is due, then end."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            self._wake.wait()
            while not self._stopping and len(self._new) < _PILE:
                self._wake.clear()
                if not self._wake.wait(self._quiet_s):
                    break
            self._wake.clear()
            ending = self._stopping
            try:
                self._act()
                self.error = None
            except HoldfastError as error:
                # The work must not stop for housekeeping; the next commit tries again, and prune() shows the reason.
                self.error = error
                _log.warning("retention of run %s failed and will be tried again: %s", self._run, error)
            except Exception as error:  # noqa: BLE001 - logged whole; housekeeping must not end unseen
                _log.exception("retention of run %s met an unexpected error and will be tried again", self._run)
                self.error = error
            if ending:
                return

    def _act(self) -> None:
        decisions = [decision for decision in self._decisions() if decision.action != "keep"]
        if not decisions:
            return
        # Free pages are used again; giving them back to the file system would make commits wait, so it is done last.
        reader = self._open_reader()
        try:
            left = carry_out(self._store, self._run, decisions, reader=reader, rest=self._rest, reclaims=self._stopping)
        finally:
            if reader is not None:
                reader.close()
        if left:
            self._rows = None  # somebody marked them meanwhile: they are read anew
            return
        rows = self._rows or {}
        for decision in decisions:
            row = rows.pop(decision.seq, None)
            if row is not None and decision.action == "archive":
                rows[decision.seq] = _archived(row)

    def _decisions(self) -> list[Decision]:
        try:
            head = self._store.run(self._run).head
            if self._rows is None:
                self._rows = {row.seq: row for row in rows_of(self._store, self._run)}
        except NotFound:
            return []
        while self._new:
            record = self._new.popleft()
            self._rows[record.envelope.seq] = row_of(record)
        now = datetime.fromtimestamp(self._clock(), UTC)
        rows = list(self._rows.values())
        decisions = decide(rows, self._policy, now=now, head=head)
        if any(decision.action == "delete" for decision in decisions):
            # Marks may have changed behind us, so what is about to go is looked at as it is now.
            self._rows = {row.seq: row for row in rows_of(self._store, self._run)}
            needed = fork_points(self._store, self._run)
            decisions = decide(self._rows.values(), self._policy, now=now, head=head, needed=needed)
        return decisions

    def _rest(self) -> None:
        """Let a commit that waits for the store get in between."""
        if not self._stopping:
            time.sleep(_REST_S)


def _archived(row: Row) -> Row:
    return msgspec.structs.replace(row, is_archived=True)
