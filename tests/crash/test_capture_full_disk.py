"""A disk that is full, really: the work continues, says that it is unprotected, and is protected again with room."""

import errno
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from holdfast import Holdfast, RunPaused, RunStopped, StoreError, UnprotectedWarning
from holdfast.settings.file import make_settings
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.faults import Fault, FaultyDisk


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    made = FaultyDisk(folder, name=f"full-{time.monotonic_ns()}")
    yield made
    made.arm(None)
    made.close()


def opened(disk, tmp_path, **settings):
    settings = make_settings({"session": {"signals": False}, "retention": {"enabled": False}, **settings})
    return Holdfast(SQLiteStore(tmp_path / "disk" / "holdfast.db", vfs=disk.vfs), settings=settings)


FULL = Fault(at=0, kind="errno", code=errno.ENOSPC, lasting=True)


def test_work_goes_on_over_a_full_disk_and_the_run_shows_it(disk, tmp_path):
    """Proves A14: three peers swallow it; here the run carries `unprotected since`."""
    with opened(disk, tmp_path) as hf:
        run = hf.run("r")
        run.checkpoint(state=0)
        disk.arm(FULL)
        done = []
        for step in range(1, 4):
            with pytest.warns(UnprotectedWarning, match="no space left|refused"):
                assert run.maybe_checkpoint("step_complete", state=step) is None
            done.append(step)
        assert done == [1, 2, 3]
        since = run.protection.since
        assert (since is not None, run.protection.failures) == (True, 3)
        disk.arm(None)
        assert run.maybe_checkpoint("step_complete", state=4).section("state") == 4
        assert run.protection.since is None
        assert hf.verify().sound
        assert [cp.section("state") for cp in hf.checkpoints("r")] == [4, 0]


def test_a_block_that_ends_on_a_full_disk_says_so_and_keeps_what_was_stored(disk, tmp_path, caplog):
    """Proves A14: the last position is not stored, so the block does not end as if it were."""
    with opened(disk, tmp_path) as hf:
        with pytest.raises(RunStopped), hf.run("r") as run:  # noqa: PT012 - what happens in the block is the test
            assert run.step("a", lambda: 1) == 1
            disk.arm(FULL)
        assert "its lease could not be ended, and lapses by itself" in caplog.text
        disk.arm(None)
        assert [line["step"] for line in hf.latest("r").calls] == ["a"]


@pytest.mark.parametrize(("policy", "error"), [("pause", RunPaused), ("stop", RunStopped)])
def test_a_full_disk_pauses_or_stops_the_work_where_the_settings_say_so(disk, tmp_path, policy, error):
    with opened(disk, tmp_path, on_checkpoint_failure=policy) as hf:
        run = hf.run("r")
        run.checkpoint(state=0)
        disk.arm(FULL)
        with pytest.raises(error) as caught:
            run.maybe_checkpoint("step_complete", state=1)
        assert isinstance(caught.value.__cause__, StoreError)
        disk.arm(None)
        assert run.checkpoint(state=1).seq == 2


@pytest.mark.parametrize("at", range(0, 12, 2))
def test_a_disk_that_fills_in_the_middle_leaves_the_last_sound_position(disk, tmp_path, at):
    with opened(disk, tmp_path) as hf:
        run = hf.run("r")
        run.checkpoint(state={"n": 0, "log": ["x" * 1000] * 100})
        disk.arm(Fault(at=at, kind="errno", code=errno.ENOSPC, lasting=True))
        with pytest.warns(UnprotectedWarning):  # noqa: PT031 - what happens in the block is the test
            for step in range(1, 20):
                if run.maybe_checkpoint("step_complete", state={"n": step, "log": [str(step) * 1000] * 100}) is None:
                    break
        disk.arm(None)
        saved = hf.latest("r").section("state")["n"]
        assert saved == step - 1
        assert run.checkpoint(state="room again").saved
        assert hf.verify().sound


CHILD = """
    import os, resource, signal, sys, warnings
    import holdfast

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    warnings.simplefilter("always")
    hf = holdfast.open(sys.argv[1], settings=holdfast.Settings())
    with hf.run("r") as run:
        run.checkpoint(state=0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        for step in range(40):
            run.maybe_checkpoint("step_complete", state=[os.urandom(2_000) for _ in range(50)])
        print("worked", step + 1, "unprotected", run.protection.since is not None, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, 200_000))  # not even the small last one fits
"""


def test_a_real_limit_of_the_operating_system_is_met_the_same_way(tmp_path):
    """Proves A14, with RLIMIT_FSIZE instead of our own faults."""
    assert hasattr(resource, "RLIMIT_FSIZE")
    assert hasattr(signal, "SIGXFSZ")
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert child.returncode == 1, "the end of the block says that the last position is not stored"
    assert child.stderr.strip().splitlines()[-1].startswith("holdfast.errors.RunStopped: ")
    assert child.stdout.strip() == "worked 40 unprotected True"
    assert "UnprotectedWarning" in child.stderr
    with Holdfast(SQLiteStore(tmp_path / "holdfast.db")) as hf:
        assert hf.verify().sound
        assert hf.latest("r").seq >= 1
