"""System C on Holdfast: a team takes an issue through its phases, in batches, with messages and knowledge.

    python examples/ports/c_issue.py DIRECTORY

`work` is the whole system. Its checkpoints are also a directory a person can read, `.crunch/{issue}/checkpoints/`: an
index, a YAML file a checkpoint, and the link `latest`. Below it is what that document asks for: the fields, the
triggers, resume, retention, the settings, and what is done about a checkpoint that is stale.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

import holdfast
from holdfast import Holdfast
from holdfast.recovery.subject import FileSubject

RUN = "issue-42"
PHASES = ("enrich", "ready", "implementing")
SETTINGS = """\
preset: issue
triggers: {phase_transition: true, batch_complete: true, agent_complete: false, conflict_events: true}
retention:
  triggers: {phase_transition: -1, batch_complete: 3, agent_complete: 1, conflict_resolved: -1, user_interrupt: 1,
    manual: -1}
  total_mb: 50
mirror: {form: yaml, location: ".crunch/{issue}/checkpoints"}
"""
ISSUE = {"number": 42, "title": "Refresh tokens", "body": "They expire.", "labels": ["state:enrich"],
         "assignees": ["ann"], "branch": "feature/42"}  # fmt: skip


def open_store(path: Path) -> Holdfast:
    """Open the store with the project's settings file."""
    (path / "holdfast.yaml").write_text(SETTINGS)
    return holdfast.open(path / "store", settings=path / "holdfast.yaml")


def work(hf: Holdfast, path: Path, *, during: Any = lambda _task: None) -> None:
    """Take the issue through its phases; started again, it continues at the task where it was."""
    subject = FileSubject(path / "issue.json")
    with hf.run(RUN, workspace=path / "repo", subject=subject) as run:
        run.subject.update(**{name: value for name, value in ISSUE.items() if name != "number"}, id="42")
        for agent in ("architect", "coder"):
            run.team.add(agent, "builds")
            run.agents.register(agent, lambda given: {"summary": f"{given} done", "location": f"{given}.md"})
        run.agents.team = run.team
        run.knowledge.inject("tokens have clocks")
        for phase in PHASES:
            state = run.phase(phase, label=f"state:{phase}")
            if not state.is_due:
                continue
            with state:
                if phase == "enrich":
                    run.agents.call("architect", "spec", task="create_spec")
                    run.knowledge.capture("tokens need a clock")
                elif phase == "ready":
                    talk(run, path, during)
                else:
                    batches(run, path, during)
        run.complete()


def talk(run: holdfast.Run, path: Path, during: Any) -> None:
    """Ask, answer, and settle a conflict."""

    def say(agent: str, what: str) -> str:
        with (path / "talk.log").open("a") as log:
            log.write(f"{agent}\n")
        during(agent)
        return what

    run.mailbox.send("architect", "coder", "docs are due", key="docs")
    asked = run.mailbox.send("coder", "architect", "how long?", expects_answer=True, key="ttl")
    while (message := run.mailbox.receive("architect")) is not None:
        run.mailbox.answer(message, say("answer", "15 minutes"))
    assert run.mailbox.await_answer(asked) == "15 minutes"
    conflict = run.mailbox.conflicts.start("lock-out", ["coder", "architect"])
    conflict.debate(
        lambda agent, *_: say(agent, "a minute"), lambda one: "a minute" if len(one.positions) > 1 else None
    )
    with run.mailbox.reading("coder") as message:
        if message is not None:
            say("docs", message.body)


def batches(run: holdfast.Run, path: Path, during: Any) -> None:
    """Four tasks in three batches."""
    graph = run.graph("implementing")

    def task(name: str) -> Any:
        def do() -> str:
            with (path / "done.log").open("a") as log:
                log.write(f"{name}\n")
            (path / "repo" / f"{name}.py").write_text(name)
            during(name)
            return f"{name} is done"

        return do

    for name, needs in (
        ("skeleton", []),
        ("login", ["skeleton"]),
        ("logout", ["skeleton"]),
        ("join", ["login", "logout"]),
    ):
        graph.add(name, task(name), needs=needs)
    assert not graph.run(limit=1).failed


# What the document asks for.


def prepare(path: Path) -> Path:
    """Make a repository on the issue's branch, and the issue."""
    (path / "repo").mkdir(parents=True)
    (path / "repo" / "README.md").write_text("# Shop\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["commit", "-qm", "begin"],
        ["checkout", "-qb", "feature/42"],
    ):
        subprocess.run(["git", *identity, "-C", path / "repo", *words], check=True)
    (path / "issue.json").write_text(json.dumps(ISSUE))
    return path


def begin(path: Path, *, stop_at: str = "") -> int:
    """Work in a process of its own, which stops itself by Ctrl+C or a kill in a task; return its exit code."""
    done = subprocess.run([sys.executable, __file__, "--work", path, stop_at], check=False, stderr=subprocess.PIPE)
    return done.returncode


