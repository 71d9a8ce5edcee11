"""System D on Holdfast: a coding task whose coder and gates are never paid for twice.

    python examples/ports/d_coding_task.py DIRECTORY

`CheckpointManager` is that design's class, on runs: a task is a run, and `artifacts/{task}/checkpoints.json` is the
readable form of the store. `execute` is its executor: checkpoints at each stage, killed anywhere and resumed, come from
the library. Below them are the design's own test cases and its list.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Checkpoint, Command, Holdfast, Settings
from holdfast.settings.values import MirrorSettings, RetentionSettings

TASK = "P1.M1.T1.S1"


def open_session(path: Path, *, keep: int = 5, enabled: bool = True) -> Holdfast:
    """Open a session's directory: five checkpoints a task, each task's file beside its artifacts."""
    settings = Settings(
        enabled=enabled,
        mirror=MirrorSettings(form="task", location=str(path / "artifacts" / "{task}")),
        retention=RetentionSettings(triggers={"*": keep}, last=keep),
    )
    return holdfast.open(path / "store", settings=settings)


class CheckpointManager:
    """Saves and restores where tasks stand."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf

    def save(self, task: str, label: str, state: dict[str, Any], error: Exception | None = None) -> str:
        """Store a checkpoint and return its id, empty if checkpoints are off; a state outside its ranges is refused."""
        given: dict[str, Any] = {"error": error} if error is not None else {}
        while True:
            try:
                return self.hf.run(task).checkpoint(reason=label, gates={"tasks": {task: state}}, **given).id
            except holdfast.HeadMoved:
                continue  # somebody saved at the same moment; that one is kept, and this one comes after it

    def restore(self, checkpoint: str) -> Checkpoint:
        """Return a checkpoint by its id, checked to its last byte; NotFound and InvalidId say what is wrong."""
        return self.hf.get(checkpoint)

    def latest(self, task: str) -> Checkpoint | None:
        """Return the newest checkpoint of a task."""
        return self.hf.latest(task)

    def list(self, task: str) -> list[Checkpoint]:
        """Return the checkpoints of a task, oldest first."""
        return self.hf.checkpoints(task)[::-1]

    def cleanup(self, task: str, retain: int = 5) -> int:
        """Keep the newest so many."""
        return len(self.hf.prune(task, keep=retain))

    def delete(self, checkpoint: str) -> None:
        """Delete one checkpoint."""
        self.hf.delete(checkpoint)

    def has(self, task: str) -> bool:
        """Tell whether a task has a checkpoint."""
        return self.hf.has(task)


def execute(hf: Holdfast, task: str, workspace: Path, coder: Any, gates: list[Any], *, fix: Any = None) -> Any:
    """Do a task: the coder, its gates in order, a fix and all gates again; as often as the program is started."""
    with hf.run(task, workspace=workspace) as run:
        return run.gates.task(task, coder, gates, fix=fix, max_fixes=2, plan_path="PRP.md", files=True).run()


# The cases of its test file. Each gets a directory of its own.


def state(stage: str = "before_execution", **more: Any) -> dict[str, Any]:
    """Return a state as the executor has it."""
    return {"stage": stage, "plan_path": "PRP.md", **more}


def task_file(path: Path) -> dict[str, Any]:
    """Return a task's file."""
    found: dict[str, Any] = json.loads((path / "artifacts" / TASK / "checkpoints.json").read_text())
    return found


def a_checkpoint_is_created_with_valid_data(path: Path) -> None:
    """Unit."""
    with open_session(path) as hf:
        made = CheckpointManager(hf).restore(CheckpointManager(hf).save(TASK, "Before execution", state()))
        kept = made.section("gates").tasks[TASK]
    assert (made.run, made.reason, made.created_at.tzinfo is not None) == (TASK, "Before execution", True)
    assert (kept.stage, kept.plan_path, kept.gate_results, kept.fix_attempt) == ("before_execution", "PRP.md", [], 0)


