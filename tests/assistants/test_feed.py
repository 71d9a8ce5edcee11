"""Following a store: what other processes commit, by hf.follow and by `holdfast events -f`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

SCRIPT = Path(sys.executable).parent / "holdfast"
CHILD = """
import holdfast
with holdfast.open() as store, store.run("work") as run:
    for number in range(5):
        run.step(f"step-{number}", lambda: number)
    run.complete()
"""


def test_what_another_process_commits_is_followed(project):
    with holdfast.open() as store:
        feed = store.follow(after="end", wait_s=30)
        child = subprocess.Popen([sys.executable, "-c", CHILD])
        items = []
        for item in feed:
            items.append(item)
            if item.record is None and item.checkpoint.envelope.summary.status == "completed":
                break
        assert child.wait() == 0
        assert {item.run for item in items} == {"work"}
        numbers = [item.number for item in items if item.record is not None]
        assert numbers == list(range(1, numbers[-1] + 1))
        cursor = feed.cursor
        store.run("later").checkpoint()
        assert [item.run for item in store.follow(after=cursor, wait_s=0)] == ["later"]


def test_events_follow_a_run_of_another_process_to_its_end(project):
    with holdfast.open() as store:
        store.run("work").log("x").append(1)
    follower = subprocess.Popen([SCRIPT, "events", "work", "-f", "--json"], stdout=subprocess.PIPE, text=True)
    subprocess.run([sys.executable, "-c", CHILD], check=True)
    out, _ = follower.communicate(timeout=60)
    told = [json.loads(line) for line in out.splitlines()]
    assert [one["what"] for one in told if one["kind"] == "step done"] == [f"step-{number}" for number in range(5)]


def test_damage_is_raised_and_not_passed_over(project):
    with holdfast.open() as store:
        run = store.run("r")
        run.log("x").extend([1, 2, 3])
        from contextlib import closing  # noqa: PLC0415

        import apsw  # noqa: PLC0415

        with closing(apsw.Connection(str(store.store.medium.path))) as connection:
            connection.execute("UPDATE record SET value = x'00' WHERE rowid = (SELECT max(rowid) FROM record)")
        feed = store.follow("r", wait_s=0)
        with pytest.raises(holdfast.IntegrityError):
            list(feed)
