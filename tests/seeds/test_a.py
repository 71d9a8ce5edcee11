"""System A, an orchestrator: states, agents, an approval, a guarded push, recovery; the ledger's A, entry by entry."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import apsw
import psycopg
import pytest

import holdfast
from holdfast.capture.triggers import DESTRUCTIVE_OPERATIONS
from holdfast.flow.load import flow_from, load_flow
from holdfast.flow.runner import run_flow
from holdfast.model.checkpoint import FORMAT_VERSION
from holdfast.model.triggers import Trigger
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.faults import Fault, FaultyDisk
from postgres_server import shared_server
from seeds.killing import KILLS, kill_and_resume, kill_when, pace, resumes

RUN = "orchestrator"
REPORTING = """echo '{"result": "fine", %s}'"""
ONCE = ["architect", "coder 1", "tester: hello nobody", "coder 2", "tester: hello world", "reviewer"]


@pytest.fixture(scope="module")
def begun(system):
    """The example as it is before its flow is run."""
    made = system("a_orchestrator")
    made.sh("sh setup.sh")
    return made


@pytest.fixture(scope="module")
def _waiting(begun, tmp_path_factory):
    made = begun.copy(tmp_path_factory.mktemp("a-waiting") / "system")
    assert made.carry_on().status == "waiting"
    return made


@pytest.fixture(scope="module")
def complete(_waiting, tmp_path_factory):
    """A run that was approved and pushed; not to be changed."""
    made = _waiting.copy(tmp_path_factory.mktemp("a-complete") / "system")
    with made.open() as hf:
        hf.control.answer(RUN, "approve", by="ann")
    assert made.carry_on().status == "completed"
    return made


@pytest.fixture(scope="module")
def _failed(begun, tmp_path_factory):
    made = begun.copy(tmp_path_factory.mktemp("a-failed") / "system")
    (made.folder / "reviewer-is-down").touch()
    assert made.carry_on().status == "failed"
    return made


@pytest.fixture
def waiting(_waiting, tmp_path):
    """A run that waits for the approval of its push."""
    return _waiting.copy(tmp_path / "system")


@pytest.fixture
def failed(_failed, tmp_path):
    """A run whose reviewer failed three times."""
    return _failed.copy(tmp_path / "system")


def remote(system):
    """Return what was pushed."""
    return system.sh("git -C remote.git log --format=%s main").splitlines()


def of(agents, name):
    return next(agent for agent in agents if agent.id == name)


def test_an_unbroken_run_pays_each_agent_once_and_pushes(complete):
    """Proves A1, A4 as a whole system: PLANNING … COMPLETE, with one way back."""
    assert complete.lines() == ONCE
    assert remote(complete) == ["greet the world", "begin"]
    with complete.open() as hf:
        history = [visit.state for visit in hf.latest(RUN).section("workflow").history]
    loop = ["BUILDING", "TESTING"]
    assert history == ["PLANNING", *loop, *loop, "REVIEW", "RELEASE", "COMPLETE"]


def test_every_trigger_takes_a_checkpoint_and_is_named(complete, failed, tmp_path):
    """Proves A1: transition, agent complete, approval, error, manual, interval, before destructive."""
    with complete.open() as hf:
        taken = {one.trigger for one in hf.checkpoints(RUN, archived=True)}
    assert taken >= {"state_transition", "agent_complete", "user_approval", "before_destructive"}
    with failed.open() as hf:
        taken |= {one.trigger for one in hf.checkpoints(RUN, archived=True)}
        taken.add(hf.run(RUN).checkpoint(reason="by hand").trigger)
    with holdfast.open(tmp_path / "timed", settings=holdfast.Settings(), interval_s=0.02) as hf:
        with hf.run("timed") as run:
            run.checkpoint(state=0)
            deadline = time.monotonic() + 30
            while hf.latest("timed").trigger != "time_interval":
                assert time.monotonic() < deadline
                run.context.note(at=time.monotonic())  # something to save, or the timer has no reason
                time.sleep(0.01)
        taken |= {one.trigger for one in hf.checkpoints("timed")}
    assert taken >= {"error_occurred", "manual", "time_interval"}
    assert taken <= set(Trigger)


def test_before_the_push_stands_a_checkpoint_that_holds_what_is_pushed(complete):
    """Proves A1, A14: the destructive step is guarded, and its checkpoint comes before it begins."""
    with complete.open() as hf:
        line = list(reversed(hf.checkpoints(RUN, archived=True)))
        guard = next(i for i, one in enumerate(line) if one.trigger == "before_destructive")
        assert not [one for one in line[guard].log("steps") if one["step"] == "RELEASE/push"]
        assert [one for one in hf.latest(RUN).log("steps") if one["step"] == "RELEASE/push"]
        assert "git_push" in line[guard].reason
        assert line[guard].read("greet.sh") == b'echo "hello world"\n'


@pytest.mark.parametrize("form", ["sqlite", "files", "postgres"])
def test_the_system_sets_valid_corrupted_archived_and_expired_by_itself(form, tmp_path):
    """Proves A2: each with its effect, on every store; tests/unit/retain/test_statuses.py has `creating`."""
    place = tmp_path / "store"
    server = shared_server() if form == "postgres" else None
    url = server.database() if server else place if form == "sqlite" else place.as_uri()
    now = [time.time()]
    try:
        with holdfast.open(url, settings=holdfast.Settings()) as hf:
            made = [hf.run("r").checkpoint(state=text * 9000) for text in "abc"]
            assert {one.status for one in hf.checkpoints("r")} == {"valid"}
            hf.recovery.start_fresh("r")
            assert {hf.get(one.id).status for one in made} == {"archived"}
            assert not {one.id for one in hf.checkpoints("r")} & {one.id for one in made}
            lost, _ = (hf.run("s").checkpoint(state=text * 9000) for text in "de")
            root = lost.record.envelope.sections[0].root
            later = holdfast.Holdfast(hf.store, settings=holdfast.Settings(), clock=lambda: now[0])
            with later.run("t") as run:
                run.graph().add("build", lambda: 1)
                run.graph().run()
            old = next(one for one in later.checkpoints("t") if one.trigger == "batch_complete")
            assert old.id in [point.checkpoint for point in later.recovery.points("t")]
            now[0] += 40 * 86_400
            with later.run("t") as run:  # entered again, long after
                run.step("next", lambda: 2)
            assert later.get(old.id).status == "expired"
            assert old.id not in [point.checkpoint for point in later.recovery.points("t")]
            assert not later.recover(old.id).success
            now[0] += 2 * 86_400
            with later.run("t") as run:
                run.step("last", lambda: 3)
            with pytest.raises(holdfast.NotFound):
                later.get(old.id)
        _damage(form, place, url, root)
        with holdfast.open(url, settings=holdfast.Settings()) as hf:
            assert not hf.recover(lost.id).success
            assert hf.get(lost.id).status == "corrupted"
            assert lost.id not in [point.checkpoint for point in hf.recovery.points("s") if point.can_resume]
    finally:
        if server:
            server.drop(url)


def _damage(form, place, url, root):
    """Overwrite one chunk, past the store."""
    if form == "sqlite":
        database = apsw.Connection(str(place / "holdfast.db"))
        database.execute("UPDATE chunk SET data = zeroblob(length(data)) WHERE id = ?", (root,))
        database.close()
    elif form == "files":
        (chunk,) = (path for path in place.rglob(f"*{root.hex()}*") if path.is_file())
        chunk.chmod(0o644)
        chunk.write_bytes(b"damaged")
    else:
        with psycopg.connect(url, autocommit=True) as database:
            database.execute("SELECT set_config('holdfast.tenant', 'default', false)")
            done = database.execute("UPDATE holdfast.chunk SET data = 'damaged' WHERE id = %s", (root,))
            assert done.rowcount == 1


def test_an_agents_record_says_all_of_its_call(complete, failed):
    """Proves A3: completed, failed, skipped and pending, with times, input, output, error, attempts and tokens."""
    with complete.open() as hf:
        coder = of(hf.latest(RUN).section("agents"), "coder")
        running = next(one for one in hf.checkpoints(RUN, archived=True) if one.summary.phase == "PLANNING")
        assert {agent.status for agent in running.section("agents")} <= {"pending", "running", "completed"}
        began = [one for one in hf.checkpoints(RUN, archived=True) if "agents" in one.sections][-1]
        assert of(began.section("agents"), "reviewer").status == "pending"
    assert coder.status == "completed"
    assert coder.started_at < coder.completed_at
    assert coder.input["input"] == 2
    assert coder.output["summary"] == "draft 2 of greet.sh"
    assert (coder.tokens.input, coder.tokens.output) == (4000, 1400)  # both drafts
    assert list(coder.tasks) == ["BUILDING/BUILDING", "BUILDING#2/BUILDING"]
    with failed.open() as hf:
        reviewer = of(hf.latest(RUN).section("agents"), "reviewer")
        assert (reviewer.status, reviewer.attempts) == ("failed", 3)
        assert "does not answer" in reviewer.error
        hf.recover(RUN, skip_failed=True)
        assert of(hf.latest(RUN).section("agents"), "reviewer").status == "skipped"


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ({"summary": "fine", "tokens": {"input": 9, "output": 2}}, (9, 2)),
        ({"usage": {"input_tokens": 9, "output_tokens": 2}}, (9, 2)),
        ('{"result": "fine", "usage": {"prompt_tokens": 9, "completion_tokens": 2}}', (9, 2)),
        ({"result": "fine", "tokens": 11}, (11, 0)),
        (holdfast.AgentOutput(output="fine", tokens=holdfast.TokenUsage(input=9, output=2)), (9, 2)),
        (REPORTING % '"usage": {"input_tokens": 9, "output_tokens": 2}', (9, 2)),
        (REPORTING % '"tokens": {"input": 9, "output": 2}', (9, 2)),
        ("no report", (0, 0)),
    ],
    ids=["tokens", "usage", "JSON", "total", "AgentOutput", "command usage", "command tokens", "none"],
)
def test_tokens_count_in_every_documented_form_and_feed_the_budget(hf, said, tokens):
    """Proves A3, E8: in Python and in a flow alike."""
    with hf.run("r") as run:
        is_command = isinstance(said, str) and said.startswith("echo")
        run.agents.register("coder", holdfast.Command(said) if is_command else lambda: said)
        run.agents.call("coder", task="t")
        assert run.budget.used("tokens") == sum(tokens)
    counted = hf.latest("r").section("agents")[0].tokens
    assert (counted.input, counted.output) == tokens
    if is_command:
        flow = flow_from({"flow": "f", "agents": {"coder": said}, "phases": {"p": {"agent": "coder"}}})
        assert run_flow(hf, flow, waiting="leave").status == "completed"
        assert hf.latest("f").section("budget").spending["tokens"].used == sum(tokens)


def test_three_failures_block_an_agent_also_without_a_task_name_and_however_the_run_is_resumed(hf):
    """Proves A3, A11: the program that is simply started again is refused as well, and the agent is not called."""
    calls = []

    def coder(given):
        calls.append(given)
        raise ValueError("no such file")

    def program():
        with hf.run("r") as run:
            run.agents.register("coder", coder)
            run.agents.call("coder", {"file": "a"})

    for _ in range(3):
        with pytest.raises(ValueError, match="no such file"):
            program()
    assert hf.recovery.status("r").blockers == ("agent coder failed 3 times",)
    with pytest.raises(holdfast.CannotResume, match="coder failed 3 times"):
        program()
    assert not hf.recover("r").success
    assert len(calls) == 3


def test_an_agent_under_way_is_running_in_the_checkpoint(hf):
    """Proves A3, A8: what is taken while an agent is at work says so."""
    with hf.run("r") as run:
        run.agents.register("coder", lambda _: run.checkpoint(reason="in the middle"))
        with pytest.raises(holdfast.HoldfastError):  # what it returns is not a result; the checkpoint counts
            run.agents.call("coder", {"file": "a"}, task="t")
    middle = next(one for one in hf.checkpoints("r") if one.reason == "in the middle")
    (coder,) = middle.section("agents")
    assert (coder.status, coder.input, coder.attempts) == ("running", {"file": "a"}, 1)
    assert middle.recovery.resume_agent == "coder"
    assert middle.recovery.can_resume


def test_the_workflow_is_kept_with_its_history_and_what_is_pending(complete, hf):
    """Proves A4."""
    with complete.open() as store:
        workflow = store.latest(RUN).section("workflow")
    assert (workflow.current_state, workflow.previous_state) == ("COMPLETE", "RELEASE")
    first, *_, last = workflow.history
    assert first.entered_at < first.exited_at <= last.entered_at
    assert (last.exited_at, last.trigger) == (None, "RELEASE is over")
    with hf.run("r") as run:
        machine = run.machine(states=["a", "b"], guards={("a", "b"): lambda: "not yet"})
        assert not machine.request("b", "asked")
    assert hf.latest("r").section("workflow").pending_transitions == ["b"]


def test_the_context_is_kept_in_full(tmp_path):
    """Proves A5."""
    (tmp_path / "spec.md").write_text("sessions\n")
    with holdfast.open("memory:", settings=holdfast.Settings()) as hf:
        with hf.run("r", workspace=tmp_path) as run:
            run.context.set(project="shop", session="s-1", task="add login", work_breakdown={"build": ["form"]})
            run.context.add_artifact("spec.md", type="spec", id="spec")
            run.context.learn("logins are case sensitive")
            run.context.decide("use sessions", "they are simple", id="d1")
        context = hf.latest("r").section("context")
    assert (context.project, context.session, context.task) == ("shop", "s-1", "add login")
    assert context.work_breakdown == {"build": ["form"]}
    (artifact,) = context.artifacts
    assert (artifact.id, artifact.type, artifact.path) == ("spec", "spec", "spec.md")
    assert artifact.checksum
    assert context.lessons == ["logins are case sensitive"]
    (decision,) = context.decisions
    assert (decision.id, decision.decision, decision.rationale) == ("d1", "use sessions", "they are simple")
    assert decision.made_at.tzinfo is not None


def test_a_context_has_a_session_that_nobody_set_and_that_stays_over_restarts(tmp_path):
    """Proves A5."""
    with holdfast.open(tmp_path / "s", settings=holdfast.Settings()) as hf:
        for _ in range(2):
            with hf.run("r") as run:
                run.context.set(project="shop")
        with hf.run("other") as run:
            run.context.set(project="shop")
        sessions = [one.section("context").session for one in hf.checkpoints("r") if "context" in one.sections]
        assert len(set(sessions)) == 1
        assert sessions[0]
        assert hf.latest("other").section("context").session != sessions[0]


def test_files_and_the_position_of_git_are_captured_with_contents(waiting):
    """Proves A6: created, modified and deleted, size, time and checksum; branch, commit, dirty, staged, unstaged."""
    repo = waiting.folder / "repo"
    (repo / "README.md").write_text("# Greetings to all\n")
    waiting.sh("git -C repo add greet.sh")
    with waiting.open() as hf:
        before = hf.latest(RUN)
        (repo / "plan.md").unlink()
        (repo / "new.txt").write_text("new\n")
        now = hf.run(RUN, workspace=repo).checkpoint(reason="files")
        kinds = {change.path: change.status for change in now.changes(before)}
        assert kinds == {"README.md": "modified", "plan.md": "deleted", "new.txt": "created"}
        record = next(file for file in now.files() if file.path == "README.md")
        assert record.size == len(now.read("README.md")) == 19
        assert record.hash
        assert record.mtime_ns
        git = now.git
        commit = waiting.sh("git -C repo rev-parse HEAD").strip()
        assert (git.head, git.branch, git.commit) == ("branch", "main", commit)
        assert [change.path for change in git.staged] == ["greet.sh"]
        assert {change.path for change in git.unstaged} >= {"README.md"}


def test_files_come_back_with_the_state(waiting):
    """Proves A6, X1: for real, so that files can be restored."""
    repo = waiting.folder / "repo"
    (repo / "greet.sh").write_text("rm -rf everything\n")
    (repo / "plan.md").unlink()
    with waiting.open() as hf:
        plan = hf.plan(RUN, workspace=repo, decisions=holdfast.workspace.decide.Decisions(edits="take"))
        assert hf.recover(plan).success
    assert (repo / "greet.sh").read_text() == 'echo "hello world"\n'
    assert (repo / "plan.md").exists()


def test_the_envelope_says_what_when_why_how_and_seals_it(complete, tmp_path):
    """Proves A7."""
    with complete.open() as hf:
        head = hf.latest(RUN)
        envelope = head.record.envelope
        assert head.id.startswith("cp_")
        assert envelope.format_version == FORMAT_VERSION
        assert head.created_at.tzinfo is not None
        assert (head.trigger, head.status) == ("shutdown", "valid")
        assert head.reason
        assert envelope.program_version == holdfast.__version__
        assert (envelope.codec, 0 < head.stored_bytes < head.size_bytes) == ("zstd", True)
        assert all(len(section.root) == 32 for section in envelope.sections)
        assert len({section.root for section in envelope.sections}) == len(envelope.sections)
        assert len(bytes.fromhex(head.checksum)) == 32
    sizes = {}
    for codec in ("none", "gzip", "lz4", "zstd"):
        with holdfast.open(tmp_path / codec, settings=holdfast.Settings(), compression=codec) as hf:
            sizes[codec] = hf.run("r").checkpoint(state="much the same " * 5000).stored_bytes
            assert hf.latest("r").section("state") == "much the same " * 5000
    assert max(sizes[codec] for codec in ("gzip", "lz4", "zstd")) < sizes["none"] / 10


def stored(form, place):
    """Return how many bytes the chunks of a store have, past the store."""
    if form == "files":
        return sum(path.stat().st_size - 5 for path in (place / "chunks").rglob("*") if path.is_file())  # 5: a header
    query = "SELECT coalesce(sum(length(data)), 0) FROM "
    if form == "sqlite":
        database = apsw.Connection(str(place / "holdfast.db"))
        (((found,),), _) = (list(database.execute(query + "chunk")), database.close())
        return found
    with psycopg.connect(place.partition("&tenant")[0]) as database:
        tenant = place.partition("&tenant=")[2]
        database.execute("SELECT set_config('holdfast.tenant', %s, false)", (tenant,))
        return int(database.execute(query + "holdfast.chunk").fetchone()[0])


@pytest.mark.parametrize("form", ["sqlite", "files", "postgres"])
def test_size_and_codec_are_those_of_the_stored_bytes_on_every_store(form, tmp_path):
    """Proves A7: counted past the store, for each codec; one that there is not is refused."""
    text = [f"line {number} of a text that compresses well" for number in range(9_000)]
    server = shared_server() if form == "postgres" else None
    url = server.database() if server is not None else ""
    sizes = {}
    for codec in ("none", "gzip", "lz4", "zstd"):
        place = f"{url}&tenant={codec}" if url else tmp_path / codec
        opened = place.as_uri() if form == "files" else place
        with holdfast.open(opened, settings=holdfast.Settings(), compression=codec) as hf:
            hf.run("r").checkpoint(state=0)
            before = stored(form, place)
            made = hf.run("r").checkpoint(state=text)
            sizes[codec] = made.stored_bytes
            assert made.stored_bytes == stored(form, place) - before
            assert made.record.envelope.codec == codec
            assert hf.latest("r").section("state") == text
    assert max(sizes[codec] for codec in ("gzip", "lz4", "zstd")) < sizes["none"] / 3
    with pytest.raises(holdfast.UsageError, match="brotli"):
        holdfast.open(tmp_path / "other", settings=holdfast.Settings(), compression="brotli")
    if server is not None:
        server.drop(url)


def test_every_checkpoint_says_where_to_resume_and_what_keeps_it_from_it(complete, failed):
    """Proves A8, A11."""
    with complete.open() as hf:
        for one in hf.checkpoints(RUN, archived=True):
            assert one.recovery.can_resume
            assert one.recovery.resume_state == one.summary.state
    with failed.open() as hf:
        info = hf.latest(RUN).recovery
    assert not info.can_resume
    assert info.resume_state == "REVIEW"
    assert info.blockers == ("agent reviewer failed 3 times",)


def test_the_settings_have_the_defaults_that_were_asked_for():
    """Proves A9."""
    settings = holdfast.Settings()
    assert settings.enabled
    assert settings.retention.live == 50
    assert settings.compression != "none"
    assert settings.interval_s == 300
    assert settings.retention.age_days == 30
    with holdfast.open("memory:", settings=settings) as hf:
        rules = hf.run("r").triggers
        for trigger in (Trigger.STATE_TRANSITION, Trigger.AGENT_COMPLETE, Trigger.BEFORE_DESTRUCTIVE):
            assert rules.takes(trigger)


def test_a_run_begins_with_a_clean_up_lives_within_its_limit_and_ends_with_a_checkpoint(tmp_path):
    """Proves A2, A10: expired ones are marked at the start and go a day later, the oldest beyond the limit are
    archived, the end is saved.
    """
    begun = datetime.now(UTC).timestamp()
    now = [begun]
    store = holdfast.open(tmp_path / "s", settings=holdfast.Settings(), durability="process").store
    with holdfast.Holdfast(store, clock=lambda: now[0]) as hf:
        old = [hf.run("r").checkpoint(trigger="gate_complete", reason=f"old {i}", state=i).id for i in range(3)]
        now[0] += timedelta(days=40).total_seconds()
        with hf.run("r") as run:
            for number in range(55):
                run.checkpoint(reason=f"number {number}", state=number)
        assert hf.latest("r").trigger == "shutdown"
        assert len([one for one in hf.checkpoints("r") if one.status == "valid"]) <= 50
        kept = {one.id: one.status for one in hf.checkpoints("r", archived=True)}
        assert {kept[one] for one in old} == {"expired"}
        assert "archived" in kept.values()
        newest, *_ = hf.checkpoints("r")
        assert hf.get(newest.id).id == hf.latest("r").id
        now[0] += timedelta(days=1, hours=1).total_seconds()
        with hf.run("r"):
            pass
        assert not set(old) & {one.id for one in hf.checkpoints("r", archived=True)}
        assert hf.verify().sound


def test_the_limit_of_fifty_holds_for_a_plain_handle(tmp_path):
    """Proves A10: the document's own test, 55 manual ones and a list of 50 at most."""
    with holdfast.open(tmp_path / "s", settings=holdfast.Settings(), durability="process") as hf:
        run = hf.run("r")
        made = [run.checkpoint(state=number) for number in range(55)]
        assert [one.seq for one in hf.checkpoints("r")] == list(range(55, 5, -1))
        assert hf.get(made[0].id).section("state") == 0


