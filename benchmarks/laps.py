"""Wall and CPU time of each checkpoint, and of calls repeated for their median."""

from __future__ import annotations

import gc
import statistics
import time
from array import array
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WARM_UP = 10
WINDOW = 100


class Laps:
    """Times of one checkpoint after another; the first ones, with their imports, do not count."""

    def __init__(self, laps: int) -> None:
        """Reserve room, so that recording allocates nothing while memory is watched."""
        self._wall_s = array("d", bytes(8 * laps))
        self._cpu_s = array("d", bytes(8 * laps))
        self._done = 0

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Time one checkpoint; CPU time is that of all threads of the process."""
        cpu = time.process_time()
        wall = time.perf_counter()
        yield
        self._wall_s[self._done] = time.perf_counter() - wall
        self._cpu_s[self._done] = time.process_time() - cpu
        self._done += 1

    def wall_ms(self, percent: int) -> float:
        """Return a percentile of the wall time."""
        counted = sorted(self._wall_s[WARM_UP : self._done])
        return 1_000 * counted[min(len(counted) - 1, len(counted) * percent // 100)]

    def cpu_first_ms(self) -> float:
        """Return the mean CPU time of the first hundred."""
        # The mean, not the median: what a store does only every so often must count.
        return 1_000 * statistics.fmean(self._cpu_s[WARM_UP : WARM_UP + WINDOW])

    def cpu_last_ms(self) -> float:
        """Return the mean CPU time of the last hundred."""
        return 1_000 * statistics.fmean(self._cpu_s[self._done - WINDOW : self._done])


def timed_ms(call: Callable[[], object]) -> float:
    """Return the wall time of one call; its result is dropped outside the time."""
    gc.collect()
    start = time.perf_counter()
    result = call()
    elapsed_s = time.perf_counter() - start
    del result
    return 1_000 * elapsed_s
