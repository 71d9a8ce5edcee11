"""A restore killed at every one of its file operations is finished or undone at the next start."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from contextlib import suppress

import pytest

from holdfast.errors import RestoreFailed, RestoreRefused
from holdfast.workspace.ops import FileOps
from holdfast.workspace.restore import apply, recover_interrupted
from unit.workspace.kit import Box, seen, write

OPERATIONS = [name for name in vars(FileOps) if not name.startswith("_")]


class CountingOps(FileOps):
    """Does something at the n-th operation: before it, or after it."""

    def __init__(self, point: int, action, *, after: bool) -> None:
        self.count = 0
        self.point = point
        self.action = action
        self.after = after


def _wrapped(name):
    def operation(self, *arguments):
        self.count += 1
        if self.count == self.point and not self.after:
            self.action()
        result = getattr(FileOps, name)(self, *arguments)
        if self.count == self.point and self.after:
            self.action()
        return result

    return operation


for _name in OPERATIONS:
    setattr(CountingOps, _name, _wrapped(_name))


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def _disk_full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def scene(tmp_path):
    """A tree with every kind of change between its checkpoint and now."""
    box = Box(tmp_path / "w")
    write(
        box.root,
        {
            "replaced": "old\n" * 50,
            "removed": "gone\n",
            "run": "x",
            "was_file": "file",
            "was_dir": {"inner": "i", "deep": {"x": "1"}},
            "lost": {"one": "1", "more": {"two": "2", "link": ("../one",)}},
            "empty": {},
            "link": ("replaced",),
        },
    )
    wanted = box.capture()
    after = seen(box.root)
    (box.root / "replaced").write_text("new")
    (box.root / "removed").unlink()
    (box.root / "run").chmod(0o755)
    (box.root / "was_file").unlink()
    write(box.root, {"was_file": {"now": "dir"}, "extra": "e", "extras": {"x": "y"}})
    shutil.rmtree(box.root / "was_dir")
    (box.root / "was_dir").write_text("now file")
    shutil.rmtree(box.root / "lost")
    (box.root / "empty").rmdir()
    (box.root / "link").unlink()
    (box.root / "link").symlink_to("extra")
    box.capture()
    return box, box.plan(wanted), seen(box.root), after


def _reset(box, before_copy):
    shutil.rmtree(box.root)
    shutil.copytree(before_copy, box.root, symlinks=True)


def _operations(box, plan) -> int:
    ops = CountingOps(0, _kill, after=False)
    apply(plan, box.reader, ops=ops, durable=True)
    return ops.count


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_operation_it_is_finished_or_undone_as_a_whole(scene, tmp_path, after):
    """Proves X1 and A6: never a half-restored tree, never a half-written file."""
    box, plan, before, wanted = scene
    copy = tmp_path / "copy"
    shutil.copytree(box.root, copy, symlinks=True)
    total = _operations(box, plan)
    assert seen(box.root) == wanted
    assert total > 60
    outcomes = set()
    for point in range(1, total + 1):
        _reset(box, copy)
        child = os.fork()
        if child == 0:
            try:
                apply(plan, box.reader, ops=CountingOps(point, _kill, after=after), durable=True)
            finally:
                os._exit(3)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), point
        outcome = recover_interrupted(box.root)
        outcomes.update(outcome)
        now = seen(box.root)
        assert now in (before, wanted), point
        assert now == wanted or "finished" not in outcome
        assert recover_interrupted(box.root) == []
    assert {"finished", "discarded"} <= outcomes


def test_recovery_killed_at_every_operation_is_carried_on_by_the_next(scene, tmp_path):
    box, plan, before, wanted = scene
    copy = tmp_path / "copy"
    shutil.copytree(box.root, copy, symlinks=True)
    total = _operations(box, plan)
    for point in range(total // 3, total, 7):
        for second in range(1, 40, 5):
            _reset(box, copy)
            for ops, action in (
                (CountingOps(point, _kill, after=True), "apply"),
                (CountingOps(second, _kill, after=True), "recover"),
            ):
                child = os.fork()
                if child == 0:
                    try:
                        if action == "apply":
                            apply(plan, box.reader, ops=ops, durable=True)
                        else:
                            recover_interrupted(box.root, ops=ops)
                    finally:
                        os._exit(0)
                os.waitpid(child, 0)
            recover_interrupted(box.root)
            assert seen(box.root) in (before, wanted), (point, second)


def test_an_error_at_every_operation_leaves_the_tree_as_it_was_or_finished(scene, tmp_path):
    box, plan, before, wanted = scene
    copy = tmp_path / "copy"
    shutil.copytree(box.root, copy, symlinks=True)
    total = _operations(box, plan)
    for point in range(1, total + 1):
        _reset(box, copy)
        with suppress(RestoreFailed, RestoreRefused):
            apply(plan, box.reader, ops=CountingOps(point, _disk_full, after=False), durable=True)
        recover_interrupted(box.root)
        assert seen(box.root) in (before, wanted), point


class NoLinks(CountingOps):
    """A file system without hard links, with an action at one operation."""

    def place(self, source, old, target, new):
        self.count += 1
        try:
            os.lstat(new, dir_fd=target)
        except FileNotFoundError:
            os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
        else:
            raise FileExistsError(errno.EEXIST, "there")


def _rescued(box) -> list[bytes]:
    return [path.read_bytes() for path in (box.root / ".holdfast").glob("rescued-*/old/**/*") if path.is_file()]


@pytest.mark.parametrize("ops", [CountingOps, NoLinks])
@pytest.mark.parametrize("edited", ["replaced", "lost/one", "lost/more/two"])
def test_an_edit_of_a_restored_file_survives_the_undoing(scene, ops, edited):
    """Proves C15 (files): nothing that anybody wrote is lost when a restore is undone."""
    box, plan, before, _ = scene

    class Meddled(ops):
        def chmod_directory(self, directory, name, mode):
            if not self.point:  # everything is placed by now
                self.point = -1
                with (box.root / edited).open("r+") as file:
                    file.write("an edit by others")
                raise OSError(errno.EIO, "broken")
            super().chmod_directory(directory, name, mode)

    with pytest.raises(RestoreFailed):
        apply(plan, box.reader, ops=Meddled(0, _kill, after=False), durable=False)
    assert seen(box.root) == before
    assert any(data.startswith(b"an edit by others") for data in _rescued(box))
    assert recover_interrupted(box.root) == []


@pytest.mark.parametrize("ops", [CountingOps, NoLinks])
def test_an_undoing_that_is_killed_at_every_operation_still_keeps_the_edit(scene, tmp_path, ops):
    box, plan, before, _ = scene
    copy = tmp_path / "copy"
    shutil.copytree(box.root, copy, symlinks=True)

    class Meddled(ops):
        def chmod_directory(self, directory, name, mode):
            if not self.after:
                self.after, self.count, self.point = True, 0, self.point - 1000
                for edited in ("replaced", "lost/one"):
                    with (box.root / edited).open("r+") as file:
                        file.write("an edit by others")
                raise OSError(errno.EIO, "broken")
            super().chmod_directory(directory, name, mode)

    for point in range(1, 200):
        _reset(box, copy)
        child = os.fork()
        if child == 0:
            with suppress(RestoreFailed):
                apply(plan, box.reader, ops=Meddled(1000 + point, _kill, after=False), durable=False)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        recover_interrupted(box.root)
        recover_interrupted(box.root)
        kept = [*_rescued(box), *(path.read_bytes() for path in box.root.rglob("*") if path.is_file())]
        assert sum(data.startswith(b"an edit by others") for data in set(kept)) == 2, point
        assert seen(box.root) == before or (box.root / "lost").is_dir(), point
        if not os.WIFSIGNALED(status):
            break
    assert point > 10