def test_sections_of_a_checkpoint_are_of_one_moment_and_checked_before_they_are_stored(hf):
    """Proves A10: what is wrong is refused with its path, and nothing is stored."""
    run = hf.run("r")
    with pytest.raises(holdfast.SectionInvalid, match="agents"):
        run.checkpoint(agents=[{"id": "coder", "status": "asleep"}])
    assert not hf.has("r")


@pytest.mark.parametrize(
    ("sections", "can_resume", "said"),
    [
        ({"agents": [{"id": "coder", "status": "running"}]}, True, "agent coder was in progress"),
        ({"agents": [{"id": "coder", "status": "failed", "attempts": 3}]}, False, "agent coder failed 3 times"),
        ({"agents": [{"id": "coder", "status": "failed", "attempts": 2}]}, True, ""),
        ({"workflow": {"current_state": "ERROR"}}, False, "state ERROR"),
        ({"workflow": {"current_state": "ABORTED"}}, False, "state ABORTED"),
    ],
)
def test_the_analysis_knows_what_can_go_on(hf, sections, can_resume, said):
    """Proves A11."""
    info = hf.run("r").checkpoint(sections=sections).recovery
    assert info.can_resume is can_resume
    assert said in " ".join((*info.blockers, *info.warnings))
    if "agents" in sections and sections["agents"][0]["status"] == "running":
        assert info.resume_agent == "coder"


