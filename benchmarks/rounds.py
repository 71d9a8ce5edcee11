"""Rounds of measurements: every subject in turn, several times, and the medians of it all."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.measure import Figures, Request
from benchmarks.processes import PhaseError, run_phase
from benchmarks.subjects import FLOOR
from benchmarks.syscalls import fsyncs_per_checkpoint

FULL_COPY = "langgraph-sqlite"
STEP_BYTES = 2_200

Say = Callable[[str], None]


class Job(msgspec.Struct, frozen=True):
    """One subject at one length."""

    subject: str
    steps: int


class Row(msgspec.Struct, frozen=True):
    """One line of the table: what was asked for, what was measured, and how it came out."""

    subject: str
    steps: int
    measured_steps: int
    figures: Figures
    rounds: list[Figures]
    note: str = ""
    failed: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What is to be measured."""

    subjects: tuple[str, ...]
    steps: tuple[int, ...]
    repeats: int
    max_peer_steps: int
    workdir: Path
    count_fsyncs: bool = True
    fresh_objects: bool = False

    def job(self, subject: str, steps: int) -> Job:
        """Return what is measured for a row: the one that copies the whole state stops early."""
        return Job(subject, min(steps, self.max_peer_steps) if subject == FULL_COPY else steps)

    def jobs(self) -> list[Job]:
        """Return every measurement of a round, once, a length's subjects next to each other."""
        return list(dict.fromkeys(self.job(subject, steps) for steps in self.steps for subject in self.subjects))


class SkippedError(Exception):
    """A subject that cannot be measured here, which is not a fault of its own."""


class Rounds:
    """The measurements of a plan as they come in."""

    def __init__(self, plan: Plan, say: Say) -> None:
        """Start with nothing measured."""
        self._plan = plan
        self._say = say
        self._measured: dict[Job, list[Figures]] = {job: [] for job in plan.jobs()}
        self._notes: dict[Job, tuple[str, bool]] = {}
        self._fsyncs: dict[str, float | None] = {}

    def run(self) -> list[Row]:
        """Measure everything and return the table's rows."""
        for number in range(self._plan.repeats):
            for job in _rotated(self._plan.jobs(), number):
                if job not in self._notes:
                    self._say(f"round {number + 1}: {job.subject}, {job.steps:,} steps")
                    self._measure(job)
        for job, rounds in self._measured.items():
            floors = self._measured.get(Job(FLOOR, job.steps), [])
            for number, figures in enumerate(rounds):
                _add_ratios(job, figures, floors[number] if number < len(floors) else {})
        if self._plan.count_fsyncs:
            self._count_fsyncs()
        return [self._row(subject, steps) for steps in self._plan.steps for subject in self._plan.subjects]

    def _measure(self, job: Job) -> None:
        try:
            self._measured[job].append(measure(job, self._plan.workdir, fresh_objects=self._plan.fresh_objects))
        except SkippedError as reason:
            self._notes[job] = (str(reason), False)
        except PhaseError as error:
            self._notes[job] = (str(error), True)

    def _count_fsyncs(self) -> None:
        for subject in dict.fromkeys(job.subject for job, rounds in self._measured.items() if rounds):
            self._say(f"fsync calls: {subject}")
            self._fsyncs[subject] = fsyncs_per_checkpoint(subject, self._plan.workdir)

    def _row(self, subject: str, steps: int) -> Row:
        job = self._plan.job(subject, steps)
        note, failed = self._notes.get(job, ("", False))
        figures = _medians(self._measured[job])
        if figures:
            figures["fsyncs"] = self._fsyncs.get(subject)
        return Row(subject, steps, job.steps, figures, self._measured[job], note, failed)


def measure(job: Job, workdir: Path, *, fresh_objects: bool = False) -> Figures:
    """Save, load and delete one conversation, each in a process of its own."""
    _refuse_if_disk_is_short(job, workdir)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=workdir) as scratch_name:
        scratch = Path(scratch_name)
        store = scratch / "store"
        store.mkdir()
        figures: Figures = {}
        middle = ""
        for phase in ("save", "load", "delete"):
            request = Request(phase, job.subject, job.steps, str(store), middle, fresh_objects)
            outcome = run_phase(request, scratch)
            if outcome.missing:
                raise SkippedError(outcome.missing)
            figures |= outcome.figures
            middle = middle or outcome.middle
    return figures


def _rotated(jobs: Sequence[Job], turns: int) -> Iterator[Job]:
    """Return a round's jobs, each length begun by another subject than in the last round."""
    for steps in sorted({job.steps for job in jobs}):
        group = [job for job in jobs if job.steps == steps]
        start = turns % len(group)
        yield from group[start:] + group[:start]


def _refuse_if_disk_is_short(job: Job, workdir: Path) -> None:
    if job.subject != FULL_COPY:
        return
    # Half a square of full copies, and as much again for the journal of the delete.
    needed = job.steps**2 * STEP_BYTES
    free = shutil.disk_usage(workdir).free
    if needed > free:
        raise SkippedError(f"needs {needed / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free")


def _add_ratios(job: Job, figures: Figures, floor: Figures) -> None:
    """Add what compares figures of one round: to the floor, to decoding, to the payload."""
    figures["p50_floors"] = _ratio(figures["p50_ms"], floor.get("p50_ms"))
    figures["latest_decodes"] = _ratio(figures["latest_ms"], figures["decode_ms"])
    figures["old_decodes"] = _ratio(figures["old_ms"], figures["decode_old_ms"])
    figures["stored_uniques"] = _ratio(figures["stored_bytes"], figures["unique_bytes"])
    figures["checkpoint_bytes"] = _ratio(figures["stored_bytes"], job.steps)


def _ratio(value: float | None, unit: float | None) -> float | None:
    return value / unit if value is not None and unit else None


def _medians(rounds: Sequence[Figures]) -> Figures:
    medians: Figures = {}
    for name in rounds[0] if rounds else ():
        values = [value for figures in rounds if (value := figures[name]) is not None]
        medians[name] = statistics.median(values) if values else None
    return medians
