"""System A on Holdfast: an orchestrator with a state machine, agents and recovery.

    python examples/ports/a_orchestrator.py DIRECTORY

`orchestrate` is the whole system: its states, its agents, its context and what is destructive; checkpoints, their
triggers, the analysis and the recovery are the library's. Below it are the design's test scenarios and every line of
its checklist, on the store of files that it describes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Holdfast, Settings

RUN = "orchestrator"
STATES = {"PLANNING": ["BUILDING"], "BUILDING": ["REVIEW"], "REVIEW": ["BUILDING", "COMPLETE"]}
WORK = {"PLANNING": "architect", "BUILDING": "coder", "REVIEW": "reviewer"}
NEXT = {"PLANNING": "BUILDING", "BUILDING": "REVIEW", "REVIEW": "COMPLETE"}


def open_store(path: Path, **settings: Any) -> Holdfast:
    """Open a store of files; 50 checkpoints, 5 minutes and 30 days are the defaults."""
    return holdfast.open(f"file://{path / 'checkpoints'}", settings=Settings(**settings))


def orchestrate(hf: Holdfast, path: Path, agents: dict[str, Any]) -> str:
    """Go through the states until the workflow is complete; started again, it continues where it was."""
    with hf.run(RUN, workspace=path / "repo", waiting="leave") as run:
        run.context.set(project="shop", task="add login", work_breakdown={"build": ["form"]})
        machine = run.machine(states=STATES, transitions=STATES)
        for name in WORK.values():
            run.agents.register(name, agents.get(name, lambda given: {"summary": f"{given} done"}))
        while not machine.is_final:
            state = machine.current
            run.agents.call(WORK[state], state, task=state)
            if state == "PLANNING":
                run.context.decide("use sessions", "simple", id="d1")
                run.context.add_artifact("README.md", type="doc", id="readme")
                run.context.learn("logins are case sensitive")
            if NEXT[state] == "COMPLETE":
                run.approve("Push?")
                with run.destructive("git_push", "origin main"):
                    (path / "pushed").touch()
            machine.to(NEXT[state], trigger=f"{WORK[state]} is done")
        return machine.current


def prepare(path: Path) -> None:
    """Make a repository to work in."""
    repo = path / "repo"
    repo.mkdir()
    (repo / "README.md").write_text("# Shop\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", repo, *words], check=True)


def finished(path: Path, **agents: Any) -> Holdfast:
    """Return the store of a workflow that was approved and is complete."""
    prepare(path)
    hf = open_store(path)
    try:
        orchestrate(hf, path, agents)
    except holdfast.RunWaiting:
        hf.control.answer(RUN, "approve", by="ann")
    assert orchestrate(hf, path, agents) == "COMPLETE"
    return hf


def failing(path: Path) -> Holdfast:
    """Return the store of a workflow whose coder failed three times."""
    prepare(path)
    hf = open_store(path)

    def coder(_: str) -> str:
        (path / "repo" / "half.py").write_text("half")
        raise ValueError("no such file")

    for _ in range(3):
        try:
            orchestrate(hf, path, {"coder": coder})
        except ValueError:
            continue
    return hf


# The scenarios of its test file.


def a_checkpoint_is_created_on_a_state_transition(path: Path) -> None:
    """Scenario."""
    with open_store(path) as hf, hf.run("r") as run:
        run.machine(states=["a", "b"]).to("b")
        found = hf.latest("r", required=True)
    assert (bool(found.id), found.trigger, found.status) == (True, "state_transition", "valid")


def the_integrity_of_a_checkpoint_is_validated(path: Path) -> None:
    """Scenario, and checklist: checksum validation works."""
    with open_store(path) as hf:
        made, other = (hf.run("r").checkpoint(state=text * 9000) for text in "ab")
        assert hf.verify(made.id).sound
        root = made.record.envelope.sections[0].root.hex()
    (chunk,) = (one for one in path.rglob(f"*{root}*") if one.is_file())
    chunk.chmod(0o600)
    chunk.write_bytes(b"damaged")
    with open_store(path) as hf:
        assert not hf.verify(made.id).sound
        assert hf.verify(other.id).sound
        assert not hf.recover(made.id).success
        assert hf.get(made.id).status == "corrupted"


def the_limit_of_checkpoints_is_enforced(path: Path) -> None:
    """Scenario: 55 by hand, at most 50 in the list; the oldest are archived."""
    with open_store(path) as hf:
        for number in range(55):
            hf.run("r").checkpoint(trigger="manual", reason=f"Test {number}")
        live, all_of_them = hf.checkpoints("r"), hf.checkpoints("r", archived=True)
    assert (len(live), len(all_of_them)) == (50, 55)
    assert {one.status for one in all_of_them[50:]} == {"archived"}


def it_recovers_from_a_valid_checkpoint(path: Path) -> None:
    """Scenario, and checklist: the recovery restores state, agents, context and files."""
    with finished(path) as hf:
        point = next(one for one in hf.recovery.points(RUN) if one.state == "BUILDING" and one.can_resume)
        (path / "repo" / "README.md").write_text("ruined\n")
        result = hf.recover(point.checkpoint, workspace=path / "repo", decisions=holdfast.Decisions(edits="take"))
        assert (result.success, result.restored_state, result.errors) == (True, "BUILDING", ())
        assert result.state["context"].decisions[0].rationale == "simple"
        assert (path / "repo" / "README.md").read_text() == "# Shop\n"
        assert hf.latest(RUN, required=True).trigger == "recovery"


def it_skips_failed_agents_on_request(path: Path) -> None:
    """Scenario, and checklist."""
    with failing(path) as hf:
        result = hf.recover(RUN, skip_failed=True)
        assert (result.success, result.skipped_agents) == (True, ("coder",))
        try:
            orchestrate(hf, path, {})
        except holdfast.RunWaiting as waiting:
            assert waiting.kind == "approval"  # the coder was not called, the reviewer was


def it_detects_checkpoints_that_it_cannot_recover(path: Path) -> None:
    """Scenario: three failures, ERROR, an unknown id; nothing is touched, and each has a suggestion."""
    with failing(path) as hf:
        head = hf.latest(RUN, required=True).id
        status = hf.recovery.status(head)
        assert (status.can_resume, status.blockers) == (False, ("agent coder failed 3 times",))
        assert any("--skip-failed" in one for one in status.suggestions)
        for refused in (hf.recover(RUN), hf.recover("cp_" + "0" * 32)):
            assert not refused.success
            assert refused.errors
        try:
            orchestrate(hf, path, {})
        except holdfast.CannotResume as error:
            assert "failed 3 times" in str(error)
        assert hf.latest(RUN, required=True).id == head
        dead = hf.run("dead").checkpoint(workflow={"current_state": "ERROR", "previous_state": "BUILDING"})
        assert any("--reset-to BUILDING" in one for one in hf.recovery.status(dead.id).suggestions)


# Its checklist.


def checkpoints_have_all_that_is_defined(path: Path) -> None:
    """Types defined; workflow, agents, context and file system captured."""
    with finished(path, coder=lambda _: {"summary": "form", "tokens": {"input": 9, "output": 2}}) as hf:
        found = hf.latest(RUN, required=True)
        envelope = found.record.envelope
        assert (found.recovery.can_resume, found.recovery.blockers, envelope.format_version > 0) == (True, (), True)
        assert all((envelope.program_version, found.checksum, envelope.codec, found.stored_bytes >= 0, found.reason))
        assert {one.name for one in envelope.sections if len(one.root) == 32} >= {"workflow", "agents", "context"}
        workflow = found.section("workflow")
        assert (workflow.current_state, workflow.previous_state) == ("COMPLETE", "REVIEW")
        assert [visit.trigger for visit in workflow.history[1:]] == [f"{name} is done" for name in WORK.values()]
        coder = next(one for one in found.section("agents") if one.id == "coder")
        assert (coder.status, coder.attempts, coder.input, coder.tokens.output) == ("completed", 1, "BUILDING", 2)
        assert coder.started_at <= coder.completed_at
        context = found.section("context")
        assert (context.project, context.task, bool(context.session)) == ("shop", "add login", True)
        assert (context.artifacts[0].path, bool(context.artifacts[0].checksum)) == ("README.md", True)
        assert (context.lessons, context.decisions[0].id) == (["logins are case sensitive"], "d1")
        assert (found.git.branch, found.git.head, [one.path for one in found.files()]) == (
            "main",
            "branch",
            ["README.md"],
        )
        assert found.git.commit


def it_is_reset_to_an_earlier_state(path: Path) -> None:
    """Reset to state option works: what failed since is forgotten, an unknown state is refused."""
    with failing(path) as hf:
        try:
            hf.recover(RUN, reset_to="NOWHERE")
        except holdfast.UsageError as error:
            assert "PLANNING" in str(error)
        tried = hf.recover(RUN, reset_to="PLANNING", dry_run=True)
        assert (tried.success, tried.restored_state) == (True, "PLANNING")
        assert hf.recovery.status(RUN).state == "BUILDING"
        result = hf.recover(RUN, reset_to="PLANNING")
        assert (result.success, result.restored_state) == (True, "PLANNING")
        assert result.state["workflow"].history[-1].trigger == "recovery"
        assert hf.recovery.status(RUN).can_resume


def a_workflow_is_replayed_step_by_step(path: Path) -> None:
    """Replay mode works: what was done is stepped through with next(), and nothing is called."""
    calls: list[str] = []
    with finished(path, coder=calls.append) as hf:
        replay = hf.recover(RUN, replay=True).replay
        assert replay is not None
        seen = [step.step for step in replay]
    assert [name for name in seen if name.startswith("agent:")] == [f"agent:{WORK[one]}/{one}" for one in STATES]
    assert calls == ["BUILDING"]


def triggers_fire_and_are_switched(path: Path) -> None:
    """Checkpoint triggers fire correctly: each of the seven, each off alone, and all but the manual ones together."""
    with failing(path) as hf:
        seen = {one.trigger for one in hf.checkpoints(RUN, archived=True)}
    (path / "done").mkdir()
    with finished(path / "done") as hf:
        seen |= {one.trigger for one in hf.checkpoints(RUN, archived=True)}
        with hf.run("timed") as run:
            seen.add(run.checkpoint().trigger)
    with holdfast.open("memory:", settings=Settings(), interval_s=0.02) as hf, hf.run("timed") as run:
        while "time_interval" not in seen:
            run.context.note(at=time.monotonic())
            time.sleep(0.02)
            seen |= {one.trigger for one in hf.checkpoints("timed")}
    assert seen >= {
        "state_transition", "agent_complete", "user_approval", "error_occurred", "manual", "time_interval",
        "before_destructive",
    }  # fmt: skip
    with holdfast.open("memory:", settings=Settings()) as hf, hf.run("r") as run:
        run.switch(all=False)
        before = len(hf.checkpoints("r"))
        run.machine(states=["a", "b"]).to("b")
        run.agents.call("x", using=lambda: "done", task="t")
        with run.destructive("deploy"):
            assert len(hf.checkpoints("r")) == before
        assert run.checkpoint(reason="by hand").trigger == "manual"


def the_store_saves_loads_and_compresses(path: Path) -> None:
    """Store saves and loads; compression works: the codec and size on record are those of the files."""
    text = " ".join(f"all work and no play, {number}" for number in range(4000))
    for codec in ("none", "gzip"):
        with holdfast.open(f"file://{path / codec}", settings=Settings(compression=codec)) as hf:
            made = hf.run("r").checkpoint(state=text)
            assert hf.get(made.id).section("state") == text
            root, recorded = made.record.envelope.sections[0].root.hex(), made.record.envelope.codec
        stored = sum(one.stat().st_size for one in (path / codec).rglob("*") if one.is_file())
        assert recorded == codec
        assert (stored > len(text)) is (codec == "none")
        assert made.stored_bytes <= stored
        assert root


def the_index_lists_and_is_not_needed(path: Path) -> None:
    """Index management works: id, time, trigger, status, state, can resume, size and path; or a directory scan."""
    (path / "work").mkdir()
    with finished(path / "work") as hf:
        ids = [one.id for one in hf.checkpoints(RUN)]
        points = hf.recovery.points(RUN)
        stats = hf.stats()
    assert [one.checkpoint for one in points] == ids
    assert all(one.trigger and one.created_at and one.can_resume is not None for one in points)
    assert stats.oldest_at is not None
    assert stats.newest_at is not None
    assert (stats.checkpoints, stats.oldest_at < stats.newest_at, stats.stored_bytes > 0) == (len(ids), True, True)
    for index in (path / "work").rglob("index.*"):
        index.unlink()
    with open_store(path / "work") as hf:
        assert [one.id for one in hf.checkpoints(RUN)] == ids


def expired_checkpoints_are_cleaned_up(path: Path) -> None:
    """Auto-cleanup of expired checkpoints: when a run is entered, of this run and of others."""
    now = [time.time() - 40 * 86_400]
    with open_store(path) as opened:
        hf = Holdfast(opened.store, settings=Settings(), clock=lambda: now[0])
        for name in ("complete", "abandoned"):
            with hf.run(name) as run:
                for number in range(5):
                    run.checkpoint(trigger="state_transition", state=number)
                if name == "complete":
                    run.complete()
        for days in (0, 2):  # marked as expired, and deleted by a start that is a day later at least
            now[0] = time.time() + days * 86_400
            with hf.run("new") as run:
                run.checkpoint(state=1)
        assert [one.id for one in hf.runs()] == ["new", "abandoned"]
        left = hf.checkpoints("abandoned", archived=True)
        assert [one.trigger for one in left] == ["shutdown", "state_transition"]  # the head, and one to fall back to
        assert left[0].section("state") == 4
        assert hf.prune() == []


CHECKS = (
    a_checkpoint_is_created_on_a_state_transition, the_integrity_of_a_checkpoint_is_validated,
    the_limit_of_checkpoints_is_enforced, it_recovers_from_a_valid_checkpoint, it_skips_failed_agents_on_request,
    it_detects_checkpoints_that_it_cannot_recover, checkpoints_have_all_that_is_defined,
    it_is_reset_to_an_earlier_state, a_workflow_is_replayed_step_by_step, triggers_fire_and_are_switched,
    the_store_saves_loads_and_compresses, the_index_lists_and_is_not_needed, expired_checkpoints_are_cleaned_up,
)  # fmt: skip


def main(folder: Path) -> int:
    """Check everything below a directory."""
    for check in CHECKS:
        place = folder / check.__name__
        place.mkdir(parents=True)
        check(place)
        print("ok", check.__name__.replace("_", " "))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