DIES = """
import os, holdfast
hf = holdfast.open("store", settings=holdfast.Settings())
run = hf.run("r").__enter__()
run.step("work", lambda: 1)
run.machine(states=["PLANNING"]).to("COMPLETE")
os._exit(9)
"""


def test_a_run_that_was_killed_right_after_complete_has_nothing_to_resume(tmp_path):
    """Proves A11, A13."""
    assert subprocess.run([sys.executable, "-c", DIES], cwd=tmp_path, check=False).returncode == 9
    with holdfast.open(tmp_path / "store", settings=holdfast.Settings()) as hf:
        status = hf.recovery.status("r")
        assert (status.is_complete, status.can_resume, hf.recovery.recover_all()) == (True, False, [])
        assert [run.status for run in hf.runs()] == ["completed"]
        with hf.run("r") as run:  # its program is run once more
            assert run.step("work", lambda: 2) == 1
        assert hf.latest("r").summary.status == "completed"


def fail_to_push():
    raise OSError("cannot push")


@pytest.mark.parametrize(
    ("status", "error", "work"),
    [
        ("failed", OSError, lambda run: run.step("push", fail_to_push)),
        ("waiting", holdfast.RunWaiting, lambda run: run.approve("publish it?")),
    ],
)
def test_what_happens_after_complete_is_not_hidden_by_it(status, error, work, tmp_path):
    """Proves A11: a failure and a wait are what they are."""

    def program():
        with hf.run(status, waiting="leave") as run:
            run.machine(states=["PLANNING"]).to("COMPLETE")
            work(run)

    with holdfast.open(tmp_path / "store", settings=holdfast.Settings()) as hf:
        with pytest.raises(error):
            program()
        assert hf.latest(status).summary.status == status


