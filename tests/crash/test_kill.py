"""kill -9 at every storage call, and in the middle of every write: what was acknowledged is there, and nothing else."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from crash.children import TORTURE, Child, sampled, scratch, spread
from crash.workload import STEPS, Play, check_whole, models
from holdfast.testing.faults import Call, Fault, FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TEARS = [part / 40 for part in range(40)] if TORTURE else [0.001, 0.5, 0.99]


def _store_in(folder: Path) -> Path:
    return folder / "new" / "folder" / "holdfast.db"


def _calls() -> list[Call]:
    """Return the calls of the workload, as they are numbered."""
    with scratch() as folder:
        disk = FaultyDisk(folder, log=True)
        with disk:
            play = Play(_store_in(folder), vfs=disk.vfs)
            for number in range(len(STEPS)):
                play.do(number)
        calls = [call for call in disk.log or () if not call.implied]
        assert len(calls) == disk.calls
        return calls


def _survives(fault: Fault, *, expected_signal: int = signal.SIGKILL) -> str:
    with scratch() as folder:
        path = _store_in(folder)

        def work(report: Callable[[Any], None]) -> None:
            disk = FaultyDisk(folder)
            disk.arm(fault)
            with disk:
                play = Play(path, vfs=disk.vfs)
                for number in range(len(STEPS)):
                    play.do(number)
                    report(number)

        ended = Child(work).join()
        assert ended.signal == expected_signal, ended
        done = ended.reports[-1] if ended.reports else -1
        held = check_whole(path)
        before = models()[done] if done >= 0 else {}
        after = models()[min(done + 1, len(STEPS) - 1)]
        assert held in (before, after), f"after step {done} was acknowledged"
        return "after" if held == after and before != after else "before"


def test_a_kill_at_any_storage_call_loses_nothing_acknowledged_and_leaves_no_rest() -> None:
    """Proves D11, X3, A10."""
    models()
    points = [Fault(at=number, kind="kill") for number in range(len(_calls()))]
    assert len(points) > 300
    points = sampled(points, 200)
    found = spread(points, _survives)
    assert len(found) == len(points)
    assert {"before", "after"} == set(found), "kills struck on both sides of commits"


def test_a_write_torn_by_a_kill_is_as_if_it_had_never_begun_or_was_never_acknowledged() -> None:
    """Proves D11, X3."""
    models()
    points = [
        Fault(at=number, kind="tear", torn=part)
        for number, call in enumerate(_calls())
        if call.operation == "write"
        for part in (_TEARS if len(call.data) > 64 else [0.5])
    ]
    assert len(points) > 500
    points = sampled(points, 200)
    assert len(spread(points, _survives)) == len(points)


def test_a_workload_without_a_fault_runs_to_its_end() -> None:
    """The kill tests would prove nothing if their workload died by itself."""
    count = len(_calls())
    assert _survives(Fault(at=count, kind="kill"), expected_signal=0) == "before"
