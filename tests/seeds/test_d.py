"""System D, a coding task with four real gates, a coder that errs, and two fixes; the ledger's D, entry by entry."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta

import msgspec
import pytest

import holdfast
from holdfast.flow.load import flow_from, load_flow
from holdfast.flow.runner import run_flow
from holdfast.settings.values import MirrorSettings, RetentionSettings
from seeds.killing import KILLS, kill_and_resume, kill_when, pace, resumes
from store_kit import STORES, open_store_in

RUN, TASK = "add-slug", "implement/implement"
GATES = ("format", "types", "tests", "end")
CODER = ["coder 0", "coder 1", "coder 2"]
CHECKED = ["format 0", "format 1", "types 1", "tests 1", "format 2", "types 2", "tests 2", "end 2"]
KEEP_ALL = holdfast.Settings(retention=RetentionSettings(enabled=False))


@pytest.fixture(scope="module")
def begun(system):
    """The example as it is before its flow is run."""
    made = system("d_coding")
    made.sh("sh setup.sh")
    return made


@pytest.fixture(scope="module")
def complete(begun, tmp_path_factory):
    """A finished run with every one of its checkpoints; not to be changed."""
    made = begun.copy(tmp_path_factory.mktemp("d-complete") / "system")
    with holdfast.open(made.store, settings=KEEP_ALL) as hf:
        result = run_flow(hf, load_flow(made.folder / "flow.yaml"), workspace=made.folder / "repo")
    assert result.status == "completed"
    return made


def gates_run(system):
    """Return which gate ran on which draft, in order."""
    return [line.replace(" # draft", "") for line in system.lines("gates.log")]


def states(system):
    """Return the task's state at each of its stages, in order."""
    with system.open() as hf:
        line = reversed(hf.checkpoints(RUN, archived=True))
        return [(one, one.section("gates").tasks[TASK]) for one in line if one.reason.startswith(f"{TASK}: ")]


def test_a_coder_that_errs_is_told_why_until_its_gates_are_passed(complete):
    """Proves D7: coder, gates in order, stop at the first failure, fix and try again."""
    assert complete.lines() == CODER
    assert gates_run(complete) == CHECKED
    assert (complete.folder / "repo" / "REPORT.md").read_text() == "slug.py:\nslug.py passes all four gates\n"


@pytest.mark.parametrize("kind", [kind for kind in STORES if kind != "encrypted"])  # which has no plain text beside it
def test_checkpoints_belong_to_their_task_and_lie_in_a_versioned_file_of_its_own(kind, tmp_path):
    """Proves D1, D2: two tasks of one run; a file each, the task's own id, its stages; one that is deleted is gone."""
    mirror = MirrorSettings(form="task", location=f"{tmp_path}/artifacts/{{task}}")
    first, second = "P1.M1.T1.S1", "P1.M1.T1.S2"

    def file_of(task):
        return json.loads((tmp_path / "artifacts" / task / "checkpoints.json").read_text())

    with (
        open_store_in(kind, tmp_path) as store,
        holdfast.Holdfast(store, settings=msgspec.structs.replace(KEEP_ALL, mirror=mirror)) as hf,
    ):
        with hf.run("session-1") as run:
            assert run.gates.task(first, lambda: "wrote it", ["true", "true"]).run().success
            assert not run.gates.task(second, lambda: "wrote it", ["true", "false"]).run().success
        ends = {first: ["complete", "gate_2"], second: ["failed", "gate_2"]}
        for task, last in ends.items():
            found = file_of(task)
            stages = [one["stage"] for one in found["checkpoints"]]
            assert stages == [*last, "gate_1", "coder_response", "before_execution"]
            assert (found["run"], found["task"], found["total"]) == ("session-1", task, 5)
            assert found["version"] == found["checkpoints"][0]["seq"]
            for one in found["checkpoints"]:
                assert one["sections"]["gates"]["tasks"][task]["stage"] == one["stage"]
                owner, _, stage = one["checkpoint"].split("-")
                assert (owner, stage) == (task, one["stage"])
                assert hf.find(one["checkpoint"]).id == one["id"]
        whole = file_of("session-1")
        assert [one["id"] for one in whole["checkpoints"]] == [one.id for one in hf.checkpoints("session-1")]
        before = file_of(first)
        hf.delete(before["checkpoints"][-1]["id"])
        after = file_of(first)
        assert [one["stage"] for one in after["checkpoints"]] == [*ends[first], "gate_1", "coder_response"]
        assert after["last_modified"] > before["last_modified"]
        assert file_of(second)["total"] == 5
        hf.delete_run("session-1")
        assert list((tmp_path / "artifacts").rglob("*.json")) == []