def it_is_saved_to_the_tasks_own_file(path: Path) -> None:
    """Unit: versioned, with the time of its last change."""
    with open_session(path) as hf:
        first = CheckpointManager(hf).save(TASK, "one", state())
        before = task_file(path)["last_modified"]
        second = CheckpointManager(hf).save(TASK, "two", state("coder_response"))
    found = task_file(path)
    assert [one["id"] for one in found["checkpoints"]] == [second, first]
    assert (found["task"], found["version"]) == (TASK, 2)
    assert found["last_modified"] > before


def writes_are_atomic(path: Path) -> None:
    """Unit: a reader that opened the file before a write reads the old one to its end; nothing half-written is left."""
    with open_session(path) as hf:
        CheckpointManager(hf).save(TASK, "one", state())
        before = task_file(path)
        with (path / "artifacts" / TASK / "checkpoints.json").open() as reader:
            CheckpointManager(hf).save(TASK, "two", state("coder_response", coder_response="x" * 9000))
            assert json.load(reader) == before
    assert len(task_file(path)["checkpoints"]) == 2
    assert [one.name for one in (path / "artifacts" / TASK).iterdir()] == ["checkpoints.json"]


def data_is_validated(path: Path) -> None:
    """Unit: an unknown stage, a level out of range and a negative count are refused, and nothing is stored."""
    with open_session(path) as hf:
        gate = {"level": 0, "description": "lint", "success": True}
        for bad in (state("bogus"), state("gate_1", gate_results=[gate]), state("failed", fix_attempt=-1)):
            try:
                CheckpointManager(hf).save(TASK, "bad", bad)
            except holdfast.SectionInvalid as error:
                assert "gates" in str(error)
            else:
                raise AssertionError(bad)
        assert not CheckpointManager(hf).has(TASK)


def a_checkpoint_is_restored_by_its_id(path: Path) -> None:
    """Unit: as often as wanted, new state each time."""
    with open_session(path) as hf:
        manager = CheckpointManager(hf)
        made = manager.save(TASK, "coder", state("coder_response", coder_response="wrote it"))
        manager.save(TASK, "later", state("gate_1"))
        once, twice = (manager.restore(made).section("gates") for _ in range(2))
    assert once == twice
    assert once is not twice
    assert once.tasks[TASK].coder_response == "wrote it"


def the_latest_is_the_newest(path: Path) -> None:
    """Unit."""
    with open_session(path) as hf:
        manager = CheckpointManager(hf)
        assert manager.latest(TASK) is None
        ids = [manager.save(TASK, str(number), state()) for number in range(3)]
        found = manager.latest(TASK)
        assert found is not None
        assert found.id == ids[-1]


def checkpoints_are_listed_in_order(path: Path) -> None:
    """Unit: those of one task."""
    with open_session(path) as hf:
        manager = CheckpointManager(hf)
        assert manager.list(TASK) == []
        ids = [manager.save(TASK, str(number), state()) for number in range(3)]
        manager.save("P1.M1.T1.S2", "another task", state())
        assert [one.id for one in manager.list(TASK)] == ids


def old_ones_are_cleaned_up(path: Path) -> None:
    """Unit: by itself to five, by hand to what is asked for."""
    with open_session(path) as hf:
        manager = CheckpointManager(hf)
        ids = [manager.save(TASK, str(number), state()) for number in range(8)]
        assert [one.id for one in manager.list(TASK)] == ids[-5:]
        assert manager.cleanup(TASK, retain=2) == 3
        assert [one.id for one in manager.list(TASK)] == ids[-2:]
        assert manager.cleanup("P9") == 0
    assert [one["id"] for one in task_file(path)["checkpoints"]] == ids[:-3:-1]


def one_is_deleted(path: Path) -> None:
    """Unit."""
    with open_session(path) as hf:
        manager = CheckpointManager(hf)
        first, second = (manager.save(TASK, str(number), state()) for number in range(2))
        manager.delete(first)
        assert [one.id for one in manager.list(TASK)] == [second]
        for ask, wrong in ((manager.delete, holdfast.NotFound), (manager.restore, holdfast.NotFound)):
            try:
                ask(first)
            except wrong as error:
                assert first in str(error)
            else:
                raise AssertionError(ask)


def it_is_known_whether_there_is_one(path: Path) -> None:
    """Unit."""
    with open_session(path) as hf:
        assert not CheckpointManager(hf).has(TASK)
        CheckpointManager(hf).save(TASK, "one", state())
        assert CheckpointManager(hf).has(TASK)