@pytest.mark.parametrize("form", ["sqlite", "files"])
def test_one_checkpoint_is_validated_by_itself(form, tmp_path):
    """Proves A10: true for one that is whole, false for the one that was damaged and for one that does not exist."""
    place = tmp_path / "store"
    with holdfast.open(place if form == "sqlite" else place.as_uri(), settings=holdfast.Settings()) as hf:
        first = hf.run("r").checkpoint(state="a" * 5000)
        second = hf.run("r").checkpoint(state="b" * 5000)
        root = next(one.root for one in second.record.envelope.sections)
        assert hf.verify(first).sound
        assert hf.verify(second.id).sound
    if form == "sqlite":
        database = apsw.Connection(str(place / "holdfast.db"))
        database.execute("UPDATE chunk SET data = zeroblob(length(data)) WHERE id = ?", (root,))
        database.close()
    else:
        (chunk,) = (path for path in place.rglob(f"*{root.hex()}*") if path.is_file())
        chunk.chmod(0o644)
        chunk.write_bytes(b"damaged")
    with holdfast.open(place if form == "sqlite" else place.as_uri(), settings=holdfast.Settings()) as hf:
        assert hf.verify(first.id).sound
        (fault,) = hf.verify(second.id).faults
        assert (fault.checkpoint, fault.section) == (second.id, "state")
        assert not hf.verify("cp_" + "0" * 32).sound