def test_the_file_of_a_flow_has_its_stages_and_two_runs_of_one_flow_are_apart(begun, tmp_path):
    """Proves D1, D2: on the command line the id of task, time and stage names the checkpoint."""
    made = begun.copy(tmp_path / "system")
    settings = made.folder / "holdfast.yaml"
    settings.write_text("mirror: {form: task, location: 'artifacts/{task}'}\nretention: {enabled: false}\n")
    for run in ("add-slug", "other"):
        assert made.hf("run", "flow.yaml", "--run-id", run, "--workspace", "repo", "-q").code == 0
    found = json.loads((made.folder / "artifacts" / "other" / "checkpoints.json").read_text())
    stage = next(one for one in found["checkpoints"] if one["stage"] == "gate_4")
    assert (stage["task"], stage["run"]) == (TASK, "other")
    said = made.hf("show", stage["checkpoint"], "--json")
    assert (said.code, said.json["id"]) == (0, stage["id"]), said.err
    files = [json.loads(path.read_text()) for path in (made.folder / "artifacts").rglob("checkpoints.json")]
    owners = [(one["run"], one["task"]) for one in files]
    assert sorted(owners) == sorted((run, task) for run in ("add-slug", "other") for task in (run, TASK))


def test_every_stage_has_its_checkpoint(complete, begun, tmp_path):
    """Proves D2, D7: before, after the coder, after each gate, each fix, complete; and failed."""
    stages = [state.stage for _, state in states(complete)]
    second = ["fix_1", "gate_1", "gate_2", "gate_3"]
    third = ["fix_2", "gate_1", "gate_2", "gate_3", "gate_4"]
    assert stages == ["before_execution", "coder_response", "gate_1", *second, *third, "complete"]
    given_up = begun.copy(tmp_path / "system")
    flow = load_flow(given_up.folder / "flow.yaml")
    text = (given_up.folder / "flow.yaml").read_text().replace("max_fixes: 3", "max_fixes: 1")
    (given_up.folder / "flow.yaml").write_text(text)
    assert flow != load_flow(given_up.folder / "flow.yaml")
    assert given_up.carry_on().status == "failed"
    with given_up.open() as hf:
        state = hf.latest(RUN).section("gates").tasks[TASK]
    assert (state.stage, state.fix_attempt) == ("failed", 1)
    assert "tests" in state.error.message


def test_the_state_of_a_stage_says_all_that_came_of_it(complete):
    """Proves D3: stage, coder's response and result, gate results, fix attempt, time."""
    found = {one.stage: one for _, one in states(complete)}
    first = next(one for _, one in states(complete) if one.stage == "gate_1")
    (gate,) = first.gate_results
    assert (gate.level, gate.description, gate.success, gate.exit_code) == (1, "format", False, 1)
    assert gate.command.endswith("check_format.py slug.py")
    assert "a trailing blank" in gate.stdout
    assert (gate.stderr, gate.skipped) == ("", False)
    assert first.updated_at.tzinfo is not None
    response = found["coder_response"]
    assert response.coder_response["result"]["message"] == "wrote draft 0 of slug.py"
    assert (response.coder_result.status, response.fix_attempt) == ("success", 0)
    done = found["complete"]
    assert (done.fix_attempt, [gate.success for gate in done.gate_results]) == (2, [True] * 4)
    assert [(fix.attempt, fix.failure.description) for fix in done.fixes] == [(1, "format"), (2, "tests")]
    assert "AssertionError" in done.fixes[1].failure.stderr


