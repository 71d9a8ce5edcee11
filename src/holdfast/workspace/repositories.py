"""The repositories in a workspace: their ignore rules on the way in, their positions afterwards; both remembered."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.lazy import lazily
from holdfast.workspace import paths, position
from holdfast.workspace.contents import KEY
from holdfast.workspace.descriptors import open_parent, read_below
from holdfast.workspace.gitdir import GitDirectory, GitFailed
from holdfast.workspace.objects import Objects
from holdfast.workspace.paths import text
from holdfast.workspace.position import NO_REPOSITORY, GitPosition, Watch
from holdfast.workspace.rules import MAX_IGNORE_BYTES, IgnoreRules, Tracked
from holdfast.workspace.status import WorkTree, load_index

with lazily():  # a directory without a repository starts no git
    from holdfast.workspace import git, git_history

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.workspace.index import GitIndex
    from holdfast.workspace.options import WorkspaceOptions
    from holdfast.workspace.position import GitHistory
    from holdfast.workspace.sink import Sink

USER_EXCLUDES = "/"  # the key of the user's own exclude file, where the others have the path of their repository
_MAX_REPOSITORIES = 200
_MAX_LISTED_BYTES = 64 * 1024 * 1024  # of paths that differ, in all repositories: they are held in memory
_PARTIAL = 200  # more changed paths than these are not worth naming to git


@dataclass(slots=True)
class Remembered:
    """What the last capture learnt of the repositories."""

    tracked: dict[bytes, tuple[tuple[int, ...] | None, Tracked]] = field(default_factory=dict)
    positions: dict[bytes, tuple[Watch, GitPosition]] = field(default_factory=dict)
    indexes: dict[bytes, tuple[tuple[int, ...] | None, GitIndex]] = field(default_factory=dict)
    ignore_digest: list[bytes] = field(default_factory=list)
    global_place: str | None = None


class Repositories:
    """One capture's view of the repositories in and around a workspace."""

    def __init__(
        self, root: str, options: WorkspaceOptions, remembered: Remembered, stored: Sequence[GitPosition] = ()
    ) -> None:
        self._root = root
        self._options = options
        self._frozen = None if options.exclude_files is None else dict(options.exclude_files)
        self._old = remembered
        self._global: bytes | None = None
        self._trusted = False
        self._rules_moved = False
        self.tracked_store: str | None = None
        """A file of our own store that a repository tracks, of those that were read again."""
        self._kept = {position.path: position.history for position in stored}  # in the store that is written to
        self.now = Remembered(indexes=dict(remembered.indexes))

    def start(self, rules: IgnoreRules) -> tuple[IgnoreRules, str | None]:
        """Return the rules at the root of the workspace, and the work tree it lies in."""
        top = worktree_around(self._root)
        if top is None:  # what is frozen counts, also if the repository is gone
            return self.enter(b"", rules) if self._frozen and "" in self._frozen else rules, None
        prefix = os.path.relpath(self._root, top)
        if prefix == ".":
            return self.enter(b"", rules), top
        above, outer = self._above(rules, top, os.fsencode(prefix))
        if above is None:
            return rules, None  # the repository around it says that this directory is none of its business
        inside = rules.repository(b"", outer, Tracked())
        return rules.repository(b"", outer, self._tracked(b"", inside, top, os.fsencode(prefix))), top

    def _above(
        self, rules: IgnoreRules, top: str, prefix: bytes
    ) -> tuple[IgnoreRules | None, list[tuple[bytes, bytes]]]:
        """Return the rules of the repository around the workspace, None if they ignore it, and its ignore files."""
        excludes = self._excludes(top, b"")
        outer = [(prefix + b"/", content) for content in excludes]
        above = rules.repository(b"", [(b"", content) for content in excludes], Tracked())
        names = prefix.split(b"/")
        for depth, name in enumerate(names):
            here = b"/".join(names[:depth])
            content = _content(top, paths.join(here, b".gitignore"))
            if content is not None:
                outer.append((b"/".join(names[depth:]) + b"/", content))
            above = above.enter(here, content, None)
            if above.verdict(name, paths.join(here, name), is_directory=True) == "ignored by git":
                return None, outer
        return above, outer

    def enter(self, path: bytes, rules: IgnoreRules) -> IgnoreRules:
        """Return the rules inside the repository at this path."""
        excludes = [(b"", content) for content in self._excludes(self._root, path)]
        inside = rules.repository(path, excludes, Tracked())
        return rules.repository(path, excludes, self._tracked(path, inside, self._root))

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
        left = _MAX_LISTED_BYTES
        own = self._position(b"", top, touched, sink) if top is not None else NO_REPOSITORY
        below = [path for path in found if path]
        listed = [own, *(self._position(path, self._root, touched, sink) for path in below[:_MAX_REPOSITORIES])]
        for number, one in enumerate(listed):
            left -= position.listed_bytes(one)
            if left < 0:
                why = GitFailed("more of its paths differ from its commit than are kept")
                listed[number] = position.unknown(one.path, why)
        listed += [
            GitPosition(path=text(path), head="unknown", problem=f"more than {_MAX_REPOSITORIES} repositories")
            for path in below[_MAX_REPOSITORIES:]
        ]
        return listed

    def _position(self, path: bytes, top: str, touched: Sequence[bytes], sink: Sink) -> GitPosition:
        """Return the position of the repository at a path, or at the top around the workspace."""
        try:
            with GitDirectory.open(top, path) as directory:
                return self._read(directory, path, top, touched, sink)
        except (GitFailed, OSError) as error:
            return position.unknown(text(path), error)

    def _read(
        self, directory: GitDirectory, path: bytes, top: str, touched: Sequence[bytes], sink: Sink
    ) -> GitPosition:
        watch = position.watch(directory)
        prefix = os.fsencode(os.path.relpath(self._root, top))
        inside = _relative(path, touched)
        if prefix != b".":
            inside = [prefix + b"/" + item for item in inside]
        old_watch, old = self._old.positions.get(path, (None, None))
        known = old is not None and old_watch == watch and old.head != "unknown" and not self._rules_moved
        if old is None or not known or len(inside) > _PARTIAL:
            left_out = self._left_out(path, b"" if prefix == b"." else prefix + b"/")
            limit = self._options.max_file_bytes
            index = self._index(directory, path)
            now = position.read(directory, text(path), sink, left_out=left_out, max_file_bytes=limit, index=index)
            self.tracked_store = self.tracked_store or self._of_store(index, path, b"" if prefix == b"." else prefix)
        elif inside:
            now = position.refresh(directory, old, self._index(directory, path), inside)
        else:
            now = old
        if prefix == b".":
            now = replace(now, history=self._history(directory, now, path, sink))
        self.now.positions[path] = (watch, now)
        return now

    def _of_store(self, index: GitIndex, path: bytes, prefix: bytes) -> str | None:
        """Return a file of the store that a repository tracks, by its place in the workspace."""
        inside = _relative(path, [paths.raw(name) for name in self._options.store_paths])
        return next((text(one.path) for name in inside for one in index.at(paths.join(prefix, name))), None)

    def _history(self, directory: GitDirectory, now: GitPosition, path: bytes, sink: Sink) -> GitHistory | None:
        """Return what is kept of a repository's history; only of one whose whole work tree is in the workspace."""
        limit = self._options.max_history_bytes
        if not limit or now.head == "unknown":
            return None
        old = self._kept.get(now.path)
        if old is not None and old.problem and self._rules_moved:
            old = None
        index = self._index(directory, path)

        def is_left_out() -> str | None:
            left_out = self._left_out(path, b"")
            count = sum(1 for entry in index.entries if left_out(entry.path)) if self._has_rules(index, path) else 0
            return f"{count:,} tracked files are left out by rules or settings, and would be in it" if count else None

        tips = position.state_commits(now)
        return git_history.keep(directory, index, sink, limit=limit, old=old, more_tips=tips, is_left_out=is_left_out)

    def _has_rules(self, index: GitIndex, path: bytes) -> bool:
        """Tell whether any rule of the user's own could leave out a tracked file."""
        if self._options.ignore or self._options.secret_paths:
            return True
        folders = {entry.path.rpartition(b"/")[0] for entry in index.entries} | {b""}
        while above := {folder.rpartition(b"/")[0] for folder in folders} - folders:
            folders |= above
        inside = (b"/".join(part for part in (path, folder) if part) for folder in folders)
        places = (paths.join(folder, b".holdfastignore") for folder in inside)
        return any(_content(self._root, place) is not None for place in places)

    def _index(self, directory: GitDirectory, path: bytes) -> GitIndex:
        """Return a repository's index, parsed once as long as it is not written again."""
        status = directory.stat(b"index")
        key = None if status is None else KEY(status)
        known = self.now.indexes.get(path)
        if known is None or known[0] != key:
            with Objects(directory) as objects:
                known = self.now.indexes[path] = key, load_index(directory, objects)
        return known[1]

    def _left_out(self, path: bytes, prefix: bytes) -> Callable[[bytes], bool]:
        """Return a function that says whether the user's own rules leave out a path of a repository.

        `path` is where the repository lies in the workspace, `prefix` where the workspace lies in the repository.
        """
        rules: dict[bytes, IgnoreRules] = {}
        secret = frozenset(map(paths.raw, self._options.secret_paths))

        def inside(directory: bytes) -> IgnoreRules:
            if directory not in rules:
                outer = inside(directory.rpartition(b"/")[0]) if directory else IgnoreRules.of(self._options)
                content = _content(self._root, paths.join(directory, b".holdfastignore"))
                rules[directory] = outer.enter(directory, None, content)
            return rules[directory]

        def left_out(file: bytes) -> bool:
            if not file.startswith(prefix):
                return False  # of the repository around the workspace
            whole = paths.join(path, file[len(prefix) :])
            if whole in secret:
                return True
            names = whole.split(b"/")
            for depth, name in enumerate(names):
                here, above = b"/".join(names[: depth + 1]), b"/".join(names[:depth])
                if inside(above).leaves_out(name, here, is_directory=depth + 1 < len(names)):
                    return True
            return False

        return left_out

    def _tracked(self, path: bytes, rules: IgnoreRules, top: str, prefix: bytes = b"") -> Tracked:
        """Return what git tracks here although a rule would ignore it."""
        if path in self.now.tracked:
            return self.now.tracked[path][1]
        if not self._options.use_git:
            return Tracked()
        try:
            with GitDirectory.open(top, path) as directory:
                status = directory.stat(b"index")
                key = None if status is None else KEY(status)
                old = self._old.tracked.get(path)
                if old is not None and old[0] == key:
                    self._trusted, tracked = True, old[1]
                else:
                    tracked = self._find_tracked(directory, path, rules, prefix)
        except (GitFailed, OSError):
            return Tracked()  # the position tells the problem
        self.now.tracked[path] = (key, tracked)
        return tracked

    def _find_tracked(self, directory: GitDirectory, path: bytes, rules: IgnoreRules, prefix: bytes) -> Tracked:
        """Go through the index and keep the paths that a rule ignores, by themselves or with a directory above."""
        index = self._index(directory, path)
        start = len(prefix) + 1 if prefix else 0
        found: list[bytes] = []
        with WorkTree(directory.worktree) as tree:
            inside = _RulesBelow(tree, prefix, path, rules)
            for entry in index.at(prefix) if prefix else index.entries:
                file = entry.path[start:]
                above, _, name = file.rpartition(b"/")
                here, full = inside.rules(above), paths.join(path, file)
                if here is None or here.ignores(name, full, is_directory=False):
                    found.append(full)
        return Tracked.of(found)

    def _excludes(self, top: str, path: bytes) -> list[bytes]:
        """Return the user's own ignore file and the one inside the repository, in git's order."""
        own = _exclude_file(top, path) if self._frozen is None else self._frozen.get(text(path))
        return [content for content in (self._global_excludes(), own) if content]

    def _global_excludes(self) -> bytes:
        if self._frozen is not None:
            return self._frozen.get(USER_EXCLUDES, b"")
        if self._global is None:
            place = self._old.global_place or git.user_ignore_file()
            self.now.global_place = place
            self._global = git.read_user_file(place, MAX_IGNORE_BYTES)
        return self._global


