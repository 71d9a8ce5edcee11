"""Logs of a run: what is appended is durable, is part of every checkpoint, and goes back with the run."""

import errno
import os
import signal

import pytest

import holdfast
from crash.children import Child
from holdfast import UsageError, ValueRefused
from holdfast.errors import HeadMoved, StoreFull
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.faults import Fault, FaultyDisk
from store_calls import counted


@pytest.fixture
def place(tmp_path):
    return tmp_path / "s"


def test_what_was_appended_survives_a_kill(place):
    def life(report):
        log = holdfast.open(place).run("r").log("messages")
        for number in range(50):
            log.append({"n": number})
            report(number)
        os.kill(os.getpid(), signal.SIGKILL)

    told = Child(life).join().reports
    with holdfast.open(place) as hf:
        assert list(hf.run("r").log("messages")) == [{"n": number} for number in range(50)]
    assert told == list(range(50))


def test_a_log_is_read_by_place_and_by_slice(place):
    with holdfast.open(place) as hf:
        log = hf.run("r").log("messages")
        log.extend(range(600))
        assert (len(log), log[0], log[-1], log[599]) == (600, 0, 599, 599)
        assert (log[2:4], log[-3:], log[598:], log[:2], log[::200]) == (
            [2, 3],
            [597, 598, 599],
            [598, 599],
            [0, 1],
            [0, 200, 400],
        )
        assert list(reversed(log))[:2] == [599, 598]
        with pytest.raises(IndexError):
            log[600]


def test_a_checkpoint_has_the_log_as_it_was_and_going_back_takes_it_along(place):
    with holdfast.open(place) as hf:
        run = hf.run("r")
        run.log("messages").extend(["a", "b"])
        early = run.checkpoint(state=1)
        run.log("messages").append("c")
        late = run.checkpoint(state=2)
        assert (early.log("messages"), late.log("messages")) == (["a", "b"], ["a", "b", "c"])
        assert hf.recover(early.id).success
        run = hf.run("r")
        run.log("messages").append("other")
        assert list(run.log("messages")) == ["a", "b", "other"]
        assert hf.get(late.id).log("messages") == ["a", "b", "c"]  # what was left stays readable
        assert hf.verify().sound


def test_a_recovery_that_leaves_part_of_a_log_can_be_undone(place):
    with holdfast.open(place) as hf:
        run = hf.run("r")
        run.log("messages").append("a")
        early = run.checkpoint(state=1)
        run.log("messages").append("b")  # in the journal alone
        assert hf.recover(early.id).success
        assert list(hf.run("r").log("messages")) == ["a"]
        assert hf.undo("r").success
        assert list(hf.run("r").log("messages")) == ["a", "b"]


def test_a_fork_has_its_own_copy(place):
    with holdfast.open(place) as hf:
        run = hf.run("r")
        run.log("messages").extend(["a", "b"])
        run.checkpoint(state=1)
        run.log("messages").append("c")
        hf.fork("r", "fork")
        hf.delete_run("r")
        log = hf.run("fork").log("messages")
        log.append("d")
        assert list(log) == ["a", "b", "c", "d"]


def test_a_fresh_process_appends_without_reading_what_is_there(place, monkeypatch):
    with holdfast.open(place) as hf:
        hf.run("r").log("messages").extend(["x" * 500] * 3_000)
    with holdfast.open(place) as hf:
        log = hf.run("r").log("messages")
        opened = []
        codec = hf.store.codec
        monkeypatch.setattr(
            codec, "open", lambda table, row: opened.append(table.name) or type(codec).open(codec, table, row)
        )
        log.append("one more")
        assert opened.count("record") <= 2  # the newest one, for the length
        assert len(log) == 3_001


def test_secrets_are_kept_out_of_a_log(place):
    with holdfast.open(place) as hf:
        log = hf.run("r").log("messages")
        log.append({"password": "hunter2-is-secret"})
        assert "hunter2" not in str(log[0])


def test_what_cannot_be_stored_is_refused_and_nothing_is_added(place):
    with holdfast.open(place) as hf:
        run = hf.run("r")
        with pytest.raises(ValueRefused):
            run.log("messages").extend(["fine", object()])
        assert len(run.log("messages")) == 0
        with pytest.raises(UsageError, match="not a valid name"):
            run.log("")


def test_a_full_disk_leaves_nothing_half_added_and_the_next_append_works(tmp_path):
    disk = FaultyDisk(tmp_path, name="full log")
    with holdfast.Holdfast(SQLiteStore(tmp_path / "s.db", vfs=disk.vfs)) as hf:
        log = hf.run("r").log("messages")
        log.append("before")
        disk.arm(Fault(at=0, kind="errno", code=errno.ENOSPC, lasting=True))
        with pytest.raises(StoreFull):
            log.append("x" * 100_000)
        disk.arm(None)
        log.append("after")
        assert list(log) == ["before", "after"]
        assert hf.verify().sound
    disk.close()


@pytest.mark.parametrize("name", ["steps", "journal"])
def test_a_log_that_the_run_keeps_of_itself_is_not_given_out(place, name):
    with holdfast.open(place) as hf, pytest.raises(UsageError, match="choose another name"):
        hf.run("r").log(name)


def test_appending_reads_nothing_from_the_store_but_once(place):
    with holdfast.open(place) as hf, hf.run("r") as run:
        run.log("messages").extend(range(3))
        run.step("first", lambda: 1)
        with counted(hf.store.medium) as calls:
            for number in range(3, 10):
                run.log("messages").append(number)
                run.step(f"step {number}", lambda: 1)
        assert calls.count == 0
        assert list(run.log("messages")) == list(range(10))


def test_a_log_is_counted_again_after_going_back_and_after_another_writer(place):
    with holdfast.open(place) as hf:
        run = hf.run("r")
        log = run.log("messages")
        log.extend(["a", "b"])
        early = run.checkpoint(state=1)
        log.append("c")
        run.checkpoint(state=2, onto=early)
        log.append("d")
        assert (list(log), len(log)) == (["a", "b", "d"], 3)
        hf.run("r").log("messages").append("e")
        with pytest.raises(HeadMoved):
            log.append("f")
        run.recorder.reload()
        log.append("f")
        assert (list(log), len(log)) == (["a", "b", "d", "e", "f"], 5)
