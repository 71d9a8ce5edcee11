"""The files store killed at every call that changes the disk, torn there, refused there, and cut off from power."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from crash.children import TORTURE, Child, scratch, spread
from crash.files_kit import StrikingDisk, Work, go_on, kill, open_files, picture, tear, wrong
from crash.privileges import give_up_privileges
from holdfast.errors import HeadMoved, NotFound, StoreBusy, StoreError, StoreFull, StoreUnavailable
from holdfast.store.commit import Commit, Draft
from holdfast.store.inspection import Inspection
from holdfast.testing.contract import Line, chunk_of
from holdfast.testing.faults import after_power_loss


@cache
def pictures():
    """Return what is there before the first step and after each."""
    with scratch() as folder, closing(open_files(folder / "s")) as store:
        seen = [picture(store)]
        Work(store).do(lambda _: seen.append(picture(store)))
        assert wrong(store) == []
        return seen


@cache
def calls_made():
    with scratch() as folder:
        disk = StrikingDisk()
        Work(open_files(folder / "s", disk)).do(lambda _: None)
        return disk.calls


@pytest.mark.parametrize("strike", [kill, tear])
def test_killed_at_every_call_nothing_acknowledged_is_lost_and_nothing_is_half_there(strike):
    """Proves A10, D10."""
    seen = pictures()

    def check(at):
        with scratch() as folder:
            ended = Child(lambda report: Work(open_files(folder / "s", StrikingDisk(at, strike))).do(report)).join()
            assert ended.signal == signal.SIGKILL
            acknowledged = len(ended.reports)
            with closing(open_files(folder / "s")) as store:
                assert picture(store) in seen[acknowledged : acknowledged + 2]
                assert wrong(store) == []
                go_on(store, folder / "s")

    calls = calls_made()
    points = [at for at, call in enumerate(calls) if strike is kill or call.operation == "write"]
    assert len(points) > (120 if strike is kill else 30)
    spread(points, check)


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_refuses_at_any_call_is_named_and_the_same_object_goes_on(code, lasting):
    """Proves D11."""
    seen = pictures()
    calls = calls_made()
    expected = StoreFull if code == errno.ENOSPC else StoreUnavailable

    def refuse(_operation, path, _data, _offset):
        raise OSError(code, os.strerror(code), str(path))

    def check(at):
        with scratch() as folder:
            disk = StrikingDisk(at, refuse, lasting=lasting)
            done = []
            try:
                store = open_files(folder / "s", disk)
            except StoreError:
                return "opening"
            with closing(store):
                try:
                    Work(store).do(done.append)
                except expected:
                    disk.at = None
                    assert picture(store) in seen[len(done) : len(done) + 2]
                    told = "told"
                else:
                    told = "never told"  # a witness or the index: neither is the truth
                disk.at = None
                assert wrong(store) == []
                go_on(store, folder / "s")
                with closing(open_files(folder / "s")) as again:
                    assert wrong(again) == []
                    left = picture(again)
                    if store.leases.running("leased") is None:  # given back, which only this object knows for certain
                        assert left["leased"] in (None, ("me", 1))
                        left["leased"] = None
                    assert left == picture(store)
        return told

    found = spread(list(range(len(calls))), check)
    assert found.count("told") > len(calls) / 2


def test_after_a_power_cut_all_that_was_acknowledged_is_there_and_nothing_is_half_there():
    """Proves A10: of what was not synced anything may be lost, in any order."""
    seen = pictures()
    with scratch() as folder:
        disk = StrikingDisk()
        ends = []
        store = open_files(folder / "s", disk)
        Work(store).do(lambda _: ends.append(len(disk.calls)))
        store.close()
        calls = disk.calls

        def check(point):
            at, seed = point
            acknowledged = sum(end <= at for end in ends)
            with scratch() as place:
                after_power_loss(calls[:at], folder, place / "cut", random.Random(f"{at} {seed}"))
                with closing(open_files(place / "cut" / "s")) as left:
                    assert picture(left) in seen[acknowledged : acknowledged + 2]
                    assert wrong(left) == []
                    go_on(left, place / "cut" / "s")

        states = 20 if TORTURE else 3
        spread([(at, seed) for at in range(len(calls) + 1) for seed in range(states)], check)


def test_two_processes_on_one_line_lose_and_double_no_record():
    """Proves D10: each appends where the line is, and reads again when the other was first."""

    def append(folder, name):
        def live(report):
            with closing(open_files(folder)) as store:
                for number in range(60):
                    while True:
                        line = store.line("run")
                        draft = Draft("call", f"{name}/{number}", 1.0, b"x" * 50)
                        try:
                            done = store.write(Commit(run="run", after=line.number, records=[draft]))
                        except HeadMoved:
                            continue
                        report(done.line.number)
                        break

        return live

    with scratch() as folder:
        with closing(open_files(folder)) as store:
            store.write(Commit(run="run"))
            ended = [child.join() for child in [Child(append(folder, name)) for name in "ab"]]
            assert [end.code for end in ended] == [0, 0], ended
            line = store.line("run")
            records = store.journal.records(line)
            assert [record.number for record in records] == list(range(1, 121))
            for end, name in zip(ended, "ab", strict=True):
                assert end.reports == [record.number for record in records if record.path.startswith(name)]
            assert [step.fault for step in store.journal.walk(line) if step.fault] == []
        with closing(open_files(folder)) as again:
            assert again.journal.records(again.line("run")) == records
            assert wrong(again) == []


def test_readers_take_no_writer_at_work_for_damage():
    """Proves D10: logs grow, are rewritten, deleted and begun again while others read them without a lock."""

    def live(report):
        with closing(open_files(folder)) as store:
            work, until = Work(store), time.monotonic() + (20 if TORTURE else 2)
            while time.monotonic() < until:
                work.records(*map(str, range(20)), run="busy")
                work.line("busy").commit(chunk_of("busy"))
                store.journal.compact("busy", [n for n in range(1, 15) if store.line("busy").number == 20])
                work.records("last", run="busy")
                store.delete_run("busy")
                report("again")

    with scratch() as folder:
        child = Child(live)
        looks = 0
        with closing(open_files(folder)) as store:
            while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                runs = store.runs()
                assert (list(runs.damaged), list(Inspection(store).check())) == ([], [])
                try:
                    line = store.line("busy")
                    records = [record.number for record in store.journal.records(line)] if line else []
                    assert records == sorted(records)
                except NotFound:
                    pass  # deleted between the two calls
                except StoreUnavailable as error:
                    raise AssertionError("a reader was refused") from error
                looks += 1
        ended = child.join()
        assert ended.code == 0, ended.reports[-1]
        assert len(ended.reports) > 5
        assert looks > 20


def test_a_process_that_is_stopped_inside_the_lock_makes_others_wait_no_longer_than_they_will():
    """Proves D11: readers are not kept waiting at all, and all continues when it is killed."""
    with scratch() as folder:
        with closing(open_files(folder)) as store:
            Line(store).commit(chunk_of("one"))

        def live(report):
            def stop(*_call):
                report("stopped")
                os.kill(os.getpid(), signal.SIGSTOP)

            disk = StrikingDisk()
            store = open_files(folder, disk)
            line = Line(store)
            line.follow()
            disk.at, disk.strike = len(disk.calls) + 3, stop
            line.commit(chunk_of("two"))

        child = Child(live)
        os.waitpid(child.pid, os.WUNTRACED)
        with closing(open_files(folder, busy_timeout_s=0.3)) as store:
            started = time.monotonic()
            with pytest.raises(StoreBusy, match=rf"process {child.pid}, which is stopped.*kill -9 {child.pid}"):
                store.leases.take("run", owner="other", ttl_s=5)
            assert time.monotonic() - started < 3
            assert store.run("run").last_seq == 1
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            assert store.leases.take("run", owner="other", ttl_s=5).token == 1
            assert wrong(store) == []


def test_a_folder_that_may_not_be_written_is_refused_with_a_typed_error():
    """Proves D11: a read-only directory."""

    def live(report):
        give_up_privileges()
        with scratch() as folder, closing(open_files(folder / "s")) as store:
            Line(store).commit(chunk_of("one"))
            journal = next(Path(folder, "s").glob("runs/*/journal.jsonl"))
            journal.chmod(0o400)
            line = Line(store)
            line.follow()
            with pytest.raises(StoreUnavailable, match="Permission denied"):
                line.commit(chunk_of("two"))
            assert store.run("run").last_seq == 1
            journal.chmod(0o600)
            (folder / "s" / "runs").chmod(0o500)
            with pytest.raises(StoreUnavailable):
                Line(store, "new").commit()
            (folder / "s" / "runs").chmod(0o700)
            line.commit(chunk_of("two"))
            journal.chmod(0o000)
            Line(store, "other").commit()
            with closing(open_files(folder / "s")) as again:
                assert [run.id for run in again.runs()] == ["other"]
                assert [error.run for error in again.runs().damaged] == ["run"]
            (folder / "s").chmod(0o500)
            with closing(open_files(folder / "s")) as read_only:
                assert read_only.run("other").last_seq == 1
            (folder / "s").chmod(0o700)
            journal.chmod(0o600)

    ended = Child(live).join()
    assert ended.code == 0, ended.reports[-1]["traceback"]
