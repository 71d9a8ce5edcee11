"""System C, an issue that a team takes through its phases, interrupted in batch 3; the ledger's C, entry by entry."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from datetime import datetime
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
import pytest
import yaml

import holdfast
from holdfast import CannotResume, NotFound, RunWaiting, SettingsInvalid
from holdfast.model.sections import TokenUsage
from holdfast.recovery.subject import FileSubject
from holdfast.runtime.agents import AgentOutput
from holdfast.settings.file import load_settings, make_settings
from holdfast.workspace.decide import Decisions
from postgres_server import shared_server
from seeds.conftest import System, environment
from seeds.killing import KILLS, kill_and_resume, kill_when, pace
from store_kit import STORES, open_store_in

RUN = "issue-42"
ISSUE = [sys.executable, "issue.py"]
SPOKEN = ["architect answer m2", "coder position 1", "tester position 1", "coder position 2", "tester position 2"]
PARTS = ["skeleton", "login", "logout", "refresh", "limits", "join"]


def opened(system: System) -> holdfast.Holdfast:
    return holdfast.open(settings=system.folder / "holdfast.yaml")


def carried_on(system: System, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ISSUE, *words],
        cwd=system.folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=120,
    )


def change_issue(system: System, **fields: object) -> None:
    path = system.folder / "issues" / "42.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def git(system: System, *words: str) -> str:
    command = ["git", "-C", str(system.folder / "repo"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def quick(system):
    """The example, not begun, with a store that does not cost its readers' time."""
    made = system("c_issue")
    settings = made.folder / "holdfast.yaml"
    text = settings.read_text().replace("file://{root}/store", "store").replace("form: yaml", 'form: "off"')
    settings.write_text(text)
    return made


@pytest.fixture(scope="module")
def interrupted(system):
    """The example as its README says, stopped by Ctrl+C in batch 3; not to be changed."""
    made = system("c_issue")
    hold = made.folder / "hold-coder-refresh"
    hold.touch()
    with (made.folder / "said").open("w+") as said:
        process = subprocess.Popen(ISSUE, cwd=made.folder, stdout=said, stderr=said, env=environment())
        deadline = time.monotonic() + 90
        wanted = ("task_done      implementing/limits", "task_started   implementing/refresh")  # so logout is done, too
        while not all(line in (made.folder / "said").read_text() for line in wanted):
            assert process.poll() is None, (made.folder / "said").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
    hold.unlink()
    assert code == 1
    assert "all that was done is saved" in (made.folder / "said").read_text()
    return made


@pytest.fixture(scope="module")
def resumed(interrupted, tmp_path_factory):
    """The same issue after its labels were changed, resumed to its end; not to be changed."""
    made = interrupted.copy(tmp_path_factory.mktemp("c-resumed") / "system")
    change_issue(made, labels=["state:implementing", "urgent"])
    done = carried_on(made)
    assert done.returncode == 0, done.stderr
    (made.folder / "said").write_text(done.stdout)
    return made


def test_a_checkpoint_is_known_by_issue_session_phase_and_attempt(interrupted, resumed):
    """Proves C1: issue, session, readable id of phase, time and short hash; phase, label, start, attempt."""
    with opened(interrupted) as store:
        head = store.latest(RUN)
        phases = head.section("phases")
        assert (head.section("subject").id, phases.current) == ("42", "implementing")
        assert (phases.phases["implementing"].attempt, phases.phases["implementing"].status) == (1, "running")
        assert phases.phases["implementing"].started_at > phases.phases["enrich"].started_at
    name = (interrupted.folder / "readable" / RUN / "latest").resolve().name
    phase, at, short = name.removesuffix(".yaml").split("-")
    assert (phase, at[:15]) == ("implementing", f"{head.created_at:%Y%m%dT%H%M%S}")
    assert short in head.id
    with opened(interrupted) as store:
        for spec in (name, name.removesuffix(".yaml"), f"{RUN}:{name}", f"readable/{RUN}/{name}"):
            assert store.find(spec).id == head.id, spec
    short_name = name.removesuffix(".yaml")
    for words in (("show", short_name), ("files", short_name), ("resume", short_name, "--dry-run"),
                  ("replay", short_name, "--list"), ("diff", short_name, short_name)):  # fmt: skip
        said = interrupted.hf(*words)
        assert said.code in (0, 9), (words, said.err)
        assert "there is no" not in said.err, words
    log = interrupted.hf("log", RUN, "--json").json
    assert short_name in [one["readable_id"] for one in log["checkpoints"]]
    begun = yaml.safe_load((interrupted.folder / "readable" / RUN / "latest").read_text())["sections"]
    session = begun["subject"]["session"]  # nobody set it, and it is the one that the context has
    assert session == begun["context"]["session"]
    assert session.startswith("session-")
    assert {name: one["label"] for name, one in begun["phases"]["phases"].items() if one["attempt"]} == {
        name: f"state:{name}" for name in ("enrich", "ready", "implementing")
    }
    with opened(resumed) as store:
        assert store.latest(RUN).section("subject").session == session
        assert store.latest(RUN).section("phases").phases["docs"].label == "state:docs"


