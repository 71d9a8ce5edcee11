"""Restores: what was shown is what is done, nobody's work is overwritten, and every restore can be undone."""

# ruff: noqa: PTH108, PTH115, PTH118, PTH123 - names are bytes here

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading

import pytest

from holdfast.errors import RestoreConflict, RestoreFailed, RestoreRefused
from holdfast.workspace import plan as plans
from holdfast.workspace.decide import Decisions
from holdfast.workspace.ops import FileOps
from holdfast.workspace.restore import apply, recover_interrupted
from unit.workspace.kit import Box, seen, write

TEN = "".join(f"line {i}\n" for i in range(10))


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path / "w")
    write(made.root, {"a": TEN, "b": "b\n", "d": {"c": "c\n", "e": {"f": "f\n"}}, "void": {}, "l": ("a",)})
    (made.root / "b").chmod(0o640)
    return made


def _actions(plan) -> dict[str, str]:
    return {item.path: item.action for item in plan.items}


def test_a_plan_says_exactly_what_would_be_written_replaced_and_deleted_and_touches_nothing(box):
    """Proves X4."""
    wanted = box.capture()
    write(box.root, {"a": "changed\n", "new": "n\n"})
    shutil.rmtree(box.root / "d")
    box.capture()
    before = seen(box.root)
    plan = box.plan(wanted)
    assert _actions(plan) == {
        "a": "replace",
        "new": "delete",
        "d": "write",
        "d/c": "write",
        "d/e": "write",
        "d/e/f": "write",
    }
    assert seen(box.root) == before
    assert not (box.root / ".holdfast").exists()


def test_a_restore_brings_the_tree_back_and_one_more_undoes_it(box):
    """Proves X1."""
    wanted, first = box.capture(), seen(box.root)
    write(box.root, {"a": "changed\n", "new": "n\n"})
    shutil.rmtree(box.root / "d")
    (box.root / "void").rmdir()
    (box.root / "b").chmod(0o600)
    second, other = box.capture(), seen(box.root)
    report = box.restore(wanted)
    assert report.verified
    assert seen(box.root) == first
    box.capture()
    box.restore(second)
    assert seen(box.root) == other


def test_untouched_files_keep_their_times(box):
    wanted = box.capture()
    before = (box.root / "b").stat()
    write(box.root, {"a": "changed\n"})
    box.capture()
    box.restore(wanted)
    after = (box.root / "b").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_into_an_empty_directory_the_same_tree_comes_out_times_included(box, tmp_path):
    """Proves X1: on another machine."""
    wanted = box.capture()
    other = Box(tmp_path / "elsewhere", store=box.store)
    other.restore(wanted, in_place=False)
    assert seen(other.root) == seen(box.root)
    assert other.capture().root == wanted.root
    assert not (other.root / ".holdfast").exists()


def test_chosen_paths_are_restored_and_no_others(box):
    wanted = box.capture()
    write(box.root, {"a": "changed\n", "b": "changed\n"})
    shutil.rmtree(box.root / "d")
    box.capture()
    box.restore(wanted, only=["d/e", "b"])
    assert (box.root / "a").read_text() == "changed\n"
    assert (box.root / "b").read_text() == "b\n"
    assert (box.root / "d/e/f").read_text() == "f\n"
    assert not (box.root / "d/c").exists()


def test_an_edit_made_outside_since_is_kept(box):
    """Proves X4 and C15."""
    wanted = box.capture()
    write(box.root, {"b": "by hand\n", "mine": "m\n"})
    (box.root / "d/c").unlink()
    plan = box.plan(wanted)
    assert _actions(plan) == {"b": "keep", "mine": "keep", "d/c": "keep"}
    apply(plan, box.reader)
    assert (box.root / "b").read_text() == "by hand\n"
    assert (box.root / "mine").exists()


def test_an_outside_edit_gives_way_when_that_was_decided_but_a_file_that_is_not_ours_stays(box):
    wanted = box.capture()
    write(box.root, {"b": "by hand\n", "mine": "m\n"})
    box.restore(wanted, Decisions(edits="take"))
    assert (box.root / "b").read_text() == "b\n"
    assert (box.root / "mine").exists()


