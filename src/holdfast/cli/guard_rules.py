"""What a guard protects, decided once before its command starts: the rules and settings that were read then.

A command could otherwise cut its own way back by writing `.holdfastignore`, `.git/info/exclude` or `holdfast.yaml`.
They are stored with the run, so that `holdfast restore` sees the directory by the same rules. What nothing puts back
(configuration, hooks and tags of git) is compared before and after, and named.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from blake3 import blake3

from holdfast.cli.times import number
from holdfast.encode.opaque import Opaque
from holdfast.errors import UsageError
from holdfast.workspace.descriptors import OPEN_DIRECTORY, read_below, stat_below
from holdfast.workspace.gitdir import GitDirectory, GitFailed
from holdfast.workspace.ignore import parse
from holdfast.workspace.paths import text
from holdfast.workspace.repositories import read_excludes, worktree_around
from holdfast.workspace.rules import IGNORE_FILES, MAX_IGNORE_BYTES

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.run import Run

_LOG = "guard-rules"
_FIELDS = ("ignore", "include", "use_gitignore", "use_git", "max_files", "max_file_bytes", "max_total_bytes")
_SETTINGS = ("holdfast.yaml", "holdfast.yml", "pyproject.toml")
_IGNORE_NAMES = tuple(name.decode() for name in IGNORE_FILES)
_GIT_FILES = (b"config", b"info/exclude", b"info/attributes")
_TAGS = b"refs/tags/"
_MOST_NAMED = 5
_MAX_FILE = 1 << 20


class Watched(NamedTuple):
    """Digests of what decides how a directory is protected and what git does in it; by the name that people know."""

    rules: dict[str, bytes]
    git: dict[str, bytes]

    @classmethod
    def of(cls, root: Path) -> Watched:
        """Return how they are now."""
        handle = os.open(root, OPEN_DIRECTORY)
        try:
            files = {name: _digest(handle, name.encode()) for name in (*_SETTINGS, *_IGNORE_NAMES)}
        finally:
            os.close(handle)
        return cls({name: digest for name, digest in files.items() if digest is not None}, _git(root))

    def changed(self, now: Watched) -> tuple[list[str], list[str]]:
        """Return the names of the settings and rules, and of what belongs to git, that are not as they were."""
        return _different(self.rules, now.rules), _different(self.git, now.git)


def freeze(run: Run, head: Checkpoint) -> None:
    """Let the rules of this moment count for the run, whatever becomes of the files that they stand in."""
    workspace = run.workspace.capture.workspace
    captured = {one.path for one in head.files() if Path(one.path).name in _IGNORE_NAMES}
    left_out = {text(one.path) for one in head.not_captured.listed if Path(text(one.path)).name in _IGNORE_NAMES}
    handle = os.open(workspace.root, OPEN_DIRECTORY)
    try:
        contents = {path: read_below(handle, os.fsencode(path), MAX_IGNORE_BYTES) for path in captured | left_out}
    finally:
        os.close(handle)
    files = {path: content for path, content in sorted(contents.items()) if content is not None}
    fields = {name: getattr(workspace.options, name) for name in _FIELDS}
    excludes = read_excludes(workspace.root, head.workspace.positions) if workspace.options.use_git else None
    stored: dict[str, Any] = {"options": fields, "files": {path: Opaque(content) for path, content in files.items()}}
    if excludes is not None:
        stored["excludes"] = {path: Opaque(content) for path, content in excludes}
    run.log(_LOG).append(stored)
    workspace.options = replace(workspace.options, ignore_files=tuple(files.items()), exclude_files=excludes)


def apply(run: Run) -> bool:
    """Let the rules that a guard stored with its run count again; False if it is not a guard's run."""
    stored: Any = next(iter(run.log(_LOG)), None)
    if stored is None:
        return False
    workspace = run.workspace.capture.workspace
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored["options"].items()
    }
    files = tuple((path, bytes(content)) for path, content in stored["files"].items())
    known = stored.get("excludes")
    excludes = None if known is None else tuple((path, bytes(content)) for path, content in known.items())
    workspace.options = replace(workspace.options, **given, ignore_files=files, exclude_files=excludes)
    return True