def test_a_checkpoint_holds_the_issue_as_it_was_when_it_was_read(interrupted, resumed):
    """Proves C2: title, body, labels, assignees, branch; and of a resume, the issue as it is then."""
    with opened(interrupted) as hf:
        issue = hf.latest(RUN).section("subject")
    given = json.loads((interrupted.folder / "issues" / "42.json").read_text())
    kept = {name: getattr(issue, name) for name in ("title", "body", "labels", "assignees", "branch")}
    assert kept == {name: value for name, value in given.items() if name != "number"}
    with opened(resumed) as hf:
        assert hf.latest(RUN).section("subject").labels == ["state:implementing", "urgent"]
        assert "subject changed" in [line["kind"] for line in hf.latest(RUN).log("journal")]


def test_the_team_has_its_roles_and_who_has_done_what(interrupted):
    """Proves C3: id; members with role, status, tasks completed and pending."""
    with opened(interrupted) as hf:
        team = hf.latest(RUN).section("team")
    assert team.id == "TEAM-42"
    coder = next(member for member in team.members if member.agent == "coder")
    assert (coder.role, coder.status) == ("implementation", "working")
    assert coder.pending == ["implementing/refresh"]
    assert (coder.tasks_completed, coder.tasks_pending) == (6, 1)
    assert {member.agent: member.status for member in team.members if member.agent != "coder"} == dict.fromkeys(
        ("orchestrator", "architect", "tester", "writer"), "idle"
    )


def test_the_graph_has_its_batches_and_where_each_task_stands(interrupted):
    """Proves C4: id, completed batches, current batch, node states."""
    with opened(interrupted) as hf:
        graph = hf.latest(RUN).section("graph")
    assert (graph.id, graph.completed_batches, graph.current_batch) == ("implementing", [1, 2], 3)
    stands = {name: (node.status, node.batch) for name, node in graph.tasks.items()}
    assert stands == {
        "skeleton": ("completed", 1),
        "login": ("completed", 2),
        "logout": ("completed", 2),
        "refresh": ("running", 3),
        "limits": ("completed", 3),
        "join": ("pending", 4),
    }
    login, refresh = graph.tasks["login"], graph.tasks["refresh"]
    assert login.result["summary"] == "login is done"
    assert login.started_at <= login.completed_at
    assert (refresh.started_at is not None, refresh.completed_at) == (True, None)


def test_what_each_agent_made_of_each_task_is_kept_with_summary_and_place(interrupted, hf):
    """Proves C5: completed at, summary, location of the output."""
    with opened(interrupted) as store:
        agents = {agent.id: agent for agent in store.latest(RUN).section("agents")}
    spec = agents["architect"].tasks["enrich/spec"]
    assert (spec.status, spec.summary) == ("completed", "specification of the refresh")
    assert spec.completed_at is not None
    assert spec.tokens == TokenUsage(input=300, output=90)
    with hf.run("r") as run:
        made = AgentOutput(output="long text", summary="a spec", location="spec.md")
        run.agents.register("architect", lambda: made)
        run.agents.call("architect", task="create_spec")
        [output] = run.agents.outputs()
        assert (output.task, output.summary, output.location) == ("create_spec", "a spec", "spec.md")


@pytest.fixture(scope="module")
def talked(quick, tmp_path_factory):
    """An issue that was killed before an answer, then in the first round of a conflict, and resumed to its end.

    With it, of each kill: the messages that were kept, and what `status` says to programs and to people.
    """
    made = quick.copy(tmp_path_factory.mktemp("c-talked") / "system")
    at_each = []
    for held, call in (("architect-answer", "architect answer m2"), ("tester-position", "tester position 1")):
        hold = made.folder / f"hold-{held}"
        hold.touch()
        assert kill_when([*ISSUE, "--yes"], made.folder, lambda call=call: call in made.lines())
        hold.unlink()
        with opened(made) as hf:
            kept = msgspec.to_builtins(hf.latest(RUN).section("messages"))
        at_each.append((kept, made.hf("status", RUN, "--json").json, made.hf("status", RUN).out))
    done = carried_on(made, "--yes")
    assert done.returncode == 0, done.stderr
    return made, at_each


def test_messages_that_are_under_way_and_conflicts_are_in_the_checkpoint(talked):
    """Proves C6: pending, awaiting response, conflicts in progress."""
    _, ((asked, *_), (argued, *_)) = talked
    assert [message["id"] for message in asked["pending"]] == ["m1", "m2"]
    assert [message["id"] for message in asked["awaiting_response"]] == ["m2"]
    assert asked["conflicts"] == []
    assert [message["id"] for message in argued["pending"]] == ["m1"]
    assert argued["answers"] == {"m2": "15 minutes"}
    [conflict] = argued["conflicts"]
    assert (conflict["name"], conflict["agents"], conflict["round"]) == ("ready/lock-out", ["coder", "tester"], 1)
    assert [position["agent"] for position in conflict["positions"]] == ["coder"]


def test_after_a_resume_messages_are_sent_again_answers_are_not_lost_and_a_conflict_goes_on_in_its_round(talked):
    """Proves C17."""
    system, _ = talked
    calls = Counter(system.lines())
    assert [calls[line] for line in SPOKEN] == [2, 1, 2, 1, 1]  # only what was cut short was asked again
    with opened(system) as hf:
        messages = hf.latest(RUN).section("messages")
    assert (messages.pending, messages.awaiting_response, messages.conflicts) == ([], [], [])
    assert messages.sent == 2
    [settled] = messages.resolved
    assert (settled["resolution"], settled["round"]) == ("lock for a minute", 2)


