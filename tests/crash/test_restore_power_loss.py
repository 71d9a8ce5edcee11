"""Power cuts during a restore of files, built from a log of its operations: all as before, or all as planned."""

from __future__ import annotations

import errno
import random
import shutil
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from crash.children import TORTURE, scratch, spread
from crash.workspace_disk import RecordingOps
from holdfast.errors import RestoreFailed
from holdfast.workspace.ops import FileOps
from holdfast.workspace.restore import apply, recover_interrupted
from unit.workspace.kit import Box, seen, write

if TYPE_CHECKING:
    from pathlib import Path

    from crash.workspace_disk import Model
    from holdfast.workspace.plan import RestorePlan

_IMAGES = 40 if TORTURE else 4  # of each point and model
_MANY = 260  # paths: more than are synced one by one


class _Recording(NamedTuple):
    ops: RecordingOps
    before: dict[bytes, tuple[object, ...]]
    after: dict[bytes, tuple[object, ...]]


class _Cut(NamedTuple):
    way: str
    model: Model
    point: int
    seed: int


def _planned(root: Path, *, many: bool) -> tuple[Box, RestorePlan, Any]:
    """Return a tree with every kind of change since its checkpoint, the plan to go back, and how it was."""
    box = Box(root)
    write(
        root,
        {
            "replaced": "old\n" * 50,
            "removed": "gone\n",
            "run": "x",
            "was_file": "file",
            "was_dir": {"inner": "i", "deep": {"x": "1"}},
            "lost": {"one": "1", "more": {"two": "2", "link": ("../one",)}},
            "sub": {"a": "1\n" * 400, "b": "b"},
            "empty": {},
            "link": ("replaced",),
            **({f"many-{number}": str(number) for number in range(_MANY)} if many else {}),
        },
    )
    wanted, after = box.capture(), seen(root)
    for gone in ("was_dir", "lost"):
        shutil.rmtree(root / gone)
    for name in ("removed", "was_file", "sub/b", "link"):
        (root / name).unlink()
    (root / "empty").rmdir()
    (root / "run").chmod(0o755)
    changed = {"replaced": "new", "was_dir": "now file", "sub/a": "2", "extra": "e", "link": ("extra",)}
    write(root, {**changed, "was_file": {"now": "dir"}, "extras": {"x": "y"}})
    for number in range(_MANY if many else 0):
        (root / f"many-{number}").write_text("changed")
    box.capture()
    return box, box.plan(wanted), after


@cache
def _recorded(way: str) -> _Recording:
    """Restore and keep the operations: all of them, or up to an error near the end and all of its undoing."""
    with scratch() as folder:
        box, plan, after = _planned(folder / "w", many=way == "many")
        before = seen(box.root)
        if way == "undo":
            ops: RecordingOps = _Refused(box.root)
            with pytest.raises(RestoreFailed):
                apply(plan, box.reader, ops=ops)
            assert seen(box.root) == before
        else:
            ops = RecordingOps(box.root)
            apply(plan, box.reader, ops=ops)
            assert seen(box.root) == after
        return _Recording(ops, before, after)


class _Refused(RecordingOps):
    """A disk that refuses the first change of a mode, when all else is in place."""

    refuses = True

    def chmod_directory(self, directory: int, name: bytes, mode: int) -> None:
        if self.refuses:
            self.refuses = False
            raise OSError(errno.EIO, "refused")
        super().chmod_directory(directory, name, mode)


def _is_finished(cut: _Cut) -> bool:
    """Build one image, let the next start recover it, and tell whether the restore was finished or undone."""
    ops, before, after = _recorded(cut.way)
    with scratch() as folder:
        root = folder / "w"
        ops.leave(cut.point, cut.model, random.Random(f"{cut.point} {cut.seed}"), root)
        recover_interrupted(root)
        return _is_after(root, before, after)


def _is_after(root: Path, before: object, after: object) -> bool:
    now = seen(root)
    assert now in (before, after)
    assert not list(root.glob(".holdfast/res*-*")), "nothing is left over, and nothing was rescued that is not needed"
    return now == after


def _cuts(way: str, images: int = _IMAGES, every: int = 1) -> list[_Cut]:
    models: tuple[Model, ...] = ("posix", "journaled")
    points = range(0, len(_recorded(way).ops.log) + 1, every)
    return [_Cut(way, model, point, seed) for model in models for point in points for seed in range(images)]


def test_a_power_cut_during_a_restore_leaves_all_as_before_or_all_as_planned() -> None:
    """Proves X1, A6: whatever order the file system keeps; what the call had returned for stays."""
    cuts = _cuts("apply")
    finished = dict(zip(sorted(cuts), spread(sorted(cuts), lambda cut: [cut, _is_finished(cut)]), strict=True))
    assert len(finished) > 1_000
    assert {done for _, done in finished.values()} == {True, False}
    last = len(_recorded("apply").ops.log)
    assert all(done for (_, _, point, _), done in finished.values() if point == last)


def test_a_power_cut_while_a_restore_is_undone_leaves_all_as_before_or_all_as_planned() -> None:
    """Proves X1."""
    assert False in spread(_cuts("undo"), _is_finished)


def test_a_power_cut_during_a_restore_that_is_synced_at_once_leaves_all_as_before_or_all_as_planned() -> None:
    """Proves X1: many files are not synced one by one."""
    assert set(spread(_cuts("many", 1, 1 if TORTURE else 25), _is_finished)) == {True, False}


def _is_finished_after_two(cut: _Cut) -> bool:
    """Cut the power while the next start recovers an image, too."""
    ops, before, after = _recorded(cut.way)
    chance = random.Random(f"{cut.point} {cut.seed} twice")
    with scratch() as folder:
        first, second = folder / "1", folder / "2"
        ops.leave(cut.point, cut.model, chance, first)
        again = RecordingOps(first)
        recover_interrupted(first, ops=again)
        again.leave(chance.randint(0, len(again.log)), cut.model, chance, second)
        recover_interrupted(second)
        return _is_after(second, before, after)


@pytest.mark.parametrize("way", ["apply", "undo"])
def test_a_second_power_cut_while_the_first_is_recovered_from_changes_nothing(way: str) -> None:
    """Proves X1 on file systems with a journal; under POSIX alone, two cuts may take a file and then a directory."""
    cuts = [cut for cut in _cuts(way, 10 if TORTURE else 2) if cut.model == "journaled"]
    assert set(spread(cuts, _is_finished_after_two)) == {True, False}


def test_a_restore_without_syncs_is_torn_by_a_power_cut() -> None:
    """Proves that the tests above can fail."""
    with scratch() as folder:
        box, plan, after = _planned(folder / "w", many=False)
        before = seen(box.root)
        ops = RecordingOps(box.root)
        apply(plan, box.reader, ops=ops, durable=False)
        torn = 0
        for seed in range(20):
            root = folder / f"image {seed}"
            ops.leave(len(ops.log), "posix", random.Random(seed), root)
            try:
                recover_interrupted(root, ops=FileOps())
            except RestoreFailed:
                torn += 1
            else:
                torn += seen(root) not in (before, after)
        assert torn
