"""The lease of a run as its process keeps, loses and gives it back; what a handle leaves behind when it is closed."""

import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import HeadMoved, LeaseLost, Settings
from holdfast.runtime.command import Command
from postgres_server import shared_server

LONG = Settings(lease_s=600)
STORES = ("sqlite", "files", "postgres")


@contextmanager
def place_of(kind, folder):
    if kind != "postgres":
        yield f"{ {'sqlite': 'sqlite', 'files': 'file'}[kind] }://{folder}/store"
        return
    url = shared_server().database()
    try:
        yield url
    finally:
        shared_server().drop(url)


CHILD = """
    import os, signal, sys, time
    import holdfast
    hf = holdfast.open(sys.argv[1], settings=holdfast.Settings(lease_s=600))
    with hf.run("r") as run:
        run.step("a", lambda: 1)
        print("begun", flush=True)
        time.sleep(60)
"""


def ended_by(number, place):
    """Run a program that moves a run, end it with a signal while it does, and return its exit code."""
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(CHILD), place], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout.readline() == "begun\n"
        child.send_signal(number)
        return child.wait(timeout=60)


@pytest.mark.parametrize("kind", STORES)
def test_a_checkpoint_by_hand_does_not_wait_for_the_lease_of_a_dead_process(kind, tmp_path):
    """Proves A8: a process of this machine that is gone owns nothing, whatever its lease says."""
    with place_of(kind, tmp_path) as place:
        assert ended_by(signal.SIGKILL, place) == -signal.SIGKILL
        with holdfast.open(place, settings=LONG) as hf:
            assert hf.store.leases.running("r") is not None
            assert hf.run("r").checkpoint(state="by hand").saved
            assert hf.store.leases.running("r") is None


@pytest.mark.parametrize("kind", STORES)
def test_a_lease_is_given_back_at_once_on_sigterm(kind, tmp_path):
    """Proves A8: another machine need not wait for it to lapse."""
    with place_of(kind, tmp_path) as place:
        assert ended_by(signal.SIGTERM, place) == 128 + signal.SIGTERM
        with holdfast.open(place, settings=LONG) as hf:
            assert hf.store.leases.running("r") is None


def test_commands_end_before_a_lease_lapses_that_cannot_be_renewed():
    """Proves D10: the store does not answer, so the process stops by its own clock."""
    with (  # noqa: PT012 - what happens in the block is the test
        place_of("postgres", None) as url,
        holdfast.open(url, settings=Settings(lease_s=1, session={"signals": False})) as hf,
        psycopg.connect(url) as other,
        pytest.raises(LeaseLost),
        hf.run("r") as run,
    ):
        other.execute("LOCK TABLE holdfast.lease IN ACCESS EXCLUSIVE MODE")
        try:
            Command("sleep 60").run(host=run.host)
        finally:
            other.rollback()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("kind", STORES)
def test_closing_leaves_no_thread_no_descriptor_and_no_lease(kind, tmp_path):
    """Proves A8: what a handle began ends with it."""
    with place_of(kind, tmp_path) as place:
        with holdfast.open(place, settings=LONG) as warm, warm.run("r") as run:
            run.step("a", lambda: 1)
        threads, open_files = set(threading.enumerate()), descriptors()
        hf = holdfast.open(place, settings=LONG, interval_s=60)
        runs = [hf.run(name).__enter__() for name in ("r", "s", "t")]
        for run in runs:
            run.step("b", lambda: 2)
        for run in runs[:2]:
            run.close()
            assert hf.store.leases.running(run.id) is None
        hf.close()
        assert set(threading.enumerate()) - threads == set()
        assert descriptors() <= open_files
        with holdfast.open(place, settings=LONG) as again:
            assert [again.store.leases.running(name) for name in ("r", "s", "t")] == [None] * 3


def test_many_runs_are_kept_by_one_thread(tmp_path):
    """Proves E6: a lease costs no thread of its own."""
    with holdfast.open(tmp_path, settings=Settings(automatic=False, session={"signals": False})) as hf:
        runs = [hf.run(f"r{number}").__enter__() for number in range(20)]
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast")]
        assert names == ["holdfast-leases"]
        for run in runs:
            run.close()
    assert "holdfast-leases" not in {thread.name for thread in threading.enumerate()}


def test_a_moved_head_that_is_retried_does_not_mark_a_run_unprotected(tmp_path):
    """Proves A14: another writer's commit is not a failure of the store."""
    with holdfast.open(tmp_path) as hf:
        mine, other = hf.run("r"), hf.run("r")
        mine.checkpoint(state=1)
        with pytest.raises(HeadMoved):
            other.checkpoint(state=2)
        assert other.protection.since is None
        other.recorder.reload()
        assert other.checkpoint(state=2).saved
        assert other.protection.failures == 0