def _begin(path: Path, stop_at: str) -> None:
    how, _, task = stop_at.partition(":")

    def during(name: str) -> None:
        if name == task:
            signal.raise_signal({"interrupt": signal.SIGINT, "hang-up": signal.SIGHUP}.get(how, signal.SIGKILL))

    with open_store(path) as hf:
        work(hf, path, during=during)


def interrupted(path: Path) -> Holdfast:
    """Return the store of an issue that was interrupted in its second batch."""
    assert begin(prepare(path), stop_at="interrupt:logout") != 0
    return open_store(path)


def a_checkpoint_has_every_field(path: Path) -> None:
    """Schema."""
    with interrupted(path) as hf:
        found = hf.latest(RUN, required=True)
        assert found.readable_id.startswith("implementing-20")
        issue, phases, team = (found.section(name) for name in ("subject", "phases", "team"))
        assert (issue.id, issue.session, issue.title, issue.body) == (
            "42",
            found.section("context").session,
            ISSUE["title"],
            ISSUE["body"],
        )
        assert (bool(issue.session), found.created_at.tzinfo is not None, found.record.envelope.format_version) == (
            True,
            True,
            2,
        )
        assert (issue.labels, issue.assignees, issue.branch) == (["state:enrich"], ["ann"], "feature/42")
        now = phases.phases["implementing"]
        assert (phases.current, now.label, now.attempt, bool(now.started_at)) == (
            "implementing",
            "state:implementing",
            1,
            True,
        )
        architect = next(one for one in team.members if one.agent == "architect")
        assert (bool(team.id), architect.role, architect.tasks_completed, architect.tasks_pending) == (
            True,
            "builds",
            1,
            0,
        )
        graph = found.section("graph")
        assert (graph.id, graph.completed_batches, graph.current_batch) == ("implementing", [1], 2)
        assert graph.tasks["skeleton"].result == "skeleton is done"
        assert graph.tasks["join"].status == "pending"
        begun, ended = graph.tasks["skeleton"].started_at, graph.tasks["skeleton"].completed_at
        assert begun < ended
        assert (graph.tasks["logout"].status, graph.tasks["logout"].completed_at) == ("running", None)
        output = next(one for one in found.section("agents") if one.id == "architect").tasks["create_spec"]
        assert (output.summary, output.location, bool(output.completed_at)) == ("spec done", "spec.md", True)
        messages, knowledge = found.section("messages"), found.section("knowledge")
        assert (messages.pending, messages.conflicts, len(messages.resolved)) == ([], [], 1)
        assert (len(knowledge.injected), [one.content for one in knowledge.pending]) == (1, ["tokens need a clock"])
        recovery = found.recovery
        assert (recovery.can_resume, recovery.resume_batch, recovery.resume_task) == (True, 2, "logout")
        assert (recovery.prerequisites_met, recovery.warnings) == (True, ())
        seen = hf.recovery.status(RUN, workspace=path / "repo", subject=FileSubject(path / "issue.json"))
        assert {one.kind: one.is_met for one in seen.prerequisites} == dict.fromkeys(
            ("branch", "subject", "files", "wait"), True
        )


def triggers_fire(path: Path) -> None:
    """Automatic and manual triggers; agent_complete is off, and nothing takes one."""
    with interrupted(path) as hf:
        taken = [one.trigger for one in hf.checkpoints(RUN, archived=True)]
        assert taken[0] == "user_interrupt"
        assert {"phase_transition", "batch_complete", "conflict_start", "conflict_resolved"} <= set(taken)
        assert "agent_complete" not in taken
        assert hf.run(RUN, workspace=path / "repo").checkpoint(reason="/crunch --checkpoint").trigger == "manual"
        line = [(one.trigger, one.reason) for one in reversed(hf.checkpoints(RUN, archived=True))]
        assert [reason for _, reason in line if reason.startswith("before batch")] == [
            "before batch 1",
            "before batch 2",
        ]
    assert begin(path, stop_at="hang-up:join") != 0
    with open_store(path) as hf:
        assert hf.latest(RUN, required=True).trigger == "session_end"


