"""From a delivery to its outcome: bring the run's files here, advance it, say what it waits for.

A directory below the worker's root belongs to a run. Entering the run brings it to the run's head, by difference where
it stood at an earlier one. Where nothing can be done here (an invalid flow, a function that is not here, three crashes
in the same call) the run is parked: it asks a person, and is not tried again until somebody answers.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import threading
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.encode.documents import parse_json, read_own
from holdfast.errors import (
    CannotResume,
    DocumentInvalid,
    HeadMoved,
    IntegrityError,
    LeaseHeld,
    LeaseLost,
    NoRoom,
    NotFound,
    RestoreFailed,
    RunCancelled,
    RunWaiting,
    SessionOver,
    SettingsInvalid,
    StoreError,
    Unprotected,
    UsageError,
)
from holdfast.flow.advance import advance
from holdfast.journal.call_record import is_work
from holdfast.model.runtime_sections import Wait
from holdfast.own_folder import write_whole
from holdfast.runtime.command import Command
from holdfast.runtime.inbox import read_inbox
from holdfast.store.open import FOLDER
from holdfast.worker.port import (
    DELIVERED,
    ENTRY,
    LONGEST_SLEEP_S,
    LONGEST_WAIT_S,
    PARKED,
    SETTINGS,
    SETUP,
    Again,
    Delivery,
    Done,
    Outcome,
    Until,
    begins_at,
    text_of,
)
from holdfast.worker.submit import note

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.engine import Holdfast
    from holdfast.flow.result import FlowResult
    from holdfast.run import Run

_log = logging.getLogger("holdfast")
_SET_UP = "setup"  # in a directory's own folder: which set-up command was run there
_CRASHES = 3
_PAUSE_S = 5.0  # after what may be over by itself
_ELSEWHERE_S = 30.0  # another machine may be able to, meanwhile
_LOOK_S = 1.0  # while another process has the run: its lease may lapse


class Worker:
    """Carries deliveries out, each with a handle of its own; safe for several threads."""

    def __init__(
        self,
        open_store: Callable[[dict[str, Any]], Holdfast],
        root: str | Path,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Begin with nothing open; `functions` are what flows may call, and the programs of runs by `module:name`.

        `open_store` is given what a run brings along of its submitter's settings.
        """
        self._open = open_store
        self._root = Path(root)
        self._functions = dict(functions or {})
        self._stop = stop or threading.Event()

    def handle(self, delivery: Delivery) -> Outcome:
        """Advance a run as far as it goes; whatever happens there is an outcome for it."""
        try:
            with self._open({}) as hf:
                carried = text_of(hf.store.row_of(delivery.run).attributes, SETTINGS)
                if carried is None:
                    return self._advanced(hf, delivery)
                try:
                    own = self._open(parse_json(carried.encode(), "they"))
                except (ValueError, DocumentInvalid, SettingsInvalid) as error:
                    return _park(hf, delivery.run, f"the settings that it was submitted with: {error}")
            with own:
                return self._advanced(own, delivery)
        except LeaseHeld as held:
            return Again(_LOOK_S, str(held))
        except NotFound:
            return Done("deleted")
        except (LeaseLost, HeadMoved, StoreError, Unprotected) as error:  # another has it, or the store is away
            return Again(_PAUSE_S, str(error))
        except (OSError, NoRoom, RestoreFailed) as error:  # of this machine alone: a full disk
            return Again(_ELSEWHERE_S, f"this machine cannot advance it: {error}")

    def _advanced(self, hf: Holdfast, delivery: Delivery) -> Outcome:
        while True:
            last = number, of = _last_entry(hf, delivery.run)
            try:
                outcome = self._once(hf, delivery)
            except NoRoom:
                raise
            except (UsageError, CannotResume, IntegrityError) as error:
                outcome = _park(hf, delivery.run, str(error))
            if not isinstance(outcome, Until):
                return outcome
            if _last_entry(hf, delivery.run) == last:
                return Until(number + 1, outcome.at_most_s, of)
            # Something was said to the run meanwhile: maybe after it last looked.

    def _once(self, hf: Holdfast, delivery: Delivery) -> Outcome:
        run = delivery.run
        row = hf.store.row_of(run)
        attributes = row.attributes
        left_s = 0.0 if row.status else begins_at(attributes) - hf.store.medium.now()
        if left_s > 0 and not any(item.kind == "cancel" for item in read_inbox(hf.store, hf.internals.packer, run, 0)):
            return Until(0, min(LONGEST_SLEEP_S, left_s))
        parked, setup, entry = (text_of(attributes, name) for name in (PARKED, SETUP, ENTRY))
        if entry is not None and row.status == "completed":  # a flow knows by itself what of it is done
            return Done(row.status)
        if parked and not _unparked(hf, run, parked):
            return Until(0)
        crashes = _count_crashes(hf, delivery)
        if crashes >= _CRASHES:
            return _park(hf, run, f"its worker died {crashes} times in the same call")
        directory = self._directory(run)
        prepare = partial(_set_up, setup)
        if entry is not None:
            return self._program(hf, delivery, entry, directory, prepare)
        result = advance(
            hf, run, workspace=directory, functions=self._functions, stop=self._stop, lost=delivery.lost,
            prepare=prepare,
        )  # fmt: skip
        return _outcome_of(hf, result)

    def _directory(self, run: str) -> Path:
        """Return a run's directory, made where it is missing; OSError at a link, put there by another run."""
        directory = self._root / quote(run, safe="")
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if directory.is_symlink():
            raise OSError(errno.ELOOP, f"{directory} is a link, which is not followed: delete it")
        return directory

    def _program(
        self, hf: Holdfast, delivery: Delivery, entry: str, directory: Path, prepare: Callable[[Run], None]
    ) -> Outcome:
        """Run a program of this worker's own: `function(run)`."""
        function = self._functions.get(entry)
        if function is None:
            raise UsageError(f"this worker has no program {entry!r}: start it with --functions MODULE")
        run = hf.run(delivery.run, workspace=directory, waiting="leave")
        is_entered = False
        try:
            run.host.leave_when(self._stop)
            with run.host.stopped_when(delivery.lost), run:
                prepare(run)
                is_entered = True
                function(run)
        except RunWaiting:
            return _waiting(hf, delivery.run)
        except SessionOver as over:
            return Again(0.0, str(over))
        except RunCancelled:
            return Done("cancelled")
        except (LeaseLost, HeadMoved, StoreError, Unprotected):
            raise
        except Exception as error:
            if not is_entered:
                raise
            _log.exception("run %s: its program %s failed", delivery.run, entry)
            if hf.latest(delivery.run, required=True).summary.status != "completed":
                return _park(hf, delivery.run, f"its program {entry} failed: {type(error).__name__}: {error}")
        status = hf.latest(delivery.run, required=True).summary.status or "ended"
        return Done(status)