@pytest.mark.parametrize(
    ("said", "status", "message"),
    [
        ("wrote it", "success", ""),
        ({"result": "success", "message": "all of it"}, "success", "all of it"),
        (ValueError("no key"), "error", "no key"),
        ({"result": "error", "message": "tests are missing"}, "error", "tests are missing"),
        ({"status": "issue", "message": "which login?"}, "issue", "which login?"),
        (json.dumps({"result": "issue", "message": "which login?"}), "issue", "which login?"),
        (holdfast.Response("half of it", "issue", "which login?"), "issue", "which login?"),
        (holdfast.Command("""echo '{"result": "error", "message": "no disk"}'"""), "error", "no disk"),
        (holdfast.Command("exit 3"), "error", None),
    ],
    ids=["text", "success", "raised", "error", "issue", "JSON text", "Response", "command's report", "exit code"],
)
def test_how_the_coders_call_ended_is_kept_and_only_success_comes_to_the_gates(hf, said, status, message, tmp_path):
    """Proves D3: success, error and issue in every form, with the message and the plan's path."""

    def coder():
        if isinstance(said, Exception):
            raise said
        return said

    gate = f"touch {tmp_path}/tried"
    with hf.run("r") as run:
        work = said if isinstance(said, holdfast.Command) else coder
        outcome = run.gates.task("t", work, [gate], plan_path="plans/t.md").run()
    state = hf.latest("r").section("gates").tasks["t"]
    assert (state.plan_path, state.coder_result.status) == ("plans/t.md", status)
    assert message is None or state.coder_result.message == message
    assert outcome.success is (tmp_path / "tried").exists() is (status == "success")
    assert state.stage == ("complete" if status == "success" else "failed")


@pytest.mark.parametrize(
    "task",
    [
        {"stage": "bogus"},
        {"stage": "gate_0"},
        {"stage": "failed", "fix_attempt": -1},
        {"stage": "gate_1", "gate_results": [{"level": -3, "description": "x", "success": True}]},
        {"stage": "gate_1", "gate_results": [{"level": 1, "description": "x", "success": "perhaps"}]},
        {"stage": "coder_response", "coder_result": {"status": "perhaps"}},
    ],
)
def test_a_state_outside_its_ranges_is_refused_and_nothing_is_stored(hf, task):
    """Proves D3."""
    with pytest.raises(holdfast.SectionInvalid, match="gates"):
        hf.run("r").checkpoint(gates={"tasks": {"t": task}})
    assert not hf.has("r")


class QuotaError(Exception):
    code = "E42"


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (FileNotFoundError(2, "it went wrong", "slug.py"), "ENOENT"),
        (QuotaError("it went wrong"), "E42"),
        (subprocess.CalledProcessError(7, "it went wrong"), "7"),
        (ValueError("it went wrong"), "ValueError"),
    ],
    ids=["errno", "own", "exit", "class"],
)
def test_an_error_is_kept_with_message_code_and_stack(hf, raised, code):
    """Proves D4: of a task, of a run that it ended, and of a checkpoint that is given one."""

    def coder():
        raise raised

    with hf.run("r") as run:
        assert not run.gates.task("t", coder, ["true"]).run().success
    with pytest.raises(type(raised)), hf.run("ended"):
        coder()
    errors = [hf.latest("r").section("gates").tasks["t"].error, hf.latest("ended").section("error")]
    for error in errors:
        assert "it went wrong" in error.message
        assert error.code == code
        assert "in coder" in error.stack
    by_hand = hf.run("by-hand")
    assert by_hand.checkpoint(state=1, error=raised).section("error").code == code
    assert "error" not in by_hand.checkpoint(state=2).sections  # it belongs to the checkpoint that it was given to


def test_the_exit_code_of_a_command_is_the_code_of_its_error(hf):
    """Proves D4."""
    with hf.run("r") as run:
        run.agents.register("coder", holdfast.Command("echo broken >&2; exit 4"))
        with pytest.raises(holdfast.CommandFailed):
            run.agents.call("coder", task="t")
    assert hf.latest("r").section("agents")[0].tasks["t"].error.code == "4"


def test_checkpoints_are_saved_restored_listed_cleaned_up_and_deleted(complete, tmp_path):
    """Proves D5: by id, the latest, in order, all but N, one, and whether there is any."""
    copy = complete.copy(tmp_path / "system")
    with copy.open() as hf:
        assert hf.has(RUN)
        assert not hf.has("nothing")
        line = hf.checkpoints(RUN, archived=True)
        assert [one.seq for one in line] == sorted((one.seq for one in line), reverse=True)
        assert line[0].id == hf.latest(RUN).id
        middle = next(one for one, state in states(copy) if state.stage == "coder_response")
        assert hf.recover(middle.id).state["gates"].tasks[TASK].stage == "coder_response"
        hf.prune(RUN, keep=5)
        left = hf.checkpoints(RUN, archived=True)
        assert 5 <= len(left) < len(line)
        gone = next(one.id for one in left if not one.pinned and one.id != hf.latest(RUN).id)
        hf.delete(gone)
        with pytest.raises(holdfast.NotFound):
            hf.get(gone)
        assert hf.verify().sound


