"""Retention behind a run's back: a thread that acts when commits have been quiet for a moment, or too much piled up.

It knows the run's checkpoints from the commits themselves and reads the store once, so that a commit pays for an append
to a list and nothing else. The thread begins with a commit and ends by itself when nothing is left to do.
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
from holdfast.retain.compact import compact
from holdfast.retain.expiry import expire_other_runs
from holdfast.retain.policy import EXPIRED_FOR, row_of
from holdfast.retain.prune import RowsRead, carry_out, paced, plan, read_rows
from holdfast.store.captures import sweep_captures

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.retain.policy import RetentionPolicy, RetentionRow
    from holdfast.retain.prune import RunPlan
    from holdfast.store.store import Store

_log = logging.getLogger("holdfast")
_QUIET_S = 0.2
_PILE = 2_000
_REST_S = 0.002
_WHOLE_EVERY_S = 3_600.0
_READ_WHOLE = 1_000  # checkpoints; of a run with more a plain handle looks at the newest only


class RetentionWorker:
    """Keeps one run within its policy while a handle on it is in use."""

    def __init__(
        self,
        store: Store,
        run: str,
        policy: RetentionPolicy,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        open_reader: Callable[[], Store | None] = lambda: None,
        after: Callable[[str], object] = str,
        quiet_s: float = _QUIET_S,
    ) -> None:
        self.run = run
        self._store = store
        self._policy = policy
        self._clock = clock
        self._monotonic = monotonic
        self._open_reader = open_reader
        self._after = after
        self._quiet_s = quiet_s
        self._rows: dict[int, RetentionRow] | None = None
        self._new: deque[CheckpointRecord] = deque()  # commits append while we take from the other end
        self._noted = 0
        self._is_due = False
        self._is_entered = False
        self._has_freed = False
        self._whole_at: float | None = None
        self._stopping = threading.Event()
        self._acting = threading.RLock()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """What the last attempt met, None if it went well."""

    def start(self) -> None:
        """Begin with what is too old already, in other runs too; from now on the thread looks at the clock."""
        self._is_entered = True
        self._schedule()

    def note(self, record: CheckpointRecord) -> None:
        """Hear of a commit."""
        self._new.append(record)
        self._noted += 1
        self._schedule()

    def flush(self) -> None:
        """Do now what is due."""
        with self._acting:
            if self._is_due:
                self._act_safely()

    def stop(self) -> None:
        """Finish what is due, then end."""
        self._stopping.set()
        self.flush()
        with self._acting:
            if self._has_freed:
                self._has_freed = False
                self._safely(self._store.reclaim)
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join()  # not yet alive, if a signal interrupted its start

    def _schedule(self) -> None:
        self._is_due = True
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="holdfast-retention", daemon=True)
                    self._thread.start()

    def _work(self) -> None:
        while True:
            self._wait_for_quiet()
            self.flush()
            with self._starting:
                if not self._is_due or self._stopping.is_set():
                    self._thread = None
                    return

    def _wait_for_quiet(self) -> None:
        seen = -1
        while seen != self._noted and len(self._new) < _PILE:
            seen = self._noted
            if self._stopping.wait(self._quiet_s):
                return

    def _act_safely(self) -> None:
        self._is_due = False  # before: a commit that comes meanwhile is looked at in another turn
        self._safely(self._act)

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
            self.error = None
        except HoldfastError as error:
            # The work must not stop for housekeeping; the next commit tries again, and prune() shows the reason.
            self.error = error
            _log.warning("retention of run %s failed and will be tried again: %s", self.run, error)
        except Exception as error:  # noqa: BLE001 - logged whole; housekeeping must not end unseen
            _log.exception("retention of run %s met an unexpected error and will be tried again", self.run)
            self.error = error

    def _act(self) -> None:
        now = datetime.fromtimestamp(self._clock(), UTC)
        is_whole = self._whole_at is None or self._monotonic() - self._whole_at >= _WHOLE_EVERY_S
        if is_whole:
            self._rows = None
        planned = self._plan(now, is_whole=is_whole)
        if planned is not None and planned.changes:
            self._carry_out(planned, now)
        if is_whole and self._is_entered and planned is not None:
            sweep_captures(self._store, self.run, now - EXPIRED_FOR)
            compact(self._store, self.run, self._policy, now, rest=self._rest)
            expire_other_runs(self._store, self._policy, now, without=self.run, rest=self._rest, deleted=self._after)
        self._whole_at = self._monotonic() if is_whole else self._whole_at

    def _carry_out(self, planned: RunPlan, now: datetime) -> None:
        reader = self._open_reader()
        try:
            left = carry_out(self._store, planned, now=now, reader=reader, rest=self._rest, reclaims=False)
        finally:
            if reader is not None:
                reader.close()
        if any(one.action == "delete" for one in planned.decisions):
            # Free pages are used again; giving them back to the file system makes commits wait, so it is done last.
            self._has_freed = True
            self._after(self.run)
        if left:
            self._rows = None  # somebody marked them meanwhile: they are read again
            return
        rows = self._rows or {}
        for decision in planned.changes:
            row = rows.pop(decision.seq, None)
            if row is not None and decision.action == "archive":
                rows[decision.seq] = msgspec.structs.replace(row, status="archived")
            elif row is not None and decision.action != "delete":
                self._rows = None

    def _plan(self, now: datetime, *, is_whole: bool) -> RunPlan | None:
        """Return what is to be done, None if the run is gone."""
        try:
            run = self._store.run(self.run)
            if self._rows is None:
                settled = is_whole and (self._is_entered or run.checkpoints <= _READ_WHOLE)
                self._rows = self._read(settled=settled)
            while self._new:
                record = self._new.popleft()
                self._rows[record.envelope.seq] = row_of(record, self._store.traits.checkpoint_bytes)
            planned = self._planned(now)
            if any(one.action == "delete" for one in planned.changes):
                # Marks may have changed behind us, so what is about to go is looked at as it is now.
                self._rows = self._read(settled=is_whole)
                planned = self._planned(now)
        except NotFound:
            return None
        return planned

    def _planned(self, now: datetime) -> RunPlan:
        rows = list((self._rows or {}).values())
        run = self._store.run(self.run)
        return paced(plan(self._store, run, RowsRead(rows, is_all=False), self._policy, now), rows, now)

    def _read(self, *, settled: bool) -> dict[int, RetentionRow]:
        return {row.seq: row for row in read_rows(self._store, self.run, settled=settled).rows}

    def _rest(self) -> None:
        """Let a commit that waits for the store get in between."""
        if not self._stopping.is_set():
            time.sleep(_REST_S)