def _both_changed(box, disk: str):
    wanted = box.capture()
    write(box.root, {"a": TEN.replace("line 9", "by the run")})
    box.capture()
    write(box.root, {"a": disk})
    return wanted


def test_changes_in_different_places_are_merged_three_ways(box):
    """Proves X4."""
    wanted = _both_changed(box, TEN.replace("line 9", "by the run").replace("line 0", "by hand"))
    plan = box.plan(wanted)
    assert _actions(plan) == {"a": "merge"}
    assert apply(plan, box.reader).verified
    assert (box.root / "a").read_text() == TEN.replace("line 0", "by hand")


def test_a_real_conflict_is_refused_when_nobody_decides(box):
    wanted = _both_changed(box, TEN.replace("line 9", "by hand"))
    plan = box.plan(wanted)
    assert _actions(plan) == {"a": "conflict"}
    before = seen(box.root)
    with pytest.raises(RestoreConflict) as refused:
        apply(plan, box.reader)
    assert refused.value.paths == ("a",)
    assert seen(box.root) == before


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("keep", "by hand"), ("take", "line 9"), ("merge", "<<<<<<<"), ("both", "by hand")],
)
def test_a_conflict_goes_as_decided(box, choice, expected):
    wanted = _both_changed(box, TEN.replace("line 9", "by hand"))
    box.restore(wanted, Decisions(paths={"a": choice}))
    assert expected in (box.root / "a").read_text()
    assert (box.root / "a.checkpoint").exists() == (choice == "both")
    if choice == "both":
        assert (box.root / "a.checkpoint").read_text() == TEN


def test_a_directory_that_we_never_saw_is_not_overwritten(box, tmp_path):
    wanted = box.capture()
    other = Box(tmp_path / "o", store=box.store)
    write(other.root, {"a": "theirs\n", "theirs": "t\n"})
    plan = other.plan(wanted, in_place=False)
    assert _actions(plan)["a"] == "conflict"
    assert _actions(plan)["theirs"] == "keep"


@pytest.mark.parametrize("meddle", ["edit", "delete", "link", "directory", "create"])
def test_a_path_that_changed_after_the_plan_was_shown_is_a_conflict_and_everything_is_as_before(box, meddle):
    """Proves X4: compare-and-swap for each path."""
    wanted = box.capture()
    write(box.root, {"a": "changed\n", "b": "changed\n"})
    (box.root / "d/c").unlink()
    box.capture()
    plan = box.plan(wanted)
    victim = box.root / "b"
    if meddle == "create":
        (box.root / "d/c").write_text("by another hand")
    else:
        victim.unlink()
    if meddle == "edit":
        victim.write_text("by another hand")
    elif meddle == "link":
        victim.symlink_to("/etc/hostname")
    elif meddle == "directory":
        write(victim, {"x": "1"})
    before = seen(box.root)
    with pytest.raises(RestoreConflict):
        apply(plan, box.reader)
    assert seen(box.root) == before


def test_a_file_that_is_not_captured_is_never_overwritten(box):
    write(box.root, {"x.log": "captured\n"})
    wanted = box.capture()
    (box.root / "x.log").unlink()
    write(box.root, {".holdfastignore": "*.log\n"})
    box.capture()
    write(box.root, {"x.log": "precious\n"})
    plan = box.plan(wanted)
    assert _actions(plan)["x.log"] == "conflict"


def test_a_directory_that_holds_what_is_not_captured_stays(box):
    wanted = box.capture()
    write(box.root, {"fresh": {"y": "1", "__pycache__": {"y.pyc": "1"}}})
    box.capture()
    report = box.restore(wanted)
    assert report.left == ("fresh",)
    assert report.verified
    assert (box.root / "fresh/__pycache__/y.pyc").exists()
    assert not (box.root / "fresh/y").exists()


