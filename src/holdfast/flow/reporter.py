"""What a flow says while it runs: events to whoever watches, with what was saved and spent in between."""

from __future__ import annotations

import threading
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.capture.redact import text_redactor
from holdfast.flow.events import Event
from holdfast.flow.redaction import EventRedactor
from holdfast.runtime.ledger import TIME
from holdfast.settings.apply import redaction_rules

if TYPE_CHECKING:
    from holdfast.flow.events import Kind, Observer
    from holdfast.model.runtime_sections import Reply, Wait
    from holdfast.run import Run

_QUIET_S = 0.5
_SAID_ALONE = ("task_output", "checkpoint", "budget", "unprotected", "protected", "hook_failed")


class Reporter:
    """Tells its observers, without secrets; one that fails is not told any more, and the run continues."""

    def __init__(self, run: Run, *observers: Observer | None) -> None:
        self._run = run
        self._observers = [one for one in observers if one is not None]
        self._lock = threading.Lock()
        self._redactor = EventRedactor(
            text_redactor(run.holdfast.internals.types, redaction_rules(run.holdfast.settings.redaction))
        )
        self._unsaid: deque[Event] = deque()
        self._seq = run.recorder.head_record.envelope.seq if run.recorder.head_record else 0
        self._timer: threading.Timer | None = None
        self._was_unprotected = False
        self._spent: dict[str, Any] = {}

    def __call__(self, kind: Kind, **fields: Any) -> None:
        """Say one thing, once all that was saved before it is durable."""
        if not self._observers:
            return
        with self._lock:
            self._unsaid += self._redactor.take(Event(kind=kind, at=self._run.host.now(), **fields))
            self._watch_quiet()
        if not self._run.host.is_behind:
            self.deliver()

    def _watch_quiet(self) -> None:
        """Look again after a while whether a stream stopped in the middle of a line; the lock is held."""
        if self._timer is None and self._redactor.is_holding:
            self._timer = threading.Timer(_QUIET_S, self._say_question, (self._redactor.pieces,))
            self._timer.daemon = True
            self._timer.start()

    def _say_question(self, pieces: int) -> None:
        """Say a question that nothing has followed; a person could not answer what is held back."""
        with self._lock:
            self._timer = None
            if self._redactor.pieces == pieces:
                self._unsaid += self._redactor.quiet()
            self._watch_quiet()
        if not self._run.host.is_behind:
            self.deliver()

    def close(self) -> None:
        """Say what tasks printed last that has no end of line."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._unsaid += self._redactor.end()
        self.deliver()

    def deliver(self) -> None:
        """Say what waited until it was durable."""
        while True:
            with self._lock:
                if not self._unsaid:
                    return
                event = self._unsaid.popleft()
            self._tell(event)

    def _tell(self, event: Event) -> None:
        for observer in list(self._observers):
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 - whoever watches must not stop the work
                self._observers.remove(observer)
                self._run.host.note("observer failed", f"{type(error).__name__}: {error}")
        if event.kind not in _SAID_ALONE:
            self.catch_up()

    def tell_wait(self, wait: Wait, reply: Reply | None) -> None:
        """Say what is waited for, once that is stored and can be answered, or how it ended."""
        place, data = _told(wait)
        if reply is None:
            self("waiting", **place, text=wait.question, data=data)
        elif (
            wait.kind != "approval"
        ):  # who asks the flow's own questions says this, also of an earlier process's answer
            self("answered", **place, text=f"{wait.question}: {reply.choice}", data={"by": reply.by})

    def catch_up(self) -> None:
        """Say what was saved and spent since the last time."""
        if not self._observers:
            return
        head = self._run.recorder.head_record
        if head is not None and head.envelope.seq != self._seq:
            self._seq = head.envelope.seq
            self("checkpoint", text=head.envelope.reason, data={"seq": head.envelope.seq, "id": head.envelope.id})
        since = self._run.protection.since
        if (since is not None) != self._was_unprotected:
            self._was_unprotected = since is not None
            self("unprotected" if since else "protected", text=f"since {since:%H:%M:%S}" if since else "")
        budget = self._run.budget
        spending = budget.spending if budget.is_limited else {}
        spent = {name: [float(one.used), one.limit] for name, one in spending.items() if one.limit}
        if spent != self._spent:
            self._spent = spent
            self("budget", data={"time" if name == TIME else name: amounts for name, amounts in spent.items()})


def wait_event(wait: Wait) -> Event:
    """Return the event that says what is waited for."""
    place, data = _told(wait)
    return Event(kind="waiting", at=datetime.now(UTC), **place, text=wait.question, data=data)


def _told(wait: Wait) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return where in the flow something is waited for, and what whoever watches needs to answer it."""
    details = dict(wait.details)
    place = {name: details.pop(name, None) for name in ("phase", "task")}
    return place, {"wait": wait.id, "wait_kind": wait.kind, "options": list(wait.options), **details}
