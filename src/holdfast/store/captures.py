"""Captures under way: a row for each that takes long, so that one which a crash cut off is seen, until it is swept."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import HoldfastError
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, Envelope, Marks, Summary
from holdfast.model.recovery import RecoveryInfo
from holdfast.store.tables import META

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.store.store import Store

LONG_S = 1.0
_NAME = "capture {} "  # no run has a space in its name


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is being made."""

    id: str
    run: str
    seq: int
    trigger: str
    reason: str
    begun_at: datetime

    @property
    def record(self) -> CheckpointRecord:
        """The checkpoint as a list shows it: nothing is in it, and nobody can continue from it."""
        envelope = Envelope(
            format_version=FORMAT_VERSION, id=self.id, run=self.run, seq=self.seq, parent=None, parent_checksum=None,
            trigger=self.trigger, reason=self.reason, created_at=self.begun_at, program_version="", sections=(),
            stored_bytes=0, codec="none", summary=Summary(),
            recovery=RecoveryInfo(can_resume=False, blockers=("it was never finished",)),
        )  # fmt: skip
        return CheckpointRecord(envelope, b"", Marks(status="creating"))


@contextmanager
def announced(store: Store, capture: Capture, *, after_s: float = LONG_S) -> Iterator[None]:
    """Show a capture in the store while the block runs, if it runs longer than a second."""
    lock = threading.Lock()
    name = _NAME.format(capture.run) + capture.id
    state = {"is_over": False, "is_shown": False}

    def show() -> None:
        with lock, suppress(HoldfastError):  # a store that cannot be written fails the capture itself, and says so
            if not state["is_over"]:
                store.put_meta(name, msgspec.msgpack.encode(capture), expected=None)
                state["is_shown"] = True

    timer = threading.Timer(after_s, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            state["is_over"] = True
        if state["is_shown"]:
            with suppress(HoldfastError):
                _drop(store, name)


def captures_of(store: Store, run: str) -> list[Capture]:
    """Return the captures of a run that are under way or were cut off, the last begun first."""
    start = _NAME.format(run)
    with store.medium.read() as reader:
        rows = reader.scan(META, low=start, high=f"{start}~")
    found = [msgspec.msgpack.decode(row.body, type=Capture) for row in store.codec.open_sound(META, rows)]
    return sorted(found, key=lambda one: one.begun_at, reverse=True)


def sweep_captures(store: Store, run: str, before: datetime) -> None:
    """Remove what captures that began before a time left behind."""
    for one in captures_of(store, run):
        if one.begun_at < before:
            _drop(store, _NAME.format(run) + one.id)


def _drop(store: Store, name: str) -> None:
    with store.medium.write() as transaction:
        transaction.drop(META, (name,))
