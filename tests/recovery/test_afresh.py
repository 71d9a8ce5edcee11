"""Declining a resume: the old line is set aside, nothing is lost, and the run starts over."""

from __future__ import annotations

import os
import signal

import pytest

import holdfast
from crash.children import Child
from holdfast import NotFound
from holdfast.store.sqlite import SQLiteStore
from recovery.recovery_kit import contents, damage_record, damage_section


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "store") as opened:
        yield opened


def old_line(hf):
    run = hf.run("r")
    run.checkpoint(state=1, label="mine")
    return run.checkpoint(state=2, sections={"own": [1]})


def test_the_run_begins_anew_and_the_old_line_is_kept_under_its_time(hf):
    """Proves B3: archived with a timestamp, then fresh."""
    tip = old_line(hf)
    root = hf.recovery.start_fresh("r")
    assert (root.parent, root.sections, root.seq) == (None, ("recovery",), 3)
    run = hf.run("r")
    assert run.checkpoint(state="new").sections == ("recovery", "state")
    assert [one.seq for one in hf.checkpoints("r")] == [4, 3]
    kept = hf.checkpoints("r", archived=True)
    assert [one.seq for one in kept] == [4, 3, 2, 1]
    assert kept[2].pinned
    assert kept[2].label.startswith("archived-20")
    assert hf.find(f"r:{kept[2].label}").section("own") == [1]
    assert tip.section("state") == 2
    assert hf.verify().sound


def test_it_can_be_undone(hf):
    old_line(hf)
    hf.recovery.start_fresh("r")
    hf.run("r").checkpoint(state="new")
    assert hf.undo("r").success
    assert hf.latest("r").section("state") == 2
    assert hf.undo("r").success
    assert hf.latest("r").section("state") == "new"


def test_doing_it_twice_is_the_same_as_once(hf):
    old_line(hf)
    root = hf.recovery.start_fresh("r")
    before = contents(hf)
    assert hf.recovery.start_fresh("r").id == root.id
    assert contents(hf) == before


def test_the_newest_sound_one_is_not_looked_for_on_the_old_line(hf, tmp_path):
    old_line(hf)
    root = hf.recovery.start_fresh("r")
    last = hf.run("r").checkpoint(state="new")
    damage_record(tmp_path / "store", last.id)
    assert hf.plan("r").checkpoint == root.id


def test_a_damaged_head_can_be_declined_too(hf, tmp_path):
    tip = old_line(hf)
    damage_record(tmp_path / "store", tip.id)
    hf.close()
    with holdfast.open(tmp_path / "store") as other:
        other.recovery.start_fresh("r")
        assert other.run("r").checkpoint(state="new").seq == 4


@pytest.mark.parametrize("way", ["record", "section"])
def test_with_a_damaged_head_the_newest_sound_one_is_kept_and_can_be_gone_back_to(hf, tmp_path, way):
    tip = old_line(hf)
    damage_record(tmp_path / "store", tip.id) if way == "record" else damage_section(tmp_path / "store", tip, "own")
    hf.close()
    with holdfast.open(tmp_path / "store") as other:
        assert "kept as mine" in other.recovery.start_fresh("r").reason
        assert other.find("r:mine").pinned
        assert other.undo("r").success
        assert other.latest("r").section("state") == 1


def test_a_run_that_is_not_there_is_said(hf):
    with pytest.raises(NotFound):
        hf.recovery.start_fresh("nobody")


@pytest.mark.parametrize("call", ["mark", "write", "mark_many"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_in_the_middle_doing_it_again_ends_it(hf, tmp_path, call, when):
    old_line(hf)

    def work(report):
        done = getattr(SQLiteStore, call)

        def deadly(*args, **named):
            if when == "after":
                done(*args, **named)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(SQLiteStore, call, deadly)
        with holdfast.open(tmp_path / "store") as child:
            child.recovery.start_fresh("r")

    assert Child(work).join().signal == signal.SIGKILL
    with holdfast.open(tmp_path / "store") as other:
        root = other.recovery.start_fresh("r")
        assert root.parent is None
        assert [one.seq for one in other.checkpoints("r")] == [root.seq]
        assert [one.section("state") for one in other.checkpoints("r", archived=True)[1:]] == [2, 1]
        assert other.verify().sound


def test_what_was_spent_stays_spent_and_undo_knows_all_of_it(hf):
    """Proves E8: a limit is one of the run, however often it begins again."""
    with hf.run("r") as run:
        run.budget.limit(tokens=100)
        run.budget.spend(tokens=30, once="a")
    root = hf.recovery.start_fresh("r")
    assert hf.recovery.start_fresh("r").id == root.id
    with hf.run("r") as run:
        run.budget.limit(tokens=100)
        run.budget.spend(tokens=20, once="a")
        assert run.budget.left("tokens") == 50
    assert hf.undo("r").success
    assert hf.find("r").section("budget").spending["tokens"].used == 50


@pytest.mark.parametrize("way", ["record", "section"])
def test_what_was_spent_stays_spent_where_the_newest_checkpoint_is_damaged(hf, tmp_path, way):
    """Proves E8: as far as anything sound tells it."""
    with hf.run("r") as run:
        run.budget.limit(tokens=100)
        run.budget.spend(tokens=40)
        run.checkpoint(state=1)
        tip = run.checkpoint(state=2)
    tip = hf.latest("r")
    damage_record(tmp_path / "store", tip.id) if way == "record" else damage_section(tmp_path / "store", tip, "budget")
    hf.recovery.start_fresh("r")
    with hf.run("r") as run:
        assert (run.budget.used("tokens"), run.budget.limit_of("tokens")) == (40, 100)
