"""System B, a plan in phases: resumed, declined, failed, replanned, from Python and from shell; the ledger's B."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from itertools import pairwise

import apsw
import msgspec
import pytest

import holdfast
from holdfast.flow.load import flow_from
from holdfast.flow.markdown import flow_from_plan, plan_run_id
from holdfast.flow.model import Replan
from holdfast.flow.runner import run_flow
from holdfast.internals import Internals
from seeds.conftest import environment
from seeds.killing import KILLS, kill_and_resume, kill_when, live, pace, resumes

PHASES = ["1-research", "2-design", "3-build", "4-verify"]
RUN = "plan-" + plan_run_id("plan.md", root=".").removeprefix("plan-")


@pytest.fixture(scope="module")
def begun(system):
    """The example as it is before its plan is run."""
    made = system("b_plan")
    (made.folder / "work").mkdir()
    return made


@pytest.fixture
def plan(begun, tmp_path):
    """A copy of it."""
    return begun.copy(tmp_path / "system")


def carry_on(system, **options):
    """Carry the plan on in this process; return how it ended."""
    with system.open() as hf:
        text = (system.folder / "plan.md").read_text()
        flow = flow_from_plan(text, "plan.md")
        options = {"run_id": RUN, "workspace": system.folder / "work", "waiting": "leave", **options}
        return run_flow(hf, flow, file="plan.md", **options)


@pytest.fixture(scope="module")
def _failed(begun, tmp_path_factory):
    made = begun.copy(tmp_path_factory.mktemp("b-failed") / "system")
    (made.folder / "network-is-down").touch()
    assert carry_on(made).status == "waiting"
    return made


@pytest.fixture
def failed(_failed, tmp_path):
    """A plan whose third phase failed, and that waits for what a person says."""
    return _failed.copy(tmp_path / "system")


def book(system):
    with system.open() as hf:
        return hf.latest(RUN).section("phases")


def test_the_state_of_a_plan_says_all_of_its_phases(plan):
    """Proves B1: plan, current phase, completed ones, status, artifacts, duration, time, summary of each; replans."""
    text = (plan.folder / "plan.md").read_text()
    flow = {
        "flow": "plan",
        "phases": {
            "research": {"run": "echo notes > notes.md; echo 'one source'", "artifacts": ["notes.md"]},
            "build": {"run": "test -e ready && echo built", "replan": "touch ready"},
        },
    }
    assert text
    with plan.open() as hf:
        run_flow(hf, flow_from(flow), workspace=plan.folder / "work", file="plan.md")
        stored = hf.latest("plan")
        found = stored.section("phases")
        assert (stored.run, found.plan, found.order, found.current) == ("plan", "plan.md", ["research", "build"], None)
        research, build = found.phases["research"], found.phases["build"]
        assert (research.status, research.summary) == ("completed", "one source")
        assert [one.path for one in research.artifacts] == ["notes.md"]
        assert research.started_at <= research.completed_at
        assert research.duration_s > 0
        assert build.status == "completed"
        (replan,) = found.replans
        assert (replan.phase, replan.at.tzinfo is not None) == ("build", True)
        assert "test -e ready" in replan.reason
        middle = next(one for one in hf.checkpoints("plan") if one.reason.startswith("build begins"))
        assert middle.section("phases").current == "build"
        with hf.run("plan") as run:
            run.context.note(research_reports=["notes.md"])
        assert hf.latest("plan").section("context").metadata == {"research_reports": ["notes.md"]}


def test_each_phase_ends_with_a_checkpoint_that_was_read_back(plan, monkeypatch):
    """Proves B2: before the next phase begins, the one that is complete is stored and whole."""
    order = []
    read_back = Internals.read_back

    def told(hf, record, since):
        read_back(hf, record, since)
        order.append(f"read back {record.envelope.summary.phase}" if record.envelope.summary.phase else "read back")

    monkeypatch.setattr(Internals, "read_back", told)

    def watch(event):
        if event.kind == "phase_started":
            order.append(event.phase)

    assert carry_on(plan, observer=watch).status == "completed"
    for before, after in pairwise(PHASES):
        assert any(line.startswith("read back") for line in order[order.index(before) : order.index(after)])
    with plan.open() as hf:
        done = [one for one in hf.checkpoints(RUN, archived=True) if one.trigger == "phase_complete"]
        assert [one.reason.split()[0] for one in reversed(done)] == PHASES


def test_resuming_skips_what_is_done_and_a_finished_plan_says_so(failed):
    """Proves B3: what is done is said and not done again."""
    (failed.folder / "network-is-down").unlink()
    with failed.open() as hf:
        hf.control.answer(RUN, "retry")
    said = failed.hf("run", "plan.md", "--workspace", "work", "--no-wait")
    assert said.code == 0, said.err
    assert "2 of 4 phases done (1-research, 2-design)" in said.err
    assert failed.lines() == ["research", "design", "build", "build", "verify"]
    again = failed.hf("run", "plan.md", "--workspace", "work")
    assert (again.code, "it was over already" in again.out) == (0, True)
    assert "nothing left to do" in again.err


def test_a_person_at_a_terminal_is_offered_to_resume_and_may_decline(failed):
    """Proves B3: Y/n; no archives what is there under the time, and starts fresh."""
    (failed.folder / "network-is-down").unlink()
    code, said = at_a_terminal(
        failed, ["run", "plan.md", "--workspace", "work"], {"Resume it (n sets it aside and starts over)? [Y/n]": "n\n"}
    )
    assert code == 0, said
    assert failed.lines() == ["research", "design", "build", "research", "design", "build", "verify"]
    with failed.open() as hf:
        (label,) = {one.label for one in hf.checkpoints(RUN, archived=True) if one.label}
        assert label.startswith("archived-20")
        assert {one.status for one in hf.checkpoints(RUN)} == {"valid"}
        assert hf.find(label, run=RUN).section("phases").phases["3-build"].status == "failed"
        assert hf.verify().sound


def test_a_person_at_a_terminal_decides_on_a_failed_phase(failed):
    """Proves B3, B5: yes to resume, skip to the question of the run."""
    answers = {"Resume it (n sets it aside and starts over)? [Y/n]": "y\n", "[later]": "skip\n"}
    code, said = at_a_terminal(failed, ["run", "plan.md", "--workspace", "work"], answers, until="[later]")
    assert code == 9, said  # the next phase fails, too, for there is nothing to verify; later is the safe answer
    assert book(failed).phases["3-build"].status == "skipped"
    assert book(failed).phases["4-verify"].status == "failed"


def at_a_terminal(system, words, answers, until=None):
    """Run a line on a terminal of its own, answering each question once; one that comes again gets its default."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        system.command(*words),
        cwd=system.folder,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment({"TERM": "xterm", "COLUMNS": "120"}),
        start_new_session=True,
    )
    os.close(slave)
    said, seen = "", 0
    deadline = time.monotonic() + 60
    left = dict(answers)
    while time.monotonic() < deadline:
        ready, _, _ = select.select([master], [], [], 0.2)
        if ready:
            try:
                said += os.read(master, 65536).decode("utf-8", "replace")
            except OSError:
                break
        for question in [*left, *([until] if until else [])]:
            if question in said[seen:]:
                seen = said.index(question, seen) + len(question)
                os.write(master, left.pop(question, "\n").encode())
        if not ready and process.poll() is not None:
            break
    os.close(master)
    return process.wait(10), said


