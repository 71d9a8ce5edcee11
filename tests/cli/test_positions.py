"""Positions on the command line: RUN#812 wherever a checkpoint is named, and lists that say the numbers."""

from __future__ import annotations

import pytest

import holdfast


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
    assert hf("resume", places["two"], "--yes").code == 0
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
