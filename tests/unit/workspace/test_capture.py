"""What is captured, what is not and why, and what a second capture costs."""

# ruff: noqa: PTH118, PTH123 - names are bytes here

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace

import pytest

from holdfast.encode.chunks import ChunkWriter
from holdfast.encode.compress import Compressor
from holdfast.errors import LimitExceeded, UsageError
from holdfast.workspace.options import WorkspaceOptions
from holdfast.workspace.tree import files, find, pieces
from holdfast.workspace.workspace import Workspace
from unit.workspace.kit import QUICK, Box, git, repository, seen, write

NOT_RACY = replace(QUICK, racy_ns=0)


def test_files_links_modes_and_empty_directories_are_captured_with_path_size_mode_and_hash(tmp_path):
    """Proves A6."""
    box = Box(tmp_path / "w")
    write(box.root, {"a": {"x": "hello", "run": "#!/bin/sh"}, "void": {}, "none": "", "ln": ("a/x",), "out": ("/etc",)})
    (box.root / "a/run").chmod(0o755)
    records = {record.path: record for record in files(box.reader, box.capture())}
    assert {path: record.kind for path, record in records.items()} == {
        "a": "directory",
        "a/run": "file",
        "a/x": "file",
        "ln": "link",
        "none": "file",
        "out": "link",
        "void": "directory",
    }
    assert records["a/x"].size == 5
    assert records["a/x"].mtime_ns == (box.root / "a/x").stat().st_mtime_ns
    assert records["a/run"].mode == 0o755
    assert records["out"].target == "/etc"
    assert len(records["a/x"].hash) == 64


def test_names_in_any_bytes_come_back(tmp_path):
    box = Box(tmp_path / "w")
    names = [b"\xff\xfe", b"new\nline", b"tab\t", "ünï".encode(), b" lead", b"back\\slash", b"-dash", b"x" * 255]
    for name in names:
        with open(os.path.join(os.fsencode(box.root), name), "wb") as file:
            file.write(name)
    taken = box.capture()
    other = Box(tmp_path / "o", store=box.store)
    other.restore(taken, in_place=False)
    assert seen(other.root) == seen(box.root)


def test_a_link_is_stored_as_a_link_and_never_read_through(tmp_path):
    secret = tmp_path / "private"
    secret.write_text("PRIVATE KEY")
    box = Box(tmp_path / "w")
    (box.root / "l").symlink_to(secret)
    (box.root / "d").symlink_to(tmp_path)
    box.capture()
    assert not any(b"PRIVATE" in chunk.data for chunk in box.store.values())


def test_secrets_and_generated_files_are_left_out_and_listed_with_their_reason(tmp_path):
    box = Box(tmp_path / "w")
    write(
        box.root,
        {
            ".env": "k=v",
            ".env.example": "k=",
            "server.key": "k",
            "node_modules": {"x": {"y": "1"}},
            "env": {"pyvenv.cfg": "home", "lib": {"z": "1"}},
            ".git": {"config": ""},
            ".holdfast": {"holdfast.db": ""},
            "kept": "1",
        },
    )
    taken = box.capture()
    assert box.paths(taken) == [".env.example", "kept"]
    assert box.skipped(taken) == {
        ".env": "secret",
        "server.key": "secret",
        "node_modules": "generated",
        "env": "generated (a virtual environment)",
    }


@pytest.mark.parametrize(
    "options",
    [
        WorkspaceOptions(secrets=()),
        WorkspaceOptions(include=(".env",)),
    ],
)
def test_each_default_can_be_overridden_by_options(tmp_path, options):
    box = Box(tmp_path / "w", options)
    write(box.root, {".env": "k=v"})
    assert box.paths(box.capture()) == [".env"]


def test_holdfastignore_ignores_and_takes_back(tmp_path):
    box = Box(tmp_path / "w")
    write(box.root, {".holdfastignore": "*.big\n!.env\n", "a.big": "1", ".env": "k", "sub": {"b.big": "1", "c": "2"}})
    taken = box.capture()
    assert box.paths(taken) == [".env", ".holdfastignore", "sub/c"]
    assert box.skipped(taken)["sub/b.big"] == "ignored by .holdfastignore"


