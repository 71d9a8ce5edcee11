"""The automatic side of a run: what is registered, when a checkpoint is due, and what happens when one fails.

It decides and reports; taking the checkpoint is a function that the run gives it.
"""

from __future__ import annotations

import logging
import math
import signal
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.capture.live import LiveSections
from holdfast.capture.lock import RunLock
from holdfast.capture.protection import OnFailure, Protection, UnprotectedWarning, reason_of
from holdfast.capture.signals import SignalGuard
from holdfast.capture.strategy import Position
from holdfast.capture.timer import Timer
from holdfast.capture.triggers import Event, known_operation
from holdfast.errors import Conflict, RunCancelled, RunStopped, RunWaiting, SessionOver, Unprotected
from holdfast.model.triggers import Trigger, checked_trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.capture.strategy import Condition
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.model.rules import Rules

_log = logging.getLogger("holdfast")
_WHATEVER_THE_STRATEGY = frozenset({Trigger.BEFORE_DESTRUCTIVE, Trigger.SHUTDOWN})
"""What the strategy does not decide, because it is the last chance; a switch does."""
_SIGNAL_TRIGGERS = {signal.SIGINT: Trigger.USER_INTERRUPT, signal.SIGTERM: Trigger.SHUTDOWN}


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
        run: str,
        options: WatchOptions,
        *,
        take: Callable[..., Any],
        append: Callable[..., Any],
        head: Callable[[], CheckpointRecord | None],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        clean: Callable[[str], str],
        housekeeper: Housekeeper | None = None,
        entry_check: Callable[[], EntryCheck] | None = None,
        stored: Callable[[CheckpointRecord], object] = lambda _record: None,
        has_workspace: bool = False,
    ) -> None:
        self.run = run
        self.rules = options.rules
        self.strategy = options.strategy
        self.lock = RunLock()
        self.live = LiveSections()
        self.protection = Protection()
        self._options = options
        self._take = take
        self._append = append
        self._head = head
        self._clock = clock
        self._monotonic = monotonic
        self._clean = clean
        self._housekeeper = housekeeper
        self._has_workspace = has_workspace
        self._stored = stored
        self._make_check = entry_check
        self._check: EntryCheck | None = None
        self._events: Counter[Trigger] = Counter()
        self._taken = 0
        self._taken_at: float | None = None
        self._entered = False
        self._is_ended = False
        self._over: SessionOver | None = None
        self._unsaid: list[str] = []
        self._lost: Conflict | Unprotected | None = None
        self._timer: Timer | None = None
        self._guard: SignalGuard | None = None

    @property
    def last_checkpoint_at(self) -> datetime | None:
        """When the run's last checkpoint was taken, by whichever process."""
        head = self._head()
        return head.envelope.created_at if head else None

    def succeeded(self, record: CheckpointRecord) -> None:
        """Note a checkpoint that is stored: the run is protected again."""
        if self.protection.since is not None:
            _log.warning("run %s is protected again by %s", self.run, record.envelope.id)
        self.protection = Protection()
        self._is_ended = False
        self._taken += 1
        self._taken_at = self._monotonic()
        if self._guard is not None:
            self._guard.rearm()
        if self._timer is not None:
            self._timer.postpone()
        if self._housekeeper is not None:
            self._housekeeper.note(record)
        self._stored(record)

    def ended(self) -> None:
        """Note that what was stored last says that the run is complete: there is nothing to add at its end."""
        self._is_ended = True

    def recorded(self) -> None:
        """Note that what changed is in the journal."""
        if self.protection.since is not None:
            _log.warning("run %s is protected again by its journal", self.run)
        self.protection = Protection()
        self._is_ended = False

    def failed(self, error: Exception) -> None:
        """Note a checkpoint that could not be taken."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        self.protection = self.protection.failed(self._clean(reason_of(error)), now)

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
        self.say()
        event = Event(trigger=checked_trigger(trigger), reason=reason, phase=phase, details=dict(details))
        why = self._why(event, asked=True)
        return None if why is None else self._attempt(event.trigger, why, phase=phase, files=files, **given)

    def record(
        self, trigger: Trigger, reason: str, *, phase: str | None, files: bool | None, details: Mapping[str, Any]
    ) -> bool:
        """Make durable what changed: with a checkpoint where one is due, else in the journal alone.

        False if it failed and the work continues all the same.
        """
        self.say()
        event = Event(trigger=trigger, reason=reason, phase=phase, details=dict(details))
        why = self._why(event, asked=bool(files))
        if why is None:
            return self.append(trigger, reason, phase=phase)
        return self._attempt(trigger, why, phase=phase, files=files) is not None

    def append(self, trigger: Trigger, reason: str, *, phase: str | None) -> bool:
        """Make durable what changed in the journal alone; False if it failed and the work continues all the same."""
        return self._attempt(trigger, reason, phase=phase, do=self._append) is not None

    def _why(self, event: Event, *, asked: bool) -> str | None:
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
        self.record(Trigger.STATE_TRANSITION, "the run begins", phase=None, files=files, details={})

    def enter(self) -> None:
        """Begin to watch: timer, signals, deadline, housekeeping; signals wait until all of it runs."""
        options = self._options
        self._entered = True
        if self._make_check is not None:
            self._check = self._make_check()
            self._check.enter(self._save_entered, is_new=self._taken > 0)
        with self.lock:
            if options.signals:
                self._guard = SignalGuard(self.lock, self._signalled)
                self._guard.install()
            if options.automatic:
                self._timer = Timer(
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
        trigger, why = _ending(error)
        if not self._has_something() or (self._is_ended and error is None):
            return
        is_due = self.rules.takes(trigger)
        given: dict[str, Any] = {} if is_due else {"do": self._append}
        if is_due and trigger is Trigger.ERROR_OCCURRED and error is not None:
            given["error"] = _failure(error)
        try:
            self._attempt(trigger, why, **given)
        except (Unprotected, Conflict, UnprotectedWarning):
            if error is None:
                raise  # where warnings are errors, the one that ended the run must still be the one that is seen
            _log.exception("run %s: its last position could not be saved", self.run)

    def _attempt(self, trigger: Trigger, why: str, *, do: Callable[..., Any] | None = None, **given: Any) -> Any:
        """Store it; if that fails the work continues, pauses or stops, but never in silence."""
        try:
            return (do or self._take)(trigger=trigger, reason=why, **given)
        except (Conflict, Unprotected):
            raise  # another writer has the run: going on would be in vain
        except Exception as error:
            _log.error("%s", self.protection.sentence(self.run))
            refusal = self.protection.error(self.run, self._options.on_failure)
            if refusal is not None:
                raise refusal from error
            warnings.warn(self.protection.sentence(self.run), UnprotectedWarning, stacklevel=4)
            return None

    def _has_something(self) -> bool:
        """Tell whether anything was ever given to save."""
        return bool(len(self.live)) or self._has_workspace or self._head() is not None

    def _aside(self, trigger: Trigger, why: str, **given: Any) -> bool:
        """Take a checkpoint from a thread of ours; what goes wrong is raised in the user's own next call."""
        try:
            self._take(trigger=trigger, reason=why, **given)
        except Conflict as error:
            self._lost = error
        except Exception as error:  # noqa: BLE001 - kept, and raised or warned about in the user's own thread
            _log.error("%s", self.protection.sentence(self.run))
            refusal = self.protection.error(self.run, self._options.on_failure)
            if isinstance(refusal, RunStopped):
                refusal.__cause__ = error
                self._lost = refusal
            self._unsaid.append(self.protection.sentence(self.run))
        else:
            return True
        return False

    def _tick(self) -> None:
        if not self.rules.takes(Trigger.TIME_INTERVAL) or not (len(self.live) or self._has_workspace):
            return
        since = self._since_last_s()
        if since is not None and since < (self._options.interval_s or 0) / 2:
            return
        given = {} if len(self.live) else {"files": True}  # without them there would be nothing new in it
        self._aside(Trigger.TIME_INTERVAL, f"every {self._options.interval_s:g} s", **given)

    def _expire(self) -> None:
        if self.rules.takes(Trigger.SESSION_END) and self._has_something():
            self._aside(Trigger.SESSION_END, "the session's deadline is near")
        saved = self._head()
        where = f"saved as {saved.envelope.id}" if saved and self.protection.since is None else "not saved"
        self._over = SessionOver(self.run, where)

    def _signalled(self, number: int) -> bool:
        """Save for a signal, on the guard's thread; tell whether it is saved."""
        trigger = _SIGNAL_TRIGGERS.get(signal.Signals(number), Trigger.SESSION_END)
        if not (self.rules.takes(trigger) and self._has_something()):
            return False
        return self._aside(trigger, f"{signal.Signals(number).name} received") and self.protection.since is None

    def _position(self, event: Event) -> Position:
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
        return Trigger.ERROR_OCCURRED, _encodable(f"{type(error).__name__}: {error}"[:2_000])
    return Trigger.SHUTDOWN, "the run was shut down"


def _failure(error: BaseException) -> dict[str, Any]:
    """Return the error section for what ended a run."""
    stack = "".join(traceback.format_exception(error, limit=-50))
    return {"message": _encodable(str(error)), "code": type(error).__name__, "stack": _encodable(stack)}


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