def test_an_unknown_task_has_nothing_and_an_unknown_checkpoint_is_an_error(hf):
    """Proves D5: None, an empty list, nothing to do; a checkpoint id that is unknown or malformed is named."""
    assert hf.latest("P1.M1.T1.S1") is None
    assert hf.checkpoints("P1.M1.T1.S1") == []
    assert hf.prune("P1.M1.T1.S1", keep=5) == []
    hf.delete_run("P1.M1.T1.S1")
    unknown = "cp_" + "0" * 32
    for ask in (hf.get, hf.find, hf.delete):
        with pytest.raises(holdfast.NotFound, match=unknown):
            ask(unknown)
    hf.delete(unknown, missing_ok=True)
    for ask in (hf.get, hf.delete):
        with pytest.raises(holdfast.InvalidId, match="cp_ and 32 digits"):
            ask("not an id")


def test_when_disabled_saving_does_nothing_and_says_so(begun, tmp_path, caplog):
    """Proves D5, D6: the task is done all the same."""
    made = begun.copy(tmp_path / "system")
    with holdfast.open(made.store, settings=holdfast.Settings(), enabled=False) as hf:
        with caplog.at_level("INFO", "holdfast"):
            taken = hf.run("r").checkpoint(state=1, reason="by hand")
        assert "checkpointing is disabled" in caplog.text
        assert not taken
        assert (taken.id, taken.run, taken.reason, taken.sections) == ("", "r", "by hand", ())
        with pytest.raises(holdfast.UsageError, match="disabled"):
            taken.section("state")
        result = run_flow(hf, load_flow(made.folder / "flow.yaml"), workspace=made.folder / "repo")
        assert result.status == "completed"
        assert not hf.has(RUN)


def test_a_task_keeps_five_by_default_and_cleans_up_by_itself(begun, tmp_path):
    """Proves D6: nobody prunes; each of two tasks has its own five, and with the clean-up off all of them stay."""
    made = begun.copy(tmp_path / "system")
    counts_of = {}
    for name, settings in (("on", holdfast.Settings.preset("task")), ("off", KEEP_ALL)):
        with holdfast.open(tmp_path / name, settings=settings) as hf:
            run_flow(hf, load_flow(made.folder / "flow.yaml"), workspace=made.folder / "repo")
            for number in range(9):
                hf.run("other").checkpoint(state=number)
            kept = [one.seq for one in hf.checkpoints(RUN, archived=True)]
            counts_of[name] = len(kept), [one.seq for one in hf.checkpoints("other", archived=True)]
            assert kept == list(range(hf.latest(RUN).seq, hf.latest(RUN).seq - len(kept), -1))
    assert counts_of["on"] == (5, [9, 8, 7, 6, 5])
    assert counts_of["off"][0] > 10
    assert counts_of["off"][1] == list(range(9, 0, -1))


def test_fixes_end_at_their_limit(hf, tmp_path):
    """Proves D7."""
    data = {
        "flow": "f",
        "on_failure": "abort",
        "phases": {"p": {"run": "echo 0 > n", "gates": ["false"], "fix": "echo x >> fixes", "max_fixes": 2}},
    }
    assert run_flow(hf, flow_from(data), workspace=tmp_path).status == "failed"
    assert (tmp_path / "fixes").read_text() == "x\nx\n"


def finished(system):
    """Return the lines of the logs whose work the store has as finished."""
    with system.open() as hf:
        if not hf.has(RUN) or "gates" not in hf.latest(RUN).sections:
            return set()
        state = hf.latest(RUN).section("gates").tasks.get(TASK)
        if state is None or state.coder_result is None:
            return set()
        done = {f"coder {number}" for number in range(state.fix_attempt + 1)}
        for fix in state.fixes:
            done |= {f"{GATES[level]} {fix.attempt - 1}" for level in range(fix.failure.level)}
        return done | {f"{GATES[gate.level - 1]} {state.fix_attempt}" for gate in state.gate_results}


def counts(system):
    return Counter([*system.lines(), *gates_run(system)])


