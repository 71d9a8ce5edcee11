"""Runs: resume, undo, fork, replay, repair, events, pause, cancel, approve, reject, answer, signal, budget, status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import holdfast


def damage(project, where):
    connection = apsw.Connection(str(project / ".holdfast" / "holdfast.db"))
    connection.execute(where)
    connection.close()


@pytest.fixture
def crashed(project):
    """A run whose process died after two steps, with files."""
    program = (
        "import holdfast, os, pathlib\n"
        "hf = holdfast.open()\n"
        "run = hf.run('r', workspace='.')\n"
        "run.__enter__()\n"
        "pathlib.Path('a.txt').write_text('one\\n')\n"
        "run.step('plan', lambda: {'items': 2}, wrote_files=True)\n"
        "pathlib.Path('a.txt').write_text('two\\n')\n"
        "run.step('act', lambda: 'done', wrote_files=True)\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False, cwd=project)
    return project


def test_resume_says_what_it_found_and_what_it_will_do(hf, crashed):
    """Proves A12, C12 as a person sees them."""
    plan = hf("resume", "r", "--dry-run")
    assert plan.code == 0
    assert "Found checkpoint" in plan.err
    assert "keeps 2 steps that are done" in plan.out
    done = hf("resume", "r", "--yes")
    assert done.code == 0
    assert "Recovered r" in done.out
    assert "Start the program of r again" in done.err


def test_ids_are_short_for_people_and_whole_for_programs(hf, crashed):
    shown = hf("resume", "--yes").out
    assert "Recovered " in shown
    assert "cp_" not in shown
    assert "cp_" in hf("ls", "--json").out


def test_the_dry_run_is_the_plan_that_is_carried_out(hf, crashed):
    plan = hf("resume", "r@1", "--dry-run", "--json").json
    done = hf("resume", "r@1", "--yes", "--json").json
    assert done["digest"] == plan["digest"]
    assert done["result"]["success"] is True


def test_resume_without_a_name_takes_the_run_that_moved_last(hf, crashed):
    done = hf("resume", "--yes")
    assert done.code == 0
    assert "The run that moved last is r." in done.err


def test_resume_goes_back_with_files_and_undo_goes_forward(hf, crashed):
    """Proves X1 as a person sees it: state and files together, there and back."""
    first = next(one for one in hf("log", "r", "--json").json["checkpoints"][::-1] if "workspace" in one["sections"])
    assert hf("resume", first["id"]).code == 12, "files would change, and nobody agreed"
    assert (crashed / "a.txt").read_text() == "two\n"
    done = hf("resume", first["id"], stdin=b"y\n", terminal=True)
    assert done.code == 0
    assert (crashed / "a.txt").read_text() == "one\n"
    assert hf("undo", "r").code == 12
    assert hf("undo", "r", "--dry-run").code == 0
    assert hf("undo", "r", "--yes").code == 0
    assert (crashed / "a.txt").read_text() == "two\n"


def test_resume_of_files_that_others_changed_asks(hf, crashed):
    first = next(one for one in hf("log", "r", "--json").json["checkpoints"][::-1] if "workspace" in one["sections"])
    (crashed / "a.txt").write_text("mine\n")
    refused = hf("resume", first["id"], "--yes")
    assert refused.code in (8, 12)
    assert (crashed / "a.txt").read_text() == "mine\n"
    assert hf("resume", first["id"], "--take", "--yes").code == 0
    assert (crashed / "a.txt").read_text() == "one\n"


def test_resume_asks_a_person_about_conflicts_and_names_the_options_elsewhere(hf, crashed):
    (crashed / "a.txt").write_text("mine\n")
    unasked = hf("resume", "r@1")
    assert unasked.code == 8
    assert "Try --keep, --take, --both or --merge" in unasked.err
    assert hf("resume", "r@1", stdin=b"refuse\n", terminal=True).code == 12
    assert (crashed / "a.txt").read_text() == "mine\n"
    assert hf("resume", "r@1", stdin=b"take\nresume\n", terminal=True).code == 0
    assert (crashed / "a.txt").read_text() == "one\n"


def test_a_dry_run_of_resume_sets_nothing_aside_and_lets_nothing_go_on(hf, crashed):
    before = hf("log", "r", "--archived", "--json").json
    assert hf("resume", "r", "--afresh", "--dry-run", "--yes").code == 0
    assert hf("log", "r", "--archived", "--json").json == before
    assert hf("pause", "r").code == 0
    with holdfast.open() as store, pytest.raises(holdfast.RunWaiting), store.run("r", waiting="leave") as run:
        run.step("next", str.upper, "a")
    assert hf("resume", "r", "--dry-run", "--json").json["unpaused"] is False
    with holdfast.open() as store, pytest.raises(holdfast.RunWaiting), store.run("r", waiting="leave") as run:
        run.step("next", str.upper, "a")
    assert hf("resume", "r", "--json").json["unpaused"] is True
    with holdfast.open() as store, store.run("r", waiting="leave") as run:
        assert run.step("next", str.upper, "a") == "A"


def test_resume_lets_a_person_look_before_going_on(hf, crashed):
    """Proves C15 as a person sees it: what changed is shown, and the safe choice is to stop."""
    (crashed / "a.txt").write_text("mine\n")
    unasked = hf("resume", "r")
    assert unasked.code == 12
    assert "There is no terminal to ask on, so the safe choice is taken: do nothing." in unasked.err
    looked = hf("resume", "r", "--no-color", stdin=b"diff\nstop\n", terminal=True)
    assert looked.code == 12
    assert "+mine" in looked.out
    assert hf("resume", "r", stdin=b"resume\n", terminal=True).code == 0
    assert (crashed / "a.txt").read_text() == "mine\n", "what only others changed is kept"


def test_resume_can_start_afresh_and_be_undone(hf, crashed):
    before = hf("show", "r", "--json").json["steps"]
    assert hf("resume", "r", "--afresh").code == 12
    (crashed / "a.txt").write_text("mine\n")
    assert hf("resume", "r", stdin=b"afresh\n", terminal=True).code == 0
    assert hf("show", "r", "--json").json["steps"] == 0
    assert hf("undo", "r", "--yes").code == 0
    assert hf("show", "r", "--json").json["steps"] == before
    assert hf("resume", "r", "--afresh", "--yes", "--json").json["afresh"] is True


def test_a_run_that_nobody_moves_is_open(hf, crashed):
    assert hf("ls", "--json").json["runs"][0]["moving"] is False
    assert hf("ls").out.splitlines()[1].split()[1] == "open"
    assert "no process moves it now" in hf("status", "r").out
    store = holdfast.open()
    with store.run("r"):
        assert hf("ls").out.splitlines()[1].split()[1] == "running"
    store.close()


def test_resume_of_a_complete_run_says_so(hf, project):
    store = holdfast.open()
    with store.run("r") as run:
        run.complete()
    store.close()
    done = hf("resume", "r")
    assert done.code == 0
    assert "nothing to resume" in done.out
    assert hf("resume").code == 3
    assert hf("resume", "r", "--afresh", "--yes").code == 0


def test_resume_of_a_blocked_run_says_what_to_type(hf, project):
    store = holdfast.open()
    store.run("r").checkpoint(workflow={"current_state": "ERROR", "previous_state": "BUILD"})
    store.close()
    done = hf("resume", "r")
    assert done.code == 8
    assert "hf resume r" in done.err
    planned = hf("resume", "r", "--dry-run", "--json")
    assert planned.code == 8
    assert planned.json["plan"]["blockers"]
    assert hf("resume", "r", "--reset-to", "BUILD", "--yes").code == 0
    assert hf("show", "r", "workflow", "--json").json["sections"]["workflow"]["current_state"] == "BUILD"


def test_resume_of_a_paused_run_lets_it_go_on(hf, project):
    """Proves A16 as a person sees it."""
    store = holdfast.open()
    store.run("r").checkpoint()
    hf("pause", "r", "--note", "lunch")
    with pytest.raises(holdfast.RunWaiting), store.run("r", waiting="leave") as run:
        run.step("one", lambda: 1)
    done = hf("resume", "r")
    assert "may go on now" in done.out
    with store.run("r", waiting="leave") as run:
        assert run.step("one", lambda: 1) == 1
    store.close()


def test_resume_of_a_run_that_is_under_way_leaves_it_alone(hf, project):
    store = holdfast.open()
    with store.run("r") as run:
        run.checkpoint()
        done = hf("resume", "r")
    store.close()
    assert done.code == 0
    assert "is under way" in done.out


def test_resume_past_damage_says_what_is_lost(hf, crashed):
    """Proves X3 as a person sees it."""
    damage(
        crashed, "UPDATE checkpoint SET envelope = x'00' WHERE seq = (SELECT max(seq) FROM checkpoint WHERE run = 'r')"
    )
    done = hf("resume", "r", "--dry-run")
    assert done.code == 0
    assert "damaged:" in done.out
    assert hf("resume", "nobody").code == 3


def test_fork_begins_a_new_run(hf, story, tmp_path):
    """Proves X5 as a person sees it."""
    done = hf("fork", "issue-42@2", "other", "--label", "tried")
    assert done.code == 0
    assert "other begins at issue-42@2" in done.out
    assert hf("show", "other", "state", "--json").json["sections"]["state"] == {"step": 2}
    (story / "s.json").write_text('{"step": 20}')
    assert hf("fork", "issue-42@2", "--state", "s.json", "--json").json["run"] == "issue-42-fork"
    assert hf("fork", "issue-42@2", "--json").json["run"] == "issue-42-fork-2"
    assert hf("show", "issue-42-fork", "state").out == '{\n  "step": 20\n}\n'
    assert hf("fork", "issue-42@2", "other").code == 2
    assert hf("fork", "issue-42@2", "with-files", "--into", tmp_path / "new").code == 0
    assert (tmp_path / "new" / "a.txt").read_text() == "two\n"
    log = hf("log", "issue-42").out
    assert "-> 4 forks: " in log
    assert "forked from" in hf("log", "other").out


def test_replay_lists_every_step(hf, crashed):
    """Proves A16 as a person sees it."""
    done = hf("replay", "r")
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [["plan", "done"], ["act", "done"]]
    steps = hf("replay", "r", "--json").json["steps"]
    assert [one["result"] for one in steps] == [{"items": 2}, "done"]
    assert hf("replay", "nobody").code == 3


def test_replay_steps_forwards_and_backwards(hf, crashed):
    typed = b"next\nn\nn\nback\nstate\nfiles\ncat a.txt\nto act\nto 0\nto 99\nnonsense\nfork tried\nq\n"
    done = hf("replay", "r", "--no-color", stdin=typed, terminal=True)
    assert done.code == 0
    said = done.out
    ends = ("The record ends here.", "Before the first step.", "tried begins at step 0")
    for words in ("1. plan done", "2. act done", '"items": 2', "a.txt", *ends):
        assert words in said, words
    assert hf("replay", "r", stdin=b"n\n", terminal=True).code == 0, "a closed terminal ends it"


def test_replay_takes_names_as_they_are_typed(hf, project):
    (project / "README.md").write_text("Read me\n")
    with holdfast.open() as store, store.run("r", workspace=project) as run:
        run.step("Plan", str.upper, "a", wrote_files=True)
        run.complete()
    done = hf("replay", "r", "--no-color", stdin=b"N\ncat README.md\nto Plan\nfork Tried\nQ\n", terminal=True)
    assert done.code == 0
    assert "Read me" in done.out
    assert "there is no" not in done.out
    assert "Tried begins at step 1" in done.out


def test_undo_of_a_resume_without_files_leaves_them_alone(hf, story):
    (story / "a.txt").write_text("by hand\n")
    assert hf("resume", "issue-42@1", "--no-files", "--yes").code == 0
    assert hf("undo", "issue-42", "--yes").code == 0
    assert (story / "a.txt").read_text() == "by hand\n"
    assert hf("show", "issue-42", "state", "--json").json["sections"]["state"] == {"step": 3}


def test_repair_marks_damage_and_steps_back(hf, story):
    assert hf("repair").out == "Sound: nothing to repair.\n"
    damage(story, "UPDATE chunk SET data = x'00' WHERE n = (SELECT max(n) FROM chunk)")
    assert hf("verify").code == 5
    plan = hf("repair", "--dry-run")
    assert plan.code == 5
    assert hf("repair").code == 12
    done = hf("repair", "--yes", "--json")
    assert done.code == 0
    assert done.json["done"] is True
    assert hf("resume", "issue-42", "--yes", "--no-files").code == 0


def test_repair_leaves_a_sound_head(hf, story):
    damage(story, "UPDATE checkpoint SET envelope = x'00' WHERE seq = 3 AND run = 'issue-42'")
    done = hf("repair", "--yes", "--json").json
    assert [one["run"] for one in done["set_back"]] == ["issue-42"]
    head = hf("show", "issue-42", "--json").json
    assert head["trigger"] == "recovery"
    assert hf("show", "issue-42", "state", "--json").json["sections"]["state"] == {"step": 2}


def test_repair_says_what_it_leaves(hf, story):
    damage(story, "UPDATE checkpoint SET envelope = x'00' WHERE seq = 1 AND run = 'issue-42'")
    done = hf("repair", "--yes")
    assert done.code == 5, "a record that cannot be read cannot be marked either"
    assert "left    checkpoint: " in done.out
    damage(story, "UPDATE chunk SET data = x'00' WHERE n = (SELECT max(n) FROM chunk)")
    assert hf("repair", "--yes").code == 0
    again = hf("repair", "--json").json
    assert again["marked"] == []
    assert again["set_back"] == []


def test_events_tell_what_happened(hf, crashed):
    """Proves B9 as a person sees it."""
    done = hf("events", "r")
    assert done.code == 0
    assert "step done" in done.out
    assert "plan" in done.out
    assert len(hf("events", "r", "-n", "1").out.splitlines()) == 1
    assert hf("events", "r", "--json").json["events"]
    assert hf("events", "r", "-n", "-1").code == 2


def test_events_are_followed_until_the_run_ends(project):
    store = holdfast.open()
    with store.run("r") as run:
        run.step("one", lambda: 1)
        line = [Path(sys.executable).parent / "hf", "events", "r", "-f", "--json"]
        child = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        assert json.loads(child.stdout.readline())["what"] == "one"
        run.step("two", lambda: 2)
        assert json.loads(child.stdout.readline())["what"] == "two"
        run.complete()
    store.close()
    rest, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert all(json.loads(one) for one in rest.splitlines())


def waiting_run(question="Deploy?"):
    store = holdfast.open()
    with pytest.raises(holdfast.RunWaiting), store.run("r", waiting="leave") as run:
        run.approve(question)
    return store


def test_a_run_that_waits_is_approved_or_rejected(hf, project):
    """Proves E6 as a person sees it."""
    store = waiting_run()
    status = hf("status", "r")
    assert "waits for" in status.out
    assert "Deploy?" in status.out
    assert hf("status", "r", "--json").json["waits"][0]["options"] == ["approve", "reject"]
    assert hf("answer", "maybe", "r").code == 2
    assert hf("approve", "r", "--note", "fine").out == "Deploy?: approve\n"
    with store.run("r", waiting="leave") as run:
        reply = run.approve("Deploy?")
    assert (reply.choice, reply.note) == ("approve", "fine")
    assert hf("reject", "r").code == 2
    store.close()


def test_a_run_is_cancelled_after_asking(hf, project):
    store = waiting_run()
    assert hf("cancel", "r").code == 12
    assert hf("cancel", "r", "--yes", "--note", "no").code == 0
    with pytest.raises(holdfast.RunCancelled), store.run("r", waiting="leave") as run:
        run.approve("Deploy?")
    store.close()
    assert hf("pause", "r").code != 0
    assert hf("cancel", "nobody", "--yes").code == 3


def test_signals_and_budgets_reach_the_run(hf, project):
    store = holdfast.open()
    with pytest.raises(holdfast.RunWaiting), store.run("r", waiting="leave") as run:
        run.wait_signal("go")
    assert hf("signal", "r", "go", "--value", '{"n": 1}').code == 0
    assert hf("signal", "r", "go", "--value", "{").code == 2
    with store.run("r", waiting="leave") as run:
        assert run.wait_signal("go").value == {"n": 1}
    store.close()
    assert hf("budget", "r", "tokens=100").code == 2, "it does not wait for one"
    for text in ("tokens", "tokens=x", "=1", "tokens=-1", "tokens=nan"):
        assert hf("budget", "r", text).code == 2


def test_a_run_that_used_up_its_budget_goes_on_when_it_is_raised(hf, project):
    """Proves E6 as a person sees it."""
    store = holdfast.open()

    def spend():
        with store.run("r", waiting="leave") as run:
            run.budget.limit(tokens=100)
            run.budget.spend(tokens=120, once="first")

    with pytest.raises(holdfast.RunWaiting):
        spend()
    assert "budget" in hf("status", "r").out
    raised = hf("budget", "r", "tokens=1_000", "--note", "worth it", "--json").json
    assert raised["raised"] == {"tokens": 1000}
    spend()
    store.close()


def test_answer_gives_any_of_the_options(hf, project):
    store = holdfast.open()
    with pytest.raises(holdfast.RunWaiting), store.run("r", waiting="leave") as run:
        run.approve("Which?", options=("red", "blue"))
    assert hf("approve", "r").code == 2
    done = hf("answer", "blue", "r", "--value", "[1]", "--json").json
    assert (done["question"], done["choice"]) == ("Which?", "blue")
    with store.run("r", waiting="leave") as run:
        reply = run.approve("Which?", options=("red", "blue"))
    assert (reply.choice, reply.value) == ("blue", [1])
    store.close()
