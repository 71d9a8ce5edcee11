"""The repositories in a workspace: their ignore rules on the way in, their positions afterwards; both remembered."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.workspace import git, position
from holdfast.workspace.contents import KEY
from holdfast.workspace.paths import text
from holdfast.workspace.position import NO_REPOSITORY, GitPosition, Watch
from holdfast.workspace.rules import MAX_IGNORE_BYTES, Rules, Tracked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.workspace.options import WorkspaceOptions
    from holdfast.workspace.sink import Sink

_MAX_REPOSITORIES = 200
_PARTIAL = 200  # more changed paths than these are not worth naming to git


@dataclass(slots=True)
class Remembered:
    """What the last capture learnt of the repositories."""

    tracked: dict[bytes, tuple[tuple[int, ...] | None, Tracked]] = field(default_factory=dict)
    positions: dict[bytes, tuple[Watch, GitPosition]] = field(default_factory=dict)
    ignore_digest: list[bytes] = field(default_factory=list)
    global_place: str | None = None


class Repositories:
    """One capture's view of the repositories in and around a workspace."""

    def __init__(self, root: str, options: WorkspaceOptions, remembered: Remembered) -> None:
        self._root = root
        self._options = options
        self._old = remembered
        self._global: bytes | None = None
        self._trusted = False
        self._rules_moved = False
        self._enabled = options.use_git and git.is_installed()
        self.now = Remembered()

    def start(self, rules: Rules) -> tuple[Rules, str | None]:
        """Return the rules at the root of the workspace, and the work tree it lies in."""
        top = _worktree_around(self._root)
        if top is None:
            return rules, None
        prefix = os.path.relpath(self._root, top)
        if prefix == ".":
            return self.enter(b"", rules), top
        excludes = self._excludes(top)
        names = os.fsencode(prefix).split(b"/")
        outer = [(os.fsencode(prefix) + b"/", content) for content in excludes]
        for depth in range(len(names)):
            content = _content(os.path.join(top, *map(os.fsdecode, names[:depth]), ".gitignore"))  # noqa: PTH118
            if content is not None:
                outer.append((b"/".join(names[depth:]) + b"/", content))
        above = rules.repository(b"", [(b"", content) for content in excludes], Tracked())
        for depth in range(len(names)):
            here = b"/".join(names[:depth])
            content = _content(os.path.join(top, os.fsdecode(here), ".gitignore"))  # noqa: PTH118
            above = above.enter(here, content, None)
            if above.verdict(names[depth], b"/".join(names[: depth + 1]), is_directory=True) == "ignored by git":
                return rules, None  # the repository around it says that this directory is none of its business
        return rules.repository(b"", outer, self._tracked(b"", top, prefix=os.fsencode(prefix) + b"/")), top

    def enter(self, path: bytes, rules: Rules) -> Rules:
        """Return the rules inside the repository at this path."""
        worktree = os.path.join(self._root, os.fsdecode(path)) if path else self._root  # noqa: PTH118
        excludes = [(b"", content) for content in self._excludes(worktree)]
        return rules.repository(path, excludes, self._tracked(path, worktree))

    def stale(self, ignore_digest: list[bytes]) -> bool:
        """Return whether remembered facts were used although ignore files have changed; then forget them."""
        self.now.ignore_digest = ignore_digest
        self._rules_moved = self._rules_moved or ignore_digest != self._old.ignore_digest
        if not self._trusted or ignore_digest == self._old.ignore_digest:
            return False
        self._trusted = False
        self._old = replace(self._old, tracked={}, ignore_digest=ignore_digest)
        self.now.tracked = {}
        return True

    def positions(
        self, found: Sequence[bytes], top: str | None, touched: Sequence[bytes], sink: Sink
    ) -> list[GitPosition]:
        """Return the position of the workspace's own repository, then those of the ones below it."""
        if not self._options.use_git:
            return [NO_REPOSITORY]
        own = self._position(b"", top, touched, sink) if top is not None else NO_REPOSITORY
        below = [path for path in found if path]
        listed = [
            self._position(path, os.path.join(self._root, os.fsdecode(path)), touched, sink)  # noqa: PTH118
            for path in below[:_MAX_REPOSITORIES]
        ]
        listed += [
            GitPosition(path=text(path), head="unknown", problem=f"more than {_MAX_REPOSITORIES} repositories")
            for path in below[_MAX_REPOSITORIES:]
        ]
        return [own, *listed]

    def _position(self, path: bytes, worktree: str, touched: Sequence[bytes], sink: Sink) -> GitPosition:
        shown = text(path)
        if not self._enabled:
            return GitPosition(path=shown, head="unknown", problem="git is not installed")
        watch = position.watch(worktree)
        if watch is None:
            return GitPosition(path=shown, head="unknown", problem="its .git cannot be read")
        outside = os.path.relpath(self._root, worktree)
        inside = _relative(path, touched)
        if path == b"" and outside != ".":
            inside = [os.fsencode(outside) + b"/" + item for item in inside]
        old_watch, old = self._old.positions.get(path, (None, None))
        known = old is not None and old_watch == watch and old.head != "unknown" and not self._rules_moved
        if old is None or not known or len(inside) > _PARTIAL:
            limit = self._options.max_file_bytes
            now = position.read(worktree, shown, sink, left_out=self._left_out(worktree), max_file_bytes=limit)
        elif inside:
            now = position.refresh(worktree, old, inside)
        else:
            now = old
        self.now.positions[path] = (watch, now)
        return now

    def _left_out(self, worktree: str) -> Callable[[bytes], bool]:
        """Return a function that says whether the user's own rules leave out a path of this work tree."""
        rules: dict[bytes, Rules] = {}

        def inside(directory: bytes) -> Rules:
            if directory not in rules:
                outer = inside(directory.rpartition(b"/")[0]) if directory else Rules.of(self._options)
                place = os.path.join(self._root, os.fsdecode(directory), ".holdfastignore")  # noqa: PTH118
                rules[directory] = outer.enter(directory, None, _content(place))
            return rules[directory]

        def left_out(path: bytes) -> bool:
            path = os.fsencode(os.path.relpath(os.path.join(worktree, os.fsdecode(path)), self._root))  # noqa: PTH118
            names = path.split(b"/")
            if names[0] == b"..":
                return False  # of the repository around the workspace
            for depth, name in enumerate(names):
                here, above = b"/".join(names[: depth + 1]), b"/".join(names[:depth])
                if inside(above).leaves_out(name, here, is_directory=depth + 1 < len(names)):
                    return True
            return False

        return left_out

    def _tracked(self, path: bytes, worktree: str, prefix: bytes = b"") -> Tracked:
        """Return what git tracks here although a rule would ignore it."""
        if path in self.now.tracked:
            return self.now.tracked[path][1]
        found = position.git_directories(worktree)
        index = _key(os.path.join(found[0], "index")) if found else None  # noqa: PTH118
        old = self._old.tracked.get(path)
        if old is not None and old[0] == index:
            self._trusted, tracked = True, old[1]
        else:
            tracked = self._ask_tracked(path, worktree, prefix)
        self.now.tracked[path] = (index, tracked)
        return tracked

    def _ask_tracked(self, path: bytes, worktree: str, prefix: bytes) -> Tracked:
        if not self._enabled:
            return Tracked()
        patterns = [f"--exclude={item}" for item in (*self._options.secrets, *self._options.generated)]
        standard = ["--exclude-standard"] if self._options.use_gitignore else []
        try:
            listed = git.run(worktree, "ls-files", "-z", "--cached", "--ignored", *standard, *patterns)
        except git.GitFailed:
            return Tracked()  # the position tells the problem
        names = [name[len(prefix) :] for name in listed.split(b"\0") if name and name.startswith(prefix)]
        return Tracked.of(path + b"/" + name if path else name for name in names)

    def _excludes(self, worktree: str) -> list[bytes]:
        """Return the user's own ignore file and the one inside the repository, in git's order."""
        found = position.git_directories(worktree)
        own = _content(os.path.join(found[1], "info", "exclude")) if found else None  # noqa: PTH118
        return [content for content in (self._global_excludes(worktree), own) if content]

    def _global_excludes(self, worktree: str) -> bytes:
        if self._global is None:
            place = self._old.global_place or self._ask_global_place(worktree)
            self.now.global_place = place
            self._global = _content(place) or b""
        return self._global

    def _ask_global_place(self, worktree: str) -> str:
        if self._enabled:
            try:
                named = git.run(worktree, "config", "--type=path", "--get", "core.excludesFile")
                return os.fsdecode(named.rstrip(b"\n"))
            except git.GitFailed:
                pass  # not set: the default place counts
        return os.path.expanduser("~/.config/git/ignore")  # noqa: PTH111


def _worktree_around(root: str) -> str | None:
    """Return the nearest directory at or above the workspace that holds a .git."""
    place = root
    while True:
        if os.path.lexists(os.path.join(place, ".git")):  # noqa: PTH118
            return place
        parent = os.path.dirname(place)  # noqa: PTH120
        if parent == place:
            return None
        place = parent


def _relative(path: bytes, touched: Sequence[bytes]) -> list[bytes]:
    if not path:
        return list(touched)
    return [item[len(path) + 1 :] for item in touched if item.startswith(path + b"/")]


def _content(place: str) -> bytes | None:
    try:
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(handle, MAX_IGNORE_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)


def _key(place: str) -> tuple[int, ...] | None:
    try:
        return KEY(os.lstat(place))
    except OSError:
        return None