def test_killed_at_each_stage_no_finished_call_and_no_verdict_comes_again(begun, complete, tmp_path):
    """Proves D8: SIGKILL in the middle of every coder's call and every gate."""
    made = begun.copy(tmp_path / "system")
    command = made.command("run", "flow.yaml", "--workspace", "repo", "-q", "--resume")
    deaths = []
    while True:
        before = counts(made).total()
        due = before + (2 if before else 1)  # what was interrupted comes again, then one more begins
        if not kill_when(command, made.folder, lambda due=due: counts(made).total() >= due):
            break
        deaths.append((finished(made), counts(made)))
    last = counts(made)
    assert len(deaths) >= len(CODER + CHECKED) // 2
    for done, at_death in deaths:
        again = {line for line in done if last[line] != at_death[line]}
        assert not again, f"finished before it was killed, and done again: {again}"
    assert set(last) == {*CODER, *CHECKED}
    assert end_of(made) == end_of(complete)


def test_restoring_is_idempotent_checked_first_and_gives_new_state(complete, tmp_path):
    """Proves D9."""
    copy = complete.copy(tmp_path / "system")
    middle = next(one.id for one, state in states(copy) if state.stage == "fix_1")
    with copy.open() as hf:
        plan = hf.plan(middle, workspace=copy.folder / "repo")
        once = hf.recover(plan)
        head = hf.latest(RUN).id
        twice = hf.recover(plan)
        assert (once.success, twice.success, hf.latest(RUN).id) == (True, True, head)
        assert once.state == twice.state
        assert once.state["gates"] is not once.state["gates"]
        assert (copy.folder / "repo" / "slug.py").read_text().startswith("# draft 1\n")
        refused = hf.recover("no-such-checkpoint")
        assert (refused.success, hf.latest(RUN).id) == (False, head)
    assert copy.carry_on().status == "completed"
    assert copy.lines() == [*CODER, "coder 2"]


def test_tasks_of_several_processes_at_the_same_time_are_all_kept(begun, tmp_path):
    """Proves D10: one store, three tasks, three processes; and a task that is under way is not taken by a second."""
    made = begun.copy(tmp_path / "system")
    running = []
    for number in range(3):
        shutil.copytree(made.folder / "repo", made.folder / f"repo {number}")
        command = made.command("run", "flow.yaml", "--run-id", f"task-{number}", "--workspace", f"repo {number}", "-q")
        running.append(subprocess.Popen(command, cwd=made.folder, stdout=subprocess.DEVNULL))
    assert [process.wait(120) for process in running] == [0, 0, 0]
    with made.open() as hf:
        assert {run.id for run in hf.runs()} == {f"task-{number}" for number in range(3)}
        for number in range(3):
            head = hf.latest(f"task-{number}")
            assert head.section("gates").tasks[TASK].stage == "complete"
            assert head.read("slug.py").startswith(b"# draft 2\n")
        assert hf.verify().sound
        with hf.run("task-3"):
            second = made.hf("run", "flow.yaml", "--run-id", "task-3", "--workspace", "repo 0", "-q")
        assert (second.code, "pid" in second.err) == (4, True)


