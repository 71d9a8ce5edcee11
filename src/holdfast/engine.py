"""Holdfast: the one door; joins capture, store, verification and retention."""

from __future__ import annotations

import os
import time
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import msgspec

from holdfast.capture.checkpointer import Checkpointer
from holdfast.checkpoint import Checkpoint
from holdfast.encode.chunks import ChunkReader
from holdfast.encode.compress import CodecName, Compressor
from holdfast.encode.types import TypeRegistry
from holdfast.encode.values import Packer
from holdfast.errors import CheckpointCorrupt, ChunkCorrupt, IntegrityError, NotFound, UsageError
from holdfast.model.ids import check_checkpoint_id, check_run_id
from holdfast.retain.policy import expendable
from holdfast.retain.sweep import sweep
from holdfast.run import Run
from holdfast.store.api import Listing
from holdfast.store.open import open_store
from holdfast.verify.check import faults_in, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord, Status
    from holdfast.store.api import Store, StoreStats
    from holdfast.verify.check import Report

MAX_SECTION_BYTES = 256 * 1024 * 1024


class DamageWarning(UserWarning):
    """A list is shorter than it should be, because some of its records are damaged."""


class Holdfast:
    """A store of runs and their checkpoints."""

    def __init__(
        self,
        store: Store,
        *,
        types: Iterable[type] | TypeRegistry = (),
        compression: CodecName = "zstd",
        enabled: bool = True,
        max_section_bytes: int = MAX_SECTION_BYTES,
        clock: Callable[[], float] = time.time,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.store = store
        self.types = types if isinstance(types, TypeRegistry) else TypeRegistry(types)
        self.enabled = enabled
        self._packer = Packer(self.types)
        self._compressor = Compressor(compression)
        self._reader = ChunkReader(store.fetch)
        self._max_section_bytes = max_section_bytes
        self._clock = clock
        self._entropy = entropy
        self._open_runs: WeakSet[Run] = WeakSet()

    def run(self, run: str) -> Run:
        """Open a run at its head; a new one begins with its first checkpoint."""
        checkpointer = Checkpointer(
            check_run_id(run),
            self.store,
            self._packer,
            self._compressor,
            max_section_bytes=self._max_section_bytes,
            clock=self._clock,
            entropy=self._entropy,
        )
        opened = Run(self, run, checkpointer)
        self._open_runs.add(opened)
        return opened

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs, the last begun first; damaged ones are in its `damaged`, and warned about."""
        return _warned(self.store.runs(limit=_checked_limit(limit)))

    def has(self, run: str) -> bool:
        """Tell whether a run has a checkpoint."""
        try:
            return self.store.run(check_run_id(run)).head is not None
        except NotFound:
            return False

    def checkpoints(self, run: str, *, limit: int | None = None, before_seq: int | None = None) -> Listing[Checkpoint]:
        """Return a run's checkpoints, newest first, without reading a payload; damaged ones are in its `damaged`."""
        listing = self.store.checkpoints(check_run_id(run), limit=_checked_limit(limit), before_seq=before_seq)
        return _warned(Listing([self.opened(record) for record in listing], listing.damaged))

    def get(self, checkpoint: str) -> Checkpoint:
        """Return a checkpoint by its id."""
        return self.opened(self.store.checkpoint(check_checkpoint_id(checkpoint)))

    def latest(self, run: str, *, sound: bool = False) -> Checkpoint:
        """Return a run's newest checkpoint; with `sound`, the newest that is whole, with what it `skipped`."""
        record = self.store.run(check_run_id(run))
        if record.head is None:
            raise NotFound("checkpoint of run", run)
        if sound:
            return self._newest_sound(record)
        try:
            return self.opened(self.store.checkpoint(record.head))
        except NotFound:
            raise CheckpointCorrupt(f"it is the head of run {run!a} and is missing", record.head) from None

    def _newest_sound(self, run: RunRecord) -> Checkpoint:
        skipped: list[IntegrityError] = []
        for seq in range(run.last_seq, 0, -1):
            try:
                record = self.store.checkpoint_at(run.id, seq)
                if record is None:
                    continue
                faults = faults_in(self.store, record)
            except IntegrityError as error:
                skipped.append(error)
                continue
            if not faults:
                return self.opened(record, skipped)
            first = faults[0]
            skipped.append(ChunkCorrupt(first.detail, first.chunk or "", record.envelope.id, first.section))
        raise IntegrityError(f"run {run.id!a} has no sound checkpoint left: all {len(skipped)} are damaged")

    def mark(
        self,
        checkpoint: str,
        *,
        status: Status | None = None,
        pinned: bool | None = None,
        label: str | None = None,
    ) -> Checkpoint:
        """Change what may change about a checkpoint; what is not given stays."""
        given: dict[str, Any] = {"status": status, "pinned": pinned, "label": label}
        changes = {name: value for name, value in given.items() if value is not None}
        record = self.store.checkpoint(check_checkpoint_id(checkpoint))
        self.store.mark(
            checkpoint, msgspec.convert({**msgspec.structs.asdict(record.marks), **changes}, type(record.marks))
        )
        return self.get(checkpoint)

    def delete(self, *checkpoints: str) -> None:
        """Delete checkpoints and give their space back; a run whose head goes stands at the newest one left."""
        by_run: dict[str, list[str]] = {}
        for checkpoint in checkpoints:
            run = self.store.checkpoint(check_checkpoint_id(checkpoint)).envelope.run
            by_run.setdefault(run, []).append(checkpoint)
        for run, doomed in by_run.items():
            self.store.delete(run, doomed)
            self._reload(run)
            sweep(self.store, run)
        self.store.reclaim()

    def delete_run(self, run: str) -> None:
        """Delete a run, all its checkpoints and every chunk that no other run holds."""
        self.store.delete_run(check_run_id(run))
        self._reload(run)

    def prune(
        self, run: str, *, keep: int | None = None, older_than: timedelta | None = None, dry_run: bool = False
    ) -> list[str]:
        """Delete all but the newest `keep`, and those older than `older_than`; return which. Head and pinned stay."""
        before = None if older_than is None else datetime.fromtimestamp(self._clock(), UTC) - older_than
        record = self.store.run(check_run_id(run))
        listing = _warned(self.store.checkpoints(run))
        doomed = expendable(listing, head=record.head, keep=keep, before=before)
        if doomed and not dry_run:
            self.delete(*doomed)
        return doomed

    def verify(self, *, progress: Callable[[str, int], None] | None = None) -> Report:
        """Check every record, link, head and chunk, and name each fault; changes nothing."""
        return verify(self.store, progress=progress)

    def stats(self) -> StoreStats:
        """Count what is stored, and say what stores it."""
        return self.store.stats()

    def opened(self, record: CheckpointRecord, skipped: Iterable[IntegrityError] = ()) -> Checkpoint:
        """Return a record as a checkpoint that can be read."""
        return Checkpoint(
            record, self._packer, self._reader, max_section_bytes=self._max_section_bytes, skipped=tuple(skipped)
        )

    def close(self) -> None:
        """Close the store; closing twice is fine."""
        self.store.close()

    def _reload(self, run: str) -> None:
        for opened in list(self._open_runs):
            if opened.id == run:
                opened.reload()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(  # noqa: A001 - holdfast.open() reads well, and nothing here opens files
    place: str | Path | None = None,
    *,
    types: Iterable[type] | TypeRegistry = (),
    compression: CodecName = "zstd",
    enabled: bool = True,
    max_section_bytes: int = MAX_SECTION_BYTES,
    **store_options: Any,
) -> Holdfast:
    """Open a store: None is `.holdfast/` in this directory; or a path, `sqlite:///path`, `memory:`.

    SQLite takes `durability="process"` (faster, and a power cut may lose the last commits) and `read_only=True`.
    """
    return Holdfast(
        open_store(place, **store_options),
        types=types,
        compression=compression,
        enabled=enabled,
        max_section_bytes=max_section_bytes,
    )


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and limit < 0:
        raise UsageError(f"limit={limit}: give a number from 0 up, or None for all")
    return limit


def _warned(listing: Listing[Any]) -> Listing[Any]:
    if listing.damaged:
        warnings.warn(f"{len(listing.damaged)} damaged: {listing.damaged[0]}", DamageWarning, stacklevel=3)
    return listing
