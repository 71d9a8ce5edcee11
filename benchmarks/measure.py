"""The side of a benchmark that runs in a process of its own: one subject, one phase.

Saving, loading and deleting are three processes, so that nothing one of them keeps in memory
helps the next, and each has a memory peak of its own. The parent is `rounds`.
"""

from __future__ import annotations

import argparse
import gc
import logging
import statistics
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from benchmarks.conversation import Conversation, State, decode, encode
from benchmarks.disk import stored_bytes
from benchmarks.laps import Laps, timed_ms
from benchmarks.memory import PeakMemory
from benchmarks.subjects import Subject, subject_class

if TYPE_CHECKING:
    from collections.abc import Callable

Figures = dict[str, float | None]
LIST_LIMIT = 50
LOADS = 9
LOADS_BUDGET_S = 3.0


class Outcome(msgspec.Struct, frozen=True):
    """What a phase hands back: its figures, and the key of the checkpoint to load later."""

    figures: Figures
    middle: str = ""
    missing: str = ""


class Request(msgspec.Struct, frozen=True):
    """What a phase is asked to do."""

    phase: str
    subject: str
    steps: int
    directory: str
    middle: str = ""
    fresh_objects: bool = False


class WrongStateError(Exception):
    """A subject gave back something else than what was saved."""


def save(make: type[Subject], request: Request) -> Outcome:
    """Save the whole conversation and measure each checkpoint."""
    directory = Path(request.directory)
    conversation = Conversation(request.steps, fresh_objects=request.fresh_objects)
    laps = Laps(request.steps)
    subject = make(directory)
    gc.collect()
    with PeakMemory() as peak:
        middle = subject.save(conversation, laps)
    open_bytes = stored_bytes(directory)
    subject.close()
    state_bytes = len(encode(conversation.state))
    figures: Figures = {
        "p50_ms": laps.wall_ms(50),
        "p99_ms": laps.wall_ms(99),
        "cpu_first_ms": laps.cpu_first_ms(),
        "cpu_last_ms": laps.cpu_last_ms(),
        "cpu_growth": laps.cpu_last_ms() / laps.cpu_first_ms(),
        "stored_bytes": stored_bytes(directory),
        "stored_while_open_bytes": open_bytes,
        "unique_bytes": conversation.unique_bytes(),
        "state_bytes": state_bytes,
        # Fresh objects are the workload's own memory and would be taken for the subject's.
        "save_memory_states": None if request.fresh_objects else peak.in_units_of(state_bytes),
    }
    return Outcome(figures, middle)


def load(make: type[Subject], request: Request) -> Outcome:
    """Load the newest and the middle state and a list, and check what was restored."""
    directory = Path(request.directory)
    start = time.perf_counter()
    subject = make(directory)
    open_ms = 1_000 * (time.perf_counter() - start)
    kept: list[State] = []
    with PeakMemory() as peak:
        cold_ms = timed_ms(lambda: kept.append(subject.latest()))
    state, half = _expected(request.steps, context=make.keeps_context)
    _check(kept.pop(), state, "newest")
    _check(subject.load(request.middle), half, "middle")
    subject.close()
    newest = _beside_decoding(make, directory, lambda new: new.latest(), encode(state))
    middle = _beside_decoding(make, directory, lambda new: new.load(request.middle), encode(half))
    listing = _beside_decoding(make, directory, lambda new: new.list_newest(LIST_LIMIT), b"\x80")
    figures: Figures = {
        "open_ms": open_ms,
        "latest_cold_ms": cold_ms,
        "load_memory_states": peak.in_units_of(len(encode(state))),
        "latest_ms": newest.call_ms,
        "decode_ms": newest.decode_ms,
        "old_ms": middle.call_ms,
        "decode_old_ms": middle.decode_ms,
        "list_ms": listing.call_ms,
    }
    return Outcome(figures)


def delete(make: type[Subject], request: Request) -> Outcome:
    """Delete the conversation and see what is left on disk."""
    subject = make(Path(request.directory))
    elapsed_ms = timed_ms(subject.delete)
    subject.close()
    left = stored_bytes(Path(request.directory))
    return Outcome({"delete_s": elapsed_ms / 1_000, "left_bytes": left})


def _expected(steps: int, *, context: bool) -> tuple[State, State]:
    conversation = Conversation(steps)
    states = conversation.state_after(steps), conversation.state_after(steps // 2)
    if not context:
        for state in states:
            del state["context"]
    return states


def _check(found: State, expected: State, which: str) -> None:
    if found != expected:
        raise WrongStateError(f"the {which} state is not the one that was saved")


class Pair(NamedTuple):
    """The median times of a call and of decoding what it returns."""

    call_ms: float
    decode_ms: float


def _beside_decoding(make: type[Subject], directory: Path, call: Callable[[Subject], object], data: bytes) -> Pair:
    """Time a call that is each time the first of a new handle, and decoding alone in turn with it.

    In turn, because either one leaves the allocator in a state that the other would profit from.
    """
    calls_ms: list[float] = []
    decodes_ms: list[float] = []
    while len(calls_ms) < LOADS and sum(calls_ms) < 1_000 * LOADS_BUDGET_S:
        subject = make(directory)
        calls_ms.append(timed_ms(partial(call, subject)))
        subject.close()
        decodes_ms.append(timed_ms(partial(decode, data)))
    return Pair(statistics.median(calls_ms), statistics.median(decodes_ms))


PHASES = {"save": save, "load": load, "delete": delete}


def main() -> None:
    """Read the request, do it, write the outcome; the subject may print what it likes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure")
    parser.add_argument("request", type=Path)
    parser.add_argument("outcome", type=Path)
    paths = parser.parse_args()
    logging.disable(logging.WARNING)
    request = msgspec.json.decode(paths.request.read_bytes(), type=Request)
    try:
        make = subject_class(request.subject)
    except ModuleNotFoundError as error:
        outcome = Outcome({}, missing=f"not installed ({error.name})")
    else:
        outcome = PHASES[request.phase](make, request)
    paths.outcome.write_bytes(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