def test_checkpoints_of_one_task_taken_by_several_threads_are_all_kept(tmp_path):
    """Proves D10."""
    with holdfast.open(tmp_path / "store", settings=KEEP_ALL) as hf:
        run = hf.run("task")
        threads = [threading.Thread(target=lambda n=n: run.checkpoint(reason=str(n), state=n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {one.reason for one in hf.checkpoints("task")} == {str(n) for n in range(8)}
        assert [one.seq for one in hf.checkpoints("task")] == list(range(8, 0, -1))


def test_checkpoints_of_one_task_taken_by_several_processes_are_all_kept(tmp_path):
    """Proves D10: each is stored once, in one order, though they collide."""
    program = """
import sys, holdfast
with holdfast.open("store", settings=holdfast.Settings(), compression="none") as hf:
    for number in range(10):
        while True:
            try:
                hf.run("task").checkpoint(reason=f"{sys.argv[1]}-{number}")
                break
            except holdfast.Conflict:
                continue
"""
    running = [subprocess.Popen([sys.executable, "-c", program, str(one)], cwd=tmp_path) for one in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    with holdfast.open(tmp_path / "store", settings=KEEP_ALL) as hf:
        taken = hf.checkpoints("task", archived=True)
        assert {one.reason for one in taken} == {f"{one}-{number}" for one in range(3) for number in range(10)}
        assert [one.seq for one in taken] == list(range(30, 0, -1))
        assert hf.verify().sound


def test_a_malformed_or_hostile_file_is_refused_with_a_sentence_and_nothing_is_lost(begun, tmp_path):
    """Proves D11: a run's file overwritten where its newest checkpoint lies, and a flow file that is a bomb."""
    made = begun.copy(tmp_path / "system")
    store = (tmp_path / "files").as_uri()
    assert made.hf("run", "flow.yaml", "--workspace", "repo", "-q", "--store", store).code == 0
    with holdfast.open(store, settings=KEEP_ALL) as hf:
        before = [one.id for one in hf.checkpoints(RUN, archived=True)]
    journal = tmp_path / "files" / "runs" / RUN / "journal.jsonl"
    whole = journal.read_bytes()
    newest = whole.index(before[0].encode())
    journal.write_bytes(whole[:newest] + b"\0\xff: [" + whole[newest + 5 :])
    for words in (("show", RUN), ("log", RUN), ("verify",)):
        said = made.hf(*words, "--store", store)
        assert (said.code, "Traceback" in said.err) == (5, False), words
        assert "of its journal does not match its check" in said.out + said.err, words
    assert made.hf("repair", "-y", "--store", store).code == 0
    assert made.hf("verify", "--store", store).code == 0
    with holdfast.open(store, settings=KEEP_ALL) as hf:
        assert [one.id for one in hf.checkpoints(RUN, archived=True)] == before[1:]
        sound = hf.latest(RUN, sound=True)
        assert sound.read("slug.py").startswith(b"# draft 2\n")
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    )
    (made.folder / "bomb.yaml").write_text(bomb)
    (made.folder / "deep.yaml").write_text("flow: " + "[" * 200_000)
    (made.folder / "deep.json").write_text('{"a": ' * 200_000)
    for file in ("bomb.yaml", "deep.yaml", "deep.json"):
        refused = made.hf("run", file)
        assert (refused.code, "Traceback" in refused.err) == (2, False), file
    with holdfast.open(store, settings=KEEP_ALL) as hf:
        hf.run("beside").checkpoint(state="whole")
    for index in (tmp_path / "files").rglob("index.*"):
        index.write_text("[" * 200_000)
    assert made.hf("show", "beside", "--store", store).code == 0
    assert made.hf("log", RUN, "--store", store).code == 0
    assert made.hf("verify", "--store", store).code == 0


def end_of(system):
    """Return all that must be the same however often the run was killed."""
    with system.open() as hf:
        assert hf.verify().sound
        head = hf.latest(RUN)
        state = head.section("gates").tasks[TASK]
        return {
            "status": head.summary.status,
            "stage": (state.stage, state.fix_attempt, [gate.success for gate in state.gate_results]),
            "fixes": [(fix.attempt, fix.failure.description, fix.response) for fix in state.fixes],
            "response": state.coder_response,
            "phases": {name: (one.status, one.summary) for name, one in head.section("phases").phases.items()},
            "files": {file.path: head.read(file.path) for file in head.files() if file.kind == "file"},
            "tokens": head.section("budget").spending["tokens"].used,
        }


def test_killed_at_random_moments_it_ends_as_an_unbroken_run_does(begun, complete, tmp_path):
    """Proves D8, D7."""
    command = complete.command("run", "flow.yaml", "--workspace", "repo", "-q", "--resume")
    times = pace(command, begun.copy(tmp_path / "timed").folder)
    unbroken = end_of(complete)
    killed = number = 0  # those that came after the run had begun
    while killed < KILLS:
        number += 1
        made = begun.copy(tmp_path / f"run {number}")
        lives = kill_and_resume(command, made.folder, 6, f"d {number}", **times)
        assert lives.code == 0, lives.err
        assert end_of(made) == unbroken
        assert set(counts(made)) == {*CODER, *CHECKED}
        assert counts(made).total() <= len(CODER + CHECKED) + lives.kills
        with made.open() as hf:
            killed += resumes(hf, RUN)
        shutil.rmtree(made.folder)


def test_old_checkpoints_of_a_task_go_by_age(complete, tmp_path):
    """Proves D5: cleaned up by age, and the newest stays."""
    copy = complete.copy(tmp_path / "system")
    with copy.open() as hf:
        before = hf.checkpoints(RUN, archived=True)
        assert hf.prune(RUN, older_than=timedelta(days=1)) == []
        gone = hf.prune(RUN, older_than=timedelta(0))
        assert gone
        left = hf.checkpoints(RUN, archived=True)
        assert len(left) == len(before) - len(gone) < len(before)
        assert left[0].id == before[0].id
        assert hf.latest(RUN).section("gates").tasks[TASK].stage == "complete"
