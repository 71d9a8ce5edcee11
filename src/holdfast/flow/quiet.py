"""A run as the host of a part whose every small step is stored by the step around it already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.model.triggers import Trigger

if TYPE_CHECKING:
    import threading
    from contextlib import AbstractContextManager
    from datetime import datetime

    from holdfast.capture.lock import RunLock
    from holdfast.model.runtime_sections import Reply, Wait
    from holdfast.run import Run


class Quiet:
    """Passes everything on to the run but checkpoints for single steps: those are taken by the steps themselves."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.id = run.id

    @property
    def lock(self) -> RunLock:
        """The run's lock."""
        return self._run.lock

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._run.now()

    def monotonic(self) -> float:
        """Return seconds by a clock that never jumps."""
        return self._run.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._run.sleep(seconds)

    def save(self, trigger: Trigger, reason: str = "", *, phase: str | None = None, files: bool | None = None) -> bool:
        """Take a checkpoint, unless it is for a single step."""
        if trigger == Trigger.STEP_COMPLETE:
            return True
        return self._run.save(trigger, reason, phase=phase, files=files)

    def offer(self, trigger: Trigger, reason: str = "", *, phase: str | None = None, **details: Any) -> None:
        """Take a checkpoint if it is due."""
        self._run.offer(trigger, reason, phase=phase, **details)

    def note(self, kind: str, what: str = "", **details: Any) -> None:
        """Add a line to the journal."""
        self._run.note(kind, what, **details)

    def wait_for(self, wait: Wait) -> Reply:
        """Wait for somebody or something."""
        return self._run.wait_for(wait)

    def is_waiting_for(self, wait: str) -> bool:
        """Tell whether something is waited for."""
        return self._run.is_waiting_for(wait)

    def resolve(self, wait: str, value: Any) -> None:
        """Answer a wait from inside the run."""
        self._run.resolve(wait, value)

    def keep(self, value: Any, what: str) -> Any:
        """Return a copy that can be stored."""
        return self._run.keep(value, what)

    def check_open(self, lost: str) -> None:
        """Raise RunClosed if the run is closed."""
        self._run.check_open(lost)

    def watched(self) -> AbstractContextManager[threading.Event]:
        """Watch for a cancellation while a command runs."""
        return self._run.watched()

    def raise_cancelled(self) -> None:
        """Raise RunCancelled."""
        self._run.raise_cancelled()