def test_knowledge_is_injected_captured_and_handed_on_once_however_often_a_run_resumes(interrupted, resumed, hf):
    """Proves C7: injected, captured, pending; no duplicate capture after a resume."""
    with opened(interrupted) as store:
        assert [entry.id for entry in store.latest(RUN).section("knowledge").injected] == ["KE-7"]
    with opened(resumed) as store:
        knowledge = store.latest(RUN).section("knowledge")
    assert [entry.id for entry in knowledge.captured] == ["KE-42b", "KE-42a"]
    assert knowledge.pending == []
    assert [json.loads(line)["id"] for line in resumed.lines("knowledge.jsonl")] == ["KE-42b", "KE-42a"]
    for _ in range(3):
        with hf.run("r") as run:
            run.knowledge.capture("tokens need a clock")
            pending = [entry.content for entry in run.knowledge.pending]
    assert pending == ["tokens need a clock"]


def test_files_that_were_modified_are_listed_with_status_and_whether_they_are_staged(interrupted, resumed):
    """Proves C8: path, status, staged."""
    with opened(interrupted) as hf:
        head = hf.latest(RUN)
        assert head.git.staged == ()
        first = hf.checkpoints(RUN, archived=True)[-1]
        changed = {change.path: change.status for change in head.changes(first)}
        assert changed["src/login.sh"] == "created"
    with opened(resumed) as hf:
        staged = {change.path: change.status for change in hf.latest(RUN).git.staged}
    assert staged == dict.fromkeys(("docs.md", "spec.md", "tested.txt", *(f"src/{part}.sh" for part in PARTS)), "A")


def test_a_checkpoint_says_that_and_where_exactly_the_run_can_go_on(interrupted):
    """Proves C9: can resume, batch and task, prerequisites met, warnings; in the readable form as well."""
    with opened(interrupted) as hf:
        info = hf.latest(RUN).recovery
        status = hf.recovery.status(RUN)
    assert info.can_resume
    assert (info.resume_phase, info.resume_batch, info.resume_task) == ("implementing", 3, "refresh")
    assert (info.prerequisites_met, info.blockers) == (True, ())
    assert info.warnings == ("agent coder was in progress and will start again",)
    assert (status.phase, status.batch, status.task, status.can_resume) == ("implementing", 3, "refresh", True)
    unseen = {one.kind: one.is_met for one in status.prerequisites}  # nobody said where the repository is
    assert unseen == {"branch": None, "subject": None, "files": None, "wait": True}
    recovery = yaml.safe_load((interrupted.folder / "readable" / RUN / "latest").read_text())["recovery"]
    assert (recovery["resume_batch"], recovery["resume_task"], recovery["prerequisites_met"]) == (3, "refresh", True)


@pytest.mark.parametrize("needed", ["nothing", "branch", "subject", "files", "wait"])
def test_each_prerequisite_is_looked_at_and_the_one_that_is_missing_is_named(needed, interrupted, tmp_path):
    """Proves C9, C12: branch, issue, files, waits; in Python and with `resume --dry-run --issue`."""
    system = interrupted.copy(tmp_path / "system")
    repo, issue = system.folder / "repo", system.folder / "issues" / "42.json"
    if needed == "branch":
        git(system, "checkout", "-q", "-b", "elsewhere")
    elif needed == "subject":
        change_issue(system, body="Something else is wanted.")
    elif needed == "files":
        (repo / "src" / "login.sh").write_text("echo theirs\n")
    elif needed == "wait":
        with opened(system) as hf:
            hf.control.pause(RUN, by="ann", note="lunch")
            with pytest.raises(RunWaiting), hf.run(RUN, workspace=repo, waiting="leave"):
                pytest.fail("it was entered")
    with opened(system) as hf:
        seen = hf.recovery.status(RUN, workspace=repo, subject=str(issue))
        assert seen.prerequisites_met is (needed == "nothing")
        assert {one.kind: one.is_met for one in seen.prerequisites} == {
            kind: kind != needed for kind in ("branch", "subject", "files", "wait")
        }
        assert hf.plan(RUN, workspace=repo, subject=str(issue)).prerequisites == seen.prerequisites
    said = system.hf("resume", RUN, "--dry-run", "--workspace", "repo", "--issue", issue, "--json")
    if needed == "wait":  # a resume would end the pause, and says so
        assert (said.json["status"], said.json["unpaused"]) == ("paused", False)
    else:
        told = {one["kind"]: one["is_met"] for one in said.json["plan"]["prerequisites"]}
        assert [kind for kind, is_met in told.items() if not is_met] == [needed] * (needed != "nothing")
    words = {"branch": "elsewhere", "subject": "text of '42' changed", "files": "src/login.sh", "wait": "lunch"}
    assert needed == "nothing" or words[needed] in str(next(one for one in seen.prerequisites if one.kind == needed))


