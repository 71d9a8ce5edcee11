"""The checkpoints of one run: pages by place, search, samples, and a light index that is kept up as the run moves."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING, cast

from holdfast.documents import checkpoint_document
from holdfast.errors import IntegrityError, NotFound
from holdfast.model.ids import check_run_id
from holdfast.model.sections import WORKSPACE
from holdfast.web.lanes import chains

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord, Envelope
    from holdfast.store.store import Store
    from holdfast.web import answers
    from holdfast.web.lanes import Chain

_PAGE = 500
SEARCH_S = 1.5


def document_of(checkpoint: Checkpoint) -> answers.CheckpointDocument:
    """Return what the command line says of a checkpoint, too."""
    return cast("answers.CheckpointDocument", checkpoint_document(checkpoint))


def facts_of(checkpoint: Checkpoint) -> answers.CheckpointFacts:
    """Return the same without the names of its sections."""
    facts = checkpoint_document(checkpoint)
    del facts["sections"]
    return cast("answers.CheckpointFacts", facts)


def row_document(hf: Holdfast, record: CheckpointRecord, *, head: str | None) -> answers.CheckpointRowAnswer:
    """Return what a list says of a checkpoint; no payload is read."""
    envelope = record.envelope
    return {
        **facts_of(hf.internals.opened(record)),
        "is_head": envelope.id == head,
        "files": _files_root(envelope),
        "budget_used": envelope.summary.budget_used,
        "redacted": sum(one.redacted_count for one in envelope.sections),
    }


def _files_root(envelope: Envelope) -> str | None:
    """Return what stands for all captured files: it is another where any of them is."""
    return next((one.root.hex()[:16] for one in envelope.sections if one.name == WORKSPACE), None)


def page(hf: Holdfast, run: str, *, offset: int, limit: int) -> answers.CheckpointPage:
    """Return a page of a run's checkpoints by place, newest first; what cannot be read is told in its place."""
    record = hf.store.run(check_run_id(run))
    deleted = sorted(one.seq for one in hf.store.tombstones(run)) if record.checkpoints < record.last_seq else []
    top = _seq_at(record.last_seq, deleted, offset)
    rows: list[answers.CheckpointRowAnswer] = []
    damaged: list[str] = []
    if top >= 1:
        listing = hf.store.checkpoints(run, limit=limit, before_seq=top + 1)
        rows = [row_document(hf, one, head=record.head) for one in listing]
        damaged = [str(error) for error in listing.damaged]
    return {
        "run": run,
        "head": record.head,
        "total": record.last_seq - len(deleted),
        "last_seq": record.last_seq,
        "offset": offset,
        "rows": rows,
        "damaged": damaged,
    }


def _seq_at(last: int, deleted: Sequence[int], offset: int) -> int:
    """Return the number that stands at a place from the top, when these were deleted."""
    low, high = 0, last
    while low < high:  # the highest number with `offset` or more kept ones above it, itself not counted
        middle = (low + high + 1) // 2
        if (last - middle) - (len(deleted) - bisect_left(deleted, middle + 1)) >= offset:
            low = middle
        else:
            high = middle - 1
    return low


def place_of(hf: Holdfast, run: str, seq: int) -> int:
    """Return at which place from the top a number stands."""
    record = hf.store.run(check_run_id(run))
    deleted = [one.seq for one in hf.store.tombstones(run)] if record.checkpoints < record.last_seq else []
    return max(0, (record.last_seq - seq) - sum(one > seq for one in deleted))


def search(hf: Holdfast, run: str, wanted: dict[str, str], *, before: int | None, limit: int) -> answers.CheckpointPage:
    """Return checkpoints that fit a trigger, a phase and a text, from the newest down; says how far it looked."""
    record = hf.store.run(check_run_id(run))
    ends = time.monotonic() + SEARCH_S
    rows: list[answers.CheckpointRowAnswer] = []
    looked = 0
    while True:
        listing = hf.store.checkpoints(run, limit=_PAGE, before_seq=before)
        looked += len(listing)
        for one in listing:
            if fits(one, wanted):
                rows.append(row_document(hf, one, head=record.head))
                if len(rows) == limit:
                    return {"run": run, "rows": rows, "looked_at": looked, "next": one.envelope.seq}
        if len(listing) + len(listing.damaged) < _PAGE or not listing:
            return {"run": run, "rows": rows, "looked_at": looked, "next": None}
        before = listing[-1].envelope.seq
        if time.monotonic() > ends:
            return {"run": run, "rows": rows, "looked_at": looked, "next": before}


def fits(record: CheckpointRecord, wanted: dict[str, str]) -> bool:
    """Tell whether a checkpoint has this trigger, phase, and text in its reason, label, phase, state or id."""
    envelope = record.envelope
    if wanted.get("trigger") and envelope.trigger != wanted["trigger"]:
        return False
    if wanted.get("phase") and envelope.summary.phase != wanted["phase"]:
        return False
    text = wanted.get("q", "").casefold()
    where = (envelope.reason, record.marks.label, envelope.summary.phase, envelope.summary.state, envelope.id)
    return not text or any(text in word.casefold() for word in where if word)


