"""Positions on the command line: RUN#812 wherever a checkpoint is named, and lists that say the numbers."""

from __future__ import annotations

import msgspec
import pytest

import holdfast
from holdfast.cli.errors import START_PROGRAM
from holdfast.store.commit import CheckpointDraft, Commit


@pytest.fixture
def places(project):
    """A run of three steps with files; return the position where each had just ended."""
    store = holdfast.open()
    (project / "a.txt").write_text("first\n")
    with store.run("r", workspace=project) as run:
        run.checkpoint(state={"n": 1})
        for name in ("one", "two", "three"):
            run.step(name, str.upper, name)
        (project / "a.txt").write_text("second\n")
        run.checkpoint(state={"n": 2})
        run.step("four", str.upper, "four")
    found = {one.step: one.place for one in store.replay("r").steps}
    store.close()
    return found


def test_show_says_whose_state_and_files_are_shown(hf, places):
    shown = hf("show", places["two"])
    assert shown.code == 0
    assert places["two"] in shown.out
    assert "those of r@" in shown.out
    document = hf("show", places["two"], "--json").json
    assert (document["place"], document["steps"]) == (places["two"], 2)
    assert hf("show", places["two"], "state", "--json").json["sections"]["state"] == {"n": 1}


def test_replay_list_and_log_say_the_numbers(hf, places):
    assert places["two"] in hf("replay", "r", "--list").out
    assert [one["step"] for one in hf("replay", places["two"], "--json").json["steps"]] == ["one", "two"]
    number = hf("show", "r@2", "--json").json["number"]
    assert f"@2 #{number} " in hf("log", "r", "--positions").out


def test_resume_goes_back_to_a_position_and_the_plan_says_so_first(hf, places):
    """Proves X5."""
    plan = hf("resume", places["two"], "--dry-run")
    assert places["two"] in plan.out
    assert "step four" in plan.out
    assert hf("resume", places["two"], "--yes").code == START_PROGRAM
    assert [one["step"] for one in hf("replay", "r", "--json").json["steps"]] == ["one", "two"]
    refused = hf("resume", places["four"], "--yes")
    assert (refused.code, "left" in refused.err) == (3, True)


def test_fork_and_diff_take_positions_of_any_runs(hf, places):
    """Proves X5."""
    forked = hf("fork", places["two"], "other", "--no-files", "--json").json
    assert (forked["origin_place"], forked["steps"]) == (places["two"], 2)
    told = hf("diff", places["two"], places["four"], "--json").json
    steps = next(one for one in told["state"]["sections"] if one["name"] == "steps")
    assert steps["count"] == 2
    assert "those of r@" in hf("diff", places["two"], places["four"]).err
    assert hf("diff", "other", places["four"], "--exit-code").code == 1


def test_restore_takes_the_files_of_the_capture_before_a_position(hf, places, project):
    done = hf("restore", places["two"], "--take", "--yes")
    assert done.code == 0
    assert "those of r@" in done.err
    assert (project / "a.txt").read_text() == "first\n"


@pytest.mark.parametrize("words", [["pin"], ["label"], ["delete", "--yes"], ["mark"]])
def test_what_changes_a_checkpoint_refuses_a_position_between_two(hf, places, words):
    last = {"label": ["name"], "mark": ["archived"]}.get(words[0], [])
    refused = hf(words[0], places["two"], *last, *words[1:])
    assert refused.code == 2
    assert "r@" in refused.err


def test_a_number_that_is_not_there_is_refused_with_where_the_journal_ends(hf, places):
    refused = hf("show", "r#4000")
    assert (refused.code, "after the end" in refused.err) == (3, True)


@pytest.fixture
def runs(project, hf):
    """Three runs, two of them with a key and attributes."""
    assert hf("checkpoint", "a", "--run-key", "issue/12", "--run-attribute", "issue=12", "--reason", "looked").code == 0
    assert hf("checkpoint", "b", "--run-attribute", "issue=13", "--run-attribute", "team=core").code == 0
    assert hf("checkpoint", "c", "--key", "step/1", "--attribute", "score=0.5", "--reason", "Coded").code == 0
    assert hf("checkpoint", "c", "--key", "step/2", "--attribute", "ok=true", "--trigger", "agent_complete").code == 0


def test_ls_lists_runs_by_what_they_carry(hf, runs):
    def listed(*words):
        return [one["id"] for one in hf("ls", *words, "--json").json["runs"]]

    assert listed() == ["c", "b", "a"]
    assert listed("--key", "issue/12") == ["a"]
    assert listed("--attribute", "issue=13", "--attribute", "team=core") == ["b"]
    assert listed("--attribute", 'issue="13"') == []
    assert listed("--prefix", "b") == ["b"]
    assert listed("--text", "CORE") == ["b"]
    assert listed("--since", "1h") == ["c", "b", "a"]
    assert listed("--until", "2020-01-01") == []
    assert hf("ls", "--since", "yesterday").code == 2
    assert hf("ls", "--attribute", "issue").code == 2
    assert "No run fits" in hf("ls", "--status", "completed").err
    (found,) = hf("ls", "--key", "issue/12", "--json").json["runs"]
    assert (found["key"], found["attributes"]) == ("issue/12", {"issue": 12})


def test_ls_continues_behind_a_page(hf, runs):
    first = hf("ls", "-n", "2", "--json").json
    assert [one["id"] for one in first["runs"]] == ["c", "b"]
    rest = hf("ls", "-n", "2", "--after", first["after"], "--json").json
    assert ([one["id"] for one in rest["runs"]], rest["after"]) == (["a"], None)
    assert "There are more" in hf("ls", "-n", "2").err


def test_log_lists_checkpoints_by_what_they_carry(hf, runs):
    def listed(*words):
        return [one["seq"] for one in hf("log", "c", *words, "--json").json["checkpoints"]]

    assert listed("--key", "step/1") == [1]
    assert listed("--prefix", "step/") == [2, 1]
    assert listed("--attribute", "ok=true") == [2]
    assert listed("--attribute", "score=0.5") == [1]
    assert listed("--text", "coded") == [1]
    assert listed("--trigger", "agent_complete") == [2]
    assert listed("--status", "archived") == []
    assert listed("--since", "1h", "-n", "1") == [2]


def test_a_line_that_is_not_main_is_said(hf, project):
    store = holdfast.open()
    with store.run("r") as run:
        made = run.checkpoint(state=1)
    envelope = msgspec.structs.replace(
        made.record.envelope, id="cp_" + "0" * 31 + "1", seq=1, parent=None, parent_checksum=None
    )
    store.store.write(Commit(run="r", line="helper", checkpoints=[CheckpointDraft(envelope)]))
    assert store.get(envelope.id).line == "helper"
    assert [one.line for one in store.checkpoints("r", line="helper")] == ["helper"]
    store.close()
    assert "line helper" in hf("ls").out
    assert "line helper" in hf("log", "r", "--line", "helper").out
    assert "helper" in hf("show", envelope.id).out
    assert hf("ls", "--json").json["runs"][0]["lines"] == ["helper"]
    assert hf("log", "r", "--json").json["checkpoints"][0]["line"] == "main"
