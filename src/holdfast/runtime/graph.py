"""A graph of tasks, run in batches: what failed holds back only what needs it.

Each task is a call, so what is done stays done; there is a checkpoint before and after each batch.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.capture.sections import typed
from holdfast.errors import GraphInvalid, UsageError
from holdfast.model import sections
from holdfast.model.failure import failure_of
from holdfast.model.nearest import hint
from holdfast.model.triggers import Trigger
from holdfast.runtime.attempt import Retry, check_retry
from holdfast.runtime.batches import check_graph, held_back, make_batches
from holdfast.runtime.calls import CallOptions, CallView
from holdfast.runtime.coroutines import result_of
from holdfast.runtime.host import Alone
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.recorded import kept
from holdfast.runtime.signature import wants_argument
from holdfast.runtime.threads import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from holdfast.model.sections import Failure, OnUnknown, TaskNode, TaskStatus
    from holdfast.runtime.calls import Call
    from holdfast.runtime.host import Host

DONE = frozenset({"completed", "skipped"})


class Task(NamedTuple):
    """What a task does, and how."""

    call: Callable[..., Any]
    needs: tuple[str, ...] = ()
    retry: Retry = Retry()
    timeout_s: float | None = None
    effect: str | None = None
    on_unknown: OnUnknown = "retry"


class Progress(NamedTuple):
    """One line of a report: a batch that begins (`task` is None), or a task that begins or has ended."""

    batch: int
    task: str | None
    status: TaskStatus
    done: int
    total: int


class GraphResult(NamedTuple):
    """How every task ended."""

    completed: tuple[str, ...]
    failed: tuple[str, ...]
    blocked: tuple[str, ...]
    skipped: tuple[str, ...]
    results: dict[str, Any]
    errors: dict[str, Failure]

    @property
    def is_whole(self) -> bool:
        """Whether nothing failed and nothing was held back."""
        return not (self.failed or self.blocked)


class TaskGraph:
    """Tasks that need each other: `add` them all, then `run`."""

    gives_typed = True

    def __init__(
        self,
        host: Host | None = None,
        id: str | None = None,  # noqa: A002 - the name that sections have
        tasks: Mapping[str, Task] | None = None,
    ) -> None:
        self._host = host or Alone()
        self._given_id = id
        self._id = id or "graph"
        self._tasks: dict[str, Task] = {}
        self._nodes: dict[str, TaskNode] = {}
        self._completed: list[int] = []
        self._current: int | None = None
        self._others: dict[str, sections.Graph] = {}  # not ours; kept where a section has several
        self._progress: Callable[[Progress], object] | None = None
        self._is_running = False
        self._shape = 0  # grows when a task is added, skipped or held back: the batches are then made again
        self.changes = 0
        for name, task in (tasks or {}).items():
            self._add(name, task)

    @property
    def id(self) -> str:
        """The graph's name."""
        return self._id

    def add(
        self,
        name: str,
        call: Callable[..., Any],
        *,
        needs: Iterable[str] = (),
        retries: int = 0,
        backoff_s: float = 1.0,
        timeout_s: float | None = None,
        effect: str | bool | None = None,
        on_unknown: OnUnknown | None = None,
    ) -> None:
        """Add a task; if its function has a parameter without a default, that is the results of its needs, by name.

        A task that changes the world outside says so with `effect`: that it begins is then saved first, and should its
        end be missing after a crash, `on_unknown` is asked (the default), retried or skipped.
        """
        retry = Retry(retries, backoff_s)
        what = "an outside effect" if effect is True else effect or None
        unknown: OnUnknown = on_unknown or ("ask" if what else "retry")
        self._add(name, Task(call, _names(name, needs), retry, timeout_s, what, unknown))

    def _add(self, name: str, task: Task) -> None:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise GraphInvalid(f"{name!r:.80} is not a name for a task: use printable characters")
        if not callable(task.call):
            raise UsageError(f"task {name!r}: {task.call!r:.80} cannot be called: give a function")
        if task.on_unknown not in ("retry", "skip", "ask"):
            raise UsageError(f"task {name!r}: on_unknown={task.on_unknown!r}: use 'retry', 'skip' or 'ask'")
        check_retry(task.retry, task.timeout_s)
        with self._host.lock:
            if name in self._tasks:
                raise GraphInvalid(f"task {name!r} is there already: give each its own name")
            self._tasks[name] = task
            self._shape += 1
            self._declare(name)

    def _declare(self, name: str) -> None:
        """Let a task's node say what the program says of it; how far it is stays as recorded."""
        task = self._tasks[name]
        declared: dict[str, Any] = {"needs": list(task.needs), "effect": task.effect, "on_unknown": task.on_unknown}
        node = self._nodes.get(name)
        if node is None:
            self._put(name, sections.TaskNode(status="pending", **declared))
        elif any(getattr(node, field) != value for field, value in declared.items()):
            self._put(name, msgspec.structs.replace(node, **declared))

    def snapshot(self) -> sections.Graph:
        """Return where every task stands."""
        with self._host.lock:
            return sections.Graph(
                id=self._id,
                completed_batches=list(self._completed),
                current_batch=self._current,
                tasks=dict(self._nodes),
                others=self._others,
            )

    def restore(self, value: sections.Graph | dict[str, Any]) -> None:
        """Take every task's position back; the functions stay those that were added."""
        section: sections.Graph = typed("graph", value)
        if self._given_id not in (None, section.id):
            raise UsageError(
                f"the stored graph is {section.id!r}, this one {self._id!r}: use the same id in each process"
            )
        with self._host.lock:
            self._id = section.id
            self._nodes = dict(section.tasks)
            self._completed = list(section.completed_batches)
            self._current = section.current_batch
            self._others = dict(section.others)
            self.changes += 1

    def node(self, name: str) -> TaskNode:
        """Return where a task stands."""
        with self._host.lock:
            return self._shown(self._nodes[self._known(name)])

    def _shown(self, node: TaskNode) -> TaskNode:
        """Return a node with its result, which the record of its call has."""
        result = self._host.calls.shown(node.result)
        return node if result is node.result else msgspec.structs.replace(node, result=result)

    @property
    def result(self) -> GraphResult:
        """How far all tasks are."""
        with self._host.lock:
            nodes = dict(self._nodes)
        by_status: dict[str, list[str]] = {}
        for name, node in nodes.items():
            by_status.setdefault(node.status, []).append(name)
        return GraphResult(
            completed=tuple(by_status.get("completed", ())),
            failed=tuple(by_status.get("failed", ())),
            blocked=tuple(by_status.get("blocked", ())),
            skipped=tuple(by_status.get("skipped", ())),
            results={name: self._shown(node).result for name, node in nodes.items() if node.status in DONE},
            errors={name: node.error for name, node in nodes.items() if node.error is not None},
        )

    def batches(self) -> list[list[str]]:
        """Return the batches of what is still to do; GraphInvalid names a circle or an unknown task."""
        with self._host.lock:
            needs = {name: node.needs for name, node in self._nodes.items()}
            done = {name for name, node in self._nodes.items() if node.status in DONE}
            failed = {name for name, node in self._nodes.items() if node.status == "failed"}
        return make_batches(needs, done=done, without=failed)

    def retry_failed(self) -> list[str]:
        """Make failed tasks pending again, with what they held back; the next `run` begins there."""
        with self._host.lock:
            again = [name for name, node in self._nodes.items() if node.status == "failed"]
            for name in again:
                self._change(name, status="pending", error=None, completed_at=None)
            self._block()
        return again

    def skip(self, name: str, result: Any = None) -> None:
        """Leave a task out for good; what needs it continues with this result."""
        with self._host.lock:
            if self._nodes[self._known(name)].status in DONE:
                return
            value = self._host.keep(result, f"the result of task {name!r}")
            self._change(name, status="skipped", result=value, completed_at=self._host.now())
            self._block()

    def run(self, *, limit: int = 4, progress: Callable[[Progress], object] | None = None) -> GraphResult:
        """Do what is to do, up to `limit` tasks at once, and say how each ended; a failed task is no exception."""
        if limit < 1:
            raise UsageError(f"limit={limit!r}: give how many tasks may run at once, 1 or more")
        if self._host.lock.is_mine():
            raise UsageError("a graph cannot run inside the run's lock: its tasks would wait for it for ever")
        with self._running(progress):
            self._prepare()
            self._end_interrupted_batch()
            while True:
                shape = self._shape
                batches = self.batches()
                if not batches:
                    break
                for batch in batches:
                    self._run_batch(batch, limit)
                    if self._shape != shape:
                        break
        return self.result

    @contextmanager
    def _running(self, progress: Callable[[Progress], object] | None) -> Iterator[None]:
        with self._host.lock:
            if self._is_running:
                raise UsageError(f"graph {self._id!r} is running already")
            self._is_running = True
            self._progress = progress
        try:
            yield
        finally:
            self._is_running = False

    def _prepare(self) -> None:
        with self._host.lock:
            for name in self._tasks:
                self._declare(name)
            check_graph({name: node.needs for name, node in self._nodes.items()})
            for name, node in self._nodes.items():
                if node.status not in DONE and name not in self._tasks:
                    raise GraphInvalid(
                        f"task {name!r} is in the record and has no function here: add it before run(), or skip it "
                        f"({hint(name, self._tasks)})"
                    )
            for name in [name for name, node in self._nodes.items() if node.status == "running"]:
                self._change(name, status="pending", started_at=None)  # its call knows whether it has an end
            self._block()

    def _end_interrupted_batch(self) -> None:
        """End a batch of an earlier process whose tasks had all settled; one with tasks left keeps its number."""
        number = self._current
        of_batch = [node.status for node in self._nodes.values() if node.batch == number]
        if number is not None and not {"pending", "running"}.intersection(of_batch):
            self._end_batch(number)

    def _run_batch(self, batch: list[str], limit: int) -> None:
        with self._host.lock:
            number = self._completed[-1] + 1 if self._completed else 1
            self._current = number
            for name in batch:
                self._change(name, batch=number)
        self._host.save(Trigger.STAGE_COMPLETE, f"before batch {number}")
        self._report(None, "pending")
        run_in_threads([partial(self._do, name) for name in batch], limit, self._id)
        self._end_batch(number)

    def _end_batch(self, number: int) -> None:
        with self._host.lock:
            self._completed.append(number)
            self._current = None
            self.changes += 1
        self._host.save(Trigger.BATCH_COMPLETE, f"batch {number}")

    def _do(self, name: str) -> None:
        """Do one task as a call; only what ends this process is raised."""
        task = self._tasks[name]
        if self._nodes[name].status in DONE:
            return  # skipped by another task of its batch
        calls, now = self._host.calls, self._host.now
        with self._host.lock:
            results = {need: kept(self._shown(self._nodes[need]).result) for need in task.needs}
        seen = {path: done.version for need in task.needs if (done := calls.kept(path := self._path(need))) is not None}

        def begun(_call: Call) -> None:
            self._change(name, status="running", started_at=now(), error=None)

        def attempted(_number: int) -> None:
            self._change(name, attempts=self._nodes[name].attempts + 1)

        def failed(error: BaseException) -> None:
            self._change(name, status="failed", error=failure_of(error), completed_at=now())
            self._block()

        options = CallOptions(
            retry=task.retry,
            timeout_s=task.timeout_s,
            effect=task.effect,
            on_unknown=task.on_unknown,
            wrote_files=None,
            phase=None,
            view=CallView(
                begun,
                attempted,
                lambda _said, outcome: self._change(name, status="completed", result=outcome, completed_at=now()),
                failed,
                lambda outcome: self._change(name, status="skipped", result=outcome, completed_at=now()),
            ),
        )
        self._report(name, "running")
        try:
            result = calls.call(
                "task", f"{self._id}/{name}", _work(name, task.call, results), options, after=seen, is_numbered=False
            )
        except Exception as error:
            if is_interruption(error):
                raise
            self._report(name, "failed")
            return
        with self._host.lock:
            if self._nodes[name].status not in DONE:  # it was done before this section was last stored
                outcome = calls.outcome(self._path(name), value=kept(result))
                self._change(name, status="completed", result=outcome, completed_at=now())
        self._report(name, self._nodes[name].status)

    def _path(self, name: str) -> str:
        return self._host.calls.path_of(f"{self._id}/{name}")

    def _block(self) -> None:
        """Hold back what needs a failed task, and nothing else."""
        self._shape += 1
        needs = {name: node.needs for name, node in self._nodes.items()}
        failed = [name for name, node in self._nodes.items() if node.status == "failed"]
        held = held_back(needs, failed)
        for name, node in self._nodes.items():
            if node.status == "pending" and name in held:
                self._change(name, status="blocked")
            elif node.status == "blocked" and name not in held:
                self._change(name, status="pending")

    def _put(self, name: str, node: TaskNode) -> None:
        self._nodes[name] = node
        self.changes += 1

    def _change(self, name: str, **fields: Any) -> None:
        self._put(name, msgspec.structs.replace(self._nodes[name], **fields))

    def _known(self, name: str) -> str:
        if name not in self._nodes:
            raise GraphInvalid(f"there is no task {name!r}: {hint(name, self._nodes)}")
        return name

    def _report(self, task: str | None, status: TaskStatus) -> None:
        if self._progress is None:
            return
        with self._host.lock:
            settled = sum(node.status not in ("pending", "running") for node in self._nodes.values())
            line = Progress(self._current or 0, task, status, settled, len(self._nodes))
        self._progress(line)


def _names(name: str, needs: Iterable[str]) -> tuple[str, ...]:
    if isinstance(needs, str):
        raise GraphInvalid(f"task {name!r}: needs={needs!r} is one text: give a list, needs=[{needs!r}]")
    return tuple(dict.fromkeys(needs))


def _work(name: str, call: Callable[..., Any], results: dict[str, Any]) -> Callable[[], Any]:
    """Return the call with what it asks for; an asynchronous one is awaited."""
    work = partial(call, results) if wants_argument(call) else call
    return lambda: result_of(work(), f"task {name!r}")