def test_an_old_approval_does_not_count_for_a_plan_that_starts_fresh(hf):
    """Proves B3: what was said to the line before is not for the new one."""
    flow = flow_from({"flow": "f", "phases": {"push": {"run": "true", "approve": "push?"}}})
    assert run_flow(hf, flow, waiting="leave").status == "waiting"
    hf.control.answer("f", "approve", by="ann")
    assert run_flow(hf, flow, waiting="leave").status == "completed"
    hf.recovery.start_fresh("f")
    assert run_flow(hf, flow, waiting="leave").status == "waiting"
    hf.control.cancel("f")
    assert run_flow(hf, flow, waiting="leave").status == "cancelled"
    hf.recovery.start_fresh("f")
    assert run_flow(hf, flow, waiting="leave").status == "waiting"


def test_a_checkpoint_that_is_damaged_is_found_before_anything_is_resumed(failed):
    """Proves B3: validated first, and it is said what to do."""
    with failed.open() as hf:
        root = next(one.root for one in hf.latest(RUN).record.envelope.sections if one.name == "phases")
    database = apsw.Connection(str(failed.store / "holdfast.db"))
    database.execute("UPDATE chunk SET data = zeroblob(length(data)) WHERE id = ?", (root,))
    database.close()
    said = failed.hf("run", "plan.md", "--workspace", "work", "--no-wait")
    assert said.code == 5
    assert f"holdfast resume {RUN}" in said.err
    assert failed.hf("resume", RUN, "--workspace", "work", "--yes", "--no-run").code == 0
    assert failed.hf("run", "plan.md", "--workspace", "work", "--no-wait").code == 9