def test_files_become_directories_and_back(box):
    write(box.root, {"x": "file", "y": {"in": {"deep": "1"}}})
    wanted, first = box.capture(), seen(box.root)
    (box.root / "x").unlink()
    write(box.root, {"x": {"now": {"a": "dir"}}})
    shutil.rmtree(box.root / "y")
    write(box.root, {"y": "file"})
    second, other = box.capture(), seen(box.root)
    box.restore(wanted)
    assert seen(box.root) == first
    box.capture()
    box.restore(second)
    assert seen(box.root) == other


def test_a_directory_with_kept_files_is_no_place_for_a_file(box):
    write(box.root, {"x": "file"})
    wanted = box.capture()
    (box.root / "x").unlink()
    write(box.root, {"x": {"ours": "1"}})
    box.capture()
    write(box.root, {"x": {"theirs": "1"}})
    plan = box.plan(wanted)
    assert _actions(plan) == {"x": "conflict", "x/ours": "delete", "x/theirs": "keep"}


def test_the_safety_checkpoint_is_taken_before_anything_is_touched_and_only_when_needed(box):
    wanted = box.capture()
    write(box.root, {"a": "changed\n"})
    box.capture()
    before, called = seen(box.root), []
    apply(box.plan(wanted), box.reader, safety=lambda: called.append(seen(box.root)))
    assert called == [before]
    box.capture()
    apply(box.plan(wanted), box.reader, safety=lambda: called.append(None))
    assert called == [before]


def test_a_failed_safety_checkpoint_stops_the_restore(box):
    wanted = box.capture()
    write(box.root, {"a": "changed\n"})
    box.capture()

    def fail():
        raise RuntimeError("store full")

    with pytest.raises(RuntimeError):
        apply(box.plan(wanted), box.reader, safety=fail)
    assert (box.root / "a").read_text() == "changed\n"


def test_a_plan_survives_json_with_names_that_are_no_utf8_and_has_the_same_digest(box):
    with open(os.path.join(os.fsencode(box.root), b"\xff"), "wb") as file:
        file.write(b"1")
    wanted = box.capture()
    os.unlink(os.path.join(os.fsencode(box.root), b"\xff"))
    box.capture()
    plan = box.plan(wanted)
    again = plans.from_json(plans.to_json(plan))
    assert again == plan
    assert again.digest == plan.digest
    apply(again, box.reader)
    assert b"\xff" in seen(box.root)


def test_two_restores_at_once_are_refused(box):
    wanted = box.capture()
    write(box.root, {"a": "changed\n"})
    box.capture()
    plan = box.plan(wanted)

    class Nested(Exception):
        pass

    def progress(*_):
        with pytest.raises(RestoreRefused, match="another restore is at work"):
            apply(plan, box.reader)
        raise Nested

    with pytest.raises(Nested):
        apply(plan, box.reader, progress=progress)
    assert (box.root / "a").read_text() == "changed\n"
    apply(plan, box.reader)
    assert (box.root / "a").read_text() == TEN


def test_read_only_directories_are_restored_with_their_mode(box, tmp_path):
    write(box.root, {"ro": {"in": {"x": "1"}}})
    (box.root / "ro/in").chmod(0o555)
    (box.root / "ro").chmod(0o555)
    wanted = box.capture()
    other = Box(tmp_path / "o", store=box.store)
    assert other.restore(wanted, in_place=False).verified
    assert seen(other.root) == seen(box.root)


