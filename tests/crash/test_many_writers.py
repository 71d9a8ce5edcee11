"""32 processes write one store, each killed at a moment drawn by lot and started again: all that was told is there."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from crash.children import TORTURE, Child, scratch
from holdfast.errors import Conflict
from holdfast.store.inspection import Inspection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRITERS = 32
KILLS = 2_000 if TORTURE else 48
_SETTINGS = holdfast.Settings(retention=holdfast.settings.values.RetentionSettings(enabled=False))


def _place(folder: Path, form: str) -> str:
    return str(folder / "store") if form == "sqlite" else (folder / "store").as_uri()


def _writer(place: str, number: int, begun: int) -> Callable[[Callable[[Any], None]], object]:
    """Return the work of one process: checkpoints of a run of its own and of one that all share, told when stored."""

    def live(report: Callable[[Any], None]) -> None:
        signal.alarm(120)
        with holdfast.open(place, settings=_SETTINGS) as hf:
            for step in range(40):
                state = {"by": number, "begun": begun, "step": step, "text": f"{number % 4} {step} " * 50}
                made = hf.run(f"own-{number}").checkpoint(state=state)
                report([made.run, made.seq, made.id])
                with suppress(Conflict):  # another was faster
                    made = hf.run("shared").checkpoint(state=state)
                    report([made.run, made.seq, made.id])

    return live


@pytest.mark.parametrize("form", ["sqlite", "files"])
def test_32_writers_killed_again_and_again_lose_and_double_nothing(form: str) -> None:
    """Proves D10, X3: nothing told is lost, no number is told twice, nothing is half there, and all can be written."""
    moments = random.Random(form)
    with scratch() as folder:
        place = _place(folder, form)
        holdfast.open(place, settings=_SETTINGS).close()
        writers = {number: Child(_writer(place, number, 0)) for number in range(WRITERS)}
        told: list[list[Any]] = []
        killed = 0
        while killed < KILLS:
            time.sleep(moments.uniform(0.0, 0.02))
            number = moments.randrange(WRITERS)
            with suppress(ProcessLookupError):
                os.kill(writers[number].pid, signal.SIGKILL)
            ended = writers[number].join()
            killed += ended.signal == signal.SIGKILL
            assert ended.signal in (0, signal.SIGKILL), ended
            assert ended.signal or ended.code == 0, ended.reports[-1]
            told += ended.reports
            writers[number] = Child(_writer(place, number, killed))
        for child in writers.values():
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            told += child.join().reports
        assert len(told) > KILLS // 2, "kills struck before anything was done"
        assert max(Counter((run, seq) for run, seq, _ in told).values()) == 1, "a number was told twice"
        with holdfast.open(place, settings=_SETTINGS) as hf:
            report = hf.verify()
            assert report.sound, report.faults
            assert list(Inspection(hf.store).check()) == []
            for run in {run for run, _, _ in told}:
                found = {one.seq: one.id for one in hf.checkpoints(run, archived=True)}
                wanted = {seq: checkpoint for name, seq, checkpoint in told if name == run}
                assert wanted.items() <= found.items()
                assert sorted(found) == list(range(1, len(found) + 1)), "a number is missing"
                hf.run(run).checkpoint(state="the next one")
            assert hf.verify().sound
        print(f"{form}: {killed} kills of {WRITERS} writers, {len(told)} checkpoints told, 0 lost, 0 doubled")
