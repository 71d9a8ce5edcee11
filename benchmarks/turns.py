"""Subjects that take turns, lap by lap, and what their laps took."""

from __future__ import annotations

import gc
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from benchmarks.conversation import encode
from benchmarks.table import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

BLOCKS = 5
WARM_UP = 20


class Ratio(NamedTuple):
    """One subject's figure over another's, and how it went over the blocks."""

    value: float
    low: float
    high: float

    def row(self, measure: str, of: str, reach: float | None = None, **told: Any) -> Row:
        """Return it as a row."""
        return Row(measure, of, self.value, "×", reach, self.low, self.high, **told)


class Laps:
    """Wall and CPU time of one call after another."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def lap(self, call: Callable[..., object], *given: Any) -> Any:
        """Time one call; CPU time is that of all threads of the process."""
        cpu, wall = time.process_time(), time.perf_counter()
        result = call(*given)
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        return result

    @property
    def ms(self) -> float:
        """The median wall time."""
        return 1_000 * statistics.median(self.wall[warm(self.wall) :])

    @property
    def cpu_ms(self) -> float:
        """The mean CPU time."""
        return 1_000 * statistics.fmean(self.cpu[warm(self.cpu) :])

    def growth(self, share: int = 10) -> float:
        """Return the CPU of the last part of the laps over that of the first."""
        cpu = self.cpu[warm(self.cpu) :]
        part = max(1, len(cpu) // share)
        return statistics.fmean(cpu[-part:]) / statistics.fmean(cpu[:part])

    def over(self, floor: Laps) -> Ratio:
        """Return the ratio of the medians of wall times."""
        return _ratio(self.wall, floor.wall, statistics.median)

    def cpu_over(self, floor: Laps) -> Ratio:
        """Return the ratio of the means of CPU times."""
        return _ratio(self.cpu, floor.cpu, statistics.fmean)


def warm(laps: list[float]) -> int:
    """Return how many of the first laps do not count: they import and prepare."""
    return min(WARM_UP, len(laps) // 5)


def _ratio(ours: list[float], floor: list[float], middle: Callable[[list[float]], float]) -> Ratio:
    ours, floor = ours[warm(ours) :], floor[warm(floor) :]
    blocks = []
    for block in range(BLOCKS):
        parts = [laps[block * len(laps) // BLOCKS : (block + 1) * len(laps) // BLOCKS] for laps in (ours, floor)]
        if all(parts):
            blocks.append(middle(parts[0]) / (middle(parts[1]) or 1e-9))
    return Ratio(middle(ours) / (middle(floor) or 1e-9), min(blocks), max(blocks))


def take_turns(subjects: Mapping[str, Callable[[int], object]], count: int) -> dict[str, Laps]:
    """Call each subject with each number, the order reversed each time, and return their laps."""
    laps = {name: Laps() for name in subjects}
    order = list(subjects.items())
    gc.collect()
    for number in range(count):
        for name, call in order:
            laps[name].lap(call, number)
        order.reverse()
    return laps


class Floor:
    """The floor: one synced SQLite row with the new item, WAL, FULL, and nothing else."""

    def __init__(self, folder: Path, name: str = "floor") -> None:
        self.connection = apsw.Connection(str(folder / f"{name}.db"))
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("synchronous", 2)
        self.connection.set_busy_timeout(10_000)
        self.connection.execute("CREATE TABLE IF NOT EXISTS item (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def add(self, number: int, item: object) -> None:
        """Insert one row; a statement outside a transaction is its own commit."""
        self.connection.execute("INSERT INTO item VALUES (?, ?)", (number, encode(item)))

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
