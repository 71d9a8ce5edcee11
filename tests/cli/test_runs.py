"""Runs: resume, undo, fork, replay, repair, events, pause, cancel, approve, reject, answer, signal, budget, status."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.cli.amounts import parse_amount
from holdfast.recovery.find import _Search
from holdfast.recovery.plan import RecoveryPlan


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


def first_step(hf):
    """The checkpoint of the first step: the run's own first one lies before it."""
    return next(one for one in hf("log", "r", "--json").json["checkpoints"][::-1] if one["trigger"] == "step_complete")


def test_resume_says_what_it_found_and_what_it_will_do(hf, crashed):
    """Proves A12, C12 as a person sees them."""
    plan = hf("resume", "r", "--dry-run")
    assert plan.code == 0
    assert "Found checkpoint" in plan.err
    assert "keeps 2 steps that are done" in plan.out
    done = hf("resume", "r", "--yes")
    assert done.code == 14
    assert "Start the program of r again" in done.err


def test_nothing_is_called_recovered_that_was_not(hf, crashed):
    """One word for resume and undo: what `resume` calls recovered can be undone, what it does not cannot."""
    stood = hf("log", "r", "-a", "--json").json
    done = hf("resume", "r", "--yes")
    assert "ecovered" not in done.out + done.err
    assert "Nothing to recover: r stands at " in done.out
    assert hf("resume", "r", "--yes", "--json").json["recovered"] is False
    assert hf("log", "r", "-a", "--json").json == stood, "nothing was written"
    undo = hf("undo", "r", "--yes")
    assert undo.code == 2
    assert "nothing to undo" in undo.err
    back = hf("resume", first_step(hf)["id"], "--yes")
    assert "Recovered r" in back.out
    undone = hf("undo", "r", "--yes", "--json").json
    assert undone["recovered"] is True


def test_ids_are_short_for_people_and_whole_for_programs(hf, crashed):
    shown = hf("resume", first_step(hf)["id"], "--yes").out
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
    assert done.code == 14
    assert "The run that moved last is r." in done.err


def test_resume_goes_back_with_files_and_undo_goes_forward(hf, crashed):
    """Proves X1 as a person sees it: state and files together, there and back."""
    first = first_step(hf)
    assert hf("resume", first["id"]).code == 12, "files would change, and nobody agreed"
    assert (crashed / "a.txt").read_text() == "two\n"
    done = hf("resume", first["id"], stdin=b"y\n", terminal=True)
    assert done.code == 14
    assert (crashed / "a.txt").read_text() == "one\n"
    assert hf("undo", "r").code == 12
    assert hf("undo", "r", "--dry-run").code == 0
    assert hf("undo", "r", "--yes").code == 0
    assert (crashed / "a.txt").read_text() == "two\n"


def test_resume_of_files_that_others_changed_asks(hf, crashed):
    first = first_step(hf)
    (crashed / "a.txt").write_text("mine\n")
    refused = hf("resume", first["id"], "--yes")
    assert refused.code in (8, 12)
    assert (crashed / "a.txt").read_text() == "mine\n"
    assert hf("resume", first["id"], "--take", "--yes").code == 14
    assert (crashed / "a.txt").read_text() == "one\n"


def test_resume_asks_a_person_about_conflicts_and_names_the_options_elsewhere(hf, crashed):
    (crashed / "a.txt").write_text("mine\n")
    unasked = hf("resume", "r@2")
    assert unasked.code == 8
    assert "Try --keep, --take, --both or --merge" in unasked.err
    assert hf("resume", "r@2", stdin=b"refuse\n", terminal=True).code == 12
    assert (crashed / "a.txt").read_text() == "mine\n"
    assert hf("resume", "r@2", stdin=b"take\nresume\n", terminal=True).code == 14
    assert (crashed / "a.txt").read_text() == "one\n"


def test_a_dry_run_of_resume_sets_nothing_aside_and_lets_nothing_go_on(hf, crashed):
    before = hf("log", "r", "--archived", "--json").json
    assert hf("resume", "r", "--fresh", "--dry-run", "--yes").code == 0
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
    looked = hf("resume", "r", "--no-color", stdin=b"diff\nstop\n", terminal=True)
    assert looked.code == 12
    assert "+mine" in looked.out
    assert hf("resume", "r", stdin=b"resume\n", terminal=True).code == 14
    assert (crashed / "a.txt").read_text() == "mine\n", "what only a person changed is kept"
    assert hf("resume", "r").code == 14, "without a terminal, too"