def test_the_same_plan_finds_its_own_run_and_two_projects_never_share_one(begun, tmp_path):
    """Proves B4: however the plan is named and wherever its project lies, also where two projects use one store."""
    projects = [begun.copy(tmp_path / name) for name in ("one", "two")]
    store = f"--store={tmp_path}/shared"
    for project in projects:
        project.sh("mkdir specs && cp plan.md specs/plan.md && git init -q .")
        for name in ("plan.md", "./plan.md", "specs/../plan.md", project.folder / "plan.md"):
            assert project.hf("run", name, "--workspace", "work", "-q", store).code == 0
        assert project.lines() == ["research", "design", "build", "verify"]
        assert project.hf("run", "specs/plan.md", "--workspace", "work", "-q", store).code == 0
        assert project.lines() == ["research", "design", "build", "verify"] * 2
    runs = projects[0].hf("ls", "--all-projects", "--json", store)
    with holdfast.open(tmp_path / "shared", settings=holdfast.Settings()) as hf:
        assert len(list(hf.runs())) == 4, runs.err
    moved = projects[0].copy(tmp_path / "moved")
    again = moved.hf("run", "plan.md", "--workspace", "work", f"--store={tmp_path}/own")
    assert (again.code, moved.lines()[8:]) == (0, ["research", "design", "build", "verify"])


@pytest.mark.parametrize(
    ("choice", "ending", "built"), [("retry", "completed", "completed"), ("abort", "failed", "failed")]
)
def test_a_failed_phase_is_kept_with_its_error_and_a_person_chooses(failed, choice, ending, built):
    """Proves B5."""
    state = book(failed).phases["3-build"]
    assert (state.status, "no network" in state.error.message) == ("failed", True)
    (failed.folder / "network-is-down").unlink()
    with failed.open() as hf:
        (wait,) = hf.control.waiting(RUN)
        assert wait.options == ("retry", "skip", "abort")
        hf.control.answer(RUN, choice, by="ann")
    assert carry_on(failed).status == ending
    assert book(failed).phases["3-build"].status == built


def test_a_skipped_phase_is_left_out_and_the_next_one_begins(failed):
    """Proves B5."""
    with failed.open() as hf:
        hf.control.answer(RUN, "skip")
    result = carry_on(failed)
    assert result.phases["3-build"] == "skipped"
    assert failed.lines()[-1] == "verify"


