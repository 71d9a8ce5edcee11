"""Temporal as the engine: one workflow for each submitted run, one activity for each stretch of it.

The activity's heartbeat is the claim. Where it stops Temporal delivers the run again, and tells the worker that lost
it at its next heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.conninfo import conninfo_to_dict
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import Priority
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker as TemporalWorker

from holdfast.errors import StoreUnavailable, UsageError
from holdfast.store.postgres_url import PostgresPlace
from holdfast.worker.port import Delivery, Done, EngineKind, Outcome, QueueEntry, Until
from holdfast.worker.temporal_workflow import ACTIVITY, WAKE, WORKFLOW, RunWorkflow

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
_log = logging.getLogger("holdfast")
_LEASE_S = 10.0
_REST_S = 2.0  # with `drain`: what was submitted just now may not be listed yet
_MOST_LOOKED = 1000
_STATES = {
    WorkflowExecutionStatus.RUNNING: "running", WorkflowExecutionStatus.COMPLETED: "done",
    WorkflowExecutionStatus.CANCELED: "cancelled", WorkflowExecutionStatus.TERMINATED: "cancelled",
}  # fmt: skip


class TemporalEngine:
    """Task queues of one Temporal namespace, for the runs of one store."""

    kind: EngineKind = "temporal"
    has_priorities = True

    def __init__(self, address: str, store_url: str, *, namespace: str = "default", lease_s: float = _LEASE_S) -> None:
        """Name the server and the store; nothing is connected yet. `lease_s` is how long a silent worker has a run."""
        self._address = address
        self._namespace = namespace
        place = PostgresPlace.parse(store_url)
        self._prefix = f"holdfast/{conninfo_to_dict(place.conninfo).get('dbname', '')}/{place.schema}/{place.tenant}/"
        self._lease_s = lease_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-temporal", daemon=True)
        self._thread.start()
        self._client: Client | None = None

    def submit(self, run: str, *, queue: str, priority: int | None = None) -> None:
        """Let a run be delivered; twice is one, unless its delivery has ended: then it is delivered again."""

        async def start(client: Client) -> None:
            with contextlib.suppress(WorkflowAlreadyStartedError):
                await client.start_workflow(
                    WORKFLOW,
                    {"run": run, "store": self._prefix, "lease_s": self._lease_s, "crashes": 0},
                    id=self._prefix + run,
                    task_queue=queue,
                    priority=Priority(priority_key=priority),
                )

        self._do(start)

    def wake(self, run: str, *, queue: str, mark: int, of: int) -> None:  # noqa: ARG002 - found by its workflow's id
        """Deliver a run that waits for this inbox number of this incarnation, or will; idempotent, never lost."""
        self._do(lambda client: client.get_workflow_handle(self._prefix + run).signal(WAKE, mark), or_gone=True)

    def cancel(self, run: str, *, queue: str) -> None:  # noqa: ARG002
        """Deliver a run no more; it may be submitted again at once: what is only asked to leave needs a worker."""
        self._do(lambda client: client.get_workflow_handle(self._prefix + run).terminate(), or_gone=True)

    def entries(self, queue: str, *, limit: int, run: str | None = None) -> list[QueueEntry]:
        """Return the runs of a queue, the last submitted first; or the one that is named."""
        return self._do(lambda client: self._listed(client, queue, limit, run))

    async def _is_due(self, client: Client, queue: str) -> bool:
        return any(one.state in ("due", "running") for one in await self._listed(client, queue, _MOST_LOOKED))

    async def _listed(self, client: Client, queue: str, limit: int, run: str | None = None) -> list[QueueEntry]:
        query = f"TaskQueue = '{queue}' AND WorkflowType = '{WORKFLOW}'"
        if run is not None:
            query += f" AND WorkflowId = '{self._prefix}{run}'"
        found: dict[str, QueueEntry] = {}
        async for row in client.list_workflows(query, limit=limit):
            if not row.id.startswith(self._prefix) or row.id in found:  # the same run, delivered before
                continue
            state, worker, since, attempt = _STATES.get(row.status, "failed"), None, None, 1  # type: ignore[arg-type]
            if state == "running":
                told = (await client.get_workflow_handle(row.id).describe()).raw_description
                if not told.pending_activities:
                    state = "due" if told.HasField("pending_workflow_task") else "asleep"
                for one in told.pending_activities:
                    attempt = one.attempt
                    worker = one.last_worker_identity or None
                    since = one.last_started_time.ToDatetime(UTC) if worker else None
                    state = "running" if worker else "due"
            run = row.id.removeprefix(self._prefix)
            found[row.id] = QueueEntry(run=run, state=state, attempt=attempt, worker=worker, since=since)
        return list(found.values())

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
        """Take runs from a task queue and hand them to `handle`, up to `slots` at once, until `stop`."""
        if limit is not None:
            raise UsageError("Temporal has no limit for the runs of a queue: it is --slots times the number of workers")
        busy = _Busy()

        @activity.defn(name=ACTIVITY, no_thread_cancel_exception=True)
        def advance(order: dict[str, Any]) -> dict[str, Any]:
            if order["store"] != self._prefix:
                raise ApplicationError(f"the run is of another store, {order['store']}: give each store its own queue")
            with busy, _Beat(order, lease_s) as delivery:
                return _told(handle(delivery), delivery)

        async def work(client: Client) -> None:
            with ThreadPoolExecutor(slots, thread_name_prefix="holdfast-run") as threads:
                worker = TemporalWorker(
                    client,
                    task_queue=queue,
                    workflows=[RunWorkflow],
                    activities=[advance],
                    activity_executor=threads,
                    max_concurrent_activities=slots,
                    graceful_shutdown_timeout=timedelta(days=1),
                )
                async with worker:
                    while not stop.is_set():  # an event of threads, set by a signal
                        await asyncio.sleep(0.1)
                        if drain and busy.has_rested(_REST_S) and not await self._is_due(client, queue):
                            return

        self._do(work)

    def close(self) -> None:
        """Let the connection go, before the loop that it lives on: its threads call back while there is one."""
        if self._client is not None:
            self._client = None
            gc.collect()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, action: Callable[[Client], Coroutine[Any, Any, T]], *, or_gone: bool = False) -> T:
        """Do something with the server; StoreUnavailable if it cannot be reached."""

        async def with_client() -> T:
            if self._client is None:
                self._client = await Client.connect(self._address, namespace=self._namespace)
            return await action(self._client)

        try:
            return asyncio.run_coroutine_threadsafe(with_client(), self._loop).result()
        except RPCError as error:
            if or_gone and error.status == RPCStatusCode.NOT_FOUND:
                return None  # type: ignore[return-value]  # it has ended: there is nothing to tell
            raise StoreUnavailable(f"Temporal at {self._address}", str(error)) from error
        except RuntimeError as error:
            raise StoreUnavailable(f"Temporal at {self._address}", str(error)) from error


class _Busy:
    """Counts the deliveries under way."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()
        self._since = datetime.now(UTC)

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._count -= 1
            self._since = datetime.now(UTC)

    def has_rested(self, seconds: float) -> bool:
        """Tell whether nothing was delivered for so long."""
        with self._lock:
            return not self._count and datetime.now(UTC) - self._since > timedelta(seconds=seconds)


class _Beat:
    """Gives the heartbeat of one delivery from its first moment on; sets `lost` when Temporal gave it to another."""

    def __init__(self, order: dict[str, Any], lease_s: float) -> None:
        self._every_s = lease_s / 4
        self._over = threading.Event()
        self._delivery = Delivery(order["run"], order.get("crashes", 0) + activity.info().attempt)
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._beat,), name="holdfast-claims", daemon=True)

    def __enter__(self) -> Delivery:
        activity.heartbeat()
        self._thread.start()
        return self._delivery

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(self._every_s):
            activity.heartbeat()
            if activity.is_cancelled():
                self._delivery.lost.set()


def _told(outcome: Outcome, delivery: Delivery) -> dict[str, Any]:
    """Return an outcome as the workflow reads it."""
    crashes = {"crashes": delivery.attempt - 1}
    if isinstance(outcome, Done):
        return {"kind": "done", "status": outcome.status, **crashes}
    if isinstance(outcome, Until):
        return {"kind": "until", "mark": outcome.mark, "after_s": outcome.at_most_s, **crashes}
    _log.warning("run %s is tried again in %g s: %s", delivery.run, outcome.after_s, outcome.why)
    return {"kind": "again", "after_s": outcome.after_s, **crashes}