def test_resume_can_start_afresh_and_be_undone(hf, crashed):
    before = hf("show", "r", "--json").json["steps"]
    assert hf("resume", "r", "--fresh").code == 12
    (crashed / "a.txt").write_text("mine\n")
    assert hf("resume", "r", stdin=b"fresh\n", terminal=True).code == 0
    assert hf("show", "r", "--json").json["steps"] == 0
    assert hf("undo", "r", "--yes").code == 0
    assert hf("show", "r", "--json").json["steps"] == before
    assert hf("resume", "r", "--fresh", "--yes", "--json").json["fresh"] is True


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
    assert hf("resume", "r", "--fresh", "--yes").code == 0


def test_resume_of_a_blocked_run_says_what_to_type(hf, project):
    store = holdfast.open()
    store.run("r").checkpoint(workflow={"current_state": "ERROR", "previous_state": "BUILD"})
    store.close()
    done = hf("resume", "r")
    assert done.code == 8
    assert "holdfast resume r --reset-to BUILD" in done.err
    planned = hf("resume", "r", "--dry-run", "--json")
    assert planned.code == 8
    assert planned.json["plan"]["blockers"]
    assert hf("resume", "r", "--reset-to", "BUILD", "--yes").code == 14
    assert hf("show", "r", "workflow", "--json").json["sections"]["workflow"]["current_state"] == "BUILD"


def test_resume_of_a_paused_run_lets_it_go_on(hf, project):
    """Proves A16 as a person sees it."""
    store = holdfast.open()
    store.run("r").checkpoint()
    hf("pause", "r", "--note", "lunch")
    with pytest.raises(holdfast.RunWaiting), store.run("r", waiting="leave") as run:
        run.step("one", lambda: 1)
    done = hf("resume", "r")
    assert "may continue now" in done.out
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
    damage(crashed, "UPDATE checkpoint SET value = x'00' WHERE seq = (SELECT max(seq) FROM checkpoint WHERE run = 'r')")
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
    assert hf("resume", "issue-42@1", "--no-files", "--yes").code == 14
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
    assert hf("resume", "issue-42", "--yes", "--no-files").code == 14


def test_repair_leaves_a_sound_head(hf, story):
    damage(story, "UPDATE checkpoint SET value = x'00' WHERE seq = 3 AND run = 'issue-42'")
    done = hf("repair", "--yes", "--json").json
    assert [one["run"] for one in done["set_back"]] == ["issue-42"]
    head = hf("show", "issue-42", "--json").json
    assert head["trigger"] == "recovery"
    assert hf("show", "issue-42", "state", "--json").json["sections"]["state"] == {"step": 2}


def test_repair_says_what_it_leaves(hf, story):
    damage(story, "UPDATE checkpoint SET value = x'00' WHERE seq = 1 AND run = 'issue-42'")
    done = hf("repair", "--yes")
    assert done.code == 5, "a record that cannot be read cannot be marked either"
    assert "left    checkpoint: " in done.out
    assert "Nothing is repaired" in done.out, "it says what it did, whatever that was"
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
        line = [Path(sys.executable).parent / "holdfast", "events", "r", "-f", "--json"]
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


@pytest.mark.parametrize("kind", ["approval", "budget"])
def test_a_question_that_is_answered_is_not_missing_any_more(hf, project, kind):
    """Proves E6 as a person sees it: until somebody answers the run needs that, then it needs to be started again."""

    def live(store):
        with store.run("r", waiting="leave") as run:
            if kind == "approval":
                run.approve("Deploy?")
            run.budget.limit(tokens=100)
            run.budget.spend(tokens=120, once="first")

    with holdfast.open() as store, pytest.raises(holdfast.RunWaiting):
        live(store)

    def unmet():
        with holdfast.open() as store:
            return [one.kind for one in store.recovery.status("r").prerequisites if one.is_met is False]

    def waits_for_it():
        planned = any("it needs" in one for one in hf("resume", "r", "-n", "--json").json["plan"]["warnings"])
        return planned, "needs" in hf("show", "r").out, bool(unmet()), hf("status", "r", "--json").json["answered"]

    assert waits_for_it() == (True, True, True, False)
    done = hf("approve", "r") if kind == "approval" else hf("budget", "r", "tokens+=1_000")
    assert done.code == 0
    assert "`holdfast resume r`" in done.err
    assert waits_for_it() == (False, False, False, True)
    assert "`holdfast resume r`" in hf("status", "r").out