def it_is_stored_for_people(path: Path) -> None:
    """Storage and index."""
    with interrupted(path) as hf:
        ids = [one.id for one in hf.checkpoints(RUN, archived=True)]
        newest = hf.latest(RUN, required=True)
    folder = path / ".crunch" / "42" / "checkpoints"
    index = yaml.safe_load((folder / "index.yaml").read_text())
    assert (index["total"], [one["id"] for one in index["checkpoints"]]) == (len(ids), ids)
    first = index["checkpoints"][0]
    assert (first["trigger"], first["phase"], first["can_resume"]) == ("user_interrupt", "implementing", True)
    assert (index["latest"]["id"], index["latest"]["file"]) == (newest.id, f"{newest.readable_id}.yaml")
    latest = yaml.safe_load((folder / "latest").read_text())
    assert (latest["id"], latest["recovery"]["can_resume"], latest["sections"]["subject"]["id"]) == (
        newest.id,
        True,
        "42",
    )
    modified = {one["path"]: (one["status"], one["staged"]) for one in latest["files_modified"]}
    assert modified == dict.fromkeys(("login.py", "logout.py", "skeleton.py"), ("created", False))
    assert (folder / "latest").is_symlink()
    assert (folder / "latest").resolve().name == f"{newest.readable_id}.yaml"


def it_resumes_at_the_exact_task(path: Path) -> None:
    """Resume algorithm: by latest or by id; nothing that is done is done again."""
    assert begin(prepare(path), stop_at="kill:logout") == -9
    assert begin(path) == 0
    log = (path / "done.log").read_text().split()
    assert sorted(log) == ["join", "login", "logout", "logout", "skeleton"]
    with open_store(path) as hf:
        assert hf.latest(RUN, required=True).summary.status == "completed"
        assert [one.content for one in hf.latest(RUN, required=True).section("knowledge").pending] == [
            "tokens need a clock"
        ]
        named = hf.checkpoints(RUN)[-1].readable_id
        assert hf.recover(named).success


def what_cannot_be_resumed_says_so(path: Path) -> None:
    """NoCheckpoint and CannotResume."""
    with open_store(prepare(path)) as hf:
        assert "no" in hf.recover("issue-7").errors[0]
        hf.run(RUN).checkpoint(agents=[{"id": "coder", "status": "failed", "attempts": 3}])
        try:
            with hf.run(RUN):
                raise AssertionError("it was entered")
        except holdfast.CannotResume as error:
            assert "coder failed 3 times" in str(error)


def old_ones_are_cleaned_up_by_trigger(path: Path) -> None:
    """Retention: three batches and one agent a phase, one interrupt, every milestone."""
    of_phase = ("batch_complete", "agent_complete", "user_interrupt", "phase_transition", "manual", "conflict_resolved")
    with open_store(prepare(path)) as hf:
        with hf.run(RUN) as run:
            for phase in ("ready", "implementing"):
                for number in range(5):
                    for trigger in of_phase:
                        run.checkpoint(trigger=trigger, phase=phase, state=number)
        hf.prune(RUN)
        left = [(one.trigger, one.summary.phase) for one in hf.checkpoints(RUN, archived=True)]
    for phase, interrupts in (("ready", 0), ("implementing", 1)):
        assert [left.count((name, phase)) for name in of_phase] == [3, 1, interrupts, 5, 5, 5]


def a_stale_checkpoint_is_noticed(path: Path) -> None:
    """Edge cases: labels are taken over, a new body asks, a branch that is gone starts fresh, files show a diff."""
    with interrupted(path) as hf:
        subject = FileSubject(path / "issue.json")

        def verdicts() -> dict[str, str]:
            plan = hf.plan(RUN, workspace=path / "repo", subject=subject)
            return {one.kind: one.verdict for one in plan.findings}

        (path / "issue.json").write_text(json.dumps(ISSUE | {"labels": ["state:ready", "urgent"]}))
        assert verdicts()["labels-changed"] in ("warn", "resume")
        (path / "issue.json").write_text(json.dumps(ISSUE | {"body": "Something else."}))
        assert verdicts()["body-changed"] == "ask"
        try:
            hf.recover(RUN, workspace=path / "repo", subject=subject)
        except holdfast.RunWaiting as waiting:
            assert "the text of '42' changed" in str(waiting)
        else:
            raise AssertionError("nobody was asked")
        (path / "issue.json").write_text(json.dumps(ISSUE))
        (path / "repo" / "login.py").write_text("theirs")
        assert verdicts() == {"files-changed": "warn"}
        (path / "repo" / "login.py").write_text("login")
        subprocess.run(["git", "-C", path / "repo", "checkout", "-q", "main"], check=True)
        subprocess.run(["git", "-C", path / "repo", "branch", "-qD", "feature/42"], check=True)
        assert verdicts()["branch-gone"] == "fresh"
        try:
            hf.recover(RUN, workspace=path / "repo", subject=subject)
        except holdfast.CannotResume as error:
            assert "feature/42" in str(error)
        else:
            raise AssertionError("it was resumed")


def the_phase_follows_new_labels(path: Path) -> None:
    """Conflicting changes: the workflow's state is taken from the labels of today, and they are the run's."""
    with interrupted(path) as hf:
        (path / "issue.json").write_text(json.dumps(ISSUE | {"labels": ["state:ready", "urgent"]}))
        assert hf.recover(RUN, workspace=path / "repo", subject=FileSubject(path / "issue.json")).success
        found = hf.latest(RUN, required=True)
        stands = {name: one.status for name, one in found.section("phases").phases.items()}
        assert (stands["enrich"], stands["ready"]) == ("completed", "pending")
        assert found.section("subject").labels == ["state:ready", "urgent"]