def test_checkpoints_are_taken_at_phases_batches_agents_conflicts_and_ctrl_c(interrupted, tmp_path):
    """Proves C10: and at the end of a session, and when a person wants one."""
    with opened(interrupted) as hf:
        line = [(one.trigger, one.reason) for one in reversed(hf.checkpoints(RUN, archived=True))]
    triggers = [trigger for trigger, _ in line]
    assert {
        "phase_transition", "phase_complete", "batch_complete", "agent_complete", "conflict_start", "conflict_resolved",
    } <= set(triggers)  # fmt: skip
    assert line[-1] == ("user_interrupt", "SIGINT received")
    assert triggers.index("conflict_start") < triggers.index("conflict_resolved")
    ended = [reason for trigger, reason in line if trigger == "phase_complete"]
    assert ended == ["enrich is complete", "ready is complete"]
    assert line[triggers.index("phase_complete") + 1][0] == "phase_transition"  # saved before the next one begins
    program = """
import holdfast, signal
with holdfast.open("store", settings=holdfast.Settings()) as hf, hf.run("r") as run:
    run.checkpoint(state=1, reason="by hand")
    signal.raise_signal(signal.SIGHUP)
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False, capture_output=True, env=environment())
    with holdfast.open(tmp_path / "store", settings=holdfast.Settings()) as hf:
        assert [one.trigger for one in reversed(hf.checkpoints("r"))][1:3] == ["manual", "session_end"]


def test_a_person_can_read_the_store_an_index_a_yaml_file_a_checkpoint_and_the_latest(interrupted):
    """Proves C11."""
    folder = interrupted.folder / "readable" / RUN
    with opened(interrupted) as hf:
        checkpoints = hf.checkpoints(RUN, archived=True)
    index = yaml.safe_load((folder / "index.yaml").read_text())
    assert (index["run"], index["total"]) == (RUN, len(checkpoints))
    assert [one["id"] for one in index["checkpoints"]] == [one.id for one in checkpoints]
    assert (folder / "latest").is_symlink()
    latest = yaml.safe_load((folder / "latest").read_text())
    assert latest["id"] == checkpoints[0].id
    assert latest["sections"]["subject"]["title"] == "Refresh tokens for the login"
    assert latest["sections"]["graph"]["current_batch"] == 3
    assert index["latest"]["id"] == checkpoints[0].id
    assert [(one["trigger"], one["phase"], one["can_resume"]) for one in index["checkpoints"]] == [
        (one.trigger, one.summary.phase, one.recovery.can_resume) for one in checkpoints
    ]
    login = latest["sections"]["graph"]["tasks"]["login"]
    assert login["status"] == "completed"
    assert datetime.fromisoformat(str(login["started_at"])).tzinfo is not None
    assert "$datetime" not in (folder / "latest").read_text()
    documents = [path for path in folder.glob("*.yaml") if path.name != "index.yaml"]
    assert {path.name for path in documents} == {one["file"] for one in index["checkpoints"]}
    assert all(yaml.safe_load(path.read_text())["run"] == RUN for path in documents[:3])


def test_a_run_resumes_at_the_exact_task_with_batches_made_from_what_is_pending(resumed):
    """Proves C12: no finished task comes again, the one that was cut short does."""
    calls = Counter(resumed.lines())
    assert [calls[f"coder {part}"] for part in PARTS] == [1, 1, 1, 2, 1, 1]
    assert [calls[line] for line in SPOKEN] == [1] * 5
    said = (resumed.folder / "said").read_text()
    assert "continues at phase implementing, batch 3, task refresh" in said
    kept = [line.split()[1] for line in said.splitlines() if line.startswith("  task_kept")]
    assert sorted(kept) == [f"implementing/{name}" for name in ("limits", "login", "logout", "skeleton")]
    with opened(resumed) as hf:
        head = hf.latest(RUN)
        assert head.summary.status == "completed"
        graph = head.section("graph").others["implementing"]
        assert {node.status for node in graph.tasks.values()} == {"completed"}
        assert hf.verify().sound


def test_a_run_resumes_by_id_or_from_its_latest_and_says_clearly_when_it_cannot(interrupted, hf):
    """Proves C12: unknown run, no checkpoint, cannot resume."""
    with opened(interrupted) as store:
        head = store.latest(RUN)
        repo = interrupted.folder / "repo"
        assert store.plan(RUN, workspace=repo).checkpoint == head.id
        assert store.plan(head.id, workspace=repo).checkpoint == head.id
        assert store.plan("latest", run=RUN, workspace=repo).checkpoint == head.id
        with pytest.raises(NotFound, match="issue-43"):
            store.plan("issue-43")
    calls = []

    def coder():
        calls.append("coder")
        raise ValueError("no such file")

    for _ in range(3):
        with pytest.raises(ValueError, match="no such file"), hf.run("blocked") as run:
            run.agents.call("coder", task="t", using=coder)
    plan = hf.plan("blocked")
    assert not plan.can_resume
    assert plan.blockers == ("agent coder failed 3 times",)
    assert plan.suggestions
    result = hf.recover(plan)
    assert not result.success
    with pytest.raises(CannotResume, match="coder failed 3 times"), hf.run("blocked"):
        pytest.fail("it was entered")
    assert len(calls) == 3
    said = interrupted.hf("resume", "issue-43")
    assert (said.code, "issue-43" in said.err, "Traceback" in said.err) == (NotFound.exit_code, True, False)


@pytest.mark.parametrize("form", ["sqlite", "files"])
def test_what_stays_depends_on_trigger_and_phase_and_defaults_to_milestones(form, tmp_path):
    """Proves C13: batches 3 and agents 1 a phase, interrupts 1; phases, resolutions, manual ones all."""
    now = [time.time()]
    place = (tmp_path / "store").as_uri() if form == "files" else tmp_path / "store"
    store = holdfast.open(place, settings=holdfast.Settings()).store
    with holdfast.Holdfast(store, settings=holdfast.Settings(), clock=lambda: now[0]) as hf:
        for phase in ("ready", "implementing"):
            with pytest.raises(KeyboardInterrupt), hf.run("r") as run:  # noqa: PT012 - it ends as by Ctrl+C
                with run.phase(phase):
                    graph = run.graph(phase)
                    for number in range(5):
                        needs = [f"t{number - 1}"] if number else []
                        graph.add(f"t{number}", lambda: None, needs=needs)
                    graph.run()
                    for number in range(3):
                        run.agents.call("coder", task=f"{phase} {number}", using=lambda: "done")
                        run.mailbox.conflicts.start(f"{phase} {number}", ["a", "b"]).resolve("so")
                        run.checkpoint(reason=f"by hand {number}")
                raise KeyboardInterrupt
        hf.prune("r")

        def kept():
            return Counter((one.trigger, one.summary.phase) for one in hf.checkpoints("r", archived=True))

        first = kept()
        for phase in ("ready", "implementing"):
            assert first["batch_complete", phase] == 3
            assert first["agent_complete", phase] == 1
            assert first["conflict_resolved", phase] == first["manual", phase] == 3
            assert first["conflict_start", phase] == 1
        total = Counter(trigger for trigger, _ in first.elements())
        assert total["user_interrupt"] == 1
        assert total["phase_transition"] >= 2
        now[0] += 400 * 86_400
        hf.prune("r")
        later = Counter(trigger for trigger, _ in kept().elements())
        for trigger in ("phase_transition", "conflict_resolved", "manual"):
            assert later[trigger] == total[trigger]
        assert later["batch_complete"] == 0
        for number in range(60):
            hf.run("r").checkpoint(reason=f"more {number}")
        listed = [one for one in hf.checkpoints("r") if one.status == "valid"]
        everything = hf.checkpoints("r", archived=True)
        assert len(listed) == 50
        assert sum(one.trigger == "manual" for one in everything) == total["manual"] + 60
        assert everything[-1].status == "archived"
        assert hf.verify().sound


def test_the_settings_file_is_yaml_with_switches_retention_location_and_limits(interrupted, tmp_path):
    """Proves C14: enabled, automatic, triggers, retention with -1, location template, compression, size limit."""
    settings = load_settings(interrupted.folder / "holdfast.yaml")
    assert settings.location == "file://{root}/store"
    assert settings.rules.of("phase_transition").keep.count == -1
    assert settings.recovery.verdicts["body-changed"] == "ask"
    file = tmp_path / "holdfast.yaml"
    file.write_text(
        "enabled: true\nautomatic: true\ntriggers: {agent_complete: false}\nlocation: '{root}/issues'\n"
        "compression: none\nmax_section_mb: 50\nretention: {triggers: {batch_complete: 3, manual: -1}}\n"
        "recovery: {verdicts: {labels-changed: resume}, max_age_days: 7}\n"
    )
    with holdfast.open(settings=file) as hf:
        assert (tmp_path / "issues").is_dir()
        assert hf.settings.recovery.max_age_days == 7
    for wrong in ({"label-changed": "warn"}, {"labels-changed": "shout"}):
        with pytest.raises(SettingsInvalid):
            make_settings({"recovery": {"verdicts": wrong}})


def driven(hf: holdfast.Holdfast) -> Counter[str]:
    """Work as an issue's run does, a little of everything, and return which checkpoints are there afterwards."""
    with hf.run("r") as run, run.phase("implementing"):
        graph = run.graph("g")
        for number in range(5):
            graph.add(f"t{number}", lambda: None, needs=[f"t{number - 1}"] if number else [])
        graph.run()
        for number in range(3):
            run.agents.call("coder", task=f"t{number}", using=lambda: "done")
        run.mailbox.conflicts.start("c", ["a", "b"]).resolve("so")
        for number in range(6):
            run.checkpoint(state={"n": number, "text": f"{number} word " * 4000}, reason="by hand")
    return Counter(one.trigger for one in hf.checkpoints("r", archived=True)) if hf.has("r") else Counter()


