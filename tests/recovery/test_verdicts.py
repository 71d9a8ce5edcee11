"""Verdicts are enforced in one place: by recover, by opening the run again, by recover_all and on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast import CannotResume, NotFound, RunWaiting, UsageError


def git(project, *arguments):
    named = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    subprocess.run(named, cwd=project, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("a\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    git(root, "checkout", "-qb", "work")
    return root


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def issue(tmp_path):
    file = tmp_path / "42.json"
    write_issue(file)
    return file


def write_issue(file, **fields):
    file.write_text(json.dumps({"id": "42", "title": "Log in", "body": "Use OAuth.", "labels": ["a"], **fields}))


def begun(hf, **options):
    with hf.run("r", **options) as run:
        run.step("one", lambda: 1)


def cli(tmp_path, *words):
    line = [sys.executable, "-m", "holdfast", "--store", str(tmp_path / "store"), *words]
    return subprocess.run(line, cwd=tmp_path, check=False, timeout=60, capture_output=True, text=True)


def test_a_branch_that_is_gone_refuses_however_the_run_is_resumed(hf, project):
    """Proves C15: branch gone, start fresh, unless told otherwise."""
    begun(hf, workspace=project)
    git(project, "checkout", "-q", "main")
    git(project, "branch", "-D", "work")
    with pytest.raises(CannotResume, match="branch 'work' is gone"):
        hf.recover("r", workspace=project)
    with pytest.raises(CannotResume, match="branch 'work' is gone"), hf.run("r", workspace=project):
        pytest.fail("it was entered")
    plan = hf.plan("r", workspace=project)
    assert hf.recover(plan, confirmed=True).success
    with hf.run("r", workspace=project) as run:  # what was confirmed is taken over
        assert run.step("one", lambda: 2) == 1


def test_yes_does_not_go_on_without_the_branch(hf, project, tmp_path):
    """Proves C15 on the command line: what else is meant has to be said, and the message names how."""
    begun(hf, workspace=project)
    git(project, "checkout", "-q", "main")
    git(project, "branch", "-D", "work")
    before = hf.latest("r").id
    refused = cli(tmp_path, "--yes", "resume", "r", "--workspace", str(project))
    assert refused.returncode == CannotResume.exit_code
    assert "branch 'work' is gone" in refused.stderr
    assert "holdfast resume r --fresh" in refused.stderr
    assert "holdfast resume r --git" in refused.stderr
    assert hf.latest("r").id == before
    assert cli(tmp_path, "--yes", "resume", "r", "--workspace", str(project), "--git").returncode == 14
    assert (project / ".git" / "HEAD").read_text() == "ref: refs/heads/work\n"
    with hf.run("r", workspace=project):
        pass


def contents(project):
    return {str(path): path.read_bytes() for path in project.rglob("*") if path.is_file()}


def test_a_branch_that_is_gone_is_seen_where_no_directory_is_named(hf, project):
    """Proves C15: it is looked at where the run worked last; that directory stays as it is, and nobody is asked twice.

    The next time that it is gone is another time.
    """
    begun(hf, workspace=project)
    git(project, "checkout", "-q", "main")
    git(project, "branch", "-D", "work")
    before = contents(project)
    with pytest.raises(CannotResume, match="branch 'work' is gone"):
        hf.recover("r")
    assert hf.recovery.status("r", files=False).prerequisites[0].is_met is False
    assert hf.recover("r", confirmed=True).success
    again = hf.recover("r")
    assert (again.success, again.is_recovered) == (True, False)
    assert hf.plan("r", workspace=project).verdict == "resume"
    assert contents(project) == before
    with hf.run("r", workspace=project) as run:
        assert run.step("one", lambda: 2) == 1
    git(project, "checkout", "-qb", "work")
    (project / "a.txt").write_text("b\n")
    begun(hf, workspace=project, verdicts={"branch-switched": "warn"})
    git(project, "checkout", "-q", "main")
    git(project, "branch", "-D", "work")
    with pytest.raises(CannotResume, match="branch 'work' is gone"):
        hf.recover("r")


def test_a_head_that_moved_is_told_where_no_directory_is_named(hf, project):
    begun(hf, workspace=project)
    time.sleep(0.01)
    git(project, "commit", "-q", "--allow-empty", "-m", "second")
    assert any("HEAD moved" in one for one in hf.recover("r").warnings)


def test_recover_all_sees_the_branch_where_no_directory_is_named(hf, project):
    begun_killed(project, hf)
    git(project, "checkout", "-q", "main")
    [one] = hf.recovery.recover_all()
    assert one.outcome == "left"
    assert "branch 'main'" in one.reason


def test_told_otherwise_the_run_goes_on(hf, project):
    begun(hf, workspace=project)
    git(project, "checkout", "-q", "main")
    git(project, "branch", "-D", "work")
    with hf.run("r", workspace=project, verdicts={"branch-gone": "warn"}) as run:
        assert any("branch 'work' is gone" in line["what"] for line in run.recorder.journal())
    with hf.run("r", workspace=project):
        pass


def test_another_branch_asks_and_the_answer_is_kept(hf, project):
    """Proves C15: ask is a wait that others can answer."""
    begun(hf, workspace=project)
    git(project, "checkout", "-q", "main")
    with pytest.raises(RunWaiting, match="on branch 'main'"):
        hf.recover("r", workspace=project)
    with pytest.raises(RunWaiting, match="on branch 'main'"), hf.run("r", workspace=project, waiting="leave"):
        pytest.fail("it was entered")
    [wait] = hf.control.waiting("r")
    hf.control.answer("r", "resume", wait=wait.id)
    for _ in range(2):
        with hf.run("r", workspace=project, waiting="leave") as run:
            assert run.step("one", lambda: 2) == 1


def test_a_branch_that_the_interrupted_run_made_itself_asks_nobody(hf, project, tmp_path):
    program = (
        "import os, subprocess, sys, time, holdfast\n"
        "with holdfast.open('../store') as hf, hf.run('r', workspace='.') as run:\n"
        "    subprocess.run(['git', 'checkout', '-qb', 'mine'])\n"
        "    time.sleep(2.2)\n"
        "    os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=project, check=False, timeout=60)
    with hf.run("r", workspace=project, waiting="leave") as run:
        assert any("the run itself went from branch 'work'" in line["what"] for line in run.recorder.journal())


def test_a_changed_body_asks_and_changed_labels_are_taken_over(hf, issue):
    """Proves C15, in Python with subject=."""
    begun(hf, subject=str(issue))
    assert hf.latest("r").section("subject").labels == ["a"]
    write_issue(issue, labels=["b"])
    with hf.run("r", subject=str(issue)) as run:
        assert run.subject.value.labels == ["b"]
    assert hf.latest("r").section("subject").labels == ["b"]
    write_issue(issue, labels=["b"], body="Use SAML.")
    with pytest.raises(RunWaiting, match="the text of '42' changed"):
        hf.recover("r", subject=str(issue))
    with pytest.raises(RunWaiting), hf.run("r", subject=str(issue), waiting="leave"):
        pytest.fail("it was entered")
    assert hf.recover("r", subject=str(issue), confirmed=True).success
    assert hf.latest("r").section("subject").body == "Use SAML."
    with hf.run("r", subject=str(issue)):
        pass


@pytest.mark.parametrize("content", ['{"title": ', "[1]", None])
def test_an_issue_that_cannot_be_read_is_an_error_that_names_it(hf, issue, tmp_path, content):
    """It was ignored where the run has no subject yet."""
    begun(hf)
    if content is None:
        issue.unlink()
        issue.mkdir()
    else:
        issue.write_text(content)
    for words in (("resume", "r", "--issue", "42.json", "--dry-run"), ("--yes", "resume", "r", "--issue", "42.json")):
        refused = cli(tmp_path, *words)
        assert refused.returncode == UsageError.exit_code, refused
        assert "42.json" in refused.stderr
    with pytest.raises(UsageError, match=r"42\.json"), hf.run("r", subject=str(issue)):
        pytest.fail("it was entered")


def test_the_command_line_looks_at_the_issue(hf, issue, tmp_path):
    """Proves C15 with --issue."""
    begun(hf, subject=str(issue))
    write_issue(issue, body="Use SAML.", labels=["b"])
    shown = cli(tmp_path, "resume", "r", "--issue", str(issue), "--dry-run")
    assert "ask: the text of '42' changed" in shown.stdout
    assert "warn: labels of '42'" in shown.stdout
    assert cli(tmp_path, "resume", "r", "--issue", str(issue)).returncode != 0
    assert cli(tmp_path, "--yes", "resume", "r", "--issue", str(issue)).returncode == 14
    assert hf.latest("r").section("subject").labels == ["b"]
    assert cli(tmp_path, "resume", "r", "--issue", "no-such-file").returncode == UsageError.exit_code


def test_recover_all_leaves_what_a_person_has_to_decide(hf, project):
    begun_killed(project, hf)
    git(project, "checkout", "-q", "main")
    [one] = hf.recovery.recover_all(workspace=lambda _run: project)
    assert one.outcome == "left"
    assert "branch 'main'" in one.reason


def begun_killed(project, hf):
    program = "import os, holdfast\nrun = holdfast.open('../store').run('r', workspace='.').__enter__()\nos._exit(9)\n"
    subprocess.run([sys.executable, "-c", program], cwd=project, check=False, timeout=60)
    time.sleep(1.2)
    assert hf.has("r")


def fails(_what):
    raise RuntimeError("no")


def blocked(hf):
    for _ in range(3):
        with pytest.raises(RuntimeError), hf.run("r") as run:
            run.agents.call("coder", "x", task="t", using=fails)


def test_a_blocked_run_is_blocked_when_its_program_is_started_again(hf):
    """Proves A11: three failures block it however it is resumed; each way out does what it says."""
    blocked(hf)
    with pytest.raises(CannotResume, match="agent coder failed 3 times") as refused, hf.run("r"):
        pytest.fail("it was entered")
    assert "holdfast resume r --retry-failed" in str(refused.value)
    assert not hf.recover("r").success
    assert hf.recover("r", retry_failed=True).success
    with hf.run("r") as run:
        assert run.agents.call("coder", "x", task="t", using=str) == "x"


def test_suggestions_name_the_checkpoint_that_was_asked_about(hf, tmp_path):
    """Proves A13: recovery_status of a checkpoint, and commands that do what they say for it."""
    blocked(hf)
    seq = hf.latest("r").seq
    assert hf.recover("r", skip_failed=True).success
    status = hf.recovery.status(f"r@{seq}")
    assert not status.can_resume
    assert all(f"holdfast resume r@{seq}" in line for line in status.suggestions)
    assert hf.recovery.status("r").can_resume
    typed = status.suggestions[0].split(" (")[0].split()[1:]
    assert cli(tmp_path, "--yes", *typed).returncode == 14
    assert hf.recovery.status("r").can_resume


def test_the_status_of_a_checkpoint_is_told_on_the_command_line(hf, tmp_path):
    """Proves A13: how it stood there, and ways out that are typed for that very checkpoint."""
    blocked(hf)
    seq = hf.latest("r").seq
    assert hf.recover("r", skip_failed=True).success
    shown = cli(tmp_path, "status", f"r@{seq}")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"r@{seq}" in shown.stdout
    assert "agent coder failed 3 times" in shown.stdout
    assert f"holdfast resume r@{seq} --retry-failed" in shown.stdout
    assert "blocked" not in cli(tmp_path, "status", "r").stdout
    document = json.loads(cli(tmp_path, "status", f"r@{seq}", "--json").stdout)
    assert (document["head"]["seq"], document["head"]["can_resume"], document["waits"]) == (seq, False, [])
    assert document["suggestions"] == list(hf.recovery.status(f"r@{seq}").suggestions)
    assert json.loads(cli(tmp_path, "status", "r", "--json").stdout)["suggestions"] == []
    assert cli(tmp_path, "status", "r@99").returncode == NotFound.exit_code
    assert "its last is" in cli(tmp_path, "status", "r@99").stderr


def test_prerequisites_that_nobody_looked_at_are_not_said_to_be_met(hf, issue):
    """Proves C9: None is neither yes nor no."""
    begun(hf, subject=str(issue))
    assert hf.recovery.status("r").prerequisites_met is None
    assert hf.recovery.status("r", subject=str(issue)).prerequisites_met is True
    write_issue(issue, body="Use SAML.")
    assert hf.recovery.status("r").prerequisites_met is None
    assert hf.recovery.status("r", subject=str(issue)).prerequisites_met is False
    assert hf.plan("r", subject=str(issue)).prerequisites_met is False


def machine(run):
    return run.machine(states=["plan", "build", "test"])


def test_a_state_that_the_machine_does_not_have_is_refused(hf):
    """Proves A12."""
    with hf.run("r") as run:
        machine(run).to("build")
    with pytest.raises(UsageError, match="has no such state; it has plan, build, test"):
        hf.recover("r", reset_to="NOWHERE")
    assert hf.recover("r", reset_to="plan").success
    with hf.run("r") as run:
        assert machine(run).current == "plan"


def test_going_back_to_a_state_clears_the_failures_since(hf):
    """Proves A12: what failed after that state has not happened."""
    with hf.run("r") as run:
        machine(run).to("build")
    blocked(hf)
    assert hf.recover("r", reset_to="build").success
    with hf.run("r") as run:
        assert run.agents.call("coder", "x", task="t", using=str) == "x"


def test_a_dry_run_shows_the_plan_and_a_replay_steps_through_the_record(hf):
    """Proves A12."""
    begun(hf)
    before = hf.latest("r").id
    dry = hf.recover("r", dry_run=True)
    assert dry.success
    assert dry.plan is not None
    assert dry.plan.checkpoint == before
    stepped = hf.recover("r", replay=True)
    assert stepped.replay is not None
    assert [step.step for step in stepped.replay] == ["one"]
    assert hf.latest("r").id == before


def test_going_back_over_an_outside_effect_says_that_it_will_happen_again(hf):
    with hf.run("r") as run:
        first = run.checkpoint(state=1)
        run.step("push", lambda: 1, effect="git push")
    result = hf.recover(first.id)
    assert any("step push (git push) has happened, and will happen again" in one for one in result.warnings)
