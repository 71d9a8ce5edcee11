"""Checkpoints of a growing conversation by comparing: time, bytes, reading back; beside LangGraph's delta channels."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast
from benchmarks.conversation import Conversation, decode, encode
from benchmarks.memory import PeakMemory
from benchmarks.processes import stored_bytes, written_bytes
from benchmarks.table import Row, Scale
from benchmarks.turns import Floor, Laps

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = "conversation"
DISK_REACH = {2_000: 1.0, 200: 3.0, 60: 6.0}
LOADS = 7


def rows(scale: Scale) -> Iterator[Row]:
    """Yield the rows of saving and loading."""
    steps = scale.of(3_000, 60)
    with tempfile.TemporaryDirectory(dir=scale.workdir) as name:
        folder = Path(name)
        laps, middle = _saved(folder, steps)
        floor, ours, rebuilt = (laps[one] for one in ("floor", "shared", "rebuilt"))
        measure = f"checkpoint by comparing, {steps:,} messages of 2 KB"
        given = {"floor": f"{floor.ms:.3f} ms, {floor.cpu_ms:.3f} CPU"}
        delta = laps.get("delta")
        told = {"peers": f"LangGraph delta {delta.over(floor).value:.1f} ×"} if delta else {}
        yield ours.over(floor).row(measure, "wall", 3, **given, **told)
        told = {"peers": f"LangGraph delta {delta.cpu_over(floor).value:.1f} ×"} if delta else {}
        yield ours.cpu_over(floor).row(measure, "CPU", 5, **told)
        yield Row(measure, "CPU, last tenth ÷ first", ours.growth(), "×", 1.2)
        measure = "the same, state rebuilt each step (decoded JSON)"
        yield rebuilt.cpu_over(ours).row(measure, "CPU ÷ shared objects", 2)
        yield rebuilt.over(ours).row(measure, "wall ÷ shared objects", 2)
        yield Row(measure, "CPU, last tenth ÷ first", rebuilt.growth(), "×", 1.3)
        yield from _read(folder, steps, middle)
    for chars, reach in DISK_REACH.items():
        yield from _disk(scale, chars, reach)


def _saved(folder: Path, steps: int) -> tuple[dict[str, Laps], str]:
    """Save the conversation, the subjects in turn; return their laps and the checkpoint in the middle."""
    one, other = Conversation(steps), Conversation(steps)
    floor, laps = Floor(folder), {name: Laps() for name in ("floor", "shared", "rebuilt")}
    delta = _delta(folder, one)
    if delta is not None:
        laps["delta"] = Laps()
    middle = ""
    with (
        holdfast.open(folder / "shared" / "store.db", interval_s=None) as hf,
        holdfast.open(folder / "rebuilt.db", interval_s=None) as hf_rebuilt,
    ):
        run, run_rebuilt = hf.run(RUN), hf_rebuilt.run(RUN)
        for step, _ in zip(one.advance(), other.advance(), strict=True):
            laps["floor"].lap(floor.add, step.number, step.message)
            taken = laps["shared"].lap(lambda: run.checkpoint(reason="a step", state=one.state))
            if step.number + 1 == steps // 2:
                middle = taken.id
            if delta is not None:
                laps["delta"].lap(delta.step, step, one.state)
            other.state = decode(encode(other.state))
            laps["rebuilt"].lap(lambda: run_rebuilt.checkpoint(reason="a step", state=other.state))
    floor.close()
    if delta is not None:
        delta.close()
    return laps, middle


def _delta(folder: Path, conversation: Conversation) -> Any:
    try:
        from benchmarks.langgraph_delta import LangGraphDelta  # noqa: PLC0415 - a peer
    except ImportError:
        return None
    return LangGraphDelta(folder, conversation)


def _read(folder: Path, steps: int, middle: str) -> Iterator[Row]:
    """Read the newest and an old state through a new handle each time, in turn with decoding alone."""
    conversation = Conversation(steps)
    place = folder / "shared" / "store.db"
    newest, half = conversation.state_after(steps), conversation.state_after(steps // 2)
    for which, expected in (("newest", newest), ("an old", half)):
        data, ours, alone = encode(expected), Laps(), Laps()
        for _ in range(LOADS):
            with holdfast.open(place, interval_s=None) as hf:
                found = ours.lap(_load, hf, None if which == "newest" else middle)
            assert found == expected
            del found
            alone.lap(decode, data)
        measure = f"{which} state of {steps:,} messages ÷ decoding alone"
        given = {"floor": f"{alone.ms:.2f} ms"}
        yield ours.cpu_over(alone).row(measure, "CPU", 2, **given)
        yield ours.over(alone).row(measure, "wall", 2)
    with holdfast.open(place, interval_s=None) as hf, PeakMemory() as peak:
        state = hf.latest(RUN).section("state")
    grown = peak.in_units_of(len(encode(state)))
    if grown is not None:
        yield Row("memory for loading ÷ the state", "peak", grown, "×", 3)


def _load(hf: holdfast.Holdfast, checkpoint: str | None) -> Any:
    return (hf.get(checkpoint) if checkpoint else hf.latest(RUN)).section("state")


def _disk(scale: Scale, chars: int, reach: float) -> Iterator[Row]:
    """Save a conversation of messages of one size alone and look at what it leaves."""
    steps = scale.of(1_000, 40)
    conversation = Conversation(steps, chars=chars)
    writes = []
    with tempfile.TemporaryDirectory(dir=scale.workdir) as name:
        folder = Path(name)
        with holdfast.open(folder / "store.db", interval_s=None) as hf:
            run = hf.run(RUN)
            for _ in conversation.advance():
                before = written_bytes()
                run.checkpoint(reason="a step", state=conversation.state)
                writes.append(written_bytes() - before)
            while_open = stored_bytes(folder)
        closed = stored_bytes(folder)
    measure = f"disk after {steps:,} checkpoints, messages of {chars:,} B"
    yield Row(measure, "÷ unique bytes", closed / conversation.unique_bytes(), "×", reach)
    yield Row(measure, "open ÷ closed", while_open / closed, "×", 1.5)
    if chars == max(DISK_REACH):
        written = statistics.fmean(writes[len(writes) // 2 :]) / 1e3
        yield Row("bytes written for a change of 2 KB", "mean", written, "KB", 35)
