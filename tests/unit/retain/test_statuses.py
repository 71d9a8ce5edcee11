"""Statuses that the system sets in real use, on every store, and what follows from them."""

import signal
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta

import pytest

import holdfast
from holdfast import Holdfast, NotFound
from holdfast.settings.file import make_settings
from holdfast.store.open import open_store


class Clock:
    now = 1_790_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture(params=["sqlite", "files"])
def place(request, tmp_path):
    return tmp_path / "holdfast.db" if request.param == "sqlite" else f"file://{tmp_path}/files"


@pytest.fixture
def hf(place):
    settings = make_settings({"interval_s": 3600, "session": {"signals": False}})
    with Holdfast(open_store(place), settings=settings, clock=Clock()) as opened:
        yield opened


def damage(place, tmp_path, sizes):
    """Damage the newest large chunk, past the store."""
    if "files" in str(place):
        chunks = [path for path in (tmp_path / "files").rglob("*") if path.is_file() and "chunks" in path.parts]
        victim = max(chunks, key=lambda path: (path.stat().st_mtime_ns, path.stat().st_size))
        data = victim.read_bytes()
        victim.chmod(0o600)
        victim.write_bytes(data[:-20] + bytes(20))
        return
    with sqlite3.connect(place) as database:
        (number,) = database.execute("SELECT max(n) FROM chunk WHERE length(data) > ?", (sizes,)).fetchone()
        database.execute("UPDATE chunk SET data = zeroblob(length(data)) WHERE n = ?", (number,))


def big(seed):
    return [f"{seed} {number} {seed * number}" for number in range(4000)]


def test_damage_that_is_found_marks_a_checkpoint_and_takes_it_off_the_recovery_points(hf, place, tmp_path):
    """Proves A2, X3: on a store of files as on SQLite."""
    run = hf.run("r")
    good = run.checkpoint(state=big(1))
    bad = run.checkpoint(state=big(2))
    damage(place, tmp_path, 200)
    assert hf.latest("r", sound=True).id == good.id
    assert hf.get(bad.id).status == "corrupted"
    assert [point.checkpoint for point in hf.recovery.points("r")] == [good.id]
    assert hf.latest("r").id == hf.find("r").id == good.id
    assert [cp.id for cp in hf.checkpoints("r")] == [bad.id, good.id], "it is still listed"


def test_a_recovery_marks_the_damage_that_it_passed_over(hf, place, tmp_path):
    """Proves A2."""
    run = hf.run("r")
    good = run.checkpoint(state=big(1))
    bad = run.checkpoint(state=big(2))
    run.close()
    damage(place, tmp_path, 200)
    assert hf.recover("r").success
    assert (hf.get(bad.id).status, hf.get(good.id).status) == ("corrupted", "valid")


def test_what_is_expired_is_listed_and_never_a_recovery_point(hf):
    """Proves A2."""
    with hf.run("old") as run:
        made = run.checkpoint(state=1)
        run.complete()
    hf.internals.clock.now += timedelta(days=31).total_seconds()
    with hf.run("other"):
        pass
    assert {cp.status for cp in hf.checkpoints("old")} == {"expired"}
    assert hf.recovery.points("old") == []
    assert "expired" in str(hf.recover("old").errors)
    for look in (lambda: hf.latest("old", required=True), lambda: hf.find("old")):
        with pytest.raises(NotFound, match="expired"):
            look()
    assert hf.find(made.id).section("state") == 1, "who names it may look at it"
    plan = hf.plan(made.id)
    assert any("expired" in one for one in plan.blockers)
    assert not hf.recover(made.id).success
    hf.mark(made.id, status="valid")
    assert hf.recovery.points("old")[0].checkpoint == made.id


def test_an_expired_one_among_others_is_passed_over(hf):
    """Proves A2."""
    run = hf.run("r")
    made = [run.checkpoint(state=n, trigger="gate_complete") for n in range(4)]
    hf.mark(made[2].id, status="expired")
    assert hf.find("r~1").id == made[1].id
    assert [point.seq for point in hf.recovery.points("r")] == [4, 2, 1]
    assert [point.seq for point in hf.recovery.points("r", limit=2)] == [4, 2]
    hf.mark(made[3].id, status="corrupted")
    assert hf.latest("r").id == made[1].id
    assert holdfast.Holdfast(hf.store).find("r").id == made[1].id


KILLED = """
import os, sys, threading, time, holdfast
with holdfast.open(sys.argv[1]) as hf:
    run = hf.run("r", workspace=sys.argv[2])
    run.checkpoint(state="sound", files=False)
    threading.Thread(target=run.checkpoint, kwargs={"reason": "a long one"}, daemon=True).start()
    print("begun", flush=True)
    while not any(cp.status == "creating" for cp in hf.checkpoints("r")):
        time.sleep(0.05)
    os._exit(9)
"""


def test_a_long_capture_is_seen_as_creating_and_one_that_was_killed_until_it_is_swept(place, tmp_path):
    """Proves A2."""
    work = tmp_path / "work"
    work.mkdir()
    for folder in range(60):  # 30,000 files: about a second of work
        (work / f"{folder}").mkdir()
        for number in range(500):
            (work / f"{folder}" / f"{number}.txt").write_text(f"{folder} {number}")
    url = str(place)
    child = subprocess.Popen([sys.executable, "-c", KILLED, url, work], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"begun\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGSTOP)  # a machine that is suspended in the middle of it
    time.sleep(1.2)
    child.send_signal(signal.SIGCONT)
    assert child.wait(60) == 9
    child.stdout.close()
    with holdfast.open(url) as hf:
        cut, sound = hf.checkpoints("r")
        assert (cut.status, cut.reason, cut.recovery.can_resume) == ("creating", "a long one", False)
        assert [point.checkpoint for point in hf.recovery.points("r")] == [sound.id]
        assert hf.find("r").id == hf.latest("r").id == sound.id
        assert hf.verify().sound
        hf.prune()
        assert [cp.id for cp in hf.checkpoints("r")] == [sound.id]
