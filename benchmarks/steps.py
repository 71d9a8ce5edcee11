"""What a step and an item of a log cost, beside one synced row of the same 2 KB; DBOS on SQLite beside them."""

from __future__ import annotations

import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from benchmarks.conversation import Writer
from benchmarks.processes import written_bytes
from benchmarks.table import Row, Scale
from benchmarks.turns import Floor, Laps, take_turns

if TYPE_CHECKING:
    from collections.abc import Iterator


def rows(scale: Scale) -> Iterator[Row]:
    """Yield the rows of steps, logs and threads."""
    writer = Writer(7)
    texts = [writer.text(2_000) for _ in range(scale.of(3_000, 60))]

    def work(number: int) -> dict[str, object]:
        return {"text": texts[number], "number": number}

    with tempfile.TemporaryDirectory(dir=scale.workdir) as name:
        folder = Path(name)
        laps, written = _measured(folder, work, len(texts))
        floor = laps["floor"]
        given = {"floor": f"{floor.ms:.3f} ms, {floor.cpu_ms:.3f} CPU"}
        peers = _dbos(folder, work, scale.of(400, 20))
        told = {"peers": f"DBOS {peers[0]:.1f} ×"} if peers else {}
        yield laps["step"].over(floor).row("run.step, 2 KB result", "wall", 1.5, **given, **told)
        told = {"peers": f"DBOS {peers[1]:.1f} ×"} if peers else {}
        yield laps["step"].cpu_over(floor).row("run.step, 2 KB result", "CPU", 2.5, **told)
        yield Row("run.step, 2 KB result", "KB written", written / 1e3, "KB")
        grown = laps["step"].growth()
        yield Row("run.step, 2 KB result", "CPU, last tenth ÷ first", grown, "×", 1.2)
        measure = f"run.log().append of 2 KB, run of {len(texts):,}"
        yield laps["log"].over(floor).row(measure, "wall", 1.5)
        yield laps["log"].cpu_over(floor).row(measure, "CPU")
        yield Row(measure, "CPU, last tenth ÷ first", laps["log"].growth(), "×", 1.2)
        one, eight = (_rate(folder, threads, work, scale.of(800, 24)) for threads in (1, 8))
        bare_one, bare_eight = (_bare_rate(folder, threads, work, scale.of(800, 24)) for threads in (1, 8))
        yield Row(
            "parallel steps, 8 threads ÷ 1", "rate", eight / one, is_rate=True, floor=f"{bare_eight / bare_one:.2f} ×"
        )


def _measured(folder: Path, work: partial | object, count: int) -> tuple[dict[str, Laps], float]:
    with (
        holdfast.open(folder / "steps.db", interval_s=None) as hf,
        hf.run("steps") as run,
        hf.run("logs") as other,
        hf.run("written") as third,
    ):
        floor, log = Floor(folder), other.log("messages")
        laps = take_turns(
            {
                "floor": lambda number: floor.add(number, work(number)),
                "step": lambda number: run.step(f"step-{number}", work, number),
                "log": lambda number: log.append(work(number)),
            },
            count,
        )
        floor.close()
        before, sample = written_bytes(), min(200, count)
        for number in range(sample):
            third.step(f"step-{number}", work, number)
        return laps, (written_bytes() - before) / sample


def _dbos(folder: Path, work: object, count: int) -> tuple[float, float] | None:
    """Return what a step of DBOS takes over the floor, wall and CPU; None where it is not installed."""
    try:
        from dbos import DBOS  # noqa: PLC0415 - a peer
    except ImportError:
        return None
    url = f"sqlite:///{folder / 'dbos.db'}"
    DBOS(config={"name": "steps", "system_database_url": url, "application_version": "1", "log_level": "ERROR"})
    DBOS.launch()
    floor = Floor(folder, "dbos-floor")

    @DBOS.workflow()
    def flow() -> None:
        laps.update(
            take_turns(
                {
                    "floor": lambda number: floor.add(number, work(number)),
                    "dbos": lambda number: DBOS.run_step({"name": "work"}, work, number),
                },
                count,
            )
        )

    laps: dict[str, Laps] = {}
    try:
        flow()
    finally:
        DBOS.destroy()
        floor.close()
    return laps["dbos"].over(laps["floor"]).value, laps["dbos"].cpu_over(laps["floor"]).value


def _rate(folder: Path, threads: int, work: object, count: int) -> float:
    with holdfast.open(folder / f"parallel-{threads}.db", interval_s=None) as hf, hf.run("r") as run:
        calls = {f"p{number}": partial(work, number) for number in range(count)}
        begun = time.perf_counter()
        run.parallel(calls, limit=threads)
        return count / (time.perf_counter() - begun)


def _bare_rate(folder: Path, threads: int, work: object, count: int) -> float:
    """Return rows a second of so many threads, each with a connection of its own to one file."""
    floors = [Floor(folder, f"bare-{threads}") for _ in range(threads)]

    def insert(place: int) -> None:
        for number in range(place, count, threads):
            floors[place].add(number, work(number))

    workers = [threading.Thread(target=insert, args=(place,)) for place in range(threads)]
    begun = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - begun
    for floor in floors:
        floor.close()
    return count / took
