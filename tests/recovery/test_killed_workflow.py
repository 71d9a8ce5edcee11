"""A workflow of 60 steps with files, killed at random moments and resumed until it is done."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from crash.children import TORTURE, Child, scratch
from holdfast import Holdfast
from holdfast.store.sqlite import SQLiteStore
from holdfast.verify.check import faults_in
from holdfast.workspace.decide import Decisions
from recovery.recovery_kit import damage_record, damage_section, tree

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 60
KILLS = 300 if TORTURE else 25
TAKE = Decisions(edits="take", conflicts="take")


def say(effects: Path, line: str) -> None:
    with effects.open("a") as file:
        file.write(line + "\n")


def work(project: Path, effects: Path, number: int, total: int) -> dict[str, Any]:
    """Write, append and delete files: done twice it would leave another tree."""
    say(effects, f"start {number}")
    folder = project / f"part-{number % 7}"
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.txt").write_text(f"{number} of {total}\n" * (number % 5 + 1))
    with (project / "trace.txt").open("a") as file:
        file.write(f"{number} {total}\n")
    if number % 5 == 4:
        (project / f"part-{(number - 2) % 7}" / f"{number - 2}.txt").unlink()
    return {"n": number * number % 11, "text": "x" * number}


def workflow(run: Any, project: Path, effects: Path) -> None:
    if run.head is None or "workspace" not in run.head.sections:
        run.checkpoint(reason="the files as they were before the first step")
    total = 0
    for number in range(STEPS):
        outside = {"effect": "posts", "on_unknown": "retry"} if number % 10 == 3 else {}
        done = run.step(f"s{number}", work, project, effects, number, total, wrote_files=True, **outside)
        say(effects, f"done {number}")
        total += done["n"]
    run.checkpoint(state={"total": total})
    run.complete()


def opened(folder: Path) -> Holdfast:
    return Holdfast(SQLiteStore(folder / "x.db", durability="process"))


def live(folder: Path) -> None:
    """One process of the program: put back what the last one left, then continue."""
    project, effects = folder / "project", folder / "effects"
    with opened(folder) as hf:
        if hf.has("w"):
            result = hf.recover("w", workspace=project, decisions=TAKE)
            assert result.success, f"{result.errors}, of {result}"
            kept = [record["step"] for record in result.state.get("steps", ()) if record["event"] == "done"]
            say(effects, f"kept {','.join(kept)}")
        with hf.run("w", workspace=project) as run:
            workflow(run, project, effects)


class Life(Child):
    def is_over(self) -> bool:
        """Tell whether it ended by itself; it is still to be joined."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def prepare(folder: Path) -> None:
    (folder / "project").mkdir()
    (folder / "project" / "trace.txt").touch()
    (folder / "effects").touch()


def ending(folder: Path) -> tuple[Any, Any, Any]:
    with opened(folder) as hf:
        head = hf.latest("w")
        assert faults_in(hf.store, head.record) == []
        assert head.summary.status == "completed"
        steps = {record["step"]: record.get("result") for record in head.section("steps") if record["event"] == "done"}
        return head.section("state"), steps, tree(folder / "project")


def unbroken() -> tuple[Any, Any, Any]:
    """Return how it ends when nothing happens; children inherit what is loaded by it."""
    with scratch() as folder:
        prepare(folder)
        live(folder)
        live(folder)  # resumes where nothing is left to do: loads what a recovery needs
        return ending(folder)


def check_no_step_twice(effects: Path, *, are_all_kept: bool) -> int:
    """Look through all processes: what one found done is not done in it; return how often it was resumed."""
    acknowledged: set[str] = set()
    kept: set[str] = set()
    lives = 0
    for line in effects.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "kept":
            lives += 1
            kept = set(rest.split(",")) - {""}
            if are_all_kept:
                assert acknowledged <= kept, f"life {lives} lost {sorted(acknowledged - kept)}"
        elif word == "start":
            assert f"s{rest}" not in kept, f"step {rest} was done and ran again in life {lives}"
            if are_all_kept:
                assert f"s{rest}" not in acknowledged, f"step {rest} was acknowledged and ran again"
        else:
            acknowledged.add(f"s{rest}")
    return lives


def strike(child: Life, effects: Path, random_: random.Random) -> None:
    """Kill a process while it is put back, or so many lines of work later; and then at any moment of a step."""
    lines = 0 if random_.random() < 0.25 else random_.randrange(1, 50)
    size = effects.stat().st_size
    while lines and effects.stat().st_size < size + lines * len("done 10\n") and not child.is_over():
        time.sleep(0.001)
    time.sleep(random_.uniform(0, 0.006 if lines else 0.06))
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)


def killed_until_done(folder: Path, random_: random.Random, kills: int, spoil: Any) -> int:
    """Kill life after life, each at a moment of its own; spoil what is left; then let the last one end."""
    struck = 0
    while struck < kills:
        child = Life(lambda _: live(folder))
        strike(child, folder / "effects", random_)
        ended = child.join()
        if ended.signal != signal.SIGKILL:
            assert ended.code == 0, str(ended.reports)
            return struck
        struck += 1
        spoil(folder)
    ended = Child(lambda _: live(folder)).join()
    assert ended.code == 0, str(ended.reports)
    return struck


def damage_newest(random_: random.Random) -> Any:
    def spoil(folder: Path) -> None:
        with opened(folder) as hf:
            if not hf.has("w") or len(hf.store.checkpoints("w", limit=4)) < 4:
                return
            head = hf.latest("w")
            before = hf.get(head.parent).record.envelope.sections if head.parent else ()
            own = [one.name for one in head.record.envelope.sections if one not in before and one.name != "workspace"]
            if own and random_.random() < 0.5:
                damage_section(folder, head, own[0])
            else:
                damage_record(folder, head.id)

    return spoil


@pytest.mark.parametrize("damage", [False, True], ids=["sound", "newest damaged"])
def test_a_workflow_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(damage) -> None:
    """Proves D8, X1, X3, B8, A13: no completed step runs again; state and tree equal those of an unbroken run."""
    expected = unbroken()
    seed = random.Random(7 + damage)
    struck = lives = 0
    while struck < KILLS:
        with scratch() as folder:
            prepare(folder)
            spoil = damage_newest(seed) if damage else lambda _: None
            struck += killed_until_done(folder, seed, min(8, KILLS - struck), spoil)
            lives += check_no_step_twice(folder / "effects", are_all_kept=not damage)
            assert ending(folder) == expected
    assert lives >= KILLS // 2, "kills struck before anything was begun"
