import hashlib
import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.errors import RunWaiting, UsageError, ValueRefused
from holdfast.runtime.phases import Phases
from unit.runtime.lives import every_death, unbroken
from unit.runtime.recorder import Recorder, is_identity

some = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def fail():
    raise ValueError("no network")


def wait():
    raise RunWaiting("r", "w", "approval", "Deploy?")


def test_a_phase_is_kept_with_attempt_times_duration_summary_and_artifacts(tmp_path):
    """Proves B1, C1."""
    (tmp_path / "notes.md").write_text("found it")
    host = Recorder()
    phases = Phases(host, ["research", "build"], plan="plan.md", root=tmp_path)
    with phases.phase("research", label="status:research") as phase:
        assert (phases.current, phase.attempt, phase.is_due) == ("research", 1, True)
        phase.add_artifact("notes.md", type="report")
        phase.summarise("oauth it is")
    state = phases.state("research")
    assert (state.status, state.label, state.attempt, state.summary) == (
        "completed",
        "status:research",
        1,
        "oauth it is",
    )
    assert state.completed_at > state.started_at
    assert state.duration_s > 0
    artifact = state.artifacts[0]
    assert (artifact.path, artifact.type) == ("notes.md", "report")
    assert artifact.checksum == "sha256:" + hashlib.sha256(b"found it").hexdigest()
    assert (phases.plan, phases.current, phases.next, phases.completed) == ("plan.md", None, "build", ("research",))
    assert host.saved == [
        ("phase_transition", "research begins (attempt 1)", "research"),
        ("phase_complete", "research is complete", "research"),
    ]


def test_a_failed_phase_is_recorded_with_its_error_and_entering_it_again_is_the_next_attempt():
    """Proves B5."""
    host = Recorder()
    phases = Phases(host, ["a", "b"])
    with pytest.raises(ValueError, match="no network"), phases.phase("a"):
        fail()
    state = phases.state("a")
    assert (state.status, state.error.message, state.error.code) == ("failed", "no network", "ValueError")
    assert "in fail" in state.error.stack
    assert host.saved[-1] == ("error_occurred", "a failed: no network", "a")
    assert phases.status().failed == ("a",)
    with phases.phase("a") as phase:
        assert phase.attempt == 2
    assert phases.state("a").error is None
    assert phases.state("a").duration_s > state.duration_s


def test_the_person_may_skip_a_failed_phase_or_have_it_done_again():
    """Proves B5."""
    host = Recorder()
    phases = Phases(host, ["a", "b"])
    with pytest.raises(ValueError, match="no network"), phases.phase("a"):
        fail()
    phases.skip("a", "by hand")
    assert (phases.state("a").status, phases.state("a").reason, phases.next) == ("skipped", "by hand", "b")
    assert phases.phase("a").call(fail) is None
    phases.retry("a", "after all")
    assert phases.phase("a").is_due
    assert phases.phase("a").call(lambda: 5) == 5
    phases.skip("a")
    assert phases.phase("a").is_complete
    assert host.triggers[-2:] == ["phase_transition", "phase_complete"]


def test_a_complete_phase_may_be_entered_again_at_no_cost():
    """Proves B1."""
    host = Recorder()
    phases = Phases(host)
    calls = []
    assert phases.phase("a").call(lambda: calls.append(1) or ["result"]) == ["result"]
    before = phases.snapshot(), phases.changes, list(host.saved)
    with phases.phase("a") as phase:
        assert phase.is_complete
        assert not phase.is_due
    assert phases.phase("a").call(calls.append, 2) == ["result"]
    assert calls == [1]
    assert (phases.snapshot(), phases.changes, host.saved) == before


def test_a_kept_result_is_nobody_elses_to_change():
    phases = Phases()
    result = ["a"]
    with phases.phase("a") as phase:
        phase.call(lambda: result)
    taken = phases.snapshot()
    result.append("b")
    phases.phase("a").result.append("c")
    assert taken.phases["a"].result == phases.phase("a").result == ["a"]


@pytest.mark.parametrize("leave", [wait, lambda: (_ for _ in ()).throw(KeyboardInterrupt)])
def test_a_phase_that_is_left_has_not_failed_and_is_carried_on_in_the_same_attempt(leave):
    """Proves B1."""
    phases = Phases(Recorder())
    with pytest.raises((RunWaiting, KeyboardInterrupt)), phases.phase("a"):
        next(leave())
    assert (phases.state("a").status, phases.current) == ("running", "a")
    twin = Phases(Recorder())
    twin.restore(phases.snapshot())
    with twin.phase("a") as phase:
        assert (phase.attempt, phase.state.resumes) == (1, 1)
    assert twin.state("a").started_at == phases.state("a").started_at


