"""The automatic side of a run: when a checkpoint is due, and what happens when one fails.

It decides and reports; the recorder below it stores.
"""

from __future__ import annotations

import logging
import math
import signal
import warnings
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.capture.protection import OnFailure, UnprotectedWarning, reason_of
from holdfast.capture.signals import SignalGuard
from holdfast.capture.strategy import Position
from holdfast.capture.timer import Timer, Timers
from holdfast.capture.triggers import TriggerEvent, known_operation
from holdfast.errors import Conflict, RunCancelled, RunStopped, RunWaiting, SessionOver, Unprotected
from holdfast.model.failure import failure_of
from holdfast.model.triggers import Trigger, checked_trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from holdfast.capture.live import LiveSections
    from holdfast.capture.lock import RunLock
    from holdfast.capture.protection import Protection
    from holdfast.capture.strategy import Condition
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.model.rules import Rules

_log = logging.getLogger("holdfast")
_WHATEVER_THE_STRATEGY = frozenset({Trigger.BEFORE_DESTRUCTIVE, Trigger.SHUTDOWN})
"""What the strategy does not decide, because it is the last chance; a switch does."""
_SIGNAL_TRIGGERS = {signal.SIGINT: Trigger.USER_INTERRUPT, signal.SIGTERM: Trigger.SHUTDOWN}


class Recording(Protocol):
    """What stores the run that is watched."""

    id: str
    lock: RunLock
    live: LiveSections
    protection: Protection
    is_ended: bool
    on_stored: Callable[[CheckpointRecord], object]

    @property
    def is_staged(self) -> bool:
        """Whether something waits for the next commit."""

    def flush(self) -> None:
        """Commit what is staged."""

    @property
    def is_enabled(self) -> bool:
        """Whether anything is stored at all."""

    @property
    def has_unstored(self) -> bool:
        """Whether something could not be stored and waits for the next commit."""

    @property
    def head_record(self) -> CheckpointRecord | None:
        """The record of the head."""

    def checkpoint(self, *, trigger: Trigger | str, files: bool, **given: Any) -> Any:
        """Store a checkpoint and return it."""

    def append(self, *, trigger: Trigger, reason: str, phase: str | None = None) -> bool:
        """Make durable what changed, without a checkpoint."""


class Housekeeper(Protocol):
    """What looks after old checkpoints while a run is open."""

    def start(self) -> None:
        """Begin."""

    def note(self, record: CheckpointRecord) -> None:
        """Hear of a commit."""

    def stop(self) -> None:
        """Finish what is due, then end."""


class EntryCheck(Protocol):
    """What happens when a run is entered and left."""

    def enter(self, save: Callable[[str, dict[str, Any]], object], *, is_new: bool) -> None:
        """Look at what moved before the work begins, and `save` the files with a reason and sections if they did."""

    def leave(self) -> None:
        """Let it go."""


class WatchOptions(NamedTuple):
    """How a run is watched, as the settings say it."""

    automatic: bool
    rules: Rules
    strategy: Condition
    operations: tuple[str, ...]
    interval_s: float | None
    signals: bool
    deadline_s: float | None
    lead_s: float
    on_failure: OnFailure


