"""A host that saves nothing and writes down what it was asked to."""

from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.capture.sections import plain
from holdfast.runtime.host import Alone

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Recorder(Alone):
    """Keeps the triggers and reasons of every save, and has a clock that moves by a second at each look."""

    def __init__(self, run="run-1"):
        super().__init__(run)
        self.saved = []
        self.offered = []
        self.notes = []
        self.slept = []
        self.refuse = None
        self._looks = 0

    def now(self):
        self._looks += 1
        return NOON + timedelta(seconds=self._looks)

    def monotonic(self):
        self._looks += 1
        return float(self._looks)

    def sleep(self, seconds):
        self.slept.append(seconds)

    def save(self, trigger, reason="", *, phase=None, files=None, required=False):
        assert not self.lock.is_mine(), "a save may wait for a person, and nobody can look at the run meanwhile"
        self.saved.append((trigger.value, reason, phase))
        if self.refuse is not None:
            raise self.refuse

    def offer(self, trigger, reason="", *, phase=None, **details):
        self.offered.append((trigger.value, reason))

    def note(self, kind, what="", **details):
        self.notes.append((kind, what))

    @property
    def triggers(self):
        return [trigger for trigger, _reason, _phase in self.saved]


def as_data(section, value):
    """Return a section as the plain data that another program would give, times as text."""
    return msgspec.json.decode(msgspec.json.encode(plain(section, value)))


def is_identity(section, part, fresh):
    """Tell whether a snapshot is restored the same from another part, as its type and as plain data."""
    taken = part.snapshot()
    seen = []
    for value in (taken, plain(section, taken), as_data(section, taken)):
        fresh.restore(value)
        seen.append(fresh.snapshot() == taken)
    return all(seen)