@cache
def driven_with(kind: str, settings: str) -> Counter[str]:
    """Do that work in a store of its own."""
    with (
        TemporaryDirectory() as place,
        open_store_in(kind, Path(place)) as store,
        holdfast.Holdfast(store, settings=make_settings(json.loads(settings))) as hf,
    ):
        return driven(hf)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"enabled": False}, dict.fromkeys(("manual", "batch_complete", "phase_transition", "conflict_resolved"), 0)),
        ({"automatic": False}, {"manual": 6, "batch_complete": 0, "conflict_start": 0, "shutdown": 0}),
        ({"triggers": {"batch_complete": False}}, {"batch_complete": 0}),
        ({"triggers": {"conflict_events": False}}, {"conflict_start": 0, "conflict_resolved": 0}),
        ({"triggers": {"agent_complete": False}}, {"agent_complete": 0}),
        ({"strategy": {"phases": ["implementing"]}}, {"batch_complete": 0, "agent_complete": 0, "manual": 6}),
        ({"retention": {"triggers": {"batch_complete": -1, "agent_complete": -1}}},
         {"batch_complete": 5, "agent_complete": 3}),
        ({"retention": {"triggers": {"batch_complete": 1, "manual": 2}}}, {"batch_complete": 1, "manual": 2}),
        ({"retention": {"enabled": False}}, {"batch_complete": 5, "agent_complete": 3}),
        ({"retention": {"last": 2, "triggers": {"*": None}}}, {"manual": 0, "shutdown": 1}),
        ({"preset": "issue"}, {"agent_complete": 0, "batch_complete": 3}),
        ({"preset": "task"}, {"batch_complete": 0, "manual": 3}),
        ({"preset": "episode"}, {"batch_complete": 0, "phase_complete": 0, "conflict_resolved": 0, "manual": 6}),
    ],
    ids=lambda one: json.dumps(one).replace('"', ""),
)  # fmt: skip
def test_each_setting_changes_which_checkpoints_there_are_on_every_store(kind, given, changed):
    """Proves C14: switches, counts and presets; beside the same work without the setting."""
    plain, other = driven_with(kind, "{}"), driven_with(kind, json.dumps(given))
    assert {name: plain[name] for name in ("batch_complete", "agent_complete", "manual")} == {
        "batch_complete": 3, "agent_complete": 1, "manual": 6,
    }  # fmt: skip
    assert {name: other[name] for name in changed} == changed
    assert other != plain