def test_an_unknown_a_damaged_and_a_blocked_checkpoint_are_refused_and_nothing_is_touched(failed):
    """Proves A12."""
    with failed.open() as hf:
        head = hf.latest(RUN).id
        unknown = hf.recover("cp_" + "0" * 32)
        assert not unknown.success
        assert "there is no" in unknown.errors[0]
        blocked = hf.recover(RUN)
        assert not blocked.success
        assert blocked.errors == ("agent reviewer failed 3 times",)
        assert hf.latest(RUN).id == head
        root = next(one.root for one in hf.latest(RUN).record.envelope.sections if one.name == "agents")
    database = apsw.Connection(str(failed.store / "holdfast.db"))
    database.execute("UPDATE chunk SET data = zeroblob(length(data)) WHERE id = ?", (root,))
    database.close()
    with failed.open() as hf:
        damaged = hf.recover(head)
        assert not damaged.success
        assert "section 'agents'" in damaged.errors[0]
        assert hf.get(head).status == "corrupted"  # what was found is written down, the run stands where it stood
        assert [one.head for one in hf.runs()] == [head]


def test_a_dry_run_says_what_would_be_and_changes_nothing(failed):
    """Proves A12."""
    with failed.open() as hf:
        head = hf.latest(RUN).id
        plan = hf.plan(RUN, skip_failed=True)
        assert plan.can_resume
        assert plan.skipped_agents == ("reviewer",)
        assert plan.state == "REVIEW"
        assert plan.steps_done == 5
        assert hf.latest(RUN).id == head
    said = failed.hf("resume", RUN, "--dry-run", "--skip-failed", "--workspace", "repo")
    assert (said.code, "skips: agent reviewer" in said.out) == (0, True)


