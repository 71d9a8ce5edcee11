import subprocess
import sys

import pytest

from holdfast.errors import RunCancelled, SectionInvalid, UsageError
from holdfast.model.sections import CoderResult, GateResult
from holdfast.runtime.checks import Gate
from holdfast.runtime.command import Command
from holdfast.runtime.gates import GatedTask, Gates, Response
from unit.runtime.lives import Disk, Killed, Life, every_death, every_two_deaths, same_through_bytes, unbroken

GOOD = {"lint": True, "types": True, "unit": True, "e2e": True}


def yes():
    return True


def coding(life, fails=None, **options):
    """Four gates; `fails` says how often each fails before it passes."""
    left = dict(fails or {})
    gates = life.attach("gates", Gates(life))

    def gate(name):
        def check():
            life.do(name)
            fixes = len({one for one in life.disk.did if one.startswith("fix")})
            return "" if fixes >= left.get(name, 0) else f"{name} is red"

        check.__name__ = name
        return check

    task = gates.task(
        "task-1",
        lambda: life.do("worker") or {"diff": "+1"},
        [gate(name) for name in GOOD],
        fix=lambda failure: life.do(f"fix {failure.attempt}") or str(failure),
        plan_path="plans/task-1.md",
        **options,
    )
    return task.run()


def test_worker_then_gates_in_order_with_a_checkpoint_at_each_stage():
    """Proves D2, D7."""
    disk, end, _saves = unbroken(coding)
    assert end.success
    assert disk.did == ["worker", "lint", "types", "unit", "e2e"]
    assert disk.saves == [
        ("stage_complete", "task-1: before_execution"), ("stage_complete", "task-1: coder_response"),
        ("gate_complete", "task-1: gate_1"), ("gate_complete", "task-1: gate_2"), ("gate_complete", "task-1: gate_3"),
        ("gate_complete", "task-1: gate_4"), ("stage_complete", "task-1: complete"),
    ]  # fmt: skip


def test_it_stops_at_the_first_failure_mends_it_and_tries_all_gates_again():
    """Proves D7."""
    disk, end, _saves = unbroken(lambda life: coding(life, {"types": 1, "unit": 2}))
    assert end.success
    assert end.fix_attempts == 2
    assert disk.did == [
        "worker", "lint", "types", "fix 1", "lint", "types", "unit", "fix 2", "lint", "types", "unit", "e2e",
    ]  # fmt: skip


def test_after_so_many_fixes_it_has_failed_and_says_with_what():
    """Proves D4, D7."""
    disk, end, _saves = unbroken(lambda life: coding(life, {"unit": 9}, max_fixes=2))
    assert (end.success, end.stage, end.fix_attempts) == (False, "failed", 2)
    assert (end.error.code, end.error.message) == ("GateFailed", "gate 3 (unit) failed after 2 fixes: unit is red")
    assert disk.saves[-1] == ("stage_complete", "task-1: failed")
    assert [one for one in disk.did if one.startswith("fix")] == ["fix 1", "fix 2"]
    assert "e2e" not in disk.did


def test_the_stored_state_has_all_that_a_person_asks_for():
    """Proves D3."""
    life = Life(Disk())
    coding(life, {"types": 1})
    state = life._parts["gates"].state("task-1")
    assert (state.plan_path, state.stage, state.coder_response) == ("plans/task-1.md", "complete", {"diff": "+1"})
    assert state.coder_result == CoderResult(status="success")
    assert [(one.level, one.description, one.success, one.skipped) for one in state.gate_results] == [
        (1, "lint", True, False), (2, "types", True, False), (3, "unit", True, False), (4, "e2e", True, False),
    ]  # fmt: skip
    assert state.fix_attempt == 1
    assert state.fixes[0].failure.stderr == "types is red"
    assert state.fixes[0].response == "types failed:\ntypes is red"
    assert state.updated_at == life.now()
    assert state.error is None