@pytest.mark.parametrize("kind", STORES)
def test_compression_and_both_limits_of_size_and_number_act_on_every_store(kind, tmp_path):
    """Proves C14, A9: codec and bytes, `max_section_mb`, `live`, `age_days`, `total_mb` of stored bytes."""
    now = [time.time()]

    def opened_with(given, place):
        (tmp_path / place).mkdir()
        store = held.enter_context(open_store_in(kind, tmp_path / place))
        return held.enter_context(holdfast.Holdfast(store, settings=make_settings(given), clock=lambda: now[0]))

    with ExitStack() as held:
        text = "the same words again and again " * 3000
        sizes = {}
        for codec in ("none", "gzip", "lz4", "zstd"):
            made = opened_with({"compression": codec}, codec).run("r").checkpoint(state=text)
            assert made.record.envelope.codec == codec
            sizes[codec] = made.stored_bytes
        assert min(sizes["none"] / sizes[codec] for codec in ("gzip", "lz4", "zstd")) > 5
        with pytest.raises(holdfast.LimitExceeded, match="max_section_mb"):
            opened_with({"max_section_mb": 0.05}, "small").run("r").checkpoint(state=text)
        keep = {"triggers": {"*": -1}}
        hf = opened_with({"retention": {"live": 3, **keep}}, "live")
        for number in range(7):
            hf.run("r").checkpoint(state=number)
        assert [one.seq for one in hf.checkpoints("r")] == [7, 6, 5]
        assert len(hf.checkpoints("r", archived=True)) == 7
        hf = opened_with({"retention": {"age_days": 2, "triggers": {"*": None}}}, "age")
        hf.run("r").checkpoint(state="old")
        now[0] += 3 * 86_400
        for state in ("new", "newest"):
            hf.run("r").checkpoint(state=state)
        hf.prune("r")
        assert [one.section("state") for one in hf.checkpoints("r", archived=True)] == ["newest", "new"]
        counts = []
        for limit in ({}, {"total_mb": 1}):
            hf = opened_with({"compression": "none", "retention": {"live": None, **limit}}, f"total{len(counts)}")
            for number in range(12):
                hf.run("r").checkpoint(state=Random(number).randbytes(300_000))
            hf.prune("r")
            counts.append((len(hf.checkpoints("r", archived=True)), hf.stats().chunk_bytes <= 1_200_000))
        assert counts == [(12, False), (counts[1][0], True)]
        assert 1 <= counts[1][0] <= 3


@pytest.mark.parametrize("form", ["{root}/issues/{project}", "file://{root}/issues/{project}", "postgresql"])
def test_a_location_template_places_a_store_of_any_kind(form, tmp_path):
    """Proves C14: the settings file of a project says where its checkpoints are, without its path in it."""
    project = tmp_path / "shop"
    project.mkdir()
    server = shared_server() if form == "postgresql" else None
    url = server.database() if server is not None else ""
    try:
        location = f"{url}&tenant={{project}}" if server is not None else form
        (project / "holdfast.yaml").write_text(f"location: '{location}'\n")
        with holdfast.open(settings=project / "holdfast.yaml") as hf:
            hf.run("issue-42").checkpoint(state="kept")
        place = location.replace("{root}", str(project)).replace("{project}", "shop")
        with holdfast.open(place, settings=holdfast.Settings()) as hf:
            assert hf.latest("issue-42").section("state") == "kept"
        assert server is not None or (project / "issues" / "shop").is_dir()
    finally:
        if server is not None:
            server.drop(url)


def test_the_phase_follows_the_state_label_and_new_labels_are_the_runs(tmp_path):
    """Proves C15, C2: entered again or recovered; forwards what is left is skipped, backwards it is due again."""
    issue = tmp_path / "42.json"
    known = {"id": "42", "title": "Log in", "body": "Use OAuth.", "assignees": ["ann"], "branch": "feature/42"}

    def write(*labels):
        issue.write_text(json.dumps({**known, "labels": labels}))

    def stands():
        phases = hf.latest("r").section("phases").phases
        return {name: phases[name].status for name in ("enrich", "ready", "implementing") if name in phases}

    def program(*done):
        with hf.run("r", subject=str(issue)) as run:
            run.declare_phases("enrich", "ready", "implementing")
            for name in done:
                with run.phase(name, label=f"state:{name}"):
                    pass
            return run.phases.next

    with holdfast.open(tmp_path / "store", settings=holdfast.Settings()) as hf:
        write("state:enrich", "bug")
        assert program("enrich") == "ready"
        subject = hf.latest("r").section("subject")
        assert {name: getattr(subject, name) for name in (*known, "labels")} == {
            **known,
            "labels": ["state:enrich", "bug"],
        }
        write("state:implementing")
        assert program() == "implementing"
        assert stands() == {"enrich": "completed", "ready": "skipped"}
        assert hf.latest("r").section("subject").labels == ["state:implementing"]
        write("state:enrich")
        assert hf.recover("r", subject=str(issue)).success
        assert stands() == {"enrich": "pending", "ready": "pending"}
        assert program("enrich", "ready") == "implementing"
        write("state:enrich", "urgent")  # what did not move says nothing new of the phase
        assert program() == "implementing"
        assert stands() == {"enrich": "completed", "ready": "completed"}


