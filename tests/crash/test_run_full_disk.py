"""A full disk under the work of a run: nothing pretends to be stored, and nothing that is done is lost with room."""

import errno
import resource
import signal
import time
import warnings

import pytest

from holdfast import Holdfast, RunStopped, StoreError, UnprotectedWarning
from holdfast.runtime.command import Command
from holdfast.settings.file import make_settings
from holdfast.store.open import open_store
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.faults import Fault, FaultyDisk

FULL = Fault(at=0, kind="errno", code=errno.ENOSPC, lasting=True)


@pytest.fixture
def disk(tmp_path):
    (tmp_path / "disk").mkdir()
    made = FaultyDisk(tmp_path / "disk", name=f"run-full-{time.monotonic_ns()}")
    yield made
    made.arm(None)
    made.close()


@pytest.fixture
def hf(disk, tmp_path):
    settings = make_settings({"session": {"signals": False}, "retention": {"enabled": False}, "lease_s": 1})
    with Holdfast(SQLiteStore(tmp_path / "disk" / "holdfast.db", vfs=disk.vfs), settings=settings) as made:
        yield made
        disk.arm(None)


def test_outcomes_are_held_in_memory_and_stored_with_the_next_success(disk, hf):
    """Proves A14: a step that could not be stored is neither lost nor done again."""
    done = []
    with hf.run("r") as run:
        run.step("a", lambda: done.append("a"))
        disk.arm(FULL)
        with pytest.warns(UnprotectedWarning):
            run.step("b", lambda: done.append("b"))
        with pytest.warns(UnprotectedWarning):
            run.step("c", lambda: done.append("c"))
        assert run.protection.since is not None
        disk.arm(None)
        run.step("d", lambda: done.append("d"))
        assert run.protection.since is None
    with hf.run("r") as again:
        for name in "abcd":
            again.step(name, lambda: done.append("again"))
    assert done == ["a", "b", "c", "d"]


def test_the_end_of_the_block_raises_while_anything_is_unstored(disk, hf):
    """Proves A14: a run does not end as if all were well."""
    with pytest.raises(RunStopped) as caught, warnings.catch_warnings(), hf.run("r") as run:  # noqa: PT012
        warnings.simplefilter("ignore")
        disk.arm(FULL)
        run.step("a", lambda: 1)
    assert isinstance(caught.value.__cause__, StoreError)
    disk.arm(None)


def test_complete_raises_while_anything_is_unstored_and_can_be_called_again(disk, hf):
    """Proves A14: a run is complete when that is stored."""
    with hf.run("r") as run:
        run.step("a", lambda: 1)
        disk.arm(FULL)
        with pytest.raises(RunStopped):
            run.complete()
        disk.arm(None)
        run.complete()
    assert hf.latest("r").section("status")["status"] == "completed"


def test_a_block_that_began_on_a_full_disk_raises_too(disk, hf):
    hf.run("other").checkpoint(state=0)
    disk.arm(FULL)
    with pytest.raises((RunStopped, StoreError)), warnings.catch_warnings(), hf.run("new") as run:  # noqa: PT012
        warnings.simplefilter("ignore")
        run.step("a", lambda: 1)


def test_the_error_that_ended_the_work_is_the_one_that_is_seen(disk, hf, caplog):
    with pytest.raises(ZeroDivisionError), warnings.catch_warnings(), hf.run("r") as run:  # noqa: PT012
        warnings.simplefilter("ignore")
        disk.arm(FULL)
        run.step("a", lambda: 1)
        1 / 0  # noqa: B018
    assert "its last position could not be saved" in caplog.text


@pytest.mark.parametrize("options", [{"effect": "mail"}, {"on_unknown": "ask"}, {"on_unknown": "skip"}])
def test_work_that_rests_on_a_stored_start_does_not_begin_without_it(disk, hf, options):
    """Proves A14 and A18: an effect whose start cannot be stored does not happen."""
    done = []
    with hf.run("r") as run:
        disk.arm(FULL)
        with pytest.raises(RunStopped):
            run.step("send", lambda: done.append(1), **options)
        assert done == []
        disk.arm(None)
        run.step("send", lambda: done.append(1), **options)
    assert done == [1]


def test_a_reservation_that_cannot_be_stored_stops_the_call_before_it_begins(disk, hf):
    """Proves E8: no call is paid for that a limit does not know of."""
    done = []
    with hf.run("r") as run:
        run.budget.limit(subcalls=3)
        run.agents.register("writer", lambda _prompt: done.append(1))
        run.agents.register("critic", lambda _prompt: done.append(2))
        run.agents.call("writer", "begin")
        disk.arm(FULL)
        with pytest.raises(StoreError), warnings.catch_warnings():  # noqa: PT012 - it warns, too
            warnings.simplefilter("ignore", UnprotectedWarning)
            run.agents.call("critic", "look")
        assert done == [1]
        disk.arm(None)
        run.agents.call("critic", "look")
    assert done == [1, 2]


def test_a_full_disk_ends_no_command_of_a_local_store(disk, hf):
    """Proves A14: the owner of a local store is its process; its lease lapses unrenewed, and nobody takes it."""
    with hf.run("r") as run:
        disk.arm(FULL)
        with pytest.warns(UnprotectedWarning):
            result = run.step("long", lambda: Command("sleep 1.6; echo done").run(host=run.host).stdout)
        assert hf.store.leases.running("r") is None, "it lapsed: the command outlived it"
        disk.arm(None)
    assert result.strip() == "done"


def test_in_a_files_store_outcomes_are_held_as_well(tmp_path):
    """Proves A14, with a limit of the operating system in a folder of files."""
    settings = make_settings({"session": {"signals": False}, "retention": {"enabled": False}})
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    done = []
    try:
        with Holdfast(open_store(f"file://{tmp_path}/files"), settings=settings) as hf, hf.run("r") as run:
            run.step("a", lambda: done.append("a"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
            with pytest.warns(UnprotectedWarning):
                run.step("b", lambda: done.append("b"))
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            run.step("c", lambda: done.append("c"))
        with Holdfast(open_store(f"file://{tmp_path}/files"), settings=settings) as hf, hf.run("r") as run:
            for name in "abc":
                run.step(name, lambda: done.append("again"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert done == ["a", "b", "c"]