def damaged_data_is_named_and_nothing_else_is_lost(path: Path) -> None:
    """Unit."""
    with holdfast.open(f"file://{path / 'store'}", settings=Settings()) as hf:
        manager = CheckpointManager(hf)
        manager.save(TASK, "damaged", state(coder_response="x" * 5000))
        manager.save("P2", "whole", state())
    journal = next(one for one in path.rglob("journal.jsonl") if one.parent.name.lower().startswith("p1"))
    journal.write_bytes(b'{"a":' * 10_000)
    with holdfast.open(f"file://{path / 'store'}", settings=Settings()) as hf:
        try:
            CheckpointManager(hf).latest(TASK)
        except holdfast.IntegrityError as error:
            assert TASK in str(error)
        else:
            raise AssertionError("damage was passed on")
        assert CheckpointManager(hf).latest("P2") is not None


def a_malformed_id_is_named(path: Path) -> None:
    """Unit."""
    with open_session(path) as hf:
        for ask in (CheckpointManager(hf).restore, CheckpointManager(hf).delete):
            try:
                ask("no id")
            except holdfast.InvalidId as error:
                assert "no id" in str(error)
            else:
                raise AssertionError(ask)


def ids_are_unique(path: Path) -> None:
    """Unit: and the form task, time, stage finds a checkpoint."""
    with open_session(path, keep=50) as hf:
        ids = {CheckpointManager(hf).save(TASK, f"{TASK}: gate_1", state("gate_1")) for _ in range(20)}
        assert len(ids) == 20
        shown = task_file(path)["checkpoints"][0]
        assert hf.find(shown["checkpoint"]).id == shown["id"]


def what_is_saved_at_the_same_time_is_all_kept(path: Path) -> None:
    """Unit: concurrent operations on one task and on others, each from a manager of its own."""
    tasks = [TASK, TASK, TASK, "P1.M1.T1.S2"]

    def save(number: int) -> list[str]:
        with open_session(path, keep=50) as hf:
            return [CheckpointManager(hf).save(tasks[number], f"{number}-{one}", state()) for one in range(5)]

    with ThreadPoolExecutor(len(tasks)) as pool:
        *saved, other = pool.map(save, range(len(tasks)))
    with open_session(path, keep=50) as hf:
        assert sorted(one.id for one in CheckpointManager(hf).list(TASK)) == sorted(chain(*saved))
        assert [one.id for one in CheckpointManager(hf).list(tasks[3])] == other
    assert {one["id"] for one in task_file(path)["checkpoints"]} == set(chain(*saved))


def errors_keep_message_code_and_stack(path: Path) -> None:
    """Unit: and belong to their own checkpoint."""
    with open_session(path) as hf:
        try:
            (path / "nothing").read_text()
        except OSError as error:
            failed = CheckpointManager(hf).save(TASK, "failed", state("failed"), error)
        kept = hf.get(failed).section("error")
        assert kept.code == errno.errorcode[errno.ENOENT]
        assert "nothing" in kept.message
        assert "read_text" in kept.stack
        assert "error" not in hf.get(CheckpointManager(hf).save(TASK, "next", state())).sections


def when_disabled_saving_does_nothing(path: Path) -> None:
    """Unit: it returns an empty id."""
    with open_session(path, enabled=False) as hf:
        assert CheckpointManager(hf).save(TASK, "off", state()) == ""
        assert not CheckpointManager(hf).has(TASK)


# Its integration tests: the executor.

CODER = """\
import pathlib, sys
log = pathlib.Path(sys.argv[1]); log.open("a").write("coder\\n")
pathlib.Path("slug.py").write_text("def slug(title):\\n    return title\\n")
"""
GATES = ["python3 -m py_compile slug.py", "test -s slug.py", "grep -q def slug.py", "! grep -q TODO slug.py"]


def work(path: Path, *, kill: str = "") -> list[str]:
    """Do the task in a process of its own, killed when a gate or the coder of this name has begun; return the log."""
    (path / "repo").mkdir(exist_ok=True)
    (path / "coder.py").write_text(CODER)
    (path / "kill").write_text(kill)
    subprocess.run([sys.executable, __file__, "--work", str(path)], check=False)
    return (path / "log").read_text().split("\n")[:-1]