def test_what_git_tracks_is_captured_although_a_rule_ignores_it(tmp_path):
    """Proves A6: ignored-but-tracked files, also below an ignored directory, also secrets in fixtures."""
    box = Box(tmp_path / "w")
    repository(box.root)
    write(
        box.root, {"t.log": "1", "out": {"kept.bin": "1", "gone.bin": "1"}, "fixtures": {"test.key": "k"}, "x.key": "k"}
    )
    write(box.root, {".gitignore": "*.log\nout/\n", "u.log": "1"})
    git(box.root, "add", "-f", "t.log", "out/kept.bin", "fixtures/test.key", ".gitignore")
    git(box.root, "commit", "-qm", "x")
    taken = box.capture()
    assert box.paths(taken) == [".gitignore", "fixtures/test.key", "out/kept.bin", "t.log"]
    assert box.skipped(taken) == {"out/gone.bin": "ignored by git", "u.log": "ignored by git", "x.key": "secret"}


def test_a_file_that_becomes_tracked_is_captured_next_time(tmp_path):
    box = Box(tmp_path / "w", NOT_RACY)
    repository(box.root, {".gitignore": "*.log\n", "a": "1"})
    write(box.root, {"u.log": "1"})
    assert "u.log" not in box.paths(box.capture())
    git(box.root, "add", "-f", "u.log")
    assert "u.log" in box.paths(box.capture())


def test_a_changed_ignore_file_changes_what_is_captured_everywhere_below(tmp_path):
    box = Box(tmp_path / "w", NOT_RACY)
    repository(box.root, {".gitignore": "*.a\n", "d": {"e": {"x": "1"}}})
    write(box.root, {"d/e/f.a": "1", "d/e/f.b": "1"})
    assert "d/e/f.b" in box.paths(box.capture())
    (box.root / ".gitignore").write_text("*.b\n")
    assert {"d/e/f.a", "d/e/x"} <= set(box.paths(box.capture()))
    assert "d/e/f.b" not in box.paths(box.last)


def test_nested_repositories_submodules_and_worktrees_are_plain_directories_with_a_position_of_their_own(tmp_path):
    box = Box(tmp_path / "w")
    repository(tmp_path / "lib", {"lib.c": "int x;"})
    repository(box.root, {"a": "1", ".gitignore": "*.o\n"})
    git(box.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "lib"), "sub")
    repository(box.root / "nested")
    write(box.root, {"nested": {"n": "1", "n.o": "the outer rules end here"}})
    git(box.root, "worktree", "add", "-q", "tree", "-b", "other")
    taken = box.capture()
    assert {"sub/lib.c", "nested/n", "nested/n.o", "tree/a"} <= set(box.paths(taken))
    positions = {position.path: position for position in taken.positions}
    assert positions["sub"].head == "branch"
    assert positions["nested"].head == "unborn"
    assert positions["tree"].branch == "other"
    assert not any(path.endswith("/.git") for path in box.paths(taken))


def test_special_files_are_skipped_and_reported(tmp_path):
    box = Box(tmp_path / "w")
    os.mkfifo(box.root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(box.root / "sock"))
        taken = box.capture()
    assert box.skipped(taken) == {"pipe": "special file", "sock": "special file"}
    assert [skip.reason for skip in taken.skips.problems] == ["special file"] * 2


def test_a_file_over_the_limit_is_reported_and_captured_once_it_shrinks(tmp_path):
    box = Box(tmp_path / "w", replace(NOT_RACY, max_file_bytes=10))
    write(box.root, {"big": "x" * 11, "small": "x"})
    assert box.skipped(box.capture()) == {"big": "larger than 10 bytes"}
    (box.root / "big").write_text("x")
    assert box.paths(box.capture()) == ["big", "small"]