def test_a_run_is_cancelled_after_asking(hf, project):
    store = waiting_run()
    assert hf("cancel", "r").code == 12
    assert hf("cancel", "r", "--yes", "--note", "no").code == 0
    with pytest.raises(holdfast.RunCancelled), store.run("r", waiting="leave") as run:
        run.approve("Deploy?")
    store.close()
    assert hf("pause", "r").code != 0
    assert hf("cancel", "nobody", "--yes").code == 3


def test_a_file_that_changed_is_kept_and_the_warning_says_how_to_look_and_how_to_put_it_back(hf, project):
    (project / "f.yaml").write_text("flow: f\nphases: {a: 'echo one > a.txt', b: 'test -e go'}\n")
    assert hf("run", "f.yaml").code == 9
    assert hf("answer", "retry", "f").code == 0
    (project / "a.txt").write_text("mine\n")
    (project / "go").write_text("")
    said = hf("run", "f.yaml", "--resume").err
    assert "2 files changed since the last checkpoint: 'a.txt', 'go'" in said
    look, put_back = re.findall(r"`holdfast ([^`]+@[^`]+)`", said)
    assert (project / "a.txt").read_text() == "mine\n"
    assert "+mine" in hf(*look.split()).out
    assert hf(*put_back.split(), "--yes").code == 0
    assert (project / "a.txt").read_text() == "one\n"


def test_a_fork_that_has_not_begun_is_forked(hf, project, tmp_path):
    (project / "f.yaml").write_text("flow: f\nphases: {a: 'true'}\n")
    hf("run", "f.yaml")
    for name, options in (("plain", ()), ("with-files", ("--into", tmp_path / "new"))):
        assert hf("fork", "f@3", name, *options).code == 0
        assert hf("ls", "--status", "forked", "--json").json["runs"][0]["id"] == name
        assert "it has not begun: `holdfast resume" in hf("status", name).out
        assert hf("resume", name, "--yes").code == 0
        assert hf("ls", "--status", "forked", "--json").json["runs"] == []


def test_in_the_directory_of_a_fork_its_run_is_meant(hf, project, tmp_path, monkeypatch):
    (project / "asks.yaml").write_text("flow: asks\nphases: {a: {run: 'true', approve: Deploy?}}\n")
    assert hf("run", "asks.yaml", "--no-wait").code == 9
    assert hf("fork", "asks", "tried", "--into", tmp_path / "tried").code == 0
    monkeypatch.chdir(tmp_path / "tried")
    assert hf("run", "asks.yaml", "--no-wait", "--resume").code == 9
    assert hf("status", "--json").json["run"] == "tried"
    assert hf("show", "--json").json["run"] == "tried"
    assert hf("approve", "--json").json["run"] == "tried"
    assert hf("status", "asks", "--json").json["waits"]
    elsewhere = tmp_path / "elsewhere"
    assert hf("copy", project / ".holdfast", elsewhere, "asks").code == 0
    assert hf("--store", elsewhere, "status", "--json").json["run"] == "asks"


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
    for text in ("tokens", "tokens=x", "=1", "+=1", "tokens+=x", "tokens=-1", "tokens=nan"):
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
    assert hf("answer", "raise", "r").code == 2
    assert "`holdfast budget r tokens+=MORE`" in hf("answer", "raise", "r").err
    raised = hf("budget", "r", "tokens+=1_000", "--note", "worth it", "--json").json
    assert (raised["wait"], raised["raised"]) == ("budget:tokens:1", {"tokens": 1000})
    spend()
    store.close()


@pytest.mark.parametrize(
    ("text", "amount"), [("1,000", 1000), ("12,345,678.5", 12_345_678.5), ("10_000", 10_000), ("2.50", 2.5)]
)
def test_an_amount_may_have_its_thousands_apart(text, amount):
    assert parse_amount("cost", text) == amount