def samples(hf: Holdfast, run: str, count: int) -> answers.Samples:
    """Return what was used at so many checkpoints, evenly over the run's numbers, oldest first."""
    record = hf.store.run(check_run_id(run))
    last = record.last_seq
    count = max(2, min(count, last))
    wanted = sorted({round(1 + i * (last - 1) / (count - 1)) for i in range(count)}) if last else []
    found: list[answers.Sample] = []
    for seq in wanted:
        try:
            one = hf.store.checkpoint_at(run, seq)
        except (IntegrityError, NotFound):
            continue
        if one is not None:
            envelope = one.envelope
            found.append(
                {
                    "seq": seq,
                    "at": envelope.created_at.isoformat(),
                    "used": envelope.summary.budget_used,
                    "trigger": envelope.trigger,
                    "phase": envelope.summary.phase,
                    "files": _files_root(envelope),
                }
            )
    return {"run": run, "samples": found, "last_seq": last}


def ancestors(store: Store, record: CheckpointRecord | None) -> Iterator[CheckpointRecord]:
    """Yield a checkpoint and those that it was taken on, over forks too; those that were deleted are passed over."""
    deleted: dict[str, dict[str, int]] = {}
    while record is not None:
        yield record
        run, parent = record.envelope.run, record.envelope.parent
        if parent is None:
            return
        try:
            record = store.checkpoint(parent)
        except NotFound:
            if run not in deleted:
                deleted[run] = {one.id: one.seq for one in store.tombstones(run)}
            seq = deleted[run].get(parent)
            below = store.checkpoints(run, limit=1, before_seq=seq) if seq is not None else []
            record = below[0] if below else None
        except IntegrityError:
            return


class RunIndex:
    """What the checkpoints of a run added, by trigger and day; grows as the run does."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._kept = self._last = 0
        self.by_trigger: Counter[str] = Counter()
        self.by_day: Counter[str] = Counter()
        self.stored_bytes = 0

    def update(self, store: Store) -> None:
        """Read what came since, or everything if something was deleted."""
        with self._lock:
            record = store.run(self.run)
            if record.checkpoints - self._kept != record.last_seq - self._last:
                self._forget()
            before: int | None = None
            while record.last_seq > self._last:
                listing = store.checkpoints(self.run, limit=_PAGE, before_seq=before)
                for one in listing:
                    if one.envelope.seq > self._last:
                        self._count(one.envelope)
                if len(listing) + len(listing.damaged) < _PAGE or not listing or listing[-1].envelope.seq <= self._last:
                    break
                before = listing[-1].envelope.seq
                time.sleep(0.001)  # a long run is counted beside requests, not before them
            self._last, self._kept = record.last_seq, record.checkpoints

    def _count(self, envelope: Envelope) -> None:
        self.by_trigger[envelope.trigger] += envelope.stored_bytes
        self.by_day[envelope.created_at.date().isoformat()] += envelope.stored_bytes
        self.stored_bytes += envelope.stored_bytes


class LaneIndex:
    """The lanes of a run's graph, from where it went back and what was deleted; grows as the run does."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known = 0
        self._branches: dict[int, int] = {}  # the parents of those that were not taken on the one before them
        self._deleted: dict[str, int] = {}
        self._chains: list[Chain] = []

    def chains(self, store: Store) -> list[Chain]:
        """Return the lanes: reads where the run went back since, and what was deleted if something was."""
        with self._lock:
            record = store.run(self.run)
            line = store.line(self.run)
            seen = (line.n if line is not None else 0, record.last_seq, record.checkpoints)
            if seen != self._seen:
                was = self._seen or (seen[0], 0, 0)
                if was[0] != seen[0] or seen[2] - was[2] != seen[1] - was[1]:  # begun again, or something was deleted
                    self._known, self._branches = 0, {}
                    self._deleted = {one.id: one.seq for one in store.tombstones(self.run)}
                self._find_branches(store)
                self._chains = chains(record.last_seq, self._branches, sorted(self._deleted.values()))
                self._seen = seen
            return deepcopy(self._chains)

    def _find_branches(self, store: Store) -> None:
        for number, one in store.branches(self.run, after=self._known):
            parent = one.envelope.parent
            seq = 0 if parent is None else self._deleted.get(parent) or _seq_of(store, parent)
            self._known = number
            if seq != one.envelope.seq - 1:
                self._branches[one.envelope.seq] = seq


def _seq_of(store: Store, checkpoint: str) -> int:
    try:
        return store.checkpoint(checkpoint).envelope.seq
    except (NotFound, IntegrityError):
        return 0