def test_replanning_is_counted_and_ends_at_its_limit(plan):
    """Proves B6: twice by default, then a person is asked; no endless loop."""
    result = plan.carry_on("replanned.yaml", workspace="work", params={"good_plan": 0})
    assert (result.status, result.waits_for) == ("waiting", "failed:build:3")
    assert plan.lines() == ["research", "build", "replan", "build", "replan", "build"]
    with plan.open() as hf:
        found = hf.latest(result.run).section("phases")
        assert [(one.phase, "too complex" in one.reason) for one in found.replans] == [("build", True)] * 2
        with hf.run(result.run) as run, pytest.raises(holdfast.ReplanLimit):
            run.phases.replan("build", "once more")
        assert hf.run("other").declare_phases("a").replans.left("a") == 2


PLAN = """# Add a login

## Phase 1: {first}
```sh
echo first >> calls.log
```
## Phase 2: {second}
The agent does this one.

## Phase 3: {third}
```sh
echo third >> calls.log; test -e ready
```
"""


def plan_text(system, first, second, third):
    (system.folder / "p.md").write_text(PLAN.format(first=first, second=second, third=third))


def test_a_phase_is_its_number_so_a_reworded_heading_repeats_no_work(plan):
    """Proves B6: of `holdfast run`, for a phase with a command and for one that an agent does by its text."""
    words = ("run", "p.md", "--no-wait", "-q", "--agent", "printf '%s\\n' \"$HOLDFAST_INPUT\" | head -n 1 >> calls.log")
    plan_text(plan, "Research", "Design", "Build")
    assert plan.hf(*words).code == 9
    (run,) = [row["id"] for row in plan.hf("ls", "--json").json["runs"]]
    plan_text(plan, "Find out", "Draw {it}", "Construct")
    preview = plan.hf(*words, "--dry-run", "--json").json["phases"]
    assert [(one["change"], one["will"]) for one in preview] == [("same", "kept"), ("same", "kept"), ("same", "failed")]
    assert plan.hf("answer", "retry", run).code == 0
    assert plan.hf(*words).code == 9
    assert plan.lines() == ["first", "Design", "third", "third"]
    plan_text(plan, "Find it out", "Draw {it}", "Construct it")
    (plan.folder / "ready").touch()
    assert plan.hf("answer", "retry", run).code == 0
    assert plan.hf(*words).code == 0
    assert plan.lines() == ["first", "Design", "third", "third", "third"]
    assert plan.hf("status", run, "--json").json["completed_phases"] == [1, 2, 3]
    assert plan.hf(*words, "--redo", "2").code == 0
    assert plan.lines()[5:] == ["Draw {it}", "third"]


def test_a_reworded_heading_does_not_reset_the_count_of_replans(plan):
    """Proves B6: the plan is reworded by the replan itself, as planners do, and by a person between two processes."""
    flow = {"run": "holdfast-no-agent", "on_failure": "abort"}
    with plan.open() as hf:
        for title in ("Build", "Build smaller", "Build in two steps", "Build less"):
            text = f"## Phase 1: {title}\n```sh\nfalse\n```\n"
            made = flow_from_plan(text, "p.md", **flow)
            phases = {
                name: msgspec.structs.replace(one, replan=Replan(run="echo x >> calls.log"))
                for name, one in made.phases.items()
            }
            run_flow(
                hf, msgspec.structs.replace(made, phases=phases), run_id="p", workspace=plan.folder, waiting="leave"
            )
        found = hf.latest("p").section("phases")
    assert plan.lines() == ["x", "x"]
    assert [one.phase for one in found.replans] == ["1-build"] * 2


def test_a_plan_that_a_shell_script_follows_keeps_counts_and_work_by_number(plan):
    """Proves B6, B7: `begin` after the headings were reworded, and the third replan is refused."""
    plan_text(plan, "Research", "Design", "Build")
    assert plan.hf("begin", "p.md").code == 0
    assert plan.hf("phase", "start", "1").code == plan.hf("phase", "done", "1", "--summary", "all read").code == 0
    assert plan.hf("phase", "start", "2").code == plan.hf("replan", "2", "--reason", "too complex").code == 0
    plan_text(plan, "Find out", "Draw", "Construct")
    assert plan.hf("begin", "p.md", "--resume").code == 0
    assert plan.hf("replan", "2", "--reason", "still").code == 0
    plan_text(plan, "Find it out", "Draw it", "Construct it")
    assert plan.hf("begin", "p.md", "--resume").code == 0
    assert plan.hf("replan", "2", "--reason", "and again").code == 11
    stands = plan.hf("status", "--json").json
    assert (stands["completed_phases"], stands["replan_count"]) == ([1], {"2": 2})
    assert stands["phases"]["1-find-it-out"]["summary"] == "all read"


