"""Absurd as the engine: a queue in the PostgreSQL that the store is in; its schema comes from the installed package.

A claim is a row with a time until which it holds; every acknowledgement names the attempt, so that a worker whose claim
lapsed cannot acknowledge anything. A waiting run is a sleeping row that an event named by its inbox number wakes.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import secrets
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.sql import SQL, Identifier

from holdfast.errors import StoreUnavailable, UsageError
from holdfast.store.postgres_pool import TimedConnection
from holdfast.store.postgres_url import PostgresPlace
from holdfast.worker.port import Delivery, Done, EngineKind, Outcome, QueueEntry, Until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

_log = logging.getLogger("holdfast")
_TASK = "holdfast-run"
_POLL_S = 0.25
_ANSWER_S = 5.0  # a machine that was cut off gets no answer, and no error either
_PAUSE_S = 1.0  # after an error of the database, before it is asked again
_FOR_EVER = 9999  # the year of a time that the driver shows for infinity
_SCHEMA_LOCK = 0x486F6C64  # an advisory lock of the database, so that two workers do not install at once
_STATES = {
    "pending": "due", "running": "running", "sleeping": "due", "completed": "done", "cancelled": "cancelled",
    "failed": "failed",
}  # fmt: skip


class AbsurdEngine:
    """Queues of one PostgreSQL database."""

    kind: EngineKind = "absurd"
    has_priorities = False

    def __init__(self, url: str) -> None:
        self._place = PostgresPlace.parse(url)
        self._lock = threading.Lock()
        self._connection: TimedConnection | None = None
        self._known: set[str] = set()

    def submit(self, run: str, *, queue: str, priority: int | None = None) -> None:  # noqa: ARG002 - it has none
        """Let a run be delivered; twice is one, unless its delivery has ended: then it is delivered again."""
        self._prepare(queue)
        ended = SQL(
            "UPDATE {} SET idempotency_key = NULL "
            "WHERE idempotency_key = %s AND state IN ('completed', 'cancelled', 'failed')"
        )
        self._ask(ended.format(Identifier("absurd", f"t_{queue}")), (self._key(run),))
        options = json.dumps({"idempotency_key": self._key(run)})
        order = json.dumps({"run": run})
        self._ask("SELECT run_id FROM absurd.spawn_task(%s, %s, %s, %s)", (queue, _TASK, order, options))

    def wake(self, run: str, *, queue: str, mark: int, of: int) -> None:
        """Deliver a run that waits for this inbox number of this incarnation, or will; idempotent, never lost."""
        self._prepare(queue)
        self._ask("SELECT absurd.emit_event(%s, %s)", (queue, self._event(run, mark, of)))

    def cancel(self, run: str, *, queue: str) -> None:
        """Deliver a run no more; it may be submitted again at once."""
        self._prepare(queue)
        table = Identifier("absurd", f"t_{queue}")
        for (task,) in self._ask(
            SQL("SELECT task_id FROM {} WHERE idempotency_key = %s").format(table), (self._key(run),)
        ):
            self._ask("SELECT absurd.cancel_task(%s, %s)", (queue, task))

    def entries(self, queue: str, *, limit: int, run: str | None = None) -> list[QueueEntry]:
        """Return the runs of a queue, the last submitted first; or the one that is named."""
        self._prepare(queue)
        rows = self._ask(
            SQL(
                "SELECT t.params->>'run', t.state, t.attempts, r.claimed_by, r.started_at, r.available_at, "
                "t.state IN ('pending', 'sleeping') AND r.available_at > absurd.current_time() "
                "FROM {} t JOIN {} r ON r.run_id = t.last_attempt_run WHERE starts_with(t.idempotency_key, %s) "
                "AND (%s::text IS NULL OR t.idempotency_key = %s) ORDER BY t.task_id DESC LIMIT %s"
            ).format(Identifier("absurd", f"t_{queue}"), Identifier("absurd", f"r_{queue}")),
            (self._key(""), run and self._key(run), run and self._key(run), limit),
        )
        return [
            QueueEntry(
                run=name,
                state="asleep" if is_later else _STATES[state],
                attempt=attempt,
                worker=worker if state == "running" else None,
                since=started if state == "running" else None,
                until=available if is_later and available.year < _FOR_EVER else None,
            )
            for name, state, attempt, worker, started, available, is_later in rows
        ]

    def close(self) -> None:
        """Let the connection go."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def serve(
        self,
        handle: Callable[[Delivery], Outcome],
        *,
        queue: str,
        slots: int,
        lease_s: float,
        stop: threading.Event,
        drain: bool = False,
        limit: int | None = None,
    ) -> None:
        """Claim runs and hand them to `handle`, up to `slots` at once, until `stop`; with `drain` until none is due.

        Claims are renewed by a thread of their own from the first moment on. A database that is away is asked again.
        """
        self._prepare(queue)
        server = _Server(self, handle, queue, lease_s)
        beats = threading.Thread(target=server.beat, name="holdfast-claims", daemon=True)
        beats.start()
        try:
            while not stop.is_set():
                try:
                    claimed = server.claim(slots, limit)
                except StoreUnavailable as error:
                    _log.warning("the queue cannot be asked: %s", error)
                    stop.wait(_PAUSE_S)
                    continue
                if not claimed:
                    if drain and server.is_idle():
                        return
                    stop.wait(_POLL_S)
        finally:
            server.finish()
            beats.join()

    # SQL

    def _key(self, run: str) -> str:
        return f"{self._place.schema}/{self._place.tenant}/{run}"

    def _event(self, run: str, mark: int, of: int) -> str:
        """Return an event's name; events last for ever, so it says which incarnation of the run it means."""
        return f"{self._key(run)}#{of}#{mark}"

    def _prepare(self, queue: str) -> None:
        """Make sure that the schema and the queue are there."""
        if queue in self._known:
            return
        if not self._ask("SELECT to_regnamespace('absurd') IS NOT NULL")[0][0]:
            self._install()
        self._ask("SELECT absurd.create_queue(%s)", (queue,))
        # Without it a claim among 100,000 queued runs looks at all of them.
        table = Identifier("absurd", f"r_{queue}")
        self._ask(
            SQL(
                "CREATE INDEX IF NOT EXISTS {} ON {} (available_at, run_id) WHERE state IN ('pending', 'sleeping')"
            ).format(Identifier(f"r_{queue}_due"), table)
        )
        self._known.add(queue)

    def _install(self) -> None:
        if importlib.util.find_spec("absurdctl") is None:
            raise UsageError("the schema of the queue is not there: pip install 'holdfast[absurd]' brings it")
        import absurdctl  # noqa: PLC0415 - only the first worker of a database needs it

        with psycopg.connect(self._place.conninfo) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            there = connection.execute("SELECT to_regnamespace('absurd') IS NOT NULL").fetchone()
            if there is not None and not there[0]:
                connection.execute(absurdctl.BUNDLED_SCHEMA_SQL.encode())

    def claim(self, queue: str, worker: str, lease_s: int, most: int, limit: int | None) -> list[tuple[Any, ...]]:
        """Claim due runs, not more than `most`, nor so many that the queue has more than `limit` under way."""
        with self._connected() as connection, connection.transaction():
            if limit is not None:
                # One worker counts and claims at a time; a claim that lapsed is nobody's, and counts no more.
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"holdfast/{queue}",))
                counted = connection.execute(
                    SQL(
                        "SELECT count(*) FROM {} WHERE state = 'running' AND claim_expires_at > absurd.current_time()"
                    ).format(Identifier("absurd", f"r_{queue}"))
                ).fetchone()
                most = min(most, limit - (counted[0] if counted else 0))
            if most <= 0:
                return []
            return connection.execute(
                "SELECT run_id, task_id, attempt, params FROM absurd.claim_task(%s, %s, %s, %s)",
                (queue, worker, lease_s, most),
            ).fetchall()

    def _ask(self, statement: Any, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run a statement on this engine's connection; StoreUnavailable if the database is away."""
        with self._connected() as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description is not None else []

    @contextmanager
    def _connected(self) -> Iterator[TimedConnection]:
        """Yield this engine's connection to one thread at a time; StoreUnavailable if the database is away."""
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = TimedConnection.connect(
                        self._place.conninfo, autocommit=True, connect_timeout=10, target_session_attrs="read-write"
                    )
                self._connection.extend(_ANSWER_S)
                yield self._connection
            except psycopg.OperationalError as error:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                raise StoreUnavailable(self._place.shown, str(error).strip()) from error


class _Claim:
    """A run that this process has claimed."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.id: UUID = row[0]
        self.task: UUID = row[1]
        self.delivery = Delivery(row[3]["run"], row[2])


class _Server:
    """The claims of one worker process."""

    def __init__(self, engine: AbsurdEngine, handle: Callable[[Delivery], Outcome], queue: str, lease_s: float) -> None:
        self._engine = engine
        self._handle = handle
        self._queue = queue
        self._lease_s = max(1, round(lease_s))
        # Never the host name alone: two workers of one machine, or a machine that was copied, are two.
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._claims: dict[UUID, _Claim] = {}
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()

    def claim(self, slots: int, limit: int | None) -> int:
        """Claim what is due, as far as there are slots and the queue's limit lets it; return how many."""
        with self._lock:
            free = slots - len(self._claims)
        if free <= 0:
            return 0
        rows = self._engine.claim(self._queue, self._name, self._lease_s, free, limit)
        for row in rows:
            claim = _Claim(row)
            thread = threading.Thread(target=self._serve, args=(claim,), name=f"holdfast-run-{claim.delivery.run}")
            with self._lock:
                self._claims[claim.id] = claim
                self._threads.add(thread)
            thread.start()
        return len(rows)

    def is_idle(self) -> bool:
        """Tell whether no claim is held."""
        with self._lock:
            return not self._claims

    def finish(self) -> None:
        """Wait until all claims are given back."""
        for thread in list(self._threads):
            thread.join()
        self._over.set()

    def beat(self) -> None:
        """Renew the claims; one that cannot be renewed before it lapses is lost."""
        renewed: dict[UUID, float] = {}
        while not self._over.wait(self._lease_s / 4):
            with self._lock:
                claims = list(self._claims.values())
            for claim in claims:
                begun = time.monotonic()
                renewed.setdefault(claim.id, begun)
                try:
                    self._engine._ask(  # noqa: SLF001 - one thing in two classes
                        "SELECT absurd.extend_claim(%s, %s, %s)", (self._queue, claim.id, self._lease_s)
                    )
                except psycopg.Error:  # cancelled, or another worker has it
                    claim.delivery.lost.set()
                except StoreUnavailable:
                    if begun - renewed[claim.id] > self._lease_s * 0.8:
                        claim.delivery.lost.set()
                else:
                    renewed[claim.id] = begun
            held = {claim.id for claim in claims}
            renewed = {claim: at for claim, at in renewed.items() if claim in held}

    def _serve(self, claim: _Claim) -> None:
        try:
            while True:
                outcome = self._handle(claim.delivery)
                if claim.delivery.lost.is_set() or not self._acknowledged(claim, outcome):
                    return
        except Exception:  # noqa: BLE001 - logged whole; the slot serves the next run
            _log.exception("run %s: the worker failed; its claim lapses and it is delivered again", claim.delivery.run)
        finally:
            with self._lock:
                self._claims.pop(claim.id, None)
                self._threads.discard(threading.current_thread())

    def _acknowledged(self, claim: _Claim, outcome: Outcome) -> bool:
        """Tell the queue how a delivery ended; return whether the run is due once more here and now."""
        ask = self._engine._ask  # noqa: SLF001
        while True:
            try:
                if isinstance(outcome, Done):
                    state = json.dumps({"status": outcome.status})
                    ask("SELECT absurd.complete_run(%s, %s, %s)", (self._queue, claim.id, state))
                elif isinstance(outcome, Until):
                    event = self._engine._event(claim.delivery.run, outcome.mark, outcome.of)  # noqa: SLF001
                    limit = math.ceil(outcome.at_most_s)
                    waits = ask(
                        "SELECT should_suspend FROM absurd.await_event(%s, %s, %s, %s, %s, %s)",
                        (self._queue, claim.task, claim.id, event, event, limit),
                    )
                    return not waits[0][0]  # the entry came meanwhile
                else:
                    ask(
                        "SELECT absurd.schedule_run(%s, %s, absurd.current_time() + make_interval(secs => %s))",
                        (self._queue, claim.id, outcome.after_s),
                    )
                    _log.warning("run %s is tried again in %g s: %s", claim.delivery.run, outcome.after_s, outcome.why)
            except StoreUnavailable:
                if claim.delivery.lost.wait(_PAUSE_S):
                    return False
            except psycopg.Error as error:  # the claim is another worker's by now: so is the run
                _log.warning("run %s: its delivery could not be acknowledged: %s", claim.delivery.run, error)
                return False
            else:
                return False