@pytest.mark.parametrize("verdict", ["ask", "warn"])
def test_files_that_others_changed_are_asked_about_however_an_issue_is_resumed(verdict, tmp_path):
    """Proves C15: by the library, where the settings ask; the answer holds until something else moves."""
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "a.txt").write_text("one\n")
    with holdfast.open(
        tmp_path / "store", settings=make_settings({"recovery": {"verdicts": {"files-changed": verdict}}})
    ) as hf:
        with hf.run("r", workspace=repo) as run:
            run.step("one", lambda: 1)
        (repo / "a.txt").write_text("theirs\n")
        if verdict == "warn":
            with hf.run("r", workspace=repo, waiting="leave") as run:
                assert any(
                    "1 file changed since the last checkpoint" in line["what"] for line in run.recorder.journal()
                )
            return
        for resume in (lambda: hf.recover("r", workspace=repo), hf.run("r", workspace=repo, waiting="leave").__enter__):
            with pytest.raises(RunWaiting, match=r"1 file changed since the last checkpoint: 'a\.txt'"):
                resume()
        [shown] = hf.plan("r", workspace=repo).findings
        assert (shown.kind, shown.verdict) == ("files-changed", "ask")
        [wait] = hf.control.waiting("r")
        hf.control.answer("r", "resume", wait=wait.id)
        with hf.run("r", workspace=repo, waiting="leave") as run:
            assert run.step("one", lambda: 2) == 1
        assert (repo / "a.txt").read_text() == "theirs\n"
        with hf.run("r", workspace=repo, waiting="leave"):
            pass


def test_changed_labels_are_a_warning_and_the_run_goes_on(resumed):
    """Proves C15: labels changed, continue with a warning."""
    said = (resumed.folder / "said").read_text()
    assert "warn: labels of '42': added 'state:implementing', 'urgent'" in said
    assert "phase_done     docs" in said


def plan_of(system: System, **options: object) -> holdfast.recovery.plan.RecoveryPlan:
    with opened(system) as hf:
        subject = FileSubject(system.folder / "issues" / "42.json")
        return hf.plan(RUN, workspace=system.folder / "repo", subject=subject, **options)


def test_a_changed_body_asks_and_nothing_is_done_before_the_answer(interrupted, tmp_path):
    """Proves C15: body changed, ask."""
    system = interrupted.copy(tmp_path / "system")
    change_issue(system, body="Something else is wanted.")
    calls = system.lines()
    done = carried_on(system)
    assert done.returncode == CannotResume.exit_code
    assert "ask: the text of '42' changed" in done.stdout
    assert system.lines() == calls
    plan = plan_of(system)
    assert ([finding.kind for finding in plan.findings], plan.verdict) == (["body-changed"], "ask")
    assert plan_of(system, verdicts={"body-changed": "resume"}).verdict == "resume"


def test_a_branch_that_is_gone_means_to_start_afresh_and_the_old_line_is_kept(interrupted, tmp_path):
    """Proves C15: branch gone, start fresh."""
    system = interrupted.copy(tmp_path / "system")
    git(system, "branch", "-m", "elsewhere")
    plan = plan_of(system)
    assert [(finding.kind, finding.verdict) for finding in plan.findings] == [("branch-gone", "fresh")]
    assert plan.verdict == "fresh"
    with opened(system) as hf:
        before = hf.latest(RUN)
        root = hf.recovery.start_fresh(RUN)
        assert hf.latest(RUN).id == root.id
        assert "graph" not in root.sections
        assert hf.get(before.id).status == "archived"
        assert hf.get(before.id).section("graph").current_batch == 3
        with closing(hf.run(RUN)) as run:
            assert hf.internals.open_run(RUN) is run  # nothing else holds it any more


def test_files_that_others_changed_are_shown_as_a_diff_and_reconciled(interrupted, tmp_path):
    """Proves C15: files changed by others, show the diff, let the person reconcile."""
    system = interrupted.copy(tmp_path / "system")
    login = system.folder / "repo" / "src" / "login.sh"
    login.write_text("echo login\necho theirs\n")
    (system.folder / "repo" / "src" / "skeleton.sh").unlink()
    done = carried_on(system)
    assert done.returncode == CannotResume.exit_code
    assert "ask: 2 files changed since the last checkpoint: 'src/login.sh', 'src/skeleton.sh'" in done.stdout
    assert "+echo theirs" in done.stdout
    assert "-echo skeleton" in done.stdout
    with opened(system) as hf:
        repo = system.folder / "repo"
        mine = Decisions(edits="keep", paths={"src/skeleton.sh": "take"})
        with pytest.raises(RunWaiting, match="2 files changed since the last checkpoint"):
            hf.recover(RUN, workspace=repo, decisions=mine)
        result = hf.recover(RUN, workspace=repo, decisions=mine, confirmed=True)
        assert result.success
        assert (repo / "src" / "skeleton.sh").read_text() == "echo skeleton\n"
        assert login.read_text() == "echo login\necho theirs\n"
        assert hf.undo(RUN, workspace=repo).success
        assert not (repo / "src" / "skeleton.sh").exists()