@pytest.mark.parametrize("text", ["2,50", "2,5", "1,0000", "1,00,000", ",5", "1.000,50", "0,001,", "1,5h"])
@pytest.mark.parametrize("budget", ["cost", "time"])
def test_a_decimal_comma_is_refused_and_multiplies_nothing(budget, text):
    with pytest.raises(holdfast.UsageError, match=r"a fraction has a point, as in 2\.50"):
        parse_amount(budget, text)


def test_a_budget_is_raised_by_the_name_that_a_flow_gives_it_and_an_unknown_one_is_refused(hf, project):
    """Proves E6 as a person sees it."""
    store = holdfast.open()

    def spend(run):
        run.budget.limit(tokens=100, time_s=60)
        run.budget.spend(tokens=120, once="first")

    with pytest.raises(holdfast.RunWaiting), store.run("r", waiting="leave") as run:
        spend(run)
    for text, says in (("tokns=5", "did you mean 'tokens'"), ("foo=5", "'time_s', 'tokens'"), ("time=5x", "1h30m")):
        refused = hf("budget", "r", text)
        assert (refused.code, says in refused.err) == (2, True), text
    assert len(store.control.waiting("r")) == 1
    raised = hf("budget", "r", "--add", "time=1m")
    assert raised.out == "time: raised by 1m\n"
    assert "still waits: The budget tokens is used up" in raised.err
    assert hf("budget", "r", "time_s+=30", "tokens=180").out == "time_s: raised by 30\ntokens: limit set to 180\n"
    with store.run("r", waiting="leave") as run:
        assert (run.budget.limit_of("time_s"), run.budget.limit_of("tokens")) == (150, 180)
        assert run.host.waits.open == []
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


@pytest.mark.parametrize(("word", "choice"), [("y", "approve"), ("YES", "approve"), ("no", "reject")])
def test_a_question_of_yes_and_no_is_answered_by_these_words(hf, project, word, choice):
    with holdfast.open() as store, pytest.raises(holdfast.RunWaiting), store.run("r", waiting="leave") as run:
        run.approve("Ship it?")
    assert hf("answer", word, "r", "--json").json["choice"] == choice
    with holdfast.open() as store, store.run("r", waiting="leave") as run:
        assert run.approve("Ship it?").choice == choice


@pytest.mark.parametrize(
    "words",
    [
        ("checkpoint", "_holdfast.keys"),
        ("fork", "issue-42", "_holdfast.keys"),
        ("begin", "_holdfast.keys"),
        ("resume", "_holdfast.keys", "--fresh", "-y"),
    ],
)
def test_a_name_of_the_engines_own_is_refused_and_the_store_goes_on(hf, story, words):
    refused = hf(*words)
    assert refused.code in (2, 3)
    assert "issue-42" in hf("ls").out
    assert hf("verify").code == 0


_KILLED = """
import os, signal, sys
from holdfast.cli.main import main
from holdfast.workspace.ops import FileOps

swap = FileOps.place
def die(*args, **named):
    swap(*args, **named)
    os.kill(os.getpid(), signal.SIGKILL)
FileOps.place = die
main(sys.argv[1:])
"""


def killed_in_the_swap(*words):
    """Call the command line in a process that dies when it has put the first file into its place."""
    done = subprocess.run([sys.executable, "-c", _KILLED, *words], capture_output=True, check=False, timeout=60)
    assert done.returncode == -9, done


def test_a_resume_that_was_killed_in_its_files_is_ended_by_the_same_call(hf, story):
    """Proves D9."""
    (story / "src" / "main.py").write_text("print(3)\n")
    hf("checkpoint", "issue-42", "--workspace")
    killed_in_the_swap("resume", "issue-42@1", "--take", "-y")
    shown = hf("resume", "issue-42@1", "--take", "-n")
    assert shown.code == 8
    way = f"`holdfast resume issue-42 --workspace {story}`"
    assert f"{way} finishes" in shown.out
    assert f"{way} finishes" in hf("undo", "issue-42", "-n").err
    ill = hf("doctor")
    assert ill.code == 1
    assert "a recovery of issue-42 was interrupted" in ill.out
    assert "`holdfast resume issue-42` finishes" in ill.out
    assert hf("resume", "issue-42@1", "--take", "-y").code == 14
    assert (story / "a.txt").read_text() == "one\n"
    assert (story / "src" / "main.py").read_text() == "print(1)\n"
    assert hf("doctor").code == 0
    assert hf("undo", "issue-42", "-y").code == 0
    assert (story / "a.txt").read_text() == "three\n"
    assert (story / "src" / "main.py").read_text() == "print(3)\n"