def test_a_pause_at_the_door_leaves_the_phase_to_be_carried_on():
    host = Recorder()
    phases = Phases(host)
    host.refuse = RunWaiting("r", "pause", "pause", "paused")
    with pytest.raises(RunWaiting), phases.phase("a"):
        raise AssertionError("not entered")
    host.refuse = None
    with phases.phase("a") as phase:
        assert phase.attempt == 1


def test_phases_may_stand_inside_one_another_but_not_in_themselves():
    phases = Phases()
    with phases.phase("outer"):
        with phases.phase("inner"):
            assert phases.current == "inner"
        assert phases.current == "outer"
        with pytest.raises(UsageError, match="under way already"), phases.phase("outer"):
            pass
        assert phases.state("outer").status == "running"
    assert phases.current is None


def test_what_died_inside_another_phase_is_the_current_one_only_until_it_is_carried_on():
    def program(phases, *, dies):
        with phases.phase("outer"):
            with phases.phase("inner"):
                if dies:
                    wait()
            assert phases.current == "outer"

    before, after = Phases(), Phases()
    with pytest.raises(RunWaiting):
        program(before, dies=True)
    after.restore(before.snapshot())
    assert after.current == "inner"
    program(after, dies=False)
    assert after.current is None
    assert after.status().is_complete


def test_a_phase_may_be_begun_and_ended_without_a_block():
    """Proves B5."""
    phases = Phases(Recorder(), ["a", "b"])
    phases.begin("a")
    phases.fail("a", ValueError("no"), took_s=2.0)
    assert phases.begin("a").attempt == 2
    phases.complete("a", took_s=3.0)
    assert (phases.state("a").duration_s, phases.current, phases.next) == (5.0, None, "b")
    phases.begin("b")
    phases.skip("b", "enough")
    assert (phases.current, phases.status().skipped) == (None, ("b",))


