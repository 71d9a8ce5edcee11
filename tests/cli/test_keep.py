"""Saving and restoring: checkpoint, restore, label, pin, mark, delete, prune."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast.store.open import open_store


def seqs(hf, run="issue-42", *words):
    return [one["seq"] for one in hf("log", run, "--json", *words).json["checkpoints"]]


def test_checkpoint_takes_state_from_a_file_and_from_a_pipe(hf, project):
    (project / "state.json").write_text('{"step": 1}')
    done = hf("checkpoint", "r", "--state", "state.json", "--label", "first", "--reason", "begin", "--pin")
    assert done.code == 0
    assert " r @1, " in done.out
    assert hf("show", "r", "state", "--json").json["sections"]["state"] == {"step": 1}
    taken = hf("checkpoint", "r", "--state", "-", "--json", stdin=b'{"step": 2}').json
    assert (taken["seq"], taken["trigger"]) == (2, "manual")
    first = hf("show", "first", "--json").json
    assert (first["pinned"], first["reason"], first["label"]) == (True, "begin", "first")


def test_checkpoint_takes_other_sections_and_the_workspace(hf, project):
    (project / "notes.json").write_text('["a"]')
    (project / "a.txt").write_text("a")
    assert (
        hf("checkpoint", "r", "--section", "notes=notes.json", "--workspace", "--trigger", "phase_complete").code == 0
    )
    shown = hf("show", "r", "--json").json
    assert set(shown["sections"]) == {"notes", "workspace"}
    assert shown["trigger"] == "phase_complete"
    assert hf("cat", "r:a.txt").out == "a"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--state", "none.json"], 3, "none.json"),
        (["--state", "bad.json"], 2, "is not valid JSON"),
        (["--section", "x"], 2, "NAME=FILE"),
        (["--state", "-", "--section", "y=-"], 2, "one section only"),
        (["--trigger", "nonsense"], 2, "choose from"),
        (["--workspace", "none"], 2, "none"),
    ],
)
def test_checkpoint_says_what_is_wrong_with_its_input(hf, project, words, code, said):
    (project / "bad.json").write_text("{")
    done = hf("checkpoint", "r", *words)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert hf("checkpoint", "no/run").code == 2


def test_secrets_are_kept_out_and_it_is_said(hf, project):
    (project / "state.json").write_text(json.dumps({"api_key": "sk-" + "a1" * 24}))
    assert "kept out" in hf("checkpoint", "r", "--state", "state.json").err
    assert "kept out" in hf("show", "r").out


def test_checkpoint_says_when_checkpointing_is_disabled(hf, project):
    (project / "holdfast.yaml").write_text("enabled: false\n")
    done = hf("checkpoint", "r")
    assert done.code == 2
    assert "disabled" in done.err


def test_restore_shows_its_plan_asks_and_does_it(hf, story):
    """Nothing destructive without showing the plan and asking; proves X4 as a person sees it."""
    done = hf("restore", "issue-42@1", stdin=b"y\n", terminal=True)
    assert done.code == 0
    assert "the run changed 1 file since: restored\n  ~ 'a.txt'" in done.out
    assert "[y/N]" in done.err
    assert (story / "a.txt").read_text() == "one\n"
    assert seqs(hf)[0] > 3, "the present tree was saved first"


def test_restore_does_nothing_without_a_yes(hf, story):
    for done in (
        hf("restore", "issue-42@1"),
        hf("restore", "issue-42@1", stdin=b"n\n", terminal=True),
        hf("restore", "issue-42@1", stdin=b"", terminal=True),
        hf("restore", "issue-42@1", "--json"),
    ):
        assert done.code == 12
        assert (story / "a.txt").read_text() == "three\n"
    assert "There is no terminal to ask on, so nothing is done" in hf("restore", "issue-42@1").err
    closed = hf("restore", "issue-42@1", stdin=b"", terminal=True)
    assert "The terminal was closed in the middle of a question" in closed.err
    assert seqs(hf) == [3, 2, 1]


def test_restore_dry_run_is_the_same_plan(hf, story):
    plan = hf("restore", "issue-42@1", "--dry-run", "--json").json
    assert plan["restored"] is False
    done = hf("restore", "issue-42@1", "--yes", "--json").json
    assert done["plan"] == plan["plan"]
    assert done["report"]["verified"] is True
    assert "Nothing to restore" in hf("restore", "issue-42@1").err


def test_restore_of_single_paths_from_a_folder_below(hf, story, monkeypatch):
    (story / "src" / "main.py").write_text("print(2)\n")
    monkeypatch.chdir(story / "src")
    assert hf("restore", "issue-42@1", "main.py", "--yes").code == 0
    assert (story / "src" / "main.py").read_text() == "print(1)\n"
    assert (story / "a.txt").read_text() == "three\n"
    assert hf("restore", "issue-42@1", "../../outside", "--yes").code == 2


def test_restore_into_another_directory(hf, story, tmp_path):
    assert hf("restore", "issue-42@1", "--into", tmp_path / "new", "--yes").code == 0
    assert (tmp_path / "new" / "a.txt").read_text() == "one\n"
    assert (story / "a.txt").read_text() == "three\n"


def test_restore_asks_about_conflicts_and_refuses_unasked(hf, story):
    """Proves C15 as a person sees it: files changed by others are reconciled, not overwritten."""
    (story / "a.txt").write_text("mine\n")
    refused = hf("restore", "issue-42@1", "--yes")
    assert refused.code == 4
    assert "! 'a.txt'" in refused.out
    assert "--take, --keep, --both or --merge decides" in refused.err
    assert (story / "a.txt").read_text() == "mine\n"
    asked = hf("restore", "issue-42@1", stdin=b"what\nboth\ny\n", terminal=True)
    assert asked.code == 0
    assert (story / "a.txt").read_text() == "mine\n"
    assert (story / "a.txt.checkpoint").read_text() == "one\n"
    assert hf("restore", "issue-42@1", "--take", "--yes").code == 0
    assert (story / "a.txt").read_text() == "one\n"
    assert hf("restore", "issue-42@1", "--take", "--keep").code == 2


def test_marks_change_and_come_back(hf, story):
    assert hf("label", "issue-42@1", "start").code == 0
    assert hf("show", "start", "--json").json["seq"] == 1
    assert hf("label", "start", "").code == 0
    assert hf("show", "issue-42@1", "--json").json["label"] is None
    assert hf("pin", "issue-42@1", "--json").json["pinned"] is True
    assert hf("pin", "issue-42@1", "--off", "--json").json["pinned"] is False
    assert hf("mark", "issue-42@1", "archived", "--json").json["status"] == "archived"
    assert seqs(hf) == [3, 2]
    assert seqs(hf, "issue-42", "--archived") == [3, 2, 1]
    assert hf("mark", "issue-42@1", "shiny").code == 2


def test_delete_shows_asks_and_deletes(hf, story):
    assert hf("delete", "issue-42@1").code == 12
    assert hf("delete", "issue-42@1", "--dry-run", "--json").json["deleted"] is False
    assert seqs(hf) == [3, 2, 1]
    done = hf("delete", "issue-42@1", stdin=b"y\n", terminal=True)
    assert done.code == 0
    assert seqs(hf) == [3, 2]
    assert hf("delete", "issue-42@1", "--yes").code == 3


def test_delete_takes_a_run_only_by_name(hf, story):
    done = hf("delete", "issue-42", "--yes")
    assert done.code == 2
    assert "`--run issue-42` deletes all of it" in done.err
    assert hf("delete", "--yes").code == 2
    assert hf("delete", "--run", "issue-43", "--yes").code == 3
    assert hf("delete", "--run", "issue-42", "--yes").code == 0
    assert hf("ls", "--json").json["runs"] == []


def test_a_run_under_way_is_not_deleted(hf, story):
    store = holdfast.open()
    with store.run("issue-42"):
        assert hf("delete", "--run", "issue-42", "--yes").code == 4
    store.close()
    assert hf("delete", "--run", "issue-42", "--yes").code == 0


def test_prune_shows_reasons_asks_and_does_exactly_that(hf, project):
    store = holdfast.open()
    run = store.run("r")
    for i in range(6):
        run.checkpoint(reason=f"c{i}")
    store.close()
    plan = hf("prune", "r", "--keep", "2", "--dry-run")
    assert plan.code == 0
    assert "beyond the newest" in plan.out
    assert len(seqs(hf, "r")) == 6
    assert hf("prune", "r", "--keep", "2").code == 12
    done = hf("prune", "r", "--keep", "2", "--yes", "--json").json
    assert done["done"] is True
    doomed = {one["seq"] for one in done["decisions"] if one["action"] == "delete"}
    assert set(seqs(hf, "r")) == {1, 2, 3, 4, 5, 6} - doomed
    assert 6 in seqs(hf, "r")
    assert hf("verify").code == 0
    assert "Nothing to prune" in hf("prune").err


def test_prune_by_age_and_bad_input(hf, project):
    long_ago = (datetime.now(UTC) - timedelta(days=9)).timestamp()
    store = holdfast.Holdfast(open_store(), clock=lambda: long_ago)
    for _ in range(3):
        store.run("r").checkpoint()
    store.close()
    assert hf("prune", "--older-than", "10d", "--dry-run", "--json").json["counts"].get("delete", 0) == 0
    assert hf("prune", "--older-than", "8d", "--dry-run", "--json").json["counts"]["delete"] > 0
    for words in (["--keep", "-1"], ["--keep", "x"], ["--older-than", "soon"]):
        assert hf("prune", *words).code == 2
    assert hf("prune", "nobody").code == 3
