"""Two trees compared: statuses, renames, diffs, binary files and the summary."""

from __future__ import annotations

import pytest

from holdfast.encode.chunks import ChunkReader
from holdfast.workspace import compare
from holdfast.workspace.diff import diff, summary
from holdfast.workspace.merge import merge
from holdfast.workspace.tree import StoredTree
from unit.workspace.kit import Box, write

TEXT = "".join(f"line {i}\n" for i in range(30))


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path / "w")
    write(made.root, {"a": TEXT, "b": "b\n", "bin": b"\0\1", "d": {"moved": TEXT + "x\n", "gone": "g\n"}})
    return made


def _diffs(box, old, new):
    trees = box.tree(old), box.tree(new)
    return [diff(change, *trees) for change in compare.changes(*trees)]


def test_created_modified_deleted_renamed_and_mode_changes_are_found(box):
    """Proves A6 and C8."""
    old = box.capture()
    write(box.root, {"a": TEXT + "more\n", "new": "n\n"})
    (box.root / "b").chmod(0o755)
    (box.root / "d/gone").unlink()
    (box.root / "d/moved").rename(box.root / "elsewhere")
    assert box.changes(old, box.capture()) == {
        "a": "modified",
        "b": "mode",
        "d/gone": "deleted",
        "elsewhere": "renamed",
        "new": "created",
    }


def test_a_file_moved_and_edited_is_a_rename(box):
    old = box.capture()
    (box.root / "d/moved").unlink()
    write(box.root, {"there": TEXT.replace("line 3\n", "edited\n")})
    new = box.capture()
    changed = compare.changes(box.tree(old), box.tree(new))
    assert [(change.path, change.status, change.before.path) for change in changed] == [("there", "renamed", "d/moved")]


def test_only_directories_that_differ_are_read(box):
    write(box.root, {f"many{i}/x": f"{i}" for i in range(50)})
    old = box.capture()
    write(box.root, {"many7/x": "changed"})
    new = box.capture()
    fetched: list[bytes] = []

    def fetch(ids):
        fetched.extend(ids)
        return {name: box.store[name] for name in ids}

    reader = ChunkReader(fetch)
    changed = compare.changes(StoredTree(reader, old.root), StoredTree(reader, new.root))
    assert [change.path for change in changed] == ["many7/x"]
    assert len(fetched) == 4


def test_a_checkpoint_is_compared_with_the_directory_now_and_nothing_is_written(box):
    """Proves C15: files changed by others are shown with their diff."""
    taken = box.capture()
    stored = dict(box.store)
    write(box.root, {"b": "by hand\n"})
    disk, _ = box.workspace.look(box.reader, taken)
    (change,) = compare.changes(box.tree(taken), disk)
    assert diff(change, box.tree(taken), disk).text == "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-b\n+by hand\n"
    assert box.store == stored


def test_binary_files_are_said_to_be_so_and_text_is_shown_with_its_missing_newline(box):
    old = box.capture()
    write(box.root, {"bin": b"\0\2", "b": "no newline"})
    shown = {item.change.path: item for item in _diffs(box, old, box.capture())}
    assert shown["bin"].note == "binary"
    assert shown["b"].text.endswith("+no newline\n\\ No newline at end of file\n")


def test_the_summary_reads_like_git_diff_stat(box):
    old = box.capture()
    write(box.root, {"a": TEXT.replace("line 1\n", "one\n") + "more\n", "bin": b"\0\2"})
    (box.root / "d/moved").rename(box.root / "e")
    assert summary(_diffs(box, old, box.capture())) == (
        " a            | 3 ++-\n bin          | binary\n d/moved => e | renamed\n"
        " 3 files changed, 2 insertions(+), 1 deletions(-)"
    )


def test_a_merge_keeps_both_sides_counts_conflicts_and_refuses_binary():
    assert merge(b"1\n2\n3\n4\n5\n", b"0\n2\n3\n4\n5\n", b"1\n2\n3\n4\n6\n") == (b"0\n2\n3\n4\n6\n", 0)
    both = merge(b"1\n", b"2\n", b"3\n")
    assert both is not None
    assert both.conflicts == 1
    assert merge(b"\0", b"1", b"2") is None