def test_a_failed_agent_is_skipped_and_the_flow_goes_on_without_it(failed):
    """Proves A12: skipped on request, and what was done is not done again."""
    calls = failed.lines()
    assert calls == [*ONCE[:-1], *["reviewer"] * 3]
    with failed.open() as hf:
        result = hf.recover(RUN, skip_failed=True)
        assert (result.success, result.skipped_agents) == (True, ("reviewer",))
        assert result.state["workflow"].current_state == "REVIEW"
    assert failed.carry_on().status == "waiting"
    assert failed.lines() == calls
    with failed.open() as hf:
        hf.control.answer(RUN, "approve")
    assert failed.carry_on().status == "completed"
    assert remote(failed) == ["greet the world", "begin"]


def test_a_run_is_reset_to_an_earlier_state_and_goes_on_from_there(failed):
    """Proves A12: the states from there on are gone through again, once, however often it is killed."""
    before = len(failed.lines())
    (failed.folder / "reviewer-is-down").unlink()
    with failed.open() as hf:
        result = hf.recover(RUN, reset_to="BUILDING", skip_failed=True)
        assert result.success
        assert result.state["workflow"].current_state == "BUILDING"
        assert hf.latest(RUN).section("workflow").history[-1].trigger == "recovery"
    again = kill_and_resume(
        failed.command("run", "flow.yaml", "--workspace", "repo", "--no-wait", "-q"),
        failed.folder,
        2,
        "reset",
        within_s=1.5,
    )
    assert again.code == 9, again.err
    calls = failed.lines()[before:]
    assert list(dict.fromkeys(calls)) == ["coder 3", "tester: hello world", "reviewer"]
    with failed.open() as hf:
        assert [wait.id for wait in hf.control.waiting(RUN)] == ["approve:RELEASE"]
        states = [visit.state for visit in hf.latest(RUN).section("workflow").history]
    assert states[-5:] == ["REVIEW", "BUILDING", "TESTING", "REVIEW", "RELEASE"]


def test_a_reset_takes_back_what_the_run_was_waiting_for(waiting):
    """Proves A12: an answer can then mean one thing only, and one given before the reset does not count after it."""
    with waiting.open() as hf:
        assert hf.recover(RUN, reset_to="REVIEW").success
    assert waiting.carry_on().status == "waiting"
    with waiting.open() as hf:
        (wait,) = hf.control.waiting(RUN)
        assert wait.question.startswith("Push")
        hf.control.answer(RUN, "approve")
    assert waiting.carry_on().status == "completed"
    assert waiting.lines() == [*ONCE, "reviewer"]


def test_going_back_forgets_the_answers_that_came_after(waiting):
    """Proves A12: an approval that was given to a later checkpoint is not taken for one of the earlier."""
    with waiting.open() as hf:
        before = next(one.id for one in hf.checkpoints(RUN) if one.summary.state == "REVIEW")
        hf.control.answer(RUN, "reject", by="ann")
    assert waiting.carry_on().status == "failed"
    with waiting.open() as hf:
        assert hf.recover(before).success
    assert waiting.carry_on().status == "waiting"


def test_agents_under_way_come_back_pending(hf):
    """Proves A12."""
    one = hf.run("r").checkpoint(
        agents=[{"id": "a", "status": "running"}, {"id": "b", "status": "completed"}, {"id": "c", "status": "failed"}]
    )
    hf.run("r").checkpoint(agents=[])
    result = hf.recover(one.id)
    assert [agent.status for agent in result.state["agents"]] == ["pending", "completed", "failed"]


def test_a_run_is_replayed_step_by_step_and_nothing_is_called(complete, tmp_path):
    """Proves A12, A16: `next` goes through what was done, with state and files as they were."""
    copy = complete.copy(tmp_path / "system")
    with copy.open() as hf:
        replay = hf.replay(RUN)
        names = []
        while replay.position < len(replay):
            names.append(replay.next().step)
            if names[-1] == "BUILDING/BUILDING":
                assert replay.read("greet.sh") == b'echo "hello nobody"\n'
            if names[-1] == "BUILDING#2/BUILDING":
                assert replay.read("greet.sh") == b'echo "hello world"\n'
        with pytest.raises(holdfast.ReplayEnded):
            replay.next()
    assert names[:2] == ["PLANNING/PLANNING/agent:architect", "PLANNING/PLANNING"]  # proves A16: every call
    assert names[-2:] == ["RELEASE/push", "RELEASE/"]  # the phase is a call, too
    assert copy.lines() == ONCE
    said = copy.hf("replay", RUN, "--list", "--json")
    assert (said.code, len(said.json["steps"])) == (0, len(names))


