"""kill -9 at every write of a recovery: state and files are both as before or both as planned."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from crash.children import TORTURE, Child, scratch, spread
from holdfast import Holdfast
from holdfast.store.lease import Leases
from holdfast.store.sqlite import SQLiteStore
from holdfast.workspace.ops import FileOps
from recovery.recovery_kit import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.recovery.plan import RecoveryPlan

WRITES = [name for name in vars(FileOps) if not name.startswith("_")]
STORED = ["write", "mark", "mark_many"]
LEASED = ["take", "end"]


def prepare(folder: Path) -> RecoveryPlan:
    """Make a run with two moments, and return the plan to go back to the first."""
    project = folder / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "main.py").write_text("one\n")
    (project / "gone.txt").write_text("back again\n")
    with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
        run = hf.run("r", workspace=project)
        first = run.checkpoint(state=1)
        (project / "src" / "main.py").write_text("two\n")
        (project / "new").mkdir()
        (project / "new" / "file.txt").write_text("new\n")
        (project / "gone.txt").unlink()
        run.checkpoint(state=2)
        (project / "mine.txt").write_text("by hand\n")
        return hf.plan(first.id, workspace=project)


def recover_counting(folder: Path, plan: RecoveryPlan, kill_at: int | None, *, undo: bool = False) -> int:
    """Recover, or undo, and die at a numbered moment: before or after one of its writes. Return how many there are."""
    moments = itertools.count()
    seen = [0]

    def moment() -> None:
        seen[0] = number = next(moments)
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def around(*args: Any, **named: Any) -> Any:
            moment()
            done = call(*args, **named)
            moment()
            return done

        return around

    with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
        for owner, names in ((FileOps, WRITES), (SQLiteStore, STORED), (Leases, LEASED)):
            for name in names:
                setattr(owner, name, watched(getattr(owner, name)))
        result = hf.undo("r", workspace=folder / "project") if undo else hf.recover(plan)
        assert result.success, result.errors
    return seen[0] + 1


def states(folder: Path, project: Path | None = None) -> tuple[Any, Any]:
    project = project or folder / "project"
    with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
        hf.run("r", workspace=project).close()
        assert hf.verify().sound
        return hf.latest("r").section("state"), tree(project)


def killed(folder: Path, plan: RecoveryPlan, at: int, *, undo: bool = False) -> None:
    ended = Child(lambda report: report(recover_counting(folder, plan, at, undo=undo))).join()
    assert ended.signal == signal.SIGKILL, ended


def outcome(point: tuple[str, int]) -> str:
    way, at = point
    with scratch() as folder:
        plan = prepare(folder)
        project = folder / "project"
        after = tree(project)
        before = {name: entry for name, entry in after.items() if not name.startswith("new")}
        before["src/main.py"] = (after["src/main.py"][0], b"one\n")
        before["gone.txt"] = (after["src/main.py"][0], b"back again\n")
        if way == "undo":
            with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
                assert hf.recover(plan).success
            assert tree(project) == before
        killed(folder, plan, at, undo=way == "undo")
        if way == "recover":
            with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
                assert hf.recover(plan).success
            assert states(folder) == (1, before)
            return "again"
        if way == "spec":
            with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
                if hf.latest("r").section("state") == 1:
                    return "done before"
                assert hf.recover(plan.checkpoint, workspace=project).success
                assert hf.latest("r").section("state") == 1
                assert tree(project) == before
                assert hf.undo("r", workspace=project).success
            assert states(folder) == (2, after)
            return "again"
        if way == "plan":
            with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
                hf.run("r", workspace=project).close()
                hf.recover("r", workspace=project)
        if way == "moved":
            project = project.rename(folder / "moved")
        elif way == "copied":
            project = shutil.copytree(project, folder / "moved", symlinks=True)
        found = states(folder, project)
        assert found in ((1, before), (2, after)), found
        return "planned" if found[0] == 1 else "as it was"


@cache
def moments(*, undo: bool) -> int:
    with scratch() as folder:
        plan = prepare(folder)
        if undo:
            with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
                assert hf.recover(plan).success
        [count] = Child(lambda report: report(recover_counting(folder, plan, None, undo=undo))).join().reports
        assert isinstance(count, int), count
        return count


def points(way: str) -> list[tuple[str, int]]:
    count = moments(undo=way == "undo")
    return [(way, at) for at in range(0, count, 1 if TORTURE or way in ("open", "moved") else 3)]


def test_killed_anywhere_state_and_files_are_both_as_before_or_both_as_planned() -> None:
    """Proves X1, A12, D9: the next opening of the run finishes what had come as far as its files."""
    found = spread(points("open"), outcome)
    assert len(found) > 40
    assert set(found) == {"planned", "as it was"}


@pytest.mark.parametrize("way", ["moved", "copied"])
def test_killed_anywhere_state_and_files_go_together_in_a_project_that_was_moved_since(way: str) -> None:
    """Proves X1: the recovery is finished against the directory that is given, not against the one it began in."""
    assert set(spread(points(way), outcome)) == {"planned", "as it was"}


def test_a_killed_recovery_of_a_project_that_is_gone_says_so_and_is_done_again(tmp_path, caplog) -> None:
    """Another directory is not taken for the one in which the recovery was at work."""
    plan = prepare(tmp_path)
    killed(tmp_path, plan, moments(undo=False) - 12)
    (tmp_path / "project").rename(tmp_path / "moved")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "unrelated.txt").write_text("other\n")
    with Holdfast(SQLiteStore(tmp_path / "x.db", durability="process")) as hf:
        hf.run("r", workspace=tmp_path / "other").close()
        assert hf.latest("r").section("state") == 2
        assert str(tmp_path / "project") in caplog.text
        assert tree(tmp_path / "other").keys() == {"unrelated.txt"}
        assert hf.recover(plan.checkpoint, workspace=tmp_path / "moved").success
        assert hf.latest("r").section("state") == 1
    assert tree(tmp_path / "moved")["src/main.py"][1] == b"one\n"


def test_killed_anywhere_the_same_plan_is_carried_out_when_it_is_done_again() -> None:
    """Proves D9."""
    assert set(spread(points("recover"), outcome)) == {"again"}


def test_killed_anywhere_the_same_call_goes_there_and_can_be_undone() -> None:
    """Proves D9: what was there before is not lost by doing it again."""
    assert set(spread(points("spec"), outcome)) == {"again", "done before"}


def test_killed_anywhere_a_new_plan_finds_a_whole_state() -> None:
    assert set(spread(points("plan"), outcome)) == {"planned", "as it was"}


def test_an_undo_that_is_killed_anywhere_leaves_both_or_neither() -> None:
    assert set(spread(points("undo"), outcome)) == {"planned", "as it was"}


def test_what_a_killed_recovery_leaves_can_be_cleaned_away(tmp_path) -> None:
    """No staging, no lock and no lease stays after the next start."""
    plan = prepare(tmp_path)
    killed(tmp_path, plan, moments(undo=False) // 2)
    states(tmp_path)
    leftovers = list((tmp_path / "project" / ".holdfast").glob("restore-*")) if (tmp_path / "project").exists() else []
    assert leftovers == []
    shutil.rmtree(tmp_path / "project")


def prepare_position(folder: Path) -> RecoveryPlan:
    """Make a run with steps, and return the plan to go back to a position between two checkpoints."""
    project = folder / "project"
    project.mkdir()
    (project / "main.py").write_text("one\n")
    with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
        run = hf.run("r", workspace=project)
        run.checkpoint(state=1)
        for name in ("a", "b", "c"):
            run.step(name, str.upper, name)
        (project / "main.py").write_text("two\n")
        run.checkpoint(state=2)
        run.close()
        return hf.plan(hf.replay("r").steps[1].place, workspace=project)


def position_outcome(at: int) -> str:
    with scratch() as folder:
        plan = prepare_position(folder)
        killed(folder, plan, at)
        state, files = states(folder)
        with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
            found = (state, files["main.py"][1], [one["step"] for one in hf.find("r").calls])
        assert found in ((1, b"one\n", ["a", "b"]), (2, b"two\n", ["a", "b", "c"])), found
        return "planned" if state == 1 else "as it was"


def test_a_recovery_to_a_position_that_is_killed_anywhere_keeps_its_calls_with_it() -> None:
    """Proves X5, D9: going back to a position is one commit, and the next opening ends what was killed there."""
    with scratch() as folder:
        plan = prepare_position(folder)
        [count] = Child(lambda report: report(recover_counting(folder, plan, None))).join().reports
    found = spread(list(range(0, int(str(count)), 1 if TORTURE else 2)), position_outcome)
    assert set(found) == {"planned", "as it was"}


def _refusing(monkeypatch, owner: type, name: str, refused: Callable[..., bool]) -> None:
    """Let the disk refuse an operation wherever `refused` says so."""
    original = getattr(owner, name)

    def operation(self: Any, *arguments: Any, **named: Any) -> Any:
        if refused(*arguments):
            raise OSError(errno.EIO, "refused")
        return original(self, *arguments, **named)

    monkeypatch.setattr(owner, name, operation)


@pytest.mark.parametrize("fails", ["the restore and its undoing", "the commit and putting back"])
def test_a_recovery_that_cannot_even_be_undone_says_so_and_the_next_opening_ends_it(
    tmp_path, monkeypatch, fails
) -> None:
    """Proves X1: no "nothing was changed" over a directory that was; files and state then end together."""
    plan = prepare(tmp_path)
    after = tree(tmp_path / "project")
    with monkeypatch.context() as broken:
        if fails == "the restore and its undoing":
            placed: list[bytes] = []
            _refusing(broken, FileOps, "place", lambda *names: bool(placed) or placed.append(names[3]) is not None)
        else:
            _refusing(broken, SQLiteStore, "write", lambda *_: (tmp_path / "project/gone.txt").exists())
            _refusing(broken, FileOps, "create", lambda *_: (tmp_path / "project/gone.txt").exists())
        with Holdfast(SQLiteStore(tmp_path / "x.db", durability="process")) as hf:
            result = hf.recover(plan)
    assert not result.success
    assert not any("nothing was changed" in error or "put back as it was" in error for error in result.errors)
    before = {name: entry for name, entry in after.items() if not name.startswith("new")}
    before["src/main.py"] = (after["src/main.py"][0], b"one\n")
    before["gone.txt"] = (after["src/main.py"][0], b"back again\n")
    assert states(tmp_path) in ((1, before), (2, after))