def test_a_checkpoint_that_is_too_old_or_an_issue_that_is_gone_asks(interrupted, tmp_path):
    """Proves C15: as the settings say."""
    system = interrupted.copy(tmp_path / "system")
    (system.folder / "issues" / "42.json").unlink()
    settings = system.folder / "holdfast.yaml"
    settings.write_text(settings.read_text().replace("recovery:", "recovery:\n  max_age_days: 0.0000001"))
    assert [finding.kind for finding in plan_of(system).findings] == ["subject-gone", "too-old"]
    settings.write_text(settings.read_text().replace("body-changed: ask", "too-old: resume, subject-gone: warn"))
    assert [finding.verdict for finding in plan_of(system).findings] == ["warn", "resume"]


def test_there_is_a_checkpoint_before_each_batch_a_retry_starts_from_it_and_reports_show_it(interrupted, tmp_path):
    """Proves C16."""
    system = interrupted.copy(tmp_path / "system")
    with opened(system) as hf:
        line = [one for one in hf.checkpoints(RUN, archived=True) if one.summary.phase == "implementing"]
        before = {one.reason: one for one in line if one.reason.startswith("before batch")}
        assert sorted(before) == ["before batch 1", "before batch 2", "before batch 3"]
        third = before["before batch 3"]
        plan = hf.plan(third.id, workspace=system.folder / "repo")
        assert "  continues at phase implementing, batch 3, task refresh" in str(plan)
        done = {name for name in plan.rerun if not name.startswith("implementing/logout")}  # maybe under way then
        assert done == {"implementing/limits"}  # of the third batch this was done already
        assert hf.recover(plan).success
        graph = hf.latest(RUN).section("graph")
        assert {name: node.status for name, node in graph.tasks.items() if node.batch == 3} == dict.fromkeys(
            ("refresh", "limits"), "pending"
        )


def test_a_report_shows_batch_and_tasks_while_the_run_is_killed(quick, tmp_path):
    """Proves C16: `status` of a run that died in the middle, for people and for programs."""
    system = quick.copy(tmp_path / "system")
    hold = system.folder / "hold-coder-login"
    hold.touch()
    assert kill_when([*ISSUE, "--yes"], system.folder, lambda: "coder login" in system.lines())
    said = system.hf("status", RUN, "--json")
    assert said.code == 0, said.err
    batch = said.json["batch"]
    assert (batch["graph"], batch["current"], batch["completed"]) == ("implementing", 2, [1])
    assert "login" in batch["running"]
    assert "join" in batch["pending"]
    told = system.hf("status", RUN).out
    assert "batch 2: " in told


def test_a_report_shows_the_messages_and_conflicts_that_a_killed_run_was_in(talked):
    """Proves C16: while an answer is awaited, and in the first round of a conflict."""
    _, ((_, asked, asked_text), (_, argued, argued_text)) = talked
    assert (asked["messages"], asked["conflicts"]) == ({"pending": 2, "awaiting_response": 1}, [])
    assert "2 pending, 1 awaiting a response" in asked_text
    assert argued["messages"] == {"pending": 1, "awaiting_response": 0}
    assert argued["conflicts"] == [{"name": "ready/lock-out", "agents": ["coder", "tester"], "round": 1}]
    assert "ready/lock-out: coder, tester, round 1" in argued_text


def end_of(system: System) -> dict[str, object]:
    """Return all that must be the same however often the run was killed."""
    with opened(system) as hf:
        assert hf.verify().sound
        head = hf.latest(RUN)
        messages, knowledge = head.section("messages"), head.section("knowledge")
        graph, team = head.section("graph").others["implementing"], head.section("team").members
        return {
            "status": head.summary.status,
            "phases": {name: (one.status, one.summary) for name, one in head.section("phases").phases.items()},
            "tasks": {name: (node.status, node.result) for name, node in graph.tasks.items()},
            "team": [(one.agent, one.status, sorted(one.completed), one.pending) for one in team],
            "agreed": [(one["resolution"], one["round"], len(one["positions"])) for one in messages.resolved],
            "messages": (messages.pending, messages.answers, messages.sent),
            "told": [entry.id for entry in knowledge.injected],
            "learned": [[entry.id for entry in part] for part in (knowledge.captured, knowledge.pending)],
            "handed on": system.lines("knowledge.jsonl"),
            "files": {file.path: head.read(file.path) for file in head.files() if file.kind == "file"},
            "staged": head.git.staged,
            "tokens": head.section("budget").spending["tokens"].used,
        }  # fmt: skip


def test_killed_at_random_moments_the_issue_ends_as_an_unbroken_one_does(quick, tmp_path):
    """Proves C12, C17, C7."""
    whole = quick.copy(tmp_path / "whole")
    times = pace([*ISSUE, "--yes"], whole.folder)
    expected = end_of(whole)
    killed = number = 0
    while killed < KILLS:
        number += 1
        broken = quick.copy(tmp_path / f"broken-{number}")
        ended = kill_and_resume([*ISSUE, "--yes"], broken.folder, 6, f"issue {number}", **times)
        assert ended.code == 0, ended.err
        assert end_of(broken) == expected
        again = Counter(broken.lines()) - Counter(whole.lines())
        assert again.total() <= 2 * ended.kills  # two tasks are under way at most
        killed += ended.kills
