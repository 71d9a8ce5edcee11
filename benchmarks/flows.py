"""What a flow costs for each trivial shell task, beside starting the command itself."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast
from benchmarks.table import Row, Scale
from benchmarks.turns import Floor, Ratio
from holdfast.flow.load import flow_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


MEASURE = "flow, trivial shell task ÷ the command"


def rows(scale: Scale) -> Iterator[Row]:
    """Yield the rows of one task at a time, of four at once and of many."""
    tasks, many, rounds = scale.of(100, 4), scale.of(1_000, 20), scale.of(5, 1)
    took: dict[str, list[float]] = {"command": [], "kept": [], "one": [], "four": []}
    with tempfile.TemporaryDirectory(dir=scale.workdir) as name:
        folder = Path(name)
        with holdfast.open(folder / "flows.db", interval_s=None) as hf:
            _flow(hf, "warm", 1, 2)
            floor, numbers = Floor(folder), itertools.count()
            for turn in range(rounds):
                took["command"].append(_each(lambda: [_command() for _ in range(tasks)], tasks))
                kept = [lambda: floor.add(next(numbers), _command().stdout)] * tasks
                took["kept"].append(_each(lambda kept=kept: [one() for one in kept], tasks))
                took["one"].append(_each(lambda turn=turn: _flow(hf, f"one{turn}", 1, tasks), tasks))
                took["four"].append(_each(lambda turn=turn: _flow(hf, f"four{turn}", 4, tasks), tasks))
            floor.close()
            ends: list[float] = []
            _flow(hf, "many", 1, many, lambda event: ends.append(time.perf_counter()) if _is_end(event) else None)
    told = {"floor": f"{1_000 * statistics.median(took['command']):.2f} ms"}
    peers = {"peers": f"with a synced row {_over(took['kept'], took['command']).value:.1f} ×"}
    yield _over(took["one"], took["command"]).row(MEASURE, "one at a time", 1.8, **told)
    yield _over(took["four"], took["command"]).row(MEASURE, "four at once", 1.5, **peers)
    laps = [after - before for before, after in itertools.pairwise(ends)]
    part = max(1, len(laps) // 10)
    grown = statistics.median(laps[-part:]) / statistics.median(laps[:part])
    yield Row(MEASURE, f"of {many:,}, last tenth ÷ first", grown, "×", 1.2)


def _command() -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sh", "-c", "true"], capture_output=True, check=True)


def _each(call: Callable[[], object], count: int) -> float:
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) / count


def _over(ours: list[float], floor: list[float]) -> Ratio:
    ratios = [one / other for one, other in zip(ours, floor, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def _is_end(event: Any) -> bool:
    return event.kind == "task_done"


def _flow(hf: holdfast.Holdfast, name: str, parallel: int, count: int, observer: Any = None) -> None:
    tasks = {f"t{number}": "true" for number in range(count)}
    made = flow_from({"flow": name, "phases": {"p": {"parallel": parallel, "tasks": tasks}}})
    assert holdfast.run_flow(hf, made, observer=observer).status == "completed"
