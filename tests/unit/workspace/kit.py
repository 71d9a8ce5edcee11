"""A store in memory, trees written as dictionaries, git without the user's settings: what workspace tests share."""

# ruff: noqa: PTH115, PTH118, PTH123, TC003 - names are bytes here

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from holdfast.encode.chunks import Chunk, ChunkReader, ChunkWriter
from holdfast.encode.compress import Compressor
from holdfast.workspace import compare, planning, restore, snapshot
from holdfast.workspace.decide import Decisions
from holdfast.workspace.options import WorkspaceOptions
from holdfast.workspace.tree import StoredTree, files
from holdfast.workspace.workspace import Workspace

QUICK = WorkspaceOptions()


class Box:
    """One workspace with a store beside it."""

    def __init__(self, root: Path, options: WorkspaceOptions = QUICK, store: dict[bytes, Chunk] | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.store = {} if store is None else store
        self.reader = ChunkReader(lambda ids: {name: self.store[name] for name in ids if name in self.store})
        self.workspace = Workspace(root, options)
        self.last: snapshot.Snapshot | None = None
        self.written = 0

    def capture(self) -> snapshot.Snapshot:
        writer = ChunkWriter(Compressor())
        taken = self.workspace.capture(writer, self.last)
        ref = snapshot.store(writer, taken)
        self.written = sum(len(chunk.data) for name, chunk in writer.chunks.items() if name not in self.store)
        self.store.update(writer.chunks)
        assert snapshot.load(self.reader, ref) == taken
        self.last = taken
        return taken

    def paths(self, taken: snapshot.Snapshot) -> list[str]:
        return [record.path for record in files(self.reader, taken) if record.kind != "directory"]

    def skipped(self, taken: snapshot.Snapshot) -> dict[str, str]:
        return {os.fsdecode(skip.path): skip.reason for skip in taken.skips.listed}

    def tree(self, taken: snapshot.Snapshot) -> StoredTree:
        return StoredTree(self.reader, taken.root)

    def changes(self, old: snapshot.Snapshot, new: snapshot.Snapshot) -> dict[str, str]:
        return {change.path: change.status for change in compare.changes(self.tree(old), self.tree(new))}

    def plan(self, wanted: snapshot.Snapshot, decisions: Decisions = Decisions(), **options):  # noqa: B008
        return planning.plan_restore(
            self.reader, self.workspace, wanted, last=self.last, decisions=decisions, **options
        )

    def restore(self, wanted: snapshot.Snapshot, decisions: Decisions = Decisions(), **options):  # noqa: B008
        return restore.apply(self.plan(wanted, decisions, **options), self.reader, durable=False)


def write(root: Path, tree: dict[str, object]) -> None:
    """Create files (bytes or text), directories (dict), links (a tuple with the target)."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            write(path, content)
        elif isinstance(content, tuple):
            path.symlink_to(content[0])
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)


def seen(root: Path | str) -> dict[bytes, tuple[object, ...]]:
    """Return everything below a directory, without git's and our own."""
    found: dict[bytes, tuple[object, ...]] = {}
    base = os.fsencode(str(root))
    for directory, names, others in os.walk(base):
        names[:] = [name for name in names if name not in (b".git", b".holdfast")]
        for name in [*names, *others]:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            relative = os.path.relpath(path, base)
            if stat.S_ISLNK(status.st_mode):
                found[relative] = ("link", os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                found[relative] = ("directory", stat.S_IMODE(status.st_mode))
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    found[relative] = ("file", stat.S_IMODE(status.st_mode), file.read())
    return found


def git(root: Path, *arguments: str, check: bool = True) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_EDITOR": "true",
        "GIT_ALLOW_PROTOCOL": "file",
    }
    done = subprocess.run(["git", *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def repository(root: Path, tree: dict[str, object] | None = None) -> None:
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    if tree is not None:
        write(root, tree)
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "first")