@pytest.mark.parametrize("words", [("resume", "issue-42", "-y"), ("undo", "issue-42", "-y")])
def test_a_resume_that_was_killed_in_its_files_is_ended_by_other_commands(hf, story, words):
    (story / "src" / "main.py").write_text("print(3)\n")
    hf("checkpoint", "issue-42", "--workspace")
    killed_in_the_swap("resume", "issue-42@1", "--take", "-y")
    done = hf(*words)
    assert done.code == (14 if words[0] == "resume" else 0), done
    first, then = ("one", "print(1)") if words[0] == "resume" else ("three", "print(3)")
    assert (story / "a.txt").read_text() == f"{first}\n"
    assert (story / "src" / "main.py").read_text() == f"{then}\n"
    assert hf("doctor").code == 0


@pytest.fixture
def elsewhere(project, hf, tmp_path_factory):
    """A directory that is not the project's folder, with a run of two checkpoints."""
    there = tmp_path_factory.mktemp("else where")
    for word in ("one", "two"):
        for name in ("a", "b"):
            (there / name).write_text(word)
        hf("checkpoint", "w", "--workspace", str(there))
    return there


def words_in(folder):
    return [(folder / name).read_text() if (folder / name).exists() else None for name in ("a", "b")]


def test_an_undo_goes_back_where_the_recovery_was_and_not_into_the_projects_folder(hf, elsewhere, project):
    """Proves D9 for a run whose files are elsewhere."""
    assert hf("resume", "w@1", "--workspace", str(elsewhere), "-y").code == 14
    assert words_in(elsewhere) == ["one", "one"]
    for word in ("two", "one"):
        assert hf("undo", "w", "-y").code == 0
        assert words_in(elsewhere) == [word, word]
    assert words_in(project) == [None, None]


@pytest.mark.parametrize("command", ["resume", "undo"])
def test_a_resume_that_was_killed_elsewhere_is_ended_there(hf, elsewhere, project, command):
    """Proves D9 for a run whose files are elsewhere."""
    killed_in_the_swap("resume", "w@1", "--workspace", str(elsewhere), "-y")
    way = f"`holdfast resume w --workspace '{elsewhere}'` finishes"
    assert way in hf("doctor").out
    assert way in hf("undo", "w", "-n").err
    words = ["undo", "w", "-y"] if command == "undo" else ["resume", "w", "--workspace", str(elsewhere), "-y"]
    assert hf(*words).code == (0 if command == "undo" else 14)
    assert words_in(elsewhere) == (["two", "two"] if command == "undo" else ["one", "one"])
    assert words_in(project) == [None, None]
    assert hf("doctor").code == 0


def test_a_recovery_that_was_killed_elsewhere_is_ended_there_before_its_run_is_put_back_here(hf, elsewhere):
    killed_in_the_swap("resume", "w@1", "--workspace", str(elsewhere), "-y")
    assert hf("resume", "w", "-y").code == 14
    assert words_in(elsewhere) == ["one", "one"]
    assert hf("doctor").code == 0


@pytest.fixture
def linked(project, hf):
    """A run of one checkpoint with a link that leads out of the directory; link and file are gone since."""
    (project / "out").symlink_to("/etc/hostname")
    (project / "a").write_text("1\n")
    hf("checkpoint", "w", "--workspace")
    (project / "out").unlink()
    (project / "a").unlink()
    hf("checkpoint", "w", "--workspace")
    return project


