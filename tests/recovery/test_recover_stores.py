"""The same recovery over every store: back, undone, forked, declined."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.store.keys import seal_store
from holdfast.store.memory import MemoryStore
from holdfast.store.open import open_store
from postgres_server import shared_server
from recovery.recovery_kit import tree


@pytest.fixture(params=["sqlite", "memory", "file", "sealed", "postgres"])
def hf(request, tmp_path):
    url = shared_server().database() if request.param == "postgres" else ""
    kinds = {
        "sqlite": lambda: open_store(tmp_path / "store"),
        "memory": MemoryStore,
        "file": lambda: open_store(f"file://{tmp_path / 'files'}"),
        "sealed": lambda: seal_store(open_store(tmp_path / "store"), "ab" * 32),
        "postgres": lambda: open_store(url),
    }
    with Holdfast(kinds[request.param]()) as opened:
        yield opened
    if url:
        shared_server().drop(url)


def test_back_undone_forked_and_declined(hf, tmp_path):
    """Proves A12, X1, X5, B3, E4, A16."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    with hf.run("r", workspace=project) as run:
        run.step("s0", str, "first", wrote_files=True)
        first = run.checkpoint(state=1)
        (project / "a.txt").write_text("two\n")
        run.step("s1", str, "second", wrote_files=True)
        run.checkpoint(state=2)
    before, after = tree(project) | {"a.txt": (tree(project)["a.txt"][0], b"one\n")}, tree(project)
    plan = hf.plan(first.id, workspace=project)
    assert plan.rerun == ("s1",)
    assert hf.recover(plan).success
    assert (hf.latest("r").section("state"), tree(project)) == (1, before)
    assert hf.recover(plan).success
    assert hf.undo("r", workspace=project).success
    assert (hf.latest("r").section("state"), tree(project)) == (2, after)
    replay = hf.replay("r")
    assert [step.result for step in replay.steps] == ["first", "second"]
    fork = hf.fork(first.id, "fork")
    root = hf.recovery.start_fresh("r")
    assert root.parent is None
    hf.run("r").checkpoint(state="new")
    assert [one.seq for one in hf.checkpoints("r")][-1] == root.seq
    assert hf.undo("r").success
    assert hf.latest("r").section("state") == 2
    assert hf.verify().sound
    hf.delete_run("r")
    assert hf.get(fork.id).read("a.txt") == b"one\n"
    assert hf.recovery.lineage("fork")[0].checkpoint == first.id
    assert hf.verify().sound