class Watch:
    """Watches over one run; entered and left with it."""

    def __init__(
        self,
        recorder: Recording,
        options: WatchOptions,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        timers: Timers,
        housekeeper: Housekeeper | None = None,
        entry_check: Callable[[], EntryCheck] | None = None,
        stored: Callable[[CheckpointRecord], object] = lambda _record: None,
        has_workspace: bool = False,
    ) -> None:
        self.run = recorder.id
        self.rules = options.rules
        self.strategy = options.strategy
        self._recorder = recorder
        recorder.on_stored = self.taken
        self._options = options
        self._clock = clock
        self._monotonic = monotonic
        self._timers = timers
        self._housekeeper = housekeeper
        self._has_workspace = has_workspace
        self._stored = stored
        self._make_check = entry_check
        self._check: EntryCheck | None = None
        self._events: Counter[Trigger] = Counter()
        self._taken = 0
        self._taken_at: float | None = None
        self._entered = False
        self._over: SessionOver | None = None
        self._unsaid: list[str] = []
        self._lost: Conflict | Unprotected | None = None
        self._timer: Timer | None = None
        self._guard: SignalGuard | None = None

    @property
    def last_checkpoint_at(self) -> datetime | None:
        """When the run's last checkpoint was taken, by whichever process."""
        head = self._recorder.head_record
        return head.envelope.created_at if head else None

    def checkpoint(self, *, files: bool = True, **given: Any) -> Any:
        """Take a checkpoint, and let timer, signals and housekeeping know of it."""
        made = self._recorder.checkpoint(files=files, **given)
        if made.saved:  # the strategy sees it from now on, also if it is stored with the next commit
            self._taken += 1
            self._taken_at = self._monotonic()
        return made

    def taken(self, record: CheckpointRecord) -> None:
        """Note a checkpoint that is stored."""
        if self._guard is not None:
            self._guard.rearm()
        if self._timer is not None:
            self._timer.postpone()
        if self._housekeeper is not None:
            self._housekeeper.note(record)
        self._stored(record)

    def _take(self, *, trigger: Trigger, files: bool | None = None, **given: Any) -> Any:
        """Take an automatic checkpoint; the workspace is captured where the rules say that it pays."""
        wanted = self.rules.of(trigger).files if files is None else files
        return self.checkpoint(trigger=trigger, files=wanted, **given)

    def maybe(
        self,
        trigger: Trigger | str,
        *,
        reason: str,
        phase: str | None,
        details: Mapping[str, Any],
        files: bool | None = None,
        **given: Any,
    ) -> Any:
        """Take a checkpoint if switches and strategy say so; return it, or None."""
        if not self._recorder.is_enabled:
            return None
        self.say()
        event = TriggerEvent(trigger=checked_trigger(trigger), reason=reason, phase=phase, details=dict(details))
        why = self._why(event, asked=True)
        return None if why is None else self._attempt(event.trigger, why, phase=phase, files=files, **given)

    def record(
        self,
        trigger: Trigger,
        reason: str,
        *,
        phase: str | None = None,
        files: bool | None = None,
        details: Mapping[str, Any] | None = None,
        on_failure: OnFailure | None = None,
    ) -> bool:
        """Make durable what changed: with a checkpoint where one is due, else in the journal alone.

        False if it failed and the work continues all the same; `on_failure` says otherwise than the settings.
        """
        if not self._recorder.is_enabled:
            return True
        self.say()
        event = TriggerEvent(trigger=trigger, reason=reason, phase=phase, details=dict(details or {}))
        why = self._why(event, asked=bool(files))
        if why is None:
            return self.append(trigger, reason, phase=phase, on_failure=on_failure)
        return self._attempt(trigger, why, phase=phase, files=files, on_failure=on_failure) is not None

    def append(self, trigger: Trigger, reason: str, *, phase: str | None, on_failure: OnFailure | None = None) -> bool:
        """Make durable what changed in the journal alone; False if it failed and the work continues all the same."""
        stored = self._attempt(trigger, reason, phase=phase, do=self._recorder.append, on_failure=on_failure)
        return stored is not None

    def flush(self) -> None:
        """Commit what is staged, or do as the settings say when that fails."""
        if self._recorder.is_staged:
            self._attempt(Trigger.STEP_COMPLETE, "", do=self._flushed)

    def _flushed(self, **_given: Any) -> bool:
        try:
            self._recorder.flush()
        except BaseException:
            self._taken_at = None  # what was counted is not stored: the head tells when the last one was taken
            raise
        return True

    def _why(self, event: TriggerEvent, *, asked: bool) -> str | None:
        """Return why a checkpoint is due for an event, None if none is: the one place that decides it."""
        if not self.rules.takes(event.trigger, asked=asked):
            return None
        self._events[event.trigger] += 1
        if event.trigger in _WHATEVER_THE_STRATEGY:
            return event.text
        return self.strategy.due(event, self._position(event))

    @contextmanager
    def destructive(self, operation: str, detail: str, **given: Any) -> Iterator[Any]:
        """Take a checkpoint, then let the operation happen; whatever the strategy says, unless it is switched off."""
        known = known_operation(operation, self._options.operations)
        if known is None:
            warnings.warn(
                f"{operation!r:.80} is not a known destructive operation; a checkpoint is taken all the same. Add "
                "it to destructive.operations in the settings, or with holdfast.open(destructive=[...])",
                stacklevel=3,
            )
        why = f"before {known or operation}" + (f": {detail}" if detail else "")
        yield self.maybe(Trigger.BEFORE_DESTRUCTIVE, reason=why, phase=None, details={}, **given)

    def say(self) -> None:
        """Raise here what a thread or a signal could not raise there: a lost run, the end, warnings."""
        unsaid, self._unsaid = self._unsaid, []
        for text in unsaid:
            warnings.warn(text, UnprotectedWarning, stacklevel=4)
        if self._lost is not None:
            lost, self._lost = self._lost, None
            raise lost
        if self._over is not None:
            raise self._over

    def begin(self) -> None:
        """Store a run that is new before it does anything: others see it then, and can pause or cancel it."""
        files = True if self._has_workspace else None  # what was there before the run must not be in no checkpoint
        self.record(Trigger.STATE_TRANSITION, "the run begins", files=files)

    def enter(self) -> None:
        """Begin to watch: timer, signals, deadline, housekeeping; signals wait until all of it runs."""
        options = self._options
        self._entered = True
        if self._make_check is not None:
            self._check = self._make_check()
            self._check.enter(self._save_entered, is_new=self._taken > 0)
        with self._recorder.lock:
            if options.signals:
                self._guard = SignalGuard(self._recorder.lock, self._signalled)
                self._guard.install()
            if options.automatic:
                self._timer = Timer(
                    timers=self._timers,
                    interval_s=options.interval_s,
                    tick=self._tick,
                    deadline_s=options.deadline_s,
                    lead_s=options.lead_s,
                    expire=self._expire,
                    monotonic=self._monotonic,
                )
                self._timer.start()
                if self._housekeeper is not None:
                    self._housekeeper.start()

    def _save_entered(self, reason: str, sections: dict[str, Any]) -> None:
        """Store the directory as it was found, whatever the strategy says: the work that begins may ruin it."""
        if self.rules.takes(Trigger.STATE_TRANSITION, asked=True):
            self._attempt(Trigger.STATE_TRANSITION, reason, files=True, sections=sections)

    def leave(self, error: BaseException | None) -> None:
        """Save last, whatever ended the run, and let timer, signals and housekeeping go."""
        try:
            if self._timer is not None:
                self._timer.stop()
            if self._guard is None or not self._guard.has_served(error):
                self._final(error)
        finally:
            self.stop()
        if error is None:
            self._over = None
            self.say()

    def stop(self) -> None:
        """End timer, signals and housekeeping; nothing is left running."""
        if not self._entered:
            self._stop_housekeeping()
            return
        self._entered = False
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if self._guard is not None:
            self._guard.remove()
            self._guard = None
        self._stop_housekeeping()

    def _stop_housekeeping(self) -> None:
        if self._housekeeper is not None:
            self._housekeeper.stop()
        if self._check is not None:
            self._check.leave()
            self._check = None

    def _final(self, error: BaseException | None) -> None:
        """Save last; what cannot be stored even now is raised, for nobody would store it later."""
        trigger, why = _ending(error)
        if not self._has_something() or (self._recorder.is_ended and error is None):
            return
        is_due = self.rules.takes(trigger)
        given: dict[str, Any] = {} if is_due else {"do": self._recorder.append}
        if is_due and trigger is Trigger.ERROR_OCCURRED and error is not None:
            given["error"] = failure_of(error)
        try:
            self._attempt(trigger, why, on_failure="stop", **given)
        except (Unprotected, Conflict):
            if error is None or isinstance(error, RunWaiting):
                raise  # another one that ended the run must still be seen, but "it waits" says that it is saved
            _log.exception("run %s: its last position could not be saved", self.run)

    def _attempt(
        self,
        trigger: Trigger,
        why: str,
        *,
        do: Callable[..., Any] | None = None,
        on_failure: OnFailure | None = None,
        **given: Any,
    ) -> Any:
        """Store it; if that fails the work continues, pauses or stops, but never in silence."""
        try:
            return (do or self._take)(trigger=trigger, reason=why, **given)
        except (Conflict, Unprotected):
            raise  # another writer has the run: continuing would be in vain
        except Exception as error:
            _log.error("%s", self._recorder.protection.sentence(self.run))
            refusal = self._recorder.protection.error(self.run, on_failure or self._options.on_failure)
            if refusal is not None:
                raise refusal from error
            warnings.warn(self._recorder.protection.sentence(self.run), UnprotectedWarning, stacklevel=4)
            return None

    def _has_something(self) -> bool:
        """Tell whether anything was ever given to save."""
        recorder = self._recorder
        return (
            len(recorder.live) > 0 or self._has_workspace or recorder.head_record is not None or recorder.has_unstored
        )

    def _aside(self, trigger: Trigger, why: str, **given: Any) -> bool:
        """Take a checkpoint from a thread of ours; what goes wrong is raised in the user's own next call."""
        try:
            self._take(trigger=trigger, reason=why, **given)
        except Conflict as error:
            self._lost = error
        except Exception as error:  # noqa: BLE001 - kept, and raised or warned about in the user's own thread
            _log.error("%s", self._recorder.protection.sentence(self.run))
            refusal = self._recorder.protection.error(self.run, self._options.on_failure)
            if isinstance(refusal, RunStopped):
                refusal.__cause__ = error
                self._lost = refusal
            self._unsaid.append(self._recorder.protection.sentence(self.run))
        else:
            return True
        return False

    def _tick(self) -> None:
        if not self.rules.takes(Trigger.TIME_INTERVAL) or not (len(self._recorder.live) or self._has_workspace):
            return
        since = self._since_last_s()
        if since is not None and since < (self._options.interval_s or 0) / 2:
            return
        given = {} if len(self._recorder.live) else {"files": True}  # without them there would be nothing new in it
        self._aside(Trigger.TIME_INTERVAL, f"every {self._options.interval_s:g} s", **given)

    def _expire(self) -> None:
        if self.rules.takes(Trigger.SESSION_END) and self._has_something():
            self._aside(Trigger.SESSION_END, "the session's deadline is near")
        saved = self._recorder.head_record
        where = f"saved as {saved.envelope.id}" if saved and self._recorder.protection.since is None else "not saved"
        self._over = SessionOver(self.run, where)

    def _signalled(self, number: int) -> bool:
        """Save for a signal, on the guard's thread; tell whether it is saved."""
        trigger = _SIGNAL_TRIGGERS.get(signal.Signals(number), Trigger.SESSION_END)
        if not (self.rules.takes(trigger) and self._has_something()):
            return False
        is_taken = self._aside(trigger, f"{signal.Signals(number).name} received")
        return is_taken and self._recorder.protection.since is None

    def _position(self, event: TriggerEvent) -> Position:
        return Position(since_last_s=self._since_last_s(), checkpoints=self._taken, events=self._events[event.trigger])

    def _since_last_s(self) -> float | None:
        """Return the age of the last checkpoint, by a clock that never jumps if this process took it."""
        if self._taken_at is not None:
            return self._monotonic() - self._taken_at
        last = self.last_checkpoint_at
        if last is None:
            return None
        age = self._clock() - last.timestamp()
        return age if age >= 0 else math.inf  # the clock was set back: nobody knows, so it is old


def _ending(error: BaseException | None) -> tuple[Trigger, str]:
    if isinstance(error, KeyboardInterrupt):
        return Trigger.USER_INTERRUPT, "interrupted by the user"
    if isinstance(error, (RunWaiting, RunCancelled)):
        return Trigger.SHUTDOWN, _encodable(str(error)[:2_000])
    if isinstance(error, SessionOver):
        return Trigger.SESSION_END, "the session is over"
    if isinstance(error, Exception):
        return Trigger.ERROR_OCCURRED, _encodable(reason_of(error)[:2_000])
    return Trigger.SHUTDOWN, "the run was shut down"


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