@pytest.mark.parametrize(
    "words", [("restore", "w@1", "--take"), ("resume", "w@1", "--take"), ("fork", "w@1", "w2", "--into", "new")]
)
def test_a_link_that_leads_outside_is_put_back_where_that_is_allowed(hf, linked, words):
    refused = hf(*words, "-y")
    assert refused.code != 0
    assert "--allow-outside-links creates it" in refused.out + refused.err
    assert not (linked / "a").exists()
    assert "w2" not in hf("ls").out
    assert hf(*words, "-y", "--allow-outside-links").code == (14 if words[0] == "resume" else 0)
    place = linked / "new" if words[0] == "fork" else linked
    assert (place / "a").read_text() == "1\n"
    assert (place / "out").readlink() == Path("/etc/hostname")


def test_a_fork_whose_files_cannot_be_put_leaves_no_run(hf, story):
    (story / "new").mkdir()
    (story / "new" / "a.txt").write_text("mine\n")
    refused = hf("fork", "issue-42", "other", "--into", "new")
    assert refused.code == 2
    assert (story / "new" / "a.txt").read_text() == "mine\n"
    assert "other" not in hf("ls").out
    assert hf("fork", "issue-42", "other", "--drop", "workspace", "--into", "new").code == 2


def test_a_fork_that_can_neither_be_filled_nor_taken_back_says_why_it_could_not_be_filled(hf, story, monkeypatch):
    def busy(self, run, **options):
        raise holdfast.StoreError("this one", "it is busy")

    monkeypatch.setattr(holdfast.Holdfast, "delete_run", busy)
    (story / "new").mkdir()
    (story / "new" / "a.txt").write_text("mine\n")
    refused = hf("fork", "issue-42", "other", "--into", "new")
    assert refused.code == 2
    assert "'new' is not empty" in refused.err
    assert "other" in hf("ls").out


def test_a_head_that_vanished_is_passed_over_and_what_is_lost_is_told(hf, story):
    damage(story, "DELETE FROM checkpoint WHERE seq = 3")
    assert "is the head of run 'issue-42' and is missing" in hf("ls").err
    refused = hf("checkpoint", "issue-42")
    assert refused.code == 5
    assert "`holdfast resume issue-42`" in refused.err
    done = hf("resume", "issue-42", "--no-files", "-y")
    assert done.code == 14, done
    assert "damaged: checkpoint 3: it vanished" in done.out
    assert "1 checkpoint after issue-42@2" in done.out
    assert '"step": 2' in hf("show", "issue-42", "state").out
    assert hf("checkpoint", "issue-42").code == 0


def test_a_run_whose_checkpoints_were_all_deleted_is_not_damaged(hf):
    hf("checkpoint", "r")
    hf("delete", "r@1", "-y")
    listed = hf("ls")
    assert "all its checkpoints were deleted" in listed.out
    assert "damaged" not in listed.out


@pytest.mark.parametrize(
    "where",
    [
        "INSERT OR REPLACE INTO lease VALUES ('issue-42', 'main', x'00', x'00')",
        "UPDATE run SET value = zeroblob(10)",
        "DELETE FROM run",
        "DELETE FROM hold",
    ],
)
def test_repair_makes_anew_what_the_store_keeps_about_a_run(hf, story, where):
    damage(story, where)
    assert "No runs yet" not in hf("ls").err
    assert hf("verify").code == 5
    shown = hf("repair", "-n")
    assert shown.code == 5
    assert "rebuild issue-42" in shown.out
    assert hf("verify").code == 5, "nothing was done"
    assert hf("repair", "-y", "--json").json["rebuilt"] == ["issue-42"]
    assert hf("verify").code == 0
    assert hf("checkpoint", "issue-42").code == 0
    assert hf("show", "issue-42@3", "state").code == 0
    assert hf("delete", "--run", "issue-42", "-y").code == 0


def test_repair_says_that_nobody_knows_how_far_a_run_went_whose_record_is_made_anew(hf, story):
    damage(story, "UPDATE run SET value = zeroblob(10)")
    done = hf("repair", "-y")
    assert done.code == 0
    assert "as it should be again" not in done.out
    assert "Whether issue-42 had later checkpoints than 3, nobody can tell" in done.err
    damage(story, "DELETE FROM run")
    assert hf("repair", "-y", "--json").json["rebuilt_records"] == {"issue-42": 3}
    for mendable in ("DELETE FROM hold", "UPDATE run SET id = 'q'"):
        damage(story, mendable)
        fixed = hf("repair", "-y")
        assert "all is as it should be again" in fixed.out
        assert "nobody can tell" not in fixed.err