def test_a_phase_that_is_planned_anew_in_time_goes_on(plan):
    """Proves B6."""
    assert plan.carry_on("replanned.yaml", workspace="work").status == "completed"
    assert plan.lines() == ["research", "build", "replan", "build", "verify"]


def test_a_plan_is_followed_from_a_shell_script(plan):
    """Proves B7: begin, phase done and failed, replan, status, resume; killed anywhere, the same line continues."""
    environment_of_script = {"HOLDFAST": f"{sys.executable} -m holdfast", "FAILS": "3-build"}
    assert sh(plan, "by_hand.sh", environment_of_script) == 1
    assert plan.lines() == PHASES[:3]
    status = plan.hf("status", "--json").json
    assert plan.hf("status", "--left").out.split() == PHASES[2:]
    assert status["run"] == RUN
    assert plan.hf("replan", "3-build", "--reason", "too much at once").code == 0
    assert plan.hf("replan", "3-build", "--reason", "still too much").code == 0
    assert plan.hf("replan", "3-build", "--reason", "and again").code == 11
    assert sh(plan, "by_hand.sh", {**environment_of_script, "FAILS": ""}) == 0
    assert plan.lines() == [*PHASES[:3], *PHASES[2:]]
    found = book(plan)
    assert {found.phases[name].status for name in PHASES} == {"completed"}
    assert found.phases["1-research"].summary == "1-research is done"
    assert len(found.replans) == 2


def test_what_a_script_saved_by_going_on_is_one_figure(plan):
    """Proves B9, B1: with artifact paths and context metadata, given and read from the shell."""
    assert plan.hf("begin", "plan.md").code == 0
    assert plan.hf("save", "-q", "--path", "reports=notes/", "--note", 'research=["a.md"]').code == 0
    (plan.folder / "a.md").write_text("a")
    assert plan.hf("phase", "start", "1").code == 0
    assert plan.hf("phase", "done", "1", "--artifact", "a.md", "--summary", "read").code == 0
    assert plan.hf("phase", "start", "2").code == 0
    assert plan.hf("replan", "2", "--reason", "complexity_exceeded").code == 0
    stands = plan.hf("status", "--json").json
    first = stands["phases"]["1-research"]
    assert (stands["plan"].endswith("plan.md"), stands["current_phase"], stands["completed_phases"]) == (True, 2, [1])
    assert (first["status"], first["summary"], [one["path"] for one in first["artifacts"]]) == (
        "completed", "read", ["a.md"],
    )  # fmt: skip
    assert first["started_at"] < first["completed_at"]
    assert [(one["phase"], one["reason"]) for one in stands["replans"]] == [("2-design", "complexity_exceeded")]
    assert (stands["replan_count"], stands["artifact_paths"]) == ({"2": 1}, {"reports": "notes/"})
    assert stands["context_metadata"]["research"] == ["a.md"]
    with plan.open() as hf:
        saved = hf.recovery.savings(stands["run"])
    assert saved.seconds == pytest.approx(first["duration_s"])
    assert stands["saved_s"] == pytest.approx(saved.seconds)
    assert plan.hf("begin", "plan.md", "--resume", "--json").json["saved_s"] == pytest.approx(saved.seconds)


def sh(system, script, env):
    return subprocess.run(
        ["sh", script], cwd=system.folder, env=environment(env), check=False, capture_output=True
    ).returncode