def test_a_replay_shows_transitions_agents_gates_questions_and_answers(tmp_path):
    """Proves A16: of a run in Python, in the order in which they came, and on the command line."""

    def program():
        with hf.run("r", waiting="leave") as run:
            machine = run.machine(states=["PLANNING", "BUILDING"])
            run.agents.call("coder", "x", task="t", using=str)
            if machine.current == "PLANNING":
                machine.to("BUILDING")
            run.gates.task("g", lambda: "written", ["true"]).run()
            run.approve("Push?")
            run.step("push", lambda: "pushed")
            machine.to("COMPLETE")

    with holdfast.open(tmp_path / "store", settings=holdfast.Settings()) as hf:
        with pytest.raises(holdfast.RunWaiting):
            program()
        hf.control.answer("r", "approve")
        program()
        steps = list(hf.replay("r"))
        assert [step.step for step in steps] == ["agent:coder/t", "g/work", "g/gate:1", "approve:Push?", "push"]
        assert [event for step in steps for event in step.events] == [
            "state_transition PLANNING -> BUILDING",
            "waits Push?",
            "answered Push?: approve",
            "state_transition BUILDING -> COMPLETE",
        ]
        assert hf.latest("r").summary.status == "completed"
    words = [sys.executable, "-m", "holdfast", "--store", "store", "replay", "r", "--list"]
    said = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert said.index("PLANNING -> BUILDING") < said.index("g/gate:1") < said.index("Push?: approve")


def test_the_status_names_a_way_out_of_each_blocker(failed, hf):
    """Proves A13."""
    with failed.open() as store:
        status = store.recovery.status(RUN)
        points = store.recovery.points(RUN)
    assert not status.can_resume
    assert any("--skip-failed" in suggestion for suggestion in status.suggestions)
    assert [point.can_resume for point in points[:1]] == [False]
    assert any(point.can_resume for point in points)
    assert {point.state for point in points} >= {"PLANNING", "BUILDING", "TESTING", "REVIEW"}
    assert all(point.trigger and point.created_at for point in points)
    hf.run("r").checkpoint(workflow={"current_state": "ERROR", "previous_state": "BUILDING"})
    assert any("--reset-to BUILDING" in suggestion for suggestion in hf.recovery.status("r").suggestions)


def test_what_was_interrupted_recovers_by_itself_and_what_is_complete_does_not(complete, begun, tmp_path):
    """Proves A13."""
    with complete.open() as hf:
        assert hf.recovery.recover_all() == []
        assert hf.recovery.status(RUN).is_complete
    killed = begun.copy(tmp_path / "system")
    tester = killed.folder / "agents" / "tester.sh"
    script = tester.read_text()
    tester.write_text("touch ../testing; sleep 60")
    command = killed.command("run", "flow.yaml", "--workspace", "repo", "-q")
    assert kill_when(command, killed.folder, (killed.folder / "testing").exists)
    tester.write_text(script)
    with killed.open() as hf:
        (done,) = hf.recovery.recover_all(workspace=lambda _: killed.folder / "repo")
        assert (done.run, done.outcome) == (RUN, "ready")
        assert hf.recovery.status(RUN).state == "TESTING"
    assert killed.carry_on().status == "waiting"
    assert [line for line in killed.lines() if line.startswith("coder")] == ["coder 1", "coder 2"]


@pytest.mark.parametrize("how", ["at run time", "settings"])
def test_a_trigger_that_is_off_takes_no_checkpoint_in_any_part_of_the_runtime(how):
    """Proves A14: what the parts do is kept all the same, and a manual one still works."""
    off = {"*": False} if how == "settings" else {}
    with holdfast.open("memory:", settings=holdfast.Settings(triggers=off)) as hf, hf.run("r") as run:
        if how == "at run time":
            run.switch(all=False)
        before = [one.id for one in hf.checkpoints("r")]
        run.machine(states=["a", "b"]).to("b")
        run.agents.call("x", using=lambda: "done", task="t")
        run.step("s", lambda: 1)
        with run.phase("p"):
            pass
        run.graph().add("g", lambda: 1)
        run.graph().run()
        run.mailbox.conflicts.start("c", ["x", "y"]).resolve("so")
        with run.destructive("deploy"):
            pass
        assert [one.id for one in hf.checkpoints("r")] == before
        assert run.checkpoint(reason="by hand").trigger == "manual"
        assert hf.latest("r").section("workflow").current_state == "b"


def test_triggers_are_switched_all_together_and_one_by_one(hf):
    """Proves A14."""
    with hf.run("r") as run:
        run.switch(all=False)
        assert run.maybe_checkpoint("agent_complete", state=1) is None
        run.switch(all=True, agent_complete=False)
        assert run.maybe_checkpoint("agent_complete", state=2) is None
        assert run.maybe_checkpoint("state_transition", state=3) is not None
        run.switch(agent_complete=True)
        assert run.maybe_checkpoint("agent_complete", state=4) is not None


def test_destructive_operations_are_known_and_users_add_theirs(tmp_path):
    """Proves A14."""
    known = {"git_push", "git_force_push", "delete_files", "migrate_database", "deploy", "publish"}
    assert known <= set(DESTRUCTIVE_OPERATIONS)
    with holdfast.open("memory:", settings=holdfast.Settings(), destructive=["drop_bucket"]) as hf, hf.run("r") as run:
        for operation in (*known, "drop_bucket"):
            with run.destructive(operation, "it", state=operation) as guard:
                assert guard.trigger == "before_destructive"
                assert operation in guard.reason