def test_repair_rebuilds_a_run_of_an_encrypted_store(hf, project):
    hf("store", "key", "new", "k")
    (project / "holdfast.yaml").write_text("encryption: {key_file: k}\n")
    assert hf("trust").code == 0
    hf("checkpoint", "r")
    damage(project, "UPDATE run SET seal = x'00'")
    assert hf("verify").code == 5
    assert hf("repair", "-n").code == 5
    assert hf("verify").code == 5, "nothing was done"
    assert hf("repair", "-y", "--json").json["rebuilt"] == ["r"]
    assert hf("verify").code == 0
    assert hf("show", "r@1").code == 0


def test_damaged_key_slots_are_named_and_nothing_is_rebuilt_over_them(hf, project):
    hf("store", "key", "new", "k")
    (project / "holdfast.yaml").write_text("encryption: {key_file: k}\n")
    assert hf("trust").code == 0
    hf("checkpoint", "r")
    damage(project, "UPDATE meta SET seal = x'00' WHERE name = 'keys'")
    for words in (("ls",), ("repair", "-n"), ("repair", "-y"), ("show", "r@1")):
        refused = hf(*words)
        assert refused.code == 5, words
        assert "key slots are damaged" in refused.err, words
        assert "from a copy of the store" in refused.err, words


def test_a_checkpoint_that_carries_damage_over_says_so(hf, project):
    (project / "state.json").write_text('{"step": 1}')
    hf("checkpoint", "r", "--state", "state.json", "--workspace")
    damage(project, "UPDATE chunk SET data = zeroblob(length(data))")
    taken = hf("checkpoint", "r")
    assert taken.code == 0
    assert "section state, carried over from r@1, is damaged" in taken.err
    assert "section workspace" in taken.err
    assert hf("checkpoint", "r", "--state", "state.json", "--workspace").err == ""


def test_undoing_a_start_afresh_warns_of_no_damage(hf, story):
    assert hf("resume", "issue-42", "--fresh", "-y").code == 0
    (story / "a.txt").write_text("mine\n")
    done = hf("undo", "issue-42", "-y")
    assert done.code == 0
    assert "damage" not in done.out + done.err
    assert "you changed 'a.txt' since the recovery: kept" in done.out
    assert (story / "a.txt").read_text() == "mine\n"
    assert hf("undo", "issue-42", "-y").code == 0
    assert hf("undo", "issue-42", "-y", "--take").code == 0


def test_a_decision_on_a_step_answers_the_question_about_it(hf, project):
    """The run does not ask again, and nothing warns that it would."""
    program = (
        "import holdfast, os, sys\n"
        "with holdfast.open().run('r', waiting='leave') as run:\n"
        "    run.step('push', lambda: os._exit(9), effect='git_push')\n"
        "    print('past it')\n"
    )

    def live():
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert live().returncode == 9
    assert "RunWaiting" in live().stderr
    assert hf("status", "r", "--json").json["status"] == "waiting"
    done = hf("resume", "r", "--skip", "push", "-y")
    assert done.code == 14
    assert "needs an answer" not in done.out + done.err
    now = hf("status", "r", "--json").json
    assert (now["status"], now["waits"]) == ("running", [])
    assert live().stdout == "past it\n"