def _outcome_of(hf: Holdfast, result: FlowResult) -> Outcome:
    if result.status == "waiting":
        return _waiting(hf, result.run)
    if result.status in ("elsewhere", "left"):
        return Again(0.0 if result.status == "left" else _LOOK_S, result.detail)
    return Done(result.status)


def _waiting(hf: Holdfast, run: str) -> Outcome:
    """Return until when a run waits: for an entry of its inbox, which may cancel it, at most until a time.

    A pause, not a time: this machine's clock, the one that the run reads, may be an hour off the others'.
    """
    waits = hf.control.waiting(run)
    longest = LONGEST_SLEEP_S if all(wait.kind in ("time", "cooldown") for wait in waits) else LONGEST_WAIT_S
    left = ((wait.until - datetime.now(UTC)).total_seconds() for wait in waits if wait.until is not None)
    return Until(0, max(1.0, min([longest, *left])))


def _last_entry(hf: Holdfast, run: str) -> tuple[int, int]:
    """Return the number of a run's last inbox entry, and the run's incarnation."""
    of, entries = hf.store.row_of(run).n, hf.store.inbox(run)
    return entries[-1].number if entries else 0, of


def _set_up(command: str | None, run: Run) -> None:
    """Run a run's set-up command, if it has one, in a directory that it has not been run in; UsageError if it fails."""
    if command is None:
        return
    root = run.workspace.path
    mark = root / FOLDER / _SET_UP
    done = hashlib.sha256(command.encode()).hexdigest().encode()
    with suppress(OSError, DocumentInvalid):
        if read_own(mark, limit=len(done)).data == done:
            return
    result = Command(command, cwd=root).run(host=run.host)
    if not result.succeeded:
        raise UsageError(f"its set-up command {command!r:.200} failed: {result.problem}")
    try:
        write_whole(mark, done)  # after it has ended: one that was killed is run again
    except OSError as error:  # at a link, for one, that a repository which it cloned may bring
        raise UsageError(f"{error.filename} {error.strerror}") from None


def _count_crashes(hf: Holdfast, delivery: Delivery) -> int:
    """Return how often in a row a worker died with this run before any call of it ended; counted in the store."""
    head = hf.latest(delivery.run)
    # Ends, not records: a call that kills its worker leaves one more start each time.
    ended = sum(one["event"] in ("done", "failed", "skipped") and is_work(one) for one in head.calls) if head else 0
    before = (text_of(hf.store.row_of(delivery.run).attributes, DELIVERED) or "1:0:0").split(":")
    attempt, known, crashes = (int(part) for part in before)
    if delivery.attempt <= attempt and known == ended:
        return crashes
    crashes = 0 if delivery.attempt <= attempt else crashes + 1 if known == ended else 1
    note(hf, delivery.run, {DELIVERED: f"{delivery.attempt}:{ended}:{crashes}"})
    return crashes


def _park(hf: Holdfast, run: str, why: str) -> Outcome:
    """Let a run ask a person what is to become of it; nothing of it is done until then."""
    number = hf.store.run(run).number
    wait = f"parked:{number}"
    note(hf, run, {PARKED: wait})
    question = f"it cannot be advanced: {why}"[:2_000]
    opened = hf.run(run, waiting="leave")
    try:
        with opened.held():
            opened.host.wait_for(Wait(id=wait, kind="uncertain", question=question, options=("retry", "cancel")))
    except RunWaiting:
        pass
    finally:
        opened.close()
    return Until(0)


def _unparked(hf: Holdfast, run: str, wait: str) -> bool:
    """Tell whether a person let a parked run be tried again; `cancel` ends it."""
    if any(one.id == wait for one in hf.control.waiting(run)):
        return False
    answers = [
        item
        for item in read_inbox(hf.store, hf.internals.packer, run, 0)
        if item.kind == "answer" and item.target == wait
    ]
    if answers and answers[-1].choice == "cancel":
        hf.control.cancel(run, by=answers[-1].by)
    note(hf, run, {PARKED: None, DELIVERED: None})
    return True
