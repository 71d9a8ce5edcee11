"""How long it takes to list 50 of 100,000 checkpoints: it must not depend on how many there are."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.laps import timed_ms

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKPOINTS = 100_000
LIMIT = 50
LIMIT_MS = 5.0
REPEATS = 50
RUN = "listing"


def measure_listing(checkpoints: int, workdir: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Build a run of small checkpoints and list its newest ones with new and used handles."""
    import holdfast  # noqa: PLC0415 - not installed where only the peers are measured

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=workdir) as scratch:
        path = str(Path(scratch) / "store")
        say(f"listing: making {checkpoints:,} checkpoints")
        build_s = _build(path, checkpoints)
        store = holdfast.open(path)
        first_ms = timed_ms(lambda: list(store.checkpoints(RUN, limit=LIMIT)))
        times_ms = sorted(timed_ms(lambda: list(store.checkpoints(RUN, limit=LIMIT))) for _ in range(REPEATS))
        listed = len(list(store.checkpoints(RUN, limit=LIMIT)))
        store.close()
    return {
        "checkpoints": checkpoints,
        "listed": listed,
        "build_s": build_s,
        "first_ms": first_ms,
        "p50_ms": statistics.median(times_ms),
        "p99_ms": times_ms[len(times_ms) * 99 // 100],
    }


def listing_lines(result: dict[str, Any]) -> list[str]:
    """Return the result as text."""
    summary = (
        f"list {result['listed']} of {result['checkpoints']:,} checkpoints: p50 "
        f"{result['p50_ms']:.2f} ms, p99 {result['p99_ms']:.2f} ms, first of a new handle "
        f"{result['first_ms']:.2f} ms (at most {LIMIT_MS:.0f}); made in {result['build_s']:.0f} s"
    )
    return [summary]


def _build(path: str, checkpoints: int) -> float:
    start = time.perf_counter()
    store = _open_quick(path)
    run = store.run(RUN)
    for index in range(checkpoints):
        run.checkpoint(trigger="manual", reason=f"step {index}", state={"step": index})
    store.close()
    return time.perf_counter() - start


def _open_quick(path: str) -> Any:
    """Open without waiting for the disk, where that can be chosen."""
    import holdfast  # noqa: PLC0415 - as above

    try:
        return holdfast.open(path, durability="process")
    except TypeError:
        return holdfast.open(path)
