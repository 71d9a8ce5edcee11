"""A host that dies at a chosen save, and the same program begun again from what was saved last.

What is saved goes through bytes, and a section whose `changes` did not grow is carried over, as in a run.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

from holdfast.capture.lock import RunLock
from holdfast.capture.sections import plain, typed
from holdfast.encode.values import Packer
from holdfast.errors import RunWaiting
from holdfast.model.runtime_sections import Reply
from holdfast.runtime.calls import Calls

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
PACKER = Packer()


class Killed(BaseException):
    """The process is gone."""


class Disk:
    """What outlives a process."""

    def __init__(self, answer=None):
        self.sections = {}
        self.records = {}
        self.saves = []
        self.notes = []
        self.answered = {}
        self.open = set()
        self.answer = answer  # what somebody outside says to a wait; None leaves the run waiting
        self.did = []  # what happened in the world outside


class Life:
    """One process: a host for parts."""

    id = "run-1"

    def __init__(self, disk, kill_at=None, *, after=False):
        self.disk = disk
        self.lock = RunLock()
        self.clock = 0.0
        self.slept = []
        self.count = 0
        self.waited = []
        self._kill_at = kill_at
        self._after = after
        self._is_dead = False
        self._parts = {}
        self._seen = {}
        self._added = []
        self.records_stored = 0
        self._keys = 0
        self.calls = Calls(self, make_key=self._key, max_bytes=1 << 30)

    def _key(self):
        self._keys += 1
        return f"key-{id(self)}-{self._keys}"

    def pack(self, value, what):
        return PACKER.pack(value, what)

    def unpack(self, data, what):
        return PACKER.unpack(data, what)

    def add_record(self, kind, path, body):
        with self.lock:
            self._added.append((path, (kind, body)))
            return self.records_stored + len(self._added)

    def find_record(self, path):
        found = [record for name, record in self._added if name == path]
        return found[-1] if found else self.disk.records.get(path)

    def keep(self, value, what):
        return PACKER.unpack(PACKER.pack(value, what), what)

    def attach(self, name, part):
        if name in self.disk.sections:
            part.restore(typed(name, PACKER.unpack(self.disk.sections[name], name)))
        self._parts[name] = part
        return part

    def do(self, what):
        """Have an effect outside, which no crash takes back; a dead process has none."""
        with self.lock:
            self._check_alive()
            self.disk.did.append(what)

    def now(self):
        return NOON + timedelta(seconds=self.clock)

    def monotonic(self):
        return self.clock

    def sleep(self, seconds):
        self.slept.append(seconds)

    def save(self, trigger, reason="", *, phase=None, files=None, required=False):
        with self.lock:
            self._check_alive()
            self.count += 1
            is_last = self.count == self._kill_at
            if is_last and not self._after:
                self._die()
            for name, part in self._parts.items():
                if self._seen.get(name) != part.changes:
                    self._seen[name] = part.changes
                    self.disk.sections[name] = PACKER.pack(plain(name, part.snapshot()), name)
            self.disk.records.update(self._added)
            self.records_stored += len(self._added)
            self._added.clear()
            self.disk.saves.append((trigger.value, reason))
            if is_last:
                self._die()
        return True

    def offer(self, trigger, reason="", *, phase=None, **details):
        self.save(trigger, reason)

    def record(self, reason, *, required=True):
        self.save(_Named("recorded"), reason)

    has_journal = True

    def grouped(self):
        return nullcontext()

    def ungrouped(self):
        return nullcontext()

    def flush(self):
        pass

    def begin_call(self, who, most):
        return ()

    def end_call(self, who, held, spent, *, is_known):
        pass

    def begin_retry(self):
        pass

    def charge(self, **amounts):
        pass

    def check_open(self, lost):
        pass

    def is_waiting_for(self, wait):
        return wait in self.disk.open

    def resolve(self, wait, value):
        pass

    def watched(self):
        return nullcontext()

    def note(self, kind, what="", **details):
        self.disk.notes.append((kind, what, details))

    def wait_for(self, wait):
        assert wait.id not in self.waited, "waits have an id of their own"
        if wait.id not in self.disk.answered:
            self.disk.open.add(wait.id)
            self.save(_Named("waits"), wait.id)
            said = self.disk.answer(wait) if self.disk.answer is not None else None
            if said is None:
                raise RunWaiting(self.id, wait.id, wait.kind, wait.question)
            reply = said if isinstance(said, Reply) else Reply(choice=said, at=self.now(), by="ann")
            self.disk.answered[wait.id] = reply
            self.disk.open.discard(wait.id)
            self.save(_Named("answered"), wait.id)
        self.waited.append(wait.id)
        return self.disk.answered[wait.id]

    def _check_alive(self):
        if self._is_dead:
            raise Killed

    def _die(self):
        self._is_dead = True
        raise Killed


class _Named:
    def __init__(self, value):
        self.value = value


def unbroken(program, **disk):
    """Return a disk and the end of a program that nothing interrupts, and how often it saved."""
    kept = Disk(**disk)
    life = Life(kept)
    return kept, program(life), life.count


def every_death(program, **disk):
    """Yield what became of a program killed right before and right after each of its saves, then begun again."""
    for number in range(1, unbroken(program, **disk)[2] + 1):
        for after in (False, True):
            kept = Disk(**disk)
            assert killed(program, kept, number, after=after), number
            yield (number, "after" if after else "before"), kept, program(Life(kept))


def every_two_deaths(program, **disk):
    """Yield what became of a program killed at each of its saves, and soon after it was begun again."""
    for number in range(1, unbroken(program, **disk)[2] + 1):
        for second in (1, 2, 3):
            kept = Disk(**disk)
            killed(program, kept, number)
            killed(program, kept, second, after=bool(number % 2))
            yield (number, second), kept, program(Life(kept))


def killed(program, disk, number, *, after=False):
    """Run a program until it is killed at this save; False if it ended before that."""
    try:
        program(Life(disk, number, after=after))
    except Killed:
        return True
    return False


def same_through_bytes(name, part, fresh):
    """Tell whether a part's snapshot restored into another one gives the same snapshot, also as plain data."""
    value = part.snapshot()
    packed = PACKER.pack(plain(name, value), name)
    fresh.restore(typed(name, PACKER.unpack(packed, name)))
    first = fresh.snapshot()
    fresh.restore(PACKER.unpack(packed, name))
    return first == value and fresh.snapshot() == value
