"""Appends under kill -9, errnos, full disks and power cuts: what was acknowledged is there once, nothing by halves."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from crash.children import TORTURE, Child, sampled, scratch, spread
from holdfast.errors import HeadMoved, HoldfastError, StoreError, StoreFull
from holdfast.store.commit import CheckpointDraft, Commit, Draft
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.tables import AccountRow
from holdfast.testing.contract import Line, chunk_of
from holdfast.testing.faults import Call, Fault, FaultyDisk, after_power_loss
from holdfast.verify.check import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.store.store import Store

_APPENDS = 12


def _budget(used: int) -> AccountRow:
    return AccountRow(run="r", name="records", used=str(used))


def _commit(store: Store, number: int) -> Commit:
    """Return append `number`: a record of its own size, counted by a budget, two checkpoints with every fourth."""
    body = random.Random(number).randbytes(random.Random(number).choice((10, 700, 30_000)))
    changed = (None if number == 1 else _budget(number - 1), _budget(number))
    draft = Draft("k", f"path {number % 3}", 0.0, number.to_bytes(4, "big") + body, f"key {number}")
    given: dict[str, Any] = {"run": "r", "after": number - 1, "records": [draft], "accounts": [changed]}
    if number % 4 == 0:
        writer = Line(store, "r")
        if number > 4:
            writer.follow()
        chunk = chunk_of(f"chunk {number}")
        head = writer.head.envelope.id if writer.head else None
        before, after = writer.envelopes([chunk], [chunk])
        taken = [CheckpointDraft(before, records=0), CheckpointDraft(after)]
        given |= {"checkpoints": taken, "chunks": [chunk], "expected_head": head}
    return Commit(**given)


def _play(store: Store) -> Iterator[int]:
    for number in range(1, _APPENDS + 1):
        store.write(_commit(store, number))
        yield number


def _check(path: Path) -> int:
    """Check that a store holds appends 1 to some number, each once and whole, and continues; return that number."""
    with closing(SQLiteStore(path)) as store:
        report = verify(store)
        assert report.sound, report.faults
        line = store.line("r")
        last = line.number if line else 0
        records = store.journal.records(line) if line else []
        assert [int.from_bytes(record.body[:4], "big") for record in records] == list(range(1, last + 1))
        assert store.accounts("r") == ({"records": _budget(last)} if last else {})
        assert (line.last_seq if line else 0) == last // 4 * 2
        for number in range(1, last + 1):
            assert store.journal.keyed(line, f"key {number}") == records[number - 1]
        if last < _APPENDS:
            assert store.write(_commit(store, last + 1)).line.number == last + 1
            assert verify(store).sound
        return last


def _calls() -> list[Call]:
    with scratch() as folder:
        disk = FaultyDisk(folder, log=True)
        with disk, closing(SQLiteStore(folder / "holdfast.db", vfs=disk.vfs)) as store:
            assert list(_play(store))[-1] == _APPENDS
        return [call for call in disk.log or () if not call.implied]


def _survives(fault: Fault) -> str:
    with scratch() as folder:
        path = folder / "holdfast.db"

        def work(report: Callable[[Any], None]) -> None:
            disk = FaultyDisk(folder)
            disk.arm(fault)
            with disk, closing(SQLiteStore(path, vfs=disk.vfs)) as store:
                for number in _play(store):
                    report(number)

        ended = Child(work).join()
        assert ended.signal == signal.SIGKILL, ended
        done = ended.reports[-1] if ended.reports else 0
        found = _check(path)
        assert found in (done, done + 1), f"{found} are there after {done} were acknowledged"
        return "after" if found > done else "before"


def test_a_kill_at_any_storage_call_of_an_append_loses_and_doubles_nothing() -> None:
    """Proves A10, D11, X3."""
    points = [Fault(at=number, kind="kill") for number in range(len(_calls()))]
    assert len(points) > 150
    assert set(spread(sampled(points, 120), _survives)) == {"before", "after"}


def test_a_write_of_an_append_torn_by_a_kill_loses_and_doubles_nothing() -> None:
    """Proves D11, X3."""
    parts = [part / 20 for part in range(20)] if TORTURE else [0.02, 0.99]
    points = [
        Fault(at=number, kind="tear", torn=part)
        for number, call in enumerate(_calls())
        if call.operation == "write"
        for part in parts
    ]
    points = sampled(points, 120)
    assert len(spread(points, _survives)) == len(points)


class _Point(NamedTuple):
    at: int
    code: int


def _errno(point: _Point) -> str | None:
    """Append with one fault; the append that it hits is repeated on the same object unless it was stored after all."""
    with scratch() as folder:
        path = folder / "holdfast.db"
        disk = FaultyDisk(folder)
        met = None
        with disk:
            store = SQLiteStore(path, vfs=disk.vfs)
            disk.arm(Fault(at=point.at, kind="errno", code=point.code))
            number = 1
            while number <= _APPENDS:
                try:
                    store.write(_commit(store, number))
                except StoreError as error:
                    assert met is None, "a fault that comes once is met once"
                    met = type(error).__name__
                    line = store.line("r")
                    assert (line.number if line else 0) == number - 1, "what was refused is not there"
                    assert store.settle("r") is None
                    continue
                number += 1
            disk.arm(None)
            store.close()
        assert _check(path) == _APPENDS
        if point.code == errno.ENOSPC and disk.struck and disk.struck.operation == "write":
            assert met in (None, "StoreFull")
        return met


def test_an_errno_in_the_middle_of_an_append_is_typed_and_the_next_one_works() -> None:
    """Proves D11, A10."""
    with scratch() as folder:
        disk = FaultyDisk(folder)
        with disk:
            store = SQLiteStore(folder / "holdfast.db", vfs=disk.vfs)
            disk.arm(None)
            list(_play(store))
            count = disk.calls
            store.close()
    points = [_Point(at, code) for at in range(count) for code in (errno.ENOSPC, errno.EIO)]
    found = spread(points, _errno)
    assert {"StoreFull", "StoreUnavailable"} <= set(found)
    assert found.count(None) < len(points) / 2, "those of the heads and of a fold of the log are forgiven"


def test_a_power_cut_after_any_storage_call_loses_no_acknowledged_append() -> None:
    """Proves X3, A10."""
    with scratch() as folder:
        disk = FaultyDisk(folder, log=True)
        calls = disk.log
        assert calls is not None
        acknowledged: list[int] = []
        with disk, closing(SQLiteStore(folder / "holdfast.db", vfs=disk.vfs)) as store:
            for number in _play(store):
                acknowledged += [number - 1] * (len(calls) - len(acknowledged))
        acknowledged += [_APPENDS] * (len(calls) + 1 - len(acknowledged))

        def check(cut: tuple[int, int]) -> bool:
            with scratch() as parent:
                image = parent / "image"
                after_power_loss(calls[: cut[0]], folder, image, random.Random(f"{cut}"))
                return _check(image / "holdfast.db") >= acknowledged[cut[0]]

        images = 20 if TORTURE else 2
        cuts = [(point, seed) for point in range(len(calls) + 1) for seed in range(images)]
        assert all(spread(sampled(cuts, 150), check))


def _fill(store: Store) -> int:
    """Append until the disk is full; return the number that was refused."""
    for number in range(1, 500):
        body = number.to_bytes(4, "big") + random.Random(number).randbytes(20_000)
        try:
            store.write(Commit(run="r", after=number - 1, records=[Draft("k", "path", 0.0, body)]))
        except StoreFull:
            return number
    raise AssertionError("nothing was ever refused")


def test_a_full_disk_in_the_middle_of_an_append_leaves_nothing_and_the_next_one_works() -> None:
    """Proves D11: a real full file system."""
    with scratch() as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=2m", "holdfast-test", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("mounting a small file system needs root")
        try:
            ballast = folder / "ballast"
            ballast.write_bytes(bytes(500_000))
            with closing(SQLiteStore(folder / "store" / "holdfast.db")) as store:
                number = _fill(store)
                for _ in range(3):
                    with pytest.raises(StoreFull):
                        store.write(Commit(run="r", records=[Draft("k", "path", 0.0, random.randbytes(900_000))]))
                line = store.line("r")
                assert line is not None
                assert line.number == number - 1
                assert verify(store).sound
                ballast.unlink()
                assert store.write(Commit(run="r", after=number - 1, records=[Draft("k", "path", 0.0)])).line.number
                assert len(store.journal.records(line)) == number - 1
                assert verify(store).sound
        finally:
            subprocess.run(["umount", str(folder)], check=True)


def test_writers_that_are_killed_at_random_lose_and_double_no_acknowledged_record() -> None:
    """Proves D10, D11: four processes append to one line, by compare-and-set and without, and are killed."""
    with scratch() as folder:
        path = folder / "holdfast.db"
        SQLiteStore(path).close()
        chance = random.Random(6)
        acknowledged: list[str] = []
        for turn in range(6):

            def work(report: Callable[[Any], None], turn: int = turn) -> None:
                store = SQLiteStore(path)
                for number in range(100_000):
                    name = f"{turn} {os.getpid()} {number}"
                    line = store.line("r")
                    after = (line.number if line else 0) if number % 2 else None
                    try:
                        store.write(Commit(run="r", after=after, records=[Draft("k", name, 0.0, name.encode())]))
                    except HeadMoved:
                        continue
                    report(name)

            children = [Child(work) for _ in range(4)]
            for child in children:
                _sleep(chance.uniform(0.05, 0.2))
                os.kill(child.pid, signal.SIGKILL)
            for child in children:
                acknowledged += [report for report in child.join().reports if isinstance(report, str)]
        with closing(SQLiteStore(path)) as store:
            line = store.line("r")
            assert line is not None
            found = [record.path for record in store.journal.records(line)]
            assert len(acknowledged) > 50
            assert len(set(found)) == len(found), "nothing is there twice"
            assert set(acknowledged) <= set(found)
            assert len(found) <= len(acknowledged) + 24, "of each killed writer one more at most"
            assert verify(store).sound


def _sleep(seconds: float) -> None:
    subprocess.run(["sleep", f"{seconds}"], check=True)


def test_a_lease_taken_over_by_another_process_between_two_appends_is_noticed() -> None:
    """Proves D10."""
    with scratch() as folder:
        path = folder / "holdfast.db"
        with closing(SQLiteStore(path)) as store:
            lease = store.leases.take("r", owner="old", ttl_s=0.001)
            store.write(Commit(run="r", fence=lease.token, records=[Draft("k", "path", 0.0)]))

            def work(report: Callable[[Any], None]) -> None:
                with closing(SQLiteStore(path)) as other:
                    report(other.leases.take("r", owner="new", ttl_s=60).token)

            assert Child(work).join().reports == [lease.token + 1]
            with pytest.raises(HoldfastError) as caught:
                store.write(Commit(run="r", fence=lease.token, records=[Draft("k", "path", 0.0)]))
            assert type(caught.value).__name__ == "LeaseLost"
            line = store.line("r")
            assert line is not None
            assert line.number == 1