@pytest.mark.parametrize(("limit", "options"), [(3, {"max_files": 3}), (8, {"max_total_bytes": 8})])
def test_a_tree_over_budget_is_refused_with_the_number_that_tripped(tmp_path, limit, options):
    box = Box(tmp_path / "w", WorkspaceOptions(**options))
    write(box.root, {f"f{i}": "xxx" for i in range(5)})
    with pytest.raises(LimitExceeded) as refused:
        box.capture()
    assert refused.value.limit == limit
    assert refused.value.size > limit


def test_a_tree_deeper_than_the_limit_is_captured_down_to_it_and_reported(tmp_path):
    box = Box(tmp_path / "w", WorkspaceOptions(max_depth=3))
    write(box.root, {"1/2/3/4/5": "x", "1/a": "y"})
    taken = box.capture()
    assert box.paths(taken) == ["1/a"]
    assert box.skipped(taken) == {"1/2/3/4": "deeper than 3 directories"}


def test_the_root_directory_a_home_and_another_users_tree_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
    (tmp_path / "home/me/project").mkdir(parents=True)
    for place in ("/", tmp_path / "home/me", tmp_path / "home", tmp_path):
        with pytest.raises(UsageError, match="is or holds"):
            Workspace(place)
    Workspace(tmp_path / "home/me/project")
    if os.geteuid() == 0:
        os.chown(tmp_path / "home/me/project", 12345, 12345)
        with pytest.raises(UsageError, match="belongs to user 12345"):
            Workspace(tmp_path / "home/me/project")


@pytest.mark.parametrize(("make", "words"), [(False, "does not exist"), (True, "is not a directory")])
def test_a_missing_workspace_and_one_that_is_a_file_are_refused_in_words(tmp_path, make, words):
    place = tmp_path / "x"
    if make:
        place.write_text("")
    with pytest.raises(UsageError, match=words):
        Workspace(place)


def test_an_unchanged_tree_writes_nothing_and_gives_the_same_snapshot(tmp_path):
    box = Box(tmp_path / "w", NOT_RACY)
    write(box.root, {f"d{i}/f{j}": "x" * 100 for i in range(5) for j in range(5)})
    first = box.capture()
    writer = ChunkWriter(Compressor())
    assert box.workspace.capture(writer, first) == first
    assert not writer.chunks


def test_one_changed_file_writes_that_file_and_the_directories_above_it(tmp_path):
    """Proves X2."""
    box = Box(tmp_path / "w", NOT_RACY)
    write(box.root, {f"d{i}/e{j}/f{k}": f"{i}{j}{k}" * 99 for i in range(4) for j in range(4) for k in range(4)})
    first = box.capture()
    (box.root / "d1/e1/f1").write_text("changed")
    writer = ChunkWriter(Compressor())
    second = box.workspace.capture(writer, first)
    assert len(writer.chunks) == 4
    box.store.update(writer.chunks)
    assert box.changes(first, second) == {"d1/e1/f1": "modified"}


def test_one_change_in_a_directory_of_many_names_writes_one_page_of_it(tmp_path):
    box = Box(tmp_path / "w", NOT_RACY)
    write(box.root, {f"f{i}": "x" for i in range(3000)})
    box.capture()
    (box.root / "f1500").write_text("y")
    box.capture()
    assert box.written < 40_000


@pytest.mark.parametrize("edit", [b"", b"inserted in the middle", b"x" * 5000])
def test_an_edit_in_a_large_file_writes_the_pieces_around_it(tmp_path, edit):
    box = Box(tmp_path / "w", NOT_RACY)
    lines = b"".join(b"%d some line of a log %d\n" % (i, i * 7919) for i in range(200_000))
    (box.root / "log").write_bytes(lines)
    box.capture()
    assert len(lines) > 4_000_000
    middle = len(lines) // 2
    (box.root / "log").write_bytes(lines[:middle] + edit + lines[middle + 3 :])
    taken = box.capture()
    assert box.written < 300_000
    entry = find(box.reader, taken.root, "log")
    assert b"".join(pieces(box.reader, entry.ref)) == lines[:middle] + edit + lines[middle + 3 :]


