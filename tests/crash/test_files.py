"""The files store killed at every call that changes the disk, and a disk that refuses at every one."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import closing

import pytest

import holdfast
from crash.children import Child, scratch, spread
from crash.privileges import give_up_privileges
from holdfast.errors import StoreError, StoreFull, StoreUnavailable
from holdfast.model.checkpoint import Marks
from holdfast.store import files
from holdfast.store.files import FilesStore
from holdfast.store.files_disk import Disk
from holdfast.testing.contract import NOON, Line, chunk_of


@pytest.fixture(autouse=True)
def _small_documents(monkeypatch):
    monkeypatch.setattr(files, "_DOCUMENT_BYTES", 1_000)


class CountingDisk(Disk):
    """A disk that strikes at one of its calls."""

    def __init__(self, at=None, strike=None):
        super().__init__("file:")
        self.calls = []
        self.at = at
        self.strike = strike

    def meet(self, operation, path):
        self.calls.append(operation)
        if len(self.calls) - 1 == self.at:
            self.strike(path)


def work(store, done):
    """Do a bit of everything; tell of each step when it was acknowledged."""
    line, other = Line(store), Line(store, "Other:1")
    big = chunk_of("x" * 3_000)  # over the limit below: a chunk beside the document
    steps = [
        lambda: line.commit(chunk_of("one")),
        lambda: line.commit(chunk_of("two"), big),
        lambda: other.commit(chunk_of("one")),
        lambda: store.mark(store.checkpoint_at("run", 1).envelope.id, Marks(status="archived")),
        lambda: line.commit(chunk_of("three")),
        lambda: store.delete("run", [store.checkpoint_at("run", 2).envelope.id]),
        lambda: store.release("run", [chunk_of("two").id, big.id], expected_seq=3, created_at=NOON),
        lambda: store.delete_run("Other:1"),
        lambda: line.commit(chunk_of("four")),
    ]
    for number, step in enumerate(steps):
        step()
        done(number)


def picture(store):
    """Return what a store holds, as far as its callers can tell."""
    return {
        run.id: (
            run.last_seq,
            [(cp.envelope.seq, cp.marks.status, cp.envelope.sections) for cp in store.checkpoints(run.id)],
            sorted(grave.seq for grave in store.tombstones(run.id)),
        )
        for run in store.runs()
    }


def pictures():
    """Return what is there before the first step and after each."""
    with scratch() as folder, closing(FilesStore(folder / "s")) as store:
        seen = [picture(store)]
        work(store, lambda _: seen.append(picture(store)))
        return seen


def calls_made():
    with scratch() as folder:
        disk = CountingDisk()
        work(FilesStore(folder / "s", disk=disk), lambda _: None)
        return disk.calls


def test_killed_at_every_call_nothing_acknowledged_is_lost_and_nothing_is_half_there():
    """Proves A10, D10."""
    seen = pictures()
    total = len(calls_made())

    def check(at):
        with scratch() as folder:

            def live(report):
                disk = CountingDisk(at, lambda _: os.kill(os.getpid(), signal.SIGKILL))
                work(FilesStore(folder / "s", disk=disk), report)

            ended = Child(live).join()
            assert ended.signal == signal.SIGKILL
            acknowledged = len(ended.reports)
            with closing(FilesStore(folder / "s")) as store:
                assert picture(store) in seen[acknowledged : acknowledged + 2]
                assert [line for line in store.check() if line] == []
                assert holdfast.Holdfast(store).verify().sound
                line = Line(store)
                if "run" in picture(store):
                    line.follow()
                line.commit(chunk_of("afterwards"))
                assert store.fetch([chunk_of("afterwards").id])
                left = [path.name for path in (folder / "s" / "run").iterdir()]
                assert not [name for name in left if name.endswith(".tmp")]

    assert total > 80
    spread(list(range(total)), check)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_refuses_at_any_call_is_named_and_the_same_object_goes_on(code):
    """Proves D11."""
    seen = pictures()
    calls = calls_made()
    expected = StoreFull if code == errno.ENOSPC else StoreUnavailable

    def check(at):
        def refuse(path):
            raise OSError(code, os.strerror(code), str(path))

        with scratch() as folder:
            disk = CountingDisk(at, refuse)
            done = []
            try:
                store = FilesStore(folder / "s", disk=disk)
            except StoreError:
                return "opening"
            with closing(store):
                try:
                    work(store, done.append)
                except expected:
                    assert picture(store) in seen[len(done) : len(done) + 2]
                else:
                    return "never told"  # the index and `latest`: made anew later
                assert holdfast.Holdfast(store).verify().sound
                line = Line(store)
                if "run" in picture(store):
                    line.follow()
                line.commit(chunk_of("afterwards"))
        return "told"

    found = spread(list(range(len(calls))), check)
    assert found.count("told") > len(calls) / 2


def test_a_folder_that_may_not_be_written_is_refused_with_a_typed_error():
    """Proves D11: a read-only directory."""

    def live(report):
        give_up_privileges()
        with scratch() as folder, closing(FilesStore(folder / "s")) as store:
            Line(store).commit(chunk_of("one"))
            (folder / "s" / "run").chmod(0o500)
            line = Line(store)
            line.follow()
            with pytest.raises(StoreUnavailable, match="Permission denied"):
                line.commit(chunk_of("two"))
            assert store.run("run").last_seq == 1
            (folder / "s" / "run").chmod(0o700)
            (folder / "s").chmod(0o500)
            with pytest.raises(StoreUnavailable):
                Line(store, "new").commit()
            (folder / "s").chmod(0o700)

    ended = Child(live).join()
    assert ended.code == 0, ended.reports[-1]["traceback"]