def unprotected(head: Checkpoint) -> str:
    """Return what rules leave out of the protection, with the first few names; nothing if all is protected."""
    skips = head.not_captured
    told = []
    for reason, count in skips.counts.items():
        names = [text(one.path) for one in skips.listed if one.reason == reason][:_MOST_NAMED]
        more = ", ..." if count > len(names) else ""
        told.append(f"{number(count, 'path')} {reason} ({', '.join(names)}{more})")
    return "; ".join(told)


def check_rules(head: Checkpoint, run: Run) -> None:
    """Raise UsageError if rules that came with the directory leave out everything, or more than is captured."""
    options = run.workspace.capture.workspace.options
    files = dict(options.ignore_files or ())
    given = {name: files[name] for name in _IGNORE_NAMES if name in files}
    if options.ignore:
        given["the setting workspace.ignore"] = "\n".join(options.ignore).encode("utf-8", "surrogateescape")
    probe = f"{secrets.token_hex(8)}.{secrets.token_hex(2)}".encode()  # a name that only a rule for all names ignores
    total = [name for name, content in given.items() if parse(content).verdict(probe, probe, is_directory=False)]
    root = run.workspace.path
    by_file = [one for one in head.not_captured.listed if one.reason.startswith(("ignored by .hold", "ignored by the"))]
    by_file += head.workspace.skips.problems  # a limit of size leaves files out as a rule does
    left_out = sum(_count(root / text(one.path)) for one in by_file)
    captured = len(head.files())
    if not total and left_out <= captured:
        return
    why = f"{' and '.join(total)} leaves out every name" if total else "rules leave out more files than they keep"
    raise UsageError(
        f"nothing was started: {why}, so the command could not be undone. Not protected: {unprotected(head)}. Remove "
        "the rule, or accept that with --accept-ignored"
    )


def around(root: Path) -> str | None:
    """Return the repository that a directory lies in without being its root; None if there is none."""
    top = worktree_around(str(root))
    return top if top is not None and Path(top) != root else None


def _count(path: Path) -> int:
    """Return how many files there are at a path and below; at most as many as matter."""
    if path.is_symlink() or not path.is_dir():
        return 1
    found = 0
    for _, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name not in (".git", ".holdfast")]
        found += len(names)
        if found > _MAX_FILE:
            break
    return found


def _digest(directory: int, name: bytes) -> bytes | None:
    """Return a digest of what is at a name, also if it is a link, a pipe or too large to be read; None for nothing."""
    status = stat_below(directory, name)
    if status is None:
        return None
    kind = f"{stat.S_IFMT(status.st_mode)} {max(status.st_size, _MAX_FILE)} "
    link = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(status.st_mode) else b""
    return blake3(kind.encode() + link + (read_below(directory, name, _MAX_FILE) or b"")).digest()


def _git(root: Path) -> dict[str, bytes]:
    """Return digests of what a restore of branch, commit and index does not put back."""
    try:
        with GitDirectory.open(str(root)) as git:
            tags = {name: at for name, at in git.refs().items() if name.startswith(_TAGS)}
            found = {f"tag {text(name.removeprefix(_TAGS))}": at.encode() for name, at in tags.items()}
            names = [*_GIT_FILES, *(b"hooks/" + name for name in git.names(b"hooks"))]
            contents = {name: git.read(name, _MAX_FILE) for name in names if not name.endswith(b".sample")}
            modes = {name: git.stat(name) for name in contents}
    except (GitFailed, OSError):
        return {}
    for name, content in contents.items():
        status = modes[name]
        if content is not None and status is not None:
            found[f".git/{text(name)}"] = blake3(content + bytes([status.st_mode & 0o111 != 0])).digest()
    return found


def _different(before: dict[str, bytes], now: dict[str, bytes]) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
