"""A repository's position, read without git, is what git itself says: over generated repositories and odd ones."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from holdfast.workspace.position import GitChange
from unit.workspace.kit import Box, git, repository, write

if TYPE_CHECKING:
    from pathlib import Path


def _told(root: Path) -> tuple[object, ...]:
    """Return branch, commit, staged, unstaged and index as `git status` tells them."""
    command = ["git", "status", "--porcelain=v2", "-z", "--branch", "--untracked-files=no", "--no-renames"]
    settings = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    output = subprocess.run(
        [*command, "--ignore-submodules=dirty"], cwd=root, env=settings, capture_output=True, check=True
    ).stdout
    commit = branch = None
    staged, unstaged, index = set(), set(), set()
    for line in output.split(b"\0"):
        if line.startswith(b"# branch.oid "):
            commit = None if b"(initial)" in line else line[13:].decode()
        elif line.startswith(b"# branch.head "):
            branch = None if b"(detached)" in line else os.fsdecode(line[14:])
        elif line.startswith(b"1 "):
            _, letters, _, _, mode, _, _, name, file = line.split(b" ", 8)
            path = os.fsdecode(file)
            if letters[:1] != b".":
                staged.add((path, letters[:1].decode()))
                index.add((path, 0, int(mode, 8), name.decode()))
            if letters[1:] != b".":
                unstaged.add((path, letters[1:].decode()))
        elif line.startswith(b"u "):
            _, _, _, *fields, file = line.split(b" ", 10)
            unstaged.add((os.fsdecode(file), "U"))
            for stage in (1, 2, 3):
                if int(fields[stage - 1], 8):
                    index.add((os.fsdecode(file), stage, int(fields[stage - 1], 8), fields[stage + 3].decode()))
    return branch, commit, staged, unstaged, index


def _read(box: Box) -> tuple[object, ...]:
    position = box.capture().git
    assert position.head != "unknown", position.problem
    return (
        position.branch,
        position.commit,
        set(map(tuple, position.staged)),
        set(map(tuple, position.unstaged)),
        set(map(tuple, position.index)),
    )


NAMES = ["a", "b", "deep/er/c", "deep/d", "src/e.py", "src/f", "x y", "\u00e4", "z/\udcff", "link"]


def _write(chance: random.Random, root: Path, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        return
    path.unlink(missing_ok=True)
    if not path.parent.is_dir():
        path.parent.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if chance.random() < 0.15:
        path.symlink_to("somewhere")
    else:
        path.write_bytes(os.urandom(4) if chance.random() < 0.2 else b"line\n" * chance.randrange(40))
    if chance.random() < 0.3:
        git(root, "add", "--", str(path.relative_to(root)))


def _delete(chance: random.Random, root: Path, path: Path) -> None:
    if path.parent != root and chance.random() < 0.3:
        shutil.rmtree(path.parent, ignore_errors=True)
    elif path.is_file() or path.is_symlink():
        path.unlink()


def _touch(chance: random.Random, root: Path, path: Path) -> None:
    if path.is_file():
        path.chmod(chance.choice((0o644, 0o755, 0o600))) if chance.random() < 0.5 else os.utime(path)


def _pack(chance: random.Random, root: Path, path: Path) -> None:
    git(root, *chance.choice((("gc", "-q"), ("repack", "-adq", "--depth=50"), ("pack-refs", "--all"))))


def _reset(chance: random.Random, root: Path, path: Path) -> None:
    git(root, "reset", "-q", *chance.choice(((), ("--soft", "HEAD~1"), ("--hard",))), check=False)


def _commit(chance: random.Random, root: Path, path: Path) -> None:
    git(root, "add", "-A")
    if chance.random() < 0.5:
        git(root, "commit", "-q", "--allow-empty", "-m", "more")


KINDS = (_write, _write, _write, _delete, _touch, _pack, _reset, _commit)


@pytest.mark.parametrize("seed", range(12))
def test_a_generated_repository_is_read_as_git_reads_it(tmp_path, seed):
    """Proves A6 and C8: HEAD, staged and unstaged paths, for a first look and after each change."""
    chance = random.Random(seed)
    root = tmp_path / "w"
    repository(root, {name: name for name in ("a", "deep/d", "src/f")})
    if seed % 4 == 1:
        git(root, "config", "index.version", "4")
    box = Box(root)
    for _ in range(12):
        for _ in range(chance.randrange(1, 4)):
            chance.choice(KINDS)(chance, root, root / chance.choice(NAMES))
        assert _read(box) == _told(root)
    assert _read(Box(root)) == _told(root)


def _sparse(root: Path) -> None:
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "src")


def _intended(root: Path) -> None:
    write(root, {"later": "1"})
    git(root, "add", "-N", "later")


def _assumed(root: Path) -> None:
    git(root, "update-index", "--assume-unchanged", "a")
    git(root, "update-index", "--skip-worktree", "src/f")
    write(root, {"a": "other"})
    (root / "src/f").unlink()


def _line_ends(root: Path) -> None:
    write(root, {".gitattributes": "*.txt text eol=crlf\n", "t.txt": "1\r\n2\r\n"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "ends")
    os.utime(root / "t.txt", (1, 1))


def _no_modes(root: Path) -> None:
    git(root, "config", "core.fileMode", "false")
    (root / "a").chmod(0o755)


def _shallow(root: Path) -> None:
    git(root, "commit", "-q", "--allow-empty", "-m", "more")
    (root / ".git/shallow").write_text(git(root, "rev-parse", "HEAD"))


def _merging(root: Path) -> None:
    git(root, "checkout", "-qb", "side")
    write(root, {"a": "side\n", "src/f": "side"})
    git(root, "commit", "-qam", "side")
    git(root, "checkout", "-q", "main")
    (root / "src/f").unlink()
    write(root, {"a": "main\n"})
    git(root, "commit", "-qam", "main")
    git(root, "merge", "side", check=False)


@pytest.mark.parametrize("make", [_sparse, _intended, _assumed, _line_ends, _no_modes, _shallow, _merging])
def test_an_odd_repository_is_read_as_git_reads_it(tmp_path, make):
    root = tmp_path / "w"
    repository(root, {"a": "1\n", "src": {"f": "2"}, "other": {"g": {"h": "3"}}})
    make(root)
    assert _read(Box(root)) == _told(root)
    write(root, {"src/f": "changed"})
    assert _read(Box(root)) == _told(root)


def test_a_repository_of_longer_names_is_read_as_git_reads_it(tmp_path):
    root = tmp_path / "w"
    root.mkdir()
    git(root, "init", "-q", "-b", "main", "--object-format=sha256")
    write(root, {"a": "1", "d": {"b": "2"}})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    git(root, "gc", "-q")
    write(root, {"a": "2", "d": {"c": "3"}})
    git(root, "add", "d")
    assert _read(Box(root)) == _told(root)


def test_linked_work_trees_and_submodules_have_their_own_positions(tmp_path):
    root, other = tmp_path / "w", tmp_path / "other"
    repository(other, {"x": "1"})
    repository(root, {"a": "1"})
    git(root, "submodule", "--quiet", "add", str(other), "sub")
    git(root, "commit", "-qm", "sub")
    git(root, "worktree", "add", "-q", "-b", "tree", str(tmp_path / "tree"))
    write(tmp_path / "tree", {"a": "changed"})
    write(root / "sub", {"x": "changed"})
    git(root / "sub", "commit", "-qam", "moved")
    linked, whole = Box(tmp_path / "tree"), Box(root)
    assert _read(linked) == _told(tmp_path / "tree")
    assert _read(whole) == _told(root)
    taken = whole.capture()
    assert GitChange("sub", "M") in taken.git.unstaged
    assert [position.path for position in taken.positions] == ["", "sub"]
    assert taken.positions[1].commit == git(root / "sub", "rev-parse", "HEAD").strip()
    inside = Box(root / "sub")
    assert _read(inside) == _told(root / "sub")