def a_retry_starts_before_its_batch_and_the_report_says_where_it_is(path: Path) -> None:
    """Integration with the orchestrator: a checkpoint before each batch, retry, progress reports."""
    with interrupted(path) as hf:
        before = next(one for one in hf.checkpoints(RUN) if one.reason == "before batch 2")
        status = [sys.executable, "-m", "holdfast", "--store", str(path / "store"), "status", RUN, "--json"]
        batch = json.loads(subprocess.run(status, cwd=path.parent, check=True, capture_output=True).stdout)["batch"]
        assert (batch["current"], batch["completed"], batch["pending"]) == (2, [1], ["join"])
        assert hf.recover(before.id, workspace=path / "repo").success
        tasks = hf.latest(RUN, required=True).section("graph").tasks
        assert {name: one.status for name, one in tasks.items()} == {
            "skeleton": "completed", "login": "pending", "logout": "pending", "join": "pending",
        }  # fmt: skip
    assert begin(path) == 0
    log = (path / "done.log").read_text().split()
    assert log == ["skeleton", "login", "logout", "login", "logout", "join"]  # the whole batch again, and nothing else


def messages_and_conflicts_survive_a_kill(path: Path) -> None:
    """Integration with messages: pending ones are sent again, answers are kept, a conflict resumes in its round."""
    assert begin(prepare(path), stop_at="kill:architect") == -9
    with open_store(path) as hf:
        messages = hf.latest(RUN, required=True).section("messages")
        assert [one["body"] for one in messages.pending] == ["docs are due"]
        assert (messages.awaiting_response, list(messages.answers.values())) == ([], ["15 minutes"])
        (conflict,) = messages.conflicts
        assert (conflict["round"], [one["agent"] for one in conflict["positions"]]) == (1, ["coder"])
    assert begin(path) == 0
    assert (path / "talk.log").read_text().split() == ["answer", "coder", "architect", "architect", "docs"]


def knowledge_is_captured_once(path: Path) -> None:
    """Integration with knowledge: what was injected and captured is known, and a resume captures nothing twice."""
    with interrupted(path) as hf:
        assert hf.recover(RUN, workspace=path / "repo").success
    for stop_at in ("kill:join", ""):
        begin(path, stop_at=stop_at)
    with open_store(path) as hf:
        knowledge = hf.latest(RUN, required=True).section("knowledge")
    assert [one.content for one in knowledge.injected] == ["tokens have clocks"]
    assert [one.content for one in (*knowledge.captured, *knowledge.pending)] == ["tokens need a clock"]


def each_option_of_its_settings_acts(path: Path) -> None:
    """Configuration: enabled, auto_checkpoint, triggers, compress."""

    def taken(name: str, more: str) -> tuple[list[str], str]:
        place = path / name
        place.mkdir(parents=True)
        (place / "holdfast.yaml").write_text(f"preset: issue\n{more}")
        with holdfast.open(place / "store", settings=place / "holdfast.yaml") as hf:
            with hf.run("r") as run, run.phase("ready"):
                run.agents.call("coder", task="t", using=lambda: "done")
                run.checkpoint(state="the same words again " * 2000)
            found = hf.checkpoints("r") if hf.has("r") else []
            return [one.trigger for one in found], found[0].record.envelope.codec if found else ""

    plain, codec = taken("plain", "")
    assert {"manual", "phase_transition"} <= set(plain)
    assert ("agent_complete" in plain, codec) == (False, "none")
    assert taken("off", "enabled: false")[0] == []
    assert taken("by-hand", "automatic: false")[0] == ["manual"]
    assert "agent_complete" in taken("agents", "triggers: {agent_complete: true}")[0]
    assert taken("small", "compression: gzip")[1] == "gzip"


CHECKS = (
    a_checkpoint_has_every_field, triggers_fire, it_is_stored_for_people, it_resumes_at_the_exact_task,
    what_cannot_be_resumed_says_so, old_ones_are_cleaned_up_by_trigger, a_stale_checkpoint_is_noticed,
    the_phase_follows_new_labels, a_retry_starts_before_its_batch_and_the_report_says_where_it_is,
    messages_and_conflicts_survive_a_kill, knowledge_is_captured_once, each_option_of_its_settings_acts,
)  # fmt: skip


def main(folder: Path) -> int:
    """Check everything below a directory."""
    for check in CHECKS:
        check(folder / check.__name__)
        print("ok", check.__name__.replace("_", " "))
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        _begin(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main(Path(sys.argv[1]).resolve()))