class _RulesBelow:
    """The rules in each directory of a repository: those above it with its own .gitignore added, None if ignored."""

    def __init__(self, tree: WorkTree, prefix: bytes, path: bytes, rules: IgnoreRules) -> None:
        self._tree = tree
        self._prefix = prefix
        self._path = path
        self._known: dict[bytes, IgnoreRules | None] = {b"": self._entered(b"", rules)}

    def rules(self, above: bytes) -> IgnoreRules | None:
        """Return the rules in a directory, named from where the rules begin."""
        if above not in self._known:
            outer, _, name = above.rpartition(b"/")
            rules = self.rules(outer)
            if rules is not None and rules.ignores(name, paths.join(self._path, above), is_directory=True):
                rules = None
            self._known[above] = None if rules is None else self._entered(above, rules)
        return self._known[above]

    def _entered(self, above: bytes, rules: IgnoreRules) -> IgnoreRules:
        where = b"/".join(part for part in (self._prefix, above, b".gitignore") if part)
        parent = self._tree.parent(where)
        content = None if parent is None else read_below(parent, b".gitignore", MAX_IGNORE_BYTES)
        full = paths.join(self._path, above) if above else self._path
        return rules if content is None else rules.enter(full, content, None)


def read_excludes(root: str, positions: Sequence[GitPosition]) -> tuple[tuple[str, bytes], ...]:
    """Return git's exclude files as they are now, as `exclude_files` of the options takes them."""
    found = {USER_EXCLUDES: git.read_user_file(git.user_ignore_file(), MAX_IGNORE_BYTES)}
    for one in positions:
        top = root if one.path else worktree_around(root)
        if top is not None:
            found[one.path] = _exclude_file(top, paths.raw(one.path)) or b""
    return tuple(found.items())


def worktree_around(root: str) -> str | None:
    """Return the nearest directory at or above the workspace that holds a .git."""
    place = root
    while True:
        if os.path.lexists(os.path.join(place, ".git")):  # noqa: PTH118
            return place
        parent = os.path.dirname(place)  # noqa: PTH120
        if parent == place:
            return None
        place = parent


def _exclude_file(top: str, path: bytes) -> bytes | None:
    try:
        with GitDirectory.open(top, path) as directory:
            return read_below(directory.common, b"info/exclude", MAX_IGNORE_BYTES)
    except (GitFailed, OSError):
        return None


def _relative(path: bytes, touched: Sequence[bytes]) -> list[bytes]:
    if not path:
        return list(touched)
    return [item[len(path) + 1 :] for item in touched if item.startswith(path + b"/")]


def _content(root: str, path: bytes) -> bytes | None:
    """Return an ignore file's bytes; one that cannot be read ignores nothing, as in git."""
    try:
        parent, name = open_parent(root, path)
    except OSError:
        return None
    try:
        return read_below(parent, name, MAX_IGNORE_BYTES)
    finally:
        os.close(parent)