def test_killed_at_any_save_no_finished_call_and_no_passed_gate_is_repeated():
    """Proves D8, D7."""

    def program(life):
        return coding(life, {"types": 1, "e2e": 2})

    disk, end, _saves = unbroken(program)
    told = disk.did
    for where, disk, again in every_death(program):
        assert again == end, where
        extra = list(disk.did)
        for one in told:
            extra.remove(one)
        # Killed right after a save nothing is repeated; before it, the one call whose end was not saved.
        assert len(extra) <= (where[1] == "before"), where
    assert all(again == end for _where, _disk, again in every_two_deaths(program))


def test_a_worker_that_was_under_way_is_called_again_and_the_journal_says_so():
    disk = Disk()
    with pytest.raises(Killed):
        coding(Life(disk, 2))
    assert coding(Life(disk)).success
    assert disk.did[:2] == ["worker", "worker"]
    assert disk.notes == [("unknown outcome", "task-1: its worker was under way and is called again", {})]


def test_a_task_that_ended_is_not_run_again():
    disk = Disk()
    first = coding(Life(disk))
    assert coding(Life(disk)) == first
    assert disk.did == ["worker", "lint", "types", "unit", "e2e"]


def in_a_directory(life, root, *, gates=None):
    def fingerprint():
        return "|".join(f"{path.name}={path.read_text()}" for path in sorted(root.iterdir()))

    def worker():
        life.do("worker")
        (root / "a.py").write_text("a = 1\n")

    def gate(name):
        def check():
            life.do(name)
            return True

        return Gate(check, name)

    part = life.attach("gates", Gates(life))
    return part.task("t", worker, [gate(name) for name in gates or ("lint", "unit")], fingerprint=fingerprint).run()


def test_gates_run_again_if_files_changed_since_and_the_journal_says_so(tmp_path):
    """Proves D8: unless files changed since."""
    disk = Disk()
    with pytest.raises(Killed):
        in_a_directory(Life(disk, 3, after=True), tmp_path)
    assert disk.did == ["worker", "lint"]
    (tmp_path / "a.py").write_text("a = 2\n")
    assert in_a_directory(Life(disk), tmp_path).success
    assert disk.did == ["worker", "lint", "lint", "unit"]
    assert disk.notes == [("call outdated", "t/gate:1", {"why": "files changed"})]


def test_passed_gates_are_not_repeated_while_the_files_are_the_same(tmp_path):
    """Proves D8."""
    disk = Disk()
    with pytest.raises(Killed):
        in_a_directory(Life(disk, 3, after=True), tmp_path)
    in_a_directory(Life(disk), tmp_path)
    assert disk.did == ["worker", "lint", "unit"]
    assert disk.notes == []
    (tmp_path / "a.py").write_text("later work\n")
    assert in_a_directory(Life(disk), tmp_path).success
    assert disk.did == ["worker", "lint", "unit"]


def test_gates_run_again_if_they_are_other_gates_now(tmp_path):
    disk = Disk()
    with pytest.raises(Killed):
        in_a_directory(Life(disk, 3, after=True), tmp_path)
    in_a_directory(Life(disk), tmp_path, gates=("format", "lint", "unit"))
    assert disk.did == ["worker", "lint", "format", "lint", "unit"]
    assert disk.notes[0] == ("call outdated", "t/gate:1", {"why": "its inputs changed"})
    in_a_directory(Life(disk), tmp_path, gates=("format", "types", "unit"))  # proves D7: on a complete task, too
    assert disk.did[5:] == ["types"]
    disk = Disk()
    with pytest.raises(Killed):
        in_a_directory(Life(disk, 4, after=True), tmp_path)
    in_a_directory(Life(disk), tmp_path, gates=("lint",))
    assert disk.did == ["worker", "lint", "unit"]


def test_commands_are_gates_with_what_they_said(tmp_path):
    """Proves D3: level, description, success, command, stdout, stderr, exit code, skipped, duration."""
    script = f"{sys.executable} -c \"import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)\""
    task = GatedTask(None, "t", yes, ["true", Gate(Command(script), "the tests", 7), "false"])
    outcome = task.run()
    passed, failed = outcome.gates
    assert (passed.command, passed.description, passed.success, passed.exit_code) == ("true", "true", True, 0)
    assert (failed.level, failed.description, failed.command) == (7, "the tests", script)
    assert (failed.success, failed.exit_code, failed.stdout, failed.stderr) == (False, 3, "out\n", "err\n")
    assert failed.duration_s > 0
    assert not failed.skipped
    assert outcome.error.message == "gate 7 (the tests) failed: err"