def _work(path: Path) -> None:
    repo, log = path / "repo", path / "log"
    (path / "pid").write_text(str(os.getpid()))
    killer = f'test "$(cat {path}/kill)" != %s || {{ : > {path}/kill; kill -9 $(cat {path}/pid); sleep 9; }}; '
    coder = Command(f"{sys.executable} {path}/coder.py {log}; " + killer % "coder", cwd=repo)
    gates = [
        Command(f"echo gate-{level} >> {log}; {killer % f'gate-{level}'}{gate}", cwd=repo)
        for level, gate in enumerate(GATES, 1)
    ]
    with open_session(path, keep=50) as hf:
        assert execute(hf, TASK, repo, coder, gates).success


def every_stage_has_its_checkpoint(path: Path) -> None:
    """Integration: before, after the coder, after each gate, complete."""
    assert work(path) == ["coder", "gate-1", "gate-2", "gate-3", "gate-4"]
    with open_session(path, keep=50) as hf:
        found = [
            one.section("gates").tasks[TASK] for one in CheckpointManager(hf).list(TASK) if "gates" in one.sections
        ]
        stages = list(dict.fromkeys(one.stage for one in found))
        assert hf.find(TASK).read("slug.py").startswith(b"def slug")
    assert stages == ["before_execution", "coder_response", *(f"gate_{level}" for level in (1, 2, 3, 4)), "complete"]
    assert [(gate.level, gate.success, gate.exit_code) for gate in found[-1].gate_results] == [
        (level, True, 0) for level in (1, 2, 3, 4)
    ]


def killed_anywhere_it_resumes_and_repeats_nothing_that_was_done(path: Path) -> None:
    """Integration: only what was under way comes again."""
    assert work(path, kill="coder") == ["coder"]
    assert work(path, kill="gate-2") == ["coder", "coder", "gate-1", "gate-2"]
    assert work(path) == ["coder", "coder", "gate-1", "gate-2", "gate-2", "gate-3", "gate-4"]
    assert work(path)[7:] == []


def a_failing_gate_is_fixed_and_an_error_is_a_failed_stage(path: Path) -> None:
    """Integration."""
    (path / "repo").mkdir()
    drafts = iter(["TODO", "def slug(): ..."])

    def draft(_failure: object = None) -> str:
        return f"wrote {(path / 'repo' / 'slug.py').write_text(next(drafts))} characters"

    with open_session(path, keep=50) as hf:
        done = execute(hf, TASK, path / "repo", draft, [Command(GATES[2], cwd=path / "repo")], fix=draft)
        assert (done.success, done.fix_attempts, done.stage) == (True, 1, "complete")
        again = execute(hf, TASK, path / "repo", draft, [Command("false", cwd=path / "repo")])
        assert not again.success  # other gates are run, also on a task that was complete
        broken = execute(hf, "P2", path / "repo", lambda: {"result": "issue", "message": "which title?"}, ["true"])
        assert (broken.success, broken.coder_result.status, broken.stage) == (False, "issue", "failed")


CHECKS = (
    a_checkpoint_is_created_with_valid_data, it_is_saved_to_the_tasks_own_file, writes_are_atomic, data_is_validated,
    a_checkpoint_is_restored_by_its_id, the_latest_is_the_newest, checkpoints_are_listed_in_order,
    old_ones_are_cleaned_up, one_is_deleted, it_is_known_whether_there_is_one,
    damaged_data_is_named_and_nothing_else_is_lost, a_malformed_id_is_named, ids_are_unique,
    what_is_saved_at_the_same_time_is_all_kept,
    errors_keep_message_code_and_stack, when_disabled_saving_does_nothing,
    every_stage_has_its_checkpoint, killed_anywhere_it_resumes_and_repeats_nothing_that_was_done,
    a_failing_gate_is_fixed_and_an_error_is_a_failed_stage,
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
    if sys.argv[1] == "--work":
        _work(Path(sys.argv[2]))
    else:
        sys.exit(main(Path(sys.argv[1]).resolve()))