def test_a_transient_failure_is_retried_by_itself(hf, tmp_path):
    """Proves B8: a network that is there again at the third try."""
    command = "echo x >> tries; test $(wc -l < tries) -ge 3 || exit 1; echo fetched"
    data = {"flow": "f", "phases": {"fetch": {"run": command, "retries": 3, "backoff": 0.01}}}
    result = run_flow(hf, flow_from(data), workspace=tmp_path)
    assert (result.status, result.results) == ("completed", {"fetch": "fetched"})
    assert [one["attempts"] for one in hf.latest("f").log("steps") if one["step"] == "fetch/fetch"][-1:] == [3]


def test_a_session_that_was_interrupted_resumes_the_next_time(plan):
    """Proves B8: killed in the middle of a phase, the same line continues with that phase."""
    plan.sh("sed -i 's/^echo design .*/&; test -e ..\\/once || { touch ..\\/once; sleep 60; }/' plan.md")
    command = plan.command("run", "plan.md", "--workspace", "work", "-q")
    assert kill_when(command, plan.folder, (plan.folder / "once").exists)
    assert live(command, plan.folder).code == 0
    assert plan.lines() == ["research", "design", "design", "build", "verify"]
    assert book(plan).phases["2-design"].attempt == 1


def test_the_trail_says_what_happened_when_how_long_it_took_and_what_a_resume_saved(failed):
    """Proves B9."""
    (failed.folder / "network-is-down").unlink()
    with failed.open() as hf:
        hf.control.answer(RUN, "retry", by="ann", note="it is back")
    result = carry_on(failed)
    with failed.open() as hf:
        events = hf.events(RUN)
        saved = hf.recovery.savings(RUN)
        found = hf.latest(RUN).section("phases")
    kinds = [event.kind for event in events]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert kinds.index("waits") < kinds.index("answered")
    assert next(event.by for event in events if event.kind == "answered") == "ann"
    assert {"phase_complete", "error_occurred", "resumed", "completed"} <= set(kinds)
    assert all(found.phases[name].duration_s > 0 for name in PHASES)
    assert (saved.resumes, saved.steps, result.tasks_kept) == (1, 2, 2)
    before = [found.phases[name] for name in PHASES[:2]]
    assert 0 < saved.seconds <= sum(phase.duration_s for phase in before)
    everywhere = [
        result.saved_s,
        failed.hf("status", RUN, "--json").json["saved_s"],
        failed.hf("events", RUN, "--json").json["savings"]["seconds"],
    ]
    assert everywhere == [pytest.approx(saved.seconds)] * 3
    told = failed.hf("events", RUN)
    assert (told.code, "answered" in told.out) == (0, True)


def end_of(system):
    """Return all that must be the same however often the run was killed."""
    with system.open() as hf:
        assert hf.verify().sound
        head = hf.latest(RUN)
        return {
            "status": head.summary.status,
            "phases": {name: (one.status, one.summary) for name, one in head.section("phases").phases.items()},
            "steps": {one["step"]: one.get("result") for one in head.log("steps") if one["event"] == "done"},
            "files": {file.path: head.read(file.path) for file in head.files() if file.kind == "file"},
        }


def test_killed_at_random_moments_it_ends_as_an_unbroken_run_does(begun, tmp_path):
    """Proves B8, B2."""
    command = begun.command("run", "plan.md", "--workspace", "work", "-q", "--resume")
    unbroken = begun.copy(tmp_path / "unbroken")
    times = pace(command, unbroken.folder)
    killed = number = 0  # those that came after the run had begun
    while killed < KILLS:
        number += 1
        made = begun.copy(tmp_path / f"run {number}")
        lives = kill_and_resume(command, made.folder, 6, f"b {number}", **times)
        assert lives.code == 0, lives.err
        assert end_of(made) == end_of(unbroken)
        assert set(made.lines()) == {"research", "design", "build", "verify"}
        assert len(made.lines()) <= 4 + lives.kills
        with made.open() as hf:
            killed += resumes(hf, RUN)
        shutil.rmtree(made.folder)