def test_a_checkpoint_that_fails_never_stops_the_workflow_but_is_reported(tmp_path):
    """Proves A14: the flow goes to its end on a store that refuses to write, and says that it is unprotected."""
    phases = {name: f"printf x > {tmp_path}/{name}" for name in ("one", "two", "three")}
    events = []
    folder = tmp_path / "disk"
    folder.mkdir()
    with FaultyDisk(folder, name="a-faults") as disk:

        def watch(event):
            events.append(event)
            if event.kind == "phase_done" and event.phase == "one":
                disk.arm(Fault(at=0, kind="errno", code=errno.ENOSPC, lasting=True))
            if event.kind == "phase_done" and event.phase == "three":
                disk.arm(None)

        with holdfast.Holdfast(SQLiteStore(folder / "holdfast.db", vfs=disk.vfs)) as hf:
            with pytest.warns(holdfast.UnprotectedWarning):
                result = run_flow(hf, flow_from({"flow": "r", "phases": phases}), observer=watch, waiting="leave")
            assert result.status == "completed"
            assert hf.latest("r").summary.status == "completed"
    assert all((tmp_path / name).exists() for name in phases)
    kinds = [event.kind for event in events]
    assert kinds.index("unprotected") < kinds.index("protected")


def test_the_file_store_is_readable_and_works_without_its_index(begun, tmp_path):
    """Proves A15: save, get, list, delete, archive, delete older, statistics; from a directory scan, too."""
    place = tmp_path / "files"
    made = begun.copy(tmp_path / "system")
    with holdfast.open(place.as_uri(), settings=holdfast.Settings()) as hf:
        flow = load_flow(made.folder / "flow.yaml")
        assert run_flow(hf, flow, workspace=made.folder / "repo", waiting="leave").status == "waiting"
        count = len(hf.checkpoints(RUN))
        first = hf.checkpoints(RUN)[-1].id
    for index in place.rglob("index.*"):
        index.write_bytes(b"\0 no index \xff") if index.name.endswith("json") else index.unlink()
    with holdfast.open(place.as_uri(), settings=holdfast.Settings()) as hf:
        assert len(hf.checkpoints(RUN)) == count
        assert hf.get(first).id == first
        assert hf.latest(RUN).read("greet.sh") == b'echo "hello world"\n'
        assert hf.mark(first, status="archived").status == "archived"
        assert len(hf.checkpoints(RUN)) == count - 1
        hf.delete(first)
        later = holdfast.Holdfast(hf.store, settings=holdfast.Settings(), clock=lambda: time.time() + 2 * 86_400)
        old = [one.id for one in later.checkpoints(RUN, archived=True)][1:]
        assert later.prune(RUN, older_than=timedelta(days=3)) == []
        gone = later.prune(RUN, older_than=timedelta(days=1))
        assert gone
        assert set(gone) <= set(old)
        assert [one.id for one in hf.checkpoints(RUN, archived=True) if one.id in gone] == []
        count = len(hf.checkpoints(RUN, archived=True)) + 1
        stats = hf.stats()
        assert stats.checkpoints == count - 1
        assert stats.oldest_at <= stats.newest_at
        assert stats.stored_bytes > 0
        assert hf.verify().sound


def test_a_run_is_paused_by_hand_and_goes_on_where_it_stood(begun, tmp_path):
    """Proves A16."""
    made = begun.copy(tmp_path / "system")
    with made.open() as hf:

        def watch(event):
            if event.kind == "phase_done" and event.phase == "PLANNING":
                hf.control.pause(RUN, by="ann", note="lunch")
                time.sleep(0.3)  # a run looks four times a second, and this one would be over by then

        result = run_flow(
            hf, load_flow(made.folder / "flow.yaml"), workspace=made.folder / "repo", observer=watch, waiting="leave"
        )
        assert result.status == "waiting"
        assert hf.latest(RUN).summary.status == "paused"
        calls = made.lines()
        assert calls[0] == "architect"
        assert len(calls) < len(ONCE)
        assert (
            run_flow(hf, load_flow(made.folder / "flow.yaml"), workspace=made.folder / "repo", waiting="leave").status
            == "waiting"
        )
        assert made.lines() == calls
        hf.control.unpause(RUN, by="ann")
    assert made.carry_on().waits_for == "approve:RELEASE"
    assert made.lines() == ONCE


def end_of(system):
    """Return all that must be the same however often the run was killed."""
    with system.open() as hf:
        assert hf.verify().sound
        head = hf.latest(RUN)
        agents = {agent.id: (agent.status, agent.output, sorted(agent.tasks)) for agent in head.section("agents")}
        return {
            "status": head.summary.status,
            "states": [visit.state for visit in head.section("workflow").history],
            "agents": agents,
            "phases": {name: (one.status, one.summary) for name, one in head.section("phases").phases.items()},
            "files": {file.path: head.read(file.path) for file in head.files() if file.kind == "file"},
            "pushed": system.sh("git -C remote.git rev-parse main"),
            "tokens": head.section("budget").spending["tokens"].used,
        }


def test_killed_at_random_moments_it_ends_as_an_unbroken_run_does(begun, complete, tmp_path):
    """Proves A13, A16: SIGKILL in the middle of anything, then the same line again: nothing is paid for twice."""
    unbroken = end_of(complete)
    command = complete.command("run", "flow.yaml", "--workspace", "repo", "--no-wait", "-q")
    times = pace(command, begun.copy(tmp_path / "timed").folder)
    killed = number = 0  # those that came after the run had begun
    while killed < KILLS:
        number += 1
        made = begun.copy(tmp_path / f"run {number}")
        lives = kill_and_resume(command, made.folder, 4, f"a {number}", **times)
        assert lives.code == 9, lives.err
        with made.open() as hf:
            hf.control.answer(RUN, "approve")
        pushing = kill_and_resume(command, made.folder, 2, f"a push {number}", **times)
        assert pushing.code == 0, pushing.err
        kills = lives.kills + pushing.kills
        assert end_of(made) == unbroken
        assert set(made.lines()) == set(ONCE)
        assert len(made.lines()) <= len(ONCE) + kills
        with made.open() as hf:
            killed += resumes(hf, RUN) - 1  # one of them for the answer
        shutil.rmtree(made.folder)
