"""Forks: a new run from any checkpoint, whole by itself, with its parentage kept."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import Holdfast, NotFound, UsageError
from holdfast.store.keys import seal_store
from holdfast.store.memory import MemoryStore
from holdfast.store.open import open_store
from recovery.recovery_kit import contents, damage_section, tree


@pytest.fixture(params=["sqlite", "memory", "file", "sealed"])
def hf(request, tmp_path):
    kinds = {
        "sqlite": lambda: open_store(tmp_path / "store"),
        "memory": MemoryStore,
        "sealed": lambda: seal_store(open_store(tmp_path / "store"), "ab" * 32),
        "file": lambda: open_store(f"file://{tmp_path / 'files'}"),
    }
    with Holdfast(kinds[request.param]()) as opened:
        yield opened


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("a\n" * 1000)
    return root


def test_a_fork_has_the_origins_state_and_files_and_a_line_of_its_own(hf, project):
    """Proves X5."""
    run = hf.run("origin", workspace=project)
    first = run.checkpoint(state={"n": 1, "text": "x" * 5000}, phase="plan")
    run.checkpoint(state={"n": 2})
    fork = hf.fork(first.id, "fork")
    assert (fork.run, fork.seq, fork.parent) == ("fork", 1, first.id)
    assert fork.section("state") == first.section("state")
    assert fork.read("a.txt") == first.read("a.txt")
    assert fork.summary.phase == "plan"
    went_on = hf.run("fork").checkpoint(state={"n": 7})
    assert went_on.parent == fork.id
    assert hf.latest("origin").section("state") == {"n": 2}
    assert hf.verify().sound


def test_a_fork_outlives_its_origin(hf, project):
    """Proves X5: deleting and sweeping the origin takes nothing away from it, and verification stays sound."""
    run = hf.run("origin", workspace=project)
    first = run.checkpoint(state={"text": "x" * 50_000, "items": list(range(5000))})
    second = run.checkpoint(state=2)
    fork = hf.fork(first.id, "fork")
    state, content = first.section("state"), first.read("a.txt")
    hf.delete(first.id, second.id)
    assert hf.verify().sound
    hf.delete_run("origin")
    assert hf.verify().sound
    again = hf.get(fork.id)
    assert again.section("state") == state
    assert again.read("a.txt") == content
    hf.run("fork").checkpoint(state=3)
    hf.prune("fork", keep=1)
    assert hf.verify().sound
    assert hf.get(fork.id).read("a.txt") == content, "the first of a fork is kept: it says where it came from"


def test_parentage_is_told_over_forks_of_forks(hf):
    """Proves X5."""
    first = hf.run("a").checkpoint(state=1)
    second = hf.fork(first.id, "b")
    hf.fork(second.id, "c")
    assert [(origin.run, origin.seq) for origin in hf.recovery.lineage("c")] == [("b", 1), ("a", 1)]
    assert hf.recovery.lineage("a") == []
    told = hf.latest("c").section("recovery")
    assert (told["kind"], told["run"], told["from"]) == ("fork", "b", second.id)
    hf.delete_run("b")
    assert [(origin.run, origin.checkpoint) for origin in hf.recovery.lineage("c")] == [(None, second.id)]


def test_a_fork_may_begin_with_edited_and_dropped_sections(hf):
    first = hf.run("a").checkpoint(state=1, sections={"own": 1, "other": 2}, workflow={"current_state": "ERROR"})
    fork = hf.fork("a", "b", sections={"own": 5, "workflow": {"current_state": "planning"}}, drop=["other"])
    assert (fork.section("state"), fork.section("own")) == (1, 5)
    assert "other" not in fork.sections
    assert fork.recovery.can_resume
    assert not first.recovery.can_resume


def test_a_fork_that_nobody_opened_is_not_taken_for_a_run_whose_process_died(hf):
    with hf.run("a") as run:
        first = run.checkpoint(state=1)
    assert first.summary.status == "running"
    fork = hf.fork(first.id, "b")
    assert fork.summary.status == "forked"
    assert hf.recovery.recover_all(str) == []
    with hf.run("b"):
        assert hf.latest("b").id == fork.id


def test_a_fork_with_an_edited_log_counts_its_steps(hf):
    with hf.run("a") as run:
        for number in range(3):
            run.step(f"s{number}", int, number)
    log = hf.latest("a").log("steps")
    fork = hf.fork("a", "b", sections={"steps": log[:1]})
    assert fork.summary.steps == 1
    with hf.run("b") as run:
        done = []
        assert [run.step(f"s{number}", done.append, number) for number in range(3)] == [0, None, None]
        assert done == [1, 2]


def test_calls_and_notes_are_left_out_or_replaced_as_a_whole(hf):
    with hf.run("origin") as run:
        run.step("a", int)
        run.host.note("noted", "something")
        origin = run.checkpoint()
    whole = hf.fork(origin.id, "whole")
    assert ([line["step"] for line in whole.calls], whole.notes[-1]["what"]) == (["a"], "something")
    without = hf.fork(origin.id, "without", drop=["steps", "journal"])
    assert (without.calls, without.notes, without.summary.steps) == ([], [], 0)
    told = [{"at": datetime(2030, 1, 1, tzinfo=UTC), "kind": "told", "what": "by hand"}]
    assert hf.fork(origin.id, "again", sections={"journal": told}).notes == told
    with pytest.raises(UsageError, match="list"):
        hf.fork(origin.id, "odd", sections={"steps": 5})
    assert not hf.has("odd")


def test_a_fork_of_a_recovered_run_does_not_undo_into_the_other_run(hf):
    run = hf.run("a")
    first = run.checkpoint(state=1)
    run.checkpoint(state=2)
    hf.recover(first.id)
    hf.fork("a", "b")
    with pytest.raises(UsageError, match="nothing to undo"):
        hf.undo("b")


def test_names_that_do_not_fit_are_refused_and_nothing_is_stored(hf):
    hf.run("a").checkpoint(state=1)
    before = contents(hf)
    with pytest.raises(UsageError, match="already"):
        hf.fork("a", "a")
    with pytest.raises(NotFound):
        hf.fork("nobody", "b")
    with pytest.raises(UsageError, match="files"):
        hf.fork("a", "b", sections={"workspace": 1})
    assert contents(hf) == before


def test_a_fork_of_damage_is_refused_and_leaves_no_run(tmp_path):
    with holdfast.open(tmp_path / "store") as hf:
        first = hf.run("a").checkpoint(state={"text": "x" * 500})
        damage_section(tmp_path / "store", first, "state")
        with pytest.raises(holdfast.IntegrityError):
            hf.fork(first.id, "b")
        assert not hf.has("b")


def test_a_large_workspace_is_forked_in_bounded_memory(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    for number in range(60):
        (project / f"{number}.bin").write_bytes(number.to_bytes(2) + bytes(range(256)) * 4000)
    with holdfast.open(tmp_path / "store", compression="none") as hf:
        hf.run("a", workspace=project).checkpoint()
        tracemalloc.start()
        hf.fork("a", "b")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 30_000_000, f"{peak:,} bytes at once for 61 MB of files"
        hf.delete_run("a")
        assert hf.verify().sound
        assert hf.recover("b", into=tmp_path / "out").success or hf.latest("b").read("7.bin")
        assert tree(project)