def test_a_coding_task_on_a_real_repository(tmp_path):
    """Proves D7 with a worker, gates and a fix that are commands; the fix reads the failure."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "test_it.py").write_text("from it import f\nassert f(2) == 4, 'f(2) is not 4'\n")
    task = GatedTask(
        None,
        "double",
        Command("printf 'def f(x):\\n    return x\\n' > it.py; echo '{\"result\": \"wrote it.py\"}'", cwd=tmp_path),
        [
            Command(f"{sys.executable} -m py_compile it.py", cwd=tmp_path),
            Command(f"{sys.executable} test_it.py", cwd=tmp_path),
        ],
        fix=Command("grep -q 'f(2) is not 4' && printf 'def f(x):\\n    return 2 * x\\n' > it.py", cwd=tmp_path),
    )
    outcome = task.run()
    assert outcome.success, outcome
    assert (outcome.response, outcome.fix_attempts) == ("wrote it.py", 1)
    assert "f(2) is not 4" in task.state.fixes[0].failure.stderr


@pytest.mark.parametrize(
    ("said", "success", "stderr"),
    [
        (True, True, ""),
        (False, False, ""),
        ("", True, ""),
        ("two errors", False, "two errors"),
        (GateResult(level=0, description="", success=False, stdout="x", exit_code=4), False, ""),
    ],
)
def test_a_function_may_say_it_in_several_ways(said, success, stderr):
    (result,) = GatedTask(None, "t", yes, [Gate(lambda: said, "check")]).run().gates
    assert (result.level, result.description, result.success, result.stderr) == (1, "check", success, stderr)


def test_an_error_in_a_gate_is_a_failure_with_its_stack():
    """Proves D4."""

    def check():
        raise AssertionError("2 != 3")

    (result,) = GatedTask(None, "t", yes, [check]).run().gates
    assert not result.success
    assert "AssertionError: 2 != 3" in result.stderr
    assert result.description == "check"


def test_a_gate_that_returns_nothing_does_not_pass_by_accident():
    with pytest.raises(UsageError, match=r"gate 1 \(check\) returned None: return True or False"):
        GatedTask(None, "t", yes, [Gate(lambda: None, "check")]).run()


def test_a_gate_may_be_left_out():
    """Proves D3: skipped."""
    outcome = GatedTask(None, "t", yes, [Gate("false", "e2e", when=lambda: False), yes]).run()
    assert outcome.success
    assert [(one.description, one.success, one.skipped) for one in outcome.gates] == [
        ("e2e", True, True), ("yes", True, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("worker", "status", "message"),
    [
        (lambda: Response("no", "issue", "the plan contradicts itself"), "issue", "the plan contradicts itself"),
        (lambda: CoderResult(status="error", message="quota"), "error", "quota"),
        ("echo broken >&2; exit 2", "error", "exit code 2: broken"),
        (lambda: {}["x"], "error", "'x'"),
    ],
)
def test_a_worker_that_does_not_succeed_ends_the_task_without_gates(worker, status, message):
    """Proves D3, D4: coder result success, error or issue, with its message."""
    task = GatedTask(None, "t", worker, [yes])
    outcome = task.run()
    assert (outcome.success, outcome.stage, outcome.gates) == (False, "failed", ())
    assert outcome.coder_result == CoderResult(status=status, message=message)
    assert outcome.error.message == message


def test_an_error_of_the_worker_is_kept_with_message_code_and_stack():
    """Proves D4."""
    error = GatedTask(None, "t", lambda: 1 / 0, []).run().error
    assert (error.message, error.code) == ("division by zero", "ZeroDivisionError")
    assert "1 / 0" in error.stack


def test_a_failed_task_can_be_retried_without_paying_its_worker_again():
    life = Life(Disk())
    assert not coding(life, {"unit": 9}, max_fixes=1).success
    part = life._parts["gates"]
    part.task("task-1", yes, [yes]).retry()
    life.disk.did.clear()
    again = Life(life.disk)
    again._parts["gates"] = part
    assert part.task("task-1", lambda: life.do("worker"), [Gate(yes, "lint"), yes]).run().success
    assert life.disk.did == []


def test_a_worker_that_failed_is_called_again_when_the_task_is_next_run():
    """Proves D7."""
    calls = []
    task = GatedTask(None, "t", lambda: calls.append(1) or 1 // (len(calls) - 1), [yes])
    assert not task.run().success
    assert task.run().success
    assert task.state.attempts == 2


@pytest.mark.parametrize(
    "said",
    [
        {"result": "error", "message": "no"},
        {"status": "issue", "message": "no"},
        '{"result": "issue", "message": "no"}',
        Response("x", "error", "no"),
    ],
)
def test_a_worker_that_reports_an_error_or_an_issue_is_no_success(said):
    """Proves D3."""
    outcome = GatedTask(None, "t", lambda: said, [yes]).run()
    assert (outcome.success, outcome.stage, outcome.coder_result.message) == (False, "failed", "no")
    assert outcome.coder_result.status in ("error", "issue")


def test_transient_errors_of_the_worker_are_retried():
    life, tries = Life(Disk()), []

    def worker():
        tries.append(1)
        if len(tries) < 3:
            raise TimeoutError
        return "done"

    assert GatedTask(life, "t", worker, [], retries=2).run().success
    assert life.slept == [1, 2]


def test_a_run_that_is_left_is_no_failure_of_the_task():
    def worker():
        raise RunCancelled("run-1", "ann")

    task = GatedTask(Life(Disk()), "t", worker, [yes])
    with pytest.raises(RunCancelled):
        task.run()
    assert task.state.stage == "before_execution"


def test_a_fix_that_fails_ends_the_task():
    outcome = GatedTask(None, "t", yes, ["false"], fix="echo cannot >&2; exit 1").run()
    assert (outcome.stage, outcome.error.message) == ("failed", "fix 1: exit code 1: cannot")
    outcome = GatedTask(None, "t", yes, ["false"], fix=lambda: 1 / 0).run()
    assert outcome.error.code == "ZeroDivisionError"


def test_tasks_are_apart_from_each_other():
    """Proves D10 in part: tasks are independent."""
    gates = Gates()
    assert gates.task("a", yes, [yes]).run().success
    assert not gates.task("b", yes, ["false"]).run().success
    assert {name: state.stage for name, state in gates.snapshot().tasks.items()} == {"a": "complete", "b": "failed"}
    assert same_through_bytes("gates", gates, Gates())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: GatedTask(None, "t", yes, "true"), "give a list"),
        (lambda: GatedTask(None, "t", yes, [5]), "gate 1: 5 can be neither run nor called"),
        (lambda: GatedTask(None, "t", None, []), "the worker of t: None can be neither"),
        (lambda: GatedTask(None, "t", yes, [], max_fixes=-1), "max_fixes=-1"),
        (lambda: GatedTask(None, "t", yes, [], retries=-1), "retries=-1"),
        (lambda: Gates().state("x"), "there is no task 'x' with gates"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(call, says):
    with pytest.raises(UsageError, match=says):
        call()


def test_a_snapshot_does_not_change_afterwards_and_changes_grow_with_every_change():
    gates, response = Gates(), {"files": ["a"]}
    task = gates.task("t", lambda: response, [yes])
    before = gates.changes
    task.run()
    value, after = gates.snapshot(), gates.changes
    assert after > before
    response["files"].append("b")
    gates.task("u", yes, []).run()
    assert value.tasks.keys() == {"t"}
    assert value.tasks["t"].coder_response == {"files": ["a"]}
    seen = gates.changes
    task.run()
    assert gates.changes == seen


def test_a_section_that_does_not_fit_is_refused():
    with pytest.raises(SectionInvalid, match="section 'gates'"):
        Gates().restore({"tasks": {"t": {}}})