def test_a_file_rewritten_within_the_clocks_grain_is_read_again(tmp_path):
    box = Box(tmp_path / "w")
    for number in range(20):
        (box.root / "f").write_text(f"{number:04}")
        taken = box.capture()
        entry = find(box.reader, taken.root, "f")
        assert b"".join(pieces(box.reader, entry.ref)) == b"%04d" % number


def test_a_new_process_with_the_cache_reads_nothing_and_a_damaged_cache_is_discarded(tmp_path):
    box = Box(tmp_path / "w", NOT_RACY)
    write(box.root, {f"d{i}/f{j}": f"{i}.{j}" for i in range(5) for j in range(5)})
    os.mkfifo(box.root / "pipe")
    first = box.capture()
    blob = box.workspace.dump_cache(first)
    fresh = Workspace(box.root, NOT_RACY)
    assert fresh.load_cache(blob, first)
    writer = ChunkWriter(Compressor())
    assert fresh.capture(writer, first) == first
    assert not writer.chunks
    for position in range(0, len(blob), 97):
        damaged = blob[:position] + bytes([blob[position] ^ 1]) + blob[position + 1 :]
        assert not Workspace(box.root, NOT_RACY).load_cache(damaged, first)
    (box.root / "d1/f1").write_text("changed")
    second = fresh.capture(writer, first)
    box.store.update(writer.chunks)
    assert box.changes(first, second) == {"d1/f1": "modified"}


def test_a_cache_of_another_snapshot_is_not_used(tmp_path):
    box = Box(tmp_path / "w", NOT_RACY)
    write(box.root, {"a": "1"})
    first = box.capture()
    blob = box.workspace.dump_cache(first)
    (box.root / "a").write_text("2")
    second = box.capture()
    assert not Workspace(box.root).load_cache(blob, second)


def test_after_a_commit_that_failed_everything_new_is_written_again(tmp_path):
    box = Box(tmp_path / "w", NOT_RACY)
    write(box.root, {"a": "1", "b": "1"})
    first = box.capture()
    (box.root / "a").write_text("2")
    lost = ChunkWriter(Compressor())
    box.workspace.capture(lost, first)
    again = ChunkWriter(Compressor())
    second = box.workspace.capture(again, first)
    assert again.chunks.keys() == lost.chunks.keys()
    box.store.update(again.chunks)
    assert box.changes(first, second) == {"a": "modified"}


def test_progress_is_told(tmp_path):
    box = Box(tmp_path / "w")
    write(box.root, {"d/a": "12", "b": "3"})
    told: list[tuple[int, int, str]] = []
    box.workspace.capture(ChunkWriter(Compressor()), progress=lambda *figures: told.append(figures))
    assert told == [(1, 1, ""), (2, 3, "d")]


def test_a_file_that_grows_while_it_is_read_is_read_again_or_reported(tmp_path):
    box = Box(tmp_path / "w")
    busy = box.root / "busy"
    busy.write_bytes(b"a" * 50_000_000)
    child = os.fork()
    if child == 0:
        deadline = time.monotonic() + 20
        with busy.open("ab") as file:
            while time.monotonic() < deadline:
                file.write(b"b")
                file.flush()
        os._exit(0)
    try:
        taken = box.capture()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert box.skipped(taken) == {"busy": "changed while it was read"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to be")
def test_unreadable_files_and_directories_are_reported_and_the_rest_captured(tmp_path):
    root = tmp_path / "w"
    write(root, {"ok": "1", "no": "2", "closed": {"x": "3"}, "sub": {"y": "4"}})
    (root / "no").chmod(0)
    (root / "closed").chmod(0)
    os.chown(root, 65534, 65534)
    for item in root.rglob("*"):
        os.chown(item, 65534, 65534)
    for above in [tmp_path, *tmp_path.parents][:4]:
        above.chmod(0o755)
    read, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.seteuid(65534)
            box = Box(root)
            taken = box.capture()
            os.write(write_end, repr((box.paths(taken), box.skipped(taken))).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read, "rb") as file:
        told = file.read().decode()
    os.waitpid(child, 0)
    reason = "unreadable: Permission denied"
    assert told == repr((["ok", "sub/y"], {"no": reason, "closed": reason}))