@pytest.mark.parametrize("words", [["restore", "w", "--exact", "-y"], ["resume", "w", "-y"], ["diff", "w"]])
def test_a_run_whose_directory_was_deleted_touches_no_other(hf, project, tmp_path, words):
    """Proves F5: files of a run are not put into the project's folder because its own is gone."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "theirs.txt").write_text("of the run\n")
    with holdfast.open() as store, store.run("w", workspace=there) as run:
        run.checkpoint(state=1)
    (project / "mine.txt").write_text("of the project\n")
    shutil.rmtree(there)
    done = hf(*words)
    assert done.code == 2
    assert str(there) in done.err
    assert "--workspace" in done.err
    assert sorted(path.name for path in project.iterdir()) == [".holdfast", "mine.txt"]
    there.mkdir()
    assert hf("restore", "w", "--exact", "-y").code == 0
    assert (there / "theirs.txt").read_text() == "of the run\n"
    assert sorted(path.name for path in project.iterdir()) == [".holdfast", "mine.txt"]


def edited_by_a_person(project):
    """Leave a run that has ended its process, and a file that somebody changed after it."""
    (project / "code.py").write_text("one\ntwo\n")
    with holdfast.open() as store, store.run("r", workspace=project) as run:
        run.checkpoint(state=1)
    time.sleep(1.1)  # what is changed within a second of a process's last sign of life is of nobody known
    (project / "code.py").write_text("one\nby hand\n")


def test_files_that_others_changed_are_shown_as_a_diff_and_the_person_reconciles(hf, project):
    """Proves C15 on a terminal: without asking for it, and with a way to keep, to take and to undo."""
    edited_by_a_person(project)
    stopped = hf("resume", "r", "--no-color", stdin=b"stop\n", terminal=True)
    assert stopped.code == 12
    assert "-two\n+by hand" in stopped.out
    assert (project / "code.py").read_text() == "one\nby hand\n"
    assert hf("resume", "r", stdin=b"take\n", terminal=True).code == 14
    assert (project / "code.py").read_text() == "one\ntwo\n"
    assert hf("undo", "r", "-y").code == 0
    assert (project / "code.py").read_text() == "one\nby hand\n"
    assert hf("resume", "r", stdin=b"resume\n", terminal=True).code == 14
    assert (project / "code.py").read_text() == "one\nby hand\n"


@pytest.mark.parametrize("words", [[], ["-y"]])
def test_where_nobody_can_be_asked_files_that_others_changed_are_kept_and_named(hf, project, words):
    """Proves C15 without a terminal."""
    edited_by_a_person(project)
    done = hf("resume", "r", *words)
    assert done.code == 14
    assert "code.py" in done.out
    assert (project / "code.py").read_text() == "one\nby hand\n"


def test_in_python_a_plan_has_the_diff_of_what_others_changed_and_the_result_names_the_files(project):
    """Proves C15 in Python."""
    edited_by_a_person(project)
    (project / "binary").write_bytes(b"\0\1")
    with holdfast.open() as store:
        plan = store.plan("r", workspace=project)
        assert "-two\n+by hand\n" in plan.diff
        assert "'binary' differs (binary)" in plan.diff
        assert b"by hand" not in plan.to_json(), "what a file holds is not stored with a plan"
        assert RecoveryPlan.from_json(plan.to_json()) == plan
        result = store.recover(plan)
        assert result.success
        assert any("code.py" in warning for warning in result.warnings)
    assert (project / "code.py").read_text() == "one\nby hand\n"


def test_resume_looks_its_checkpoint_up_once(hf, story, monkeypatch):
    """Proves issue 15: one look-up for the command, the question and the plan."""
    found = []
    look_up = _Search.result
    monkeypatch.setattr(_Search, "result", lambda self: found.append(1) or look_up(self))
    assert hf("resume", "issue-42@1", "-y").code == 14
    assert (story / "a.txt").read_text() == "one\n"
    assert len(found) == 1


def test_a_flow_that_takes_no_checkpoints_is_listed_shown_answered_and_resumed(hf, project):
    """Proves A14: with `automatic: false` what is finished is in the journal, for every command."""
    (project / "holdfast.yaml").write_text("automatic: false\n")
    (project / "f.yaml").write_text(
        "flow: f\nphases:\n  a: echo a >> log\n  ask: {approve: 'ship?'}\n  b: echo b >> log\n"
    )
    hf("run", "f.yaml")
    (listed,) = hf("ls", "--json").json["runs"]
    assert (listed["status"], listed["checkpoints"]) == ("waiting", 0)
    status = hf("status", "f", "--json").json
    assert (status["status"], [wait["kind"] for wait in status["waits"]]) == ("waiting", ["approval"])
    assert "no checkpoint" in hf("status", "f").out
    assert "continue from its journal" in hf("resume", "f", "-n").out
    assert hf("answer", "approve", "f").code == 0
    assert hf("resume", "f").code == 0
    assert (project / "log").read_text().split() == ["a", "b"]
    assert hf("status", "f", "--json").json["status"] == "completed"
    assert hf("log", "f", "--json").json["checkpoints"] == []