def test_a_start_needs_no_lock_when_nothing_was_interrupted_and_waits_for_it_otherwise(box):
    """Two runs that start at once in one directory do not trip over each other."""
    home = box.root / ".holdfast"
    home.mkdir()
    lock = os.open(home / "restore.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert recover_interrupted(box.root) == []
    (home / "restore-0123").mkdir()
    threading.Timer(0.3, os.close, [lock]).start()
    assert recover_interrupted(box.root) == ["discarded"]


def test_a_lock_that_its_holder_removed_is_not_taken_for_the_lock(box, monkeypatch):
    wanted = box.capture()
    write(box.root, {"a": "changed\n"})
    box.capture()
    plan = box.plan(wanted)
    flock = fcntl.flock
    taken = []

    def removed_meanwhile(handle, how):
        if not taken:
            (box.root / ".holdfast" / "restore.lock").unlink()
        taken.append(handle)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    assert apply(plan, box.reader, durable=False).verified
    assert len(taken) == 2


def _killed(box, plan, **methods):
    """Restore in a process that the given methods of its file operations end."""
    child = os.fork()
    if child == 0:
        try:
            apply(plan, box.reader, ops=type("Killed", (FileOps,), methods)())
        finally:
            os._exit(3)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


def _die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("folder", ["new", "old"])
def test_a_staging_folder_that_is_missing_is_a_typed_error_that_says_what_to_do(box, folder):
    wanted = box.capture()
    write(box.root, {"a": "changed\n"})
    box.capture()
    _killed(box, box.plan(wanted), place=_die)
    (work,) = (box.root / ".holdfast").glob("restore-*")
    shutil.rmtree(work / folder)
    with pytest.raises(RestoreFailed) as failed:
        recover_interrupted(box.root)
    assert f"delete .holdfast/{work.name}" in str(failed.value)
    shutil.rmtree(work)
    assert recover_interrupted(box.root) == []


def test_files_that_were_set_aside_without_a_journal_are_kept(box):
    work = box.root / ".holdfast/restore-00"
    write(work, {"old": {"1": "precious"}, "new": {}})
    assert recover_interrupted(box.root) == ["rescued"]
    assert (box.root / ".holdfast/rescued-00/old/1").read_text() == "precious"
    assert recover_interrupted(box.root) == []


@pytest.mark.parametrize("moment", ["place", "done", "sync"])
def test_what_an_editor_writes_into_a_file_it_has_open_is_rescued(box, moment):
    """Proves C15: the file is replaced under the editor's hands, and what it writes then is not deleted."""
    wanted = box.capture()
    write(box.root, {"a": "changed\n", "b": "changed, too\n"})
    box.capture()
    plan = box.plan(wanted)
    with (box.root / "a").open("r+") as editor:

        class Editing(FileOps):
            """Lets the editor write when the file is taken: once it is placed, marked as done, or synced."""

            def _edit(self):
                if not (box.root / "a").exists() or (box.root / "a").read_text() == TEN:
                    editor.seek(0)
                    editor.write("an edit by hand\n")
                    editor.flush()

            def place(self, source, old, target, new):
                super().place(source, old, target, new)
                self._edit() if moment == ("done" if new == b"done" else "place") else None

            def sync(self, handle):
                super().sync(handle)
                self._edit() if moment == "sync" else None

        report = apply(plan, box.reader, ops=Editing())
    assert report.verified
    assert (box.root / "a").read_text() == TEN
    ((path, place),) = report.rescued
    assert path == "a"
    assert (box.root / place).read_text() == "an edit by hand\n"
    assert len(list((box.root / place).parent.iterdir())) == 1  # the other file was as it was
    assert recover_interrupted(box.root) == []
    box.capture()
    assert box.restore(wanted).rescued == ()


def test_what_an_editor_writes_after_the_restore_was_killed_is_rescued(box):
    wanted = box.capture()
    write(box.root, {"a": "changed\n", "b": "changed, too\n"})
    box.capture()

    def unlink(self, directory, name):
        _die()

    with (box.root / "a").open("r+") as editor:
        _killed(box, box.plan(wanted), unlink=unlink)
        editor.write("an edit by hand\n")
        editor.flush()
        assert recover_interrupted(box.root) == ["finished"]
    (kept,) = (box.root / ".holdfast").glob("rescued-*/old/*")
    assert kept.read_text() == "an edit by hand\n"
    assert (box.root / "a").read_text() == TEN


class SyncedOps(FileOps):
    """Knows at every moment which files and directories have changes that no sync made durable."""

    def __init__(self):
        self.unsynced = set()
        self.at_journal = self.at_done = self.at_delete = None

    def _changed(self, *handles):
        self.unsynced |= {os.readlink(f"/proc/self/fd/{handle}") for handle in handles}

    def create(self, directory, name):
        handle = super().create(directory, name)
        self._changed(directory, handle)
        return handle

    def write(self, handle, data):
        super().write(handle, data)
        self._changed(handle)

    def finish(self, handle, mode, mtime_ns):
        super().finish(handle, mode, mtime_ns)
        self._changed(handle)

    def sync(self, handle):
        super().sync(handle)
        self.unsynced.discard(os.readlink(f"/proc/self/fd/{handle}"))

    def sync_all(self):
        super().sync_all()
        self.unsynced.clear()

    def symlink(self, directory, name, target):
        super().symlink(directory, name, target)
        self._changed(directory)

    def mkdir(self, directory, name, mode):
        super().mkdir(directory, name, mode)
        self._changed(directory)
        self.unsynced.add(os.path.join(os.readlink(f"/proc/self/fd/{directory}"), os.fsdecode(name)))

    def rmdir(self, directory, name):
        super().rmdir(directory, name)
        self._changed(directory)
        self.unsynced.discard(os.path.join(os.readlink(f"/proc/self/fd/{directory}"), os.fsdecode(name)))

    def unlink(self, directory, name):
        place = os.readlink(f"/proc/self/fd/{directory}")
        if place.endswith("/old") and self.at_delete is None:
            self.at_delete = set(self.unsynced)
        super().unlink(directory, name)
        self._changed(directory)

    def chmod_directory(self, directory, name, mode):
        super().chmod_directory(directory, name, mode)
        self.unsynced.add(os.path.join(os.readlink(f"/proc/self/fd/{directory}"), os.fsdecode(name)))

    def place(self, source, old, target, new):
        if new == b"done":
            self.at_done = set(self.unsynced)
        super().place(source, old, target, new)
        self._changed(target)

    def rename(self, source, old, target, new):
        if new == b"journal":
            self.at_journal = set(self.unsynced)
        super().rename(source, old, target, new)
        self._changed(source, target)


@pytest.mark.parametrize("many", [False, True])
def test_everything_is_synced_before_the_swap_and_again_before_what_was_replaced_is_deleted(box, many):
    """POSIX promises a name only when its directory was synced, however the contents were."""
    write(box.root, {"d": {"gone": {"x": "1", "y": {"z": "2"}}, "m": {}}})
    if many:
        write(box.root, {f"many/{i}/{i % 7}": str(i) for i in range(300)})
    wanted, after = box.capture(), seen(box.root)
    write(box.root, {"a": "changed\n", "d": {"c": "changed\n", "new": "n"}, "fresh": {"er": {"x": "1"}}})
    shutil.rmtree(box.root / "d/gone")
    shutil.rmtree(box.root / "many", ignore_errors=True)
    (box.root / "d/m").chmod(0o700)
    (box.root / "l").unlink()
    box.capture()
    ops = SyncedOps()
    assert apply(box.plan(wanted), box.reader, ops=ops).verified
    assert seen(box.root) == after
    home = str(box.root / ".holdfast/restore-")
    assert {path for path in ops.at_journal if not path.startswith(home)} == set()
    assert {path.rpartition("/")[2][:8] for path in ops.at_journal} <= {"restore-"}  # synced with the journal's name
    assert ops.at_done == set()
    assert ops.at_delete == set()


def test_a_restore_that_is_finished_by_the_next_start_is_synced_as_well(box):
    wanted = box.capture()
    write(box.root, {"a": "changed\n", "d": {"c": "changed\n", "e": {"f": "changed\n"}}})
    box.capture()

    class Killed(FileOps):
        def __init__(self):
            self.count = 0

        def place(self, *arguments):
            super().place(*arguments)
            self.count += 1
            if self.count == 2:
                _die()

    child = os.fork()
    if child == 0:
        apply(box.plan(wanted), box.reader, ops=Killed())
    os.waitpid(child, 0)
    synced = []

    class Noting(FileOps):
        def sync(self, handle):
            super().sync(handle)
            synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), box.root))

    assert recover_interrupted(box.root, ops=Noting()) == ["finished"]
    assert {".", "d", "d/e"} <= set(synced)