@pytest.mark.parametrize("name", ["", " ", None, 5, "a\nb", "x" * 201, "\ud800"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(UsageError, match="not a valid name of a phase"):
        Phases().phase(name)


def test_a_phase_that_is_not_declared_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match="no phase 'reserch': declared are research, build"):
        Phases(order=["research", "build"]).phase("reserch")


def test_an_artifact_that_is_no_file_is_refused(tmp_path):
    with Phases(root=tmp_path).phase("a") as phase:
        for path in ("nothing.md", tmp_path, "a\0b"):
            with pytest.raises(UsageError, match="cannot become an artifact"):
                phase.add_artifact(path)


def test_a_result_that_cannot_be_stored_is_refused_where_it_is_kept(tmp_path):
    with holdfast.open(tmp_path) as hf:
        run = hf.run("r")
        phases = Phases(run.host)
        with pytest.raises(ValueRefused, match="the result of phase 'a'"):
            phases.phase("a").call(object)
        assert phases.state("a").status == "failed"


def test_a_program_that_declares_other_phases_keeps_what_was_done():
    before = Phases(order=["a", "b"])
    before.phase("a").call(lambda: 1)
    after = Phases(order=["b", "c"])
    after.restore(before.snapshot())
    assert after.order == ("b", "c")
    assert after.completed == ("a",)
    assert after.phase("a").result == 1
    assert after.next == "b"


@some
@given(
    st.lists(
        st.tuples(st.sampled_from(["run", "fail", "skip", "retry", "replan", "wait", "note"]), st.sampled_from("abc")),
        max_size=10,
    ),
    st.sampled_from([(), ("a", "b", "c")]),
)
def test_a_snapshot_comes_back_whole_and_never_changes(deeds, order):
    phases = Phases(Recorder(), order, plan="p.md", replan_limit=99)
    kept = []
    for deed, name in deeds:
        before = phases.snapshot(), phases.changes
        try:
            if deed in ("skip", "retry"):
                getattr(phases, deed)(name, "why")
            elif deed == "replan":
                phases.replan(name, "why")
            elif deed == "note":
                phases.note(**{name: [deed]})
            else:
                phases.phase(name).call({"run": lambda: [1], "fail": fail, "wait": wait}[deed])
        except (ValueError, RunWaiting):
            pass
        assert phases.snapshot() == before[0] or phases.changes > before[1]
        kept.append((phases.snapshot(), msgspec.json.encode(phases.snapshot())))
    assert is_identity("phases", phases, Phases(order=order))
    assert all(msgspec.json.encode(taken) == then for taken, then in kept)


def test_an_empty_section_of_another_writer_is_taken_as_it_is():
    phases = Phases()
    phases.restore({"order": ["a"], "metadata": {"by": "hand"}})
    assert phases.next == "a"
    assert phases.metadata == {"by": "hand"}
    assert phases.snapshot().phases == {}


def test_a_run_skips_the_phases_that_are_complete(tmp_path):
    """Proves B1, C1."""
    did = []

    def go(*, stop=False):
        with holdfast.open(tmp_path / "store") as hf, hf.run("r") as run:
            phases = run.declare_phases("research", "build", plan="plan.md")
            assert run.phase("research").call(lambda: did.append("research") or "notes") == "notes"
            with run.phase("build") as phase:
                did.append(f"build {phase.attempt}")
                if stop:
                    raise KeyboardInterrupt
            return phases.status()

    with pytest.raises(KeyboardInterrupt):
        go(stop=True)
    with holdfast.open(tmp_path / "store") as hf:
        head = hf.latest("r").section("phases")
        assert (head.current, head.phases["build"].status) == ("build", "running")
    status = go()
    assert did == ["research", "build 1", "build 1"]
    assert status.is_complete
    with holdfast.open(tmp_path / "store") as hf:
        assert {"phase_transition", "phase_complete"} <= {one.trigger for one in hf.checkpoints("r")}
        assert hf.latest("r").section("phases").phases["build"].resumes == 1


def plan_of_three(life):
    phases = life.attach("phases", Phases(life, ["a", "b", "c"]))
    results = []
    for name in phases.order:
        phase = phases.phase(name)
        results.append(phase.call(lambda name=name, phase=phase: life.do(f"{name}{phase.attempt}") or name * 2))
    return results, phases.status()


def test_killed_at_any_save_and_begun_again_it_ends_the_same_and_repeats_no_complete_phase():
    """Proves B1."""
    disk, end, _saves = unbroken(plan_of_three)
    assert disk.did == ["a1", "b1", "c1"]
    for where, killed, ended, *_more in every_death(plan_of_three):
        assert ended == end, where
        assert len(killed.did) <= 4, where
        assert list(dict.fromkeys(killed.did)) == disk.did, where


PROGRAM = """
import pathlib
import sys
import holdfast

store, log, door = map(pathlib.Path, sys.argv[1:])
with holdfast.open(store) as hf, hf.run("r") as run:
    run.declare_phases("research", "build")
    for name in run.phases.order:
        with run.phase(name) as phase:
            if not phase.is_due:
                continue
            with log.open("a") as file:
                file.write(f"{name}{phase.attempt}\\n")
            if name == "build" and door.exists():
                door.read_bytes()
            phase.keep(name.upper())
    run.complete()
"""


def test_killed_in_the_second_phase_another_process_carries_on_there(tmp_path):
    """Proves B1, B5."""
    log, door = tmp_path / "log", tmp_path / "door"
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(log), str(door)]
    os.mkfifo(door)
    with subprocess.Popen(program) as child, door.open("wb"):  # open once the second phase waits behind it
        child.kill()
    door.unlink()
    with holdfast.open(tmp_path / "store") as hf:
        assert hf.latest("r").section("phases").current == "build"
    subprocess.run(program, check=True, timeout=60)
    assert log.read_text().split() == ["research1", "build1", "build1"]
    with holdfast.open(tmp_path / "store") as hf:
        phases = hf.latest("r").section("phases").phases
        assert [(one.status, one.attempt, one.resumes, one.result) for one in phases.values()] == [
            ("completed", 1, 0, "RESEARCH"),
            ("completed", 1, 1, "BUILD"),
        ]


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\ud800 \0 \x1b[31m", ""], ids=["long", "hostile", "empty"])
def test_whatever_an_error_says_the_failure_is_saved(tmp_path, text):
    """Proves B5, D4."""
    with holdfast.open(tmp_path) as hf:
        run = hf.run("r")
        with pytest.raises(ZeroDivisionError), run.phase("a"):
            raise ZeroDivisionError(text)
        head = hf.latest("r")
        assert head.trigger == "error_occurred"
        assert len(head.reason) < 400
        assert head.section("phases").phases["a"].status == "failed"
        run.agents.register("coder", fail)
        with pytest.raises(ValueError, match="no network"):
            run.agents.call("coder", task="t")
        run.phases.skip("a", text)
        run.phases.replan("a", text)
        assert run.protection.since is None
