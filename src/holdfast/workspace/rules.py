"""Which names are captured: what git tracks, what no rule ignores; each name left out has a reason.

In order: `include` of the options; .holdfastignore and `ignore`; tracked by git; secrets; `made` of the options;
generated; ignored by git.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blake3 import blake3

from holdfast.workspace.credential_files import names_of_copy
from holdfast.workspace.ignore import Patterns, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.workspace.options import WorkspaceOptions

IGNORE_FILES = (b".gitignore", b".holdfastignore")
MAX_IGNORE_BYTES = 1024 * 1024

# Each ignore file: the length of its directory's path with the slash, what to put before paths instead when it lies
# above the workspace, and its patterns.
_Layer = tuple[tuple[int, bytes, Patterns], ...]


@dataclass(frozen=True, slots=True)
class Tracked:
    """The paths that git tracks although a rule ignores them, and the directories above them."""

    files: frozenset[bytes] = frozenset()
    directories: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, files: Iterable[bytes]) -> Tracked:
        """Add the directories above these paths."""
        files = frozenset(files)
        directories: set[bytes] = set()
        for path in files:
            while b"/" in path:
                path = path.rpartition(b"/")[0]  # noqa: PLW2901
                directories.add(path)
        return cls(files, frozenset(directories))

    def token(self) -> bytes:
        """Return a digest of the paths."""
        return blake3(b"\0".join(sorted(self.files))).digest()


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules in force in one directory; `token` is equal when they are."""

    include: Patterns
    secrets: Patterns
    generated: Patterns
    explicit: _Layer
    git: _Layer
    tracked: Tracked
    token: bytes
    defaults: Patterns  # secrets and generated in one, to see quickly that neither matches
    tracked_only: bool = False
    reads_git: bool = True
    made: Patterns = parse(b"")  # noqa: RUF009 - it never changes
    above: frozenset[bytes] = frozenset()
    """The directories that lead to what a run makes: of an ignored one nothing else is captured."""
    in_settings: int = 0
    """How many of the explicit layers, the outermost, are the settings' own."""

    @classmethod
    def of(cls, options: WorkspaceOptions) -> IgnoreRules:
        """Return the rules that hold before any file of the workspace is read."""
        lists = (options.include, options.secrets, options.generated, options.ignore)
        contents = ["\n".join(patterns).encode("utf-8", "surrogateescape") for patterns in lists]
        include, secrets, generated, explicit = (parse(content) for content in contents)
        above = Tracked.of(path.encode("utf-8", "surrogateescape") for path in options.made).directories
        store = "\0".join((*options.store_paths, *options.secret_paths)).encode("utf-8", "surrogateescape")
        given = b"" if options.ignore_files is None else ascii(options.ignore_files).encode()
        made = "\n".join(f"/{path}" for path in options.made).encode("utf-8", "surrogateescape")
        contents.append(made)
        token = blake3(b"\1".join(contents) + bytes([options.use_gitignore]) + store + given).digest()
        return cls(
            include,
            secrets,
            generated,
            ((0, b"", explicit),) if explicit else (),
            (),
            Tracked(),
            token,
            parse(contents[1] + b"\n" + contents[2]),
            reads_git=options.use_gitignore,
            made=parse(made),
            above=above,
            in_settings=1 if explicit else 0,
        )

    def verdict(self, name: bytes, path: bytes, *, is_directory: bool) -> str | None:
        """Return why a path is not captured, or None when it is."""
        if self.include and self.include.verdict(name, path, is_directory=is_directory):
            return None
        if self.explicit:
            explicit = _last(self.explicit, name, path, is_directory)
            if explicit:
                by_file = _last(self.explicit[self.in_settings :], name, path, is_directory)
                return "ignored by .holdfastignore" if by_file else "ignored by the settings"
            if explicit is not None:
                return None
        reason = self._implied(name, path, is_directory)
        if reason and (path in self.tracked.files or (is_directory and path in self.tracked.directories)):
            return None
        return None if reason and self._is_made(name, path, is_directory) else reason

    def _is_made(self, name: bytes, path: bytes, is_directory: bool) -> bool:  # noqa: FBT001
        if is_directory and path in self.above:
            return True
        is_meant = bool(self.made and self.made.verdict(name, path, is_directory=is_directory))
        return is_meant and not self.secrets.verdict(name, path, is_directory=is_directory)

    def ignores(self, name: bytes, path: bytes, *, is_directory: bool) -> bool:
        """Return whether a default or git's own rules would leave a path out if git did not track it."""
        return self._implied(name, path, is_directory) is not None

    def leaves_out(self, name: bytes, path: bytes, *, is_directory: bool) -> bool:
        """Return whether .holdfastignore or `ignore` leaves a path out, whatever git says of it."""
        if self.include and self.include.verdict(name, path, is_directory=is_directory):
            return False
        return bool(self.explicit and _last(self.explicit, name, path, is_directory))

    def _implied(self, name: bytes, path: bytes, is_directory: bool) -> str | None:  # noqa: FBT001
        if self.tracked_only:
            return "ignored by git"
        if self.defaults.mentions(name, path):
            if self.secrets.verdict(name, path, is_directory=is_directory):
                return "secret"
            if self.generated.verdict(name, path, is_directory=is_directory):
                return "generated"
        if not is_directory:
            above = path[: len(path) - len(name)]
            for original in names_of_copy(name):
                if self.secrets.verdict(original, above + original, is_directory=False):
                    return "secret"
        return "ignored by git" if self.git and _last(self.git, name, path, is_directory) else None

    def below(self, name: bytes, path: bytes) -> IgnoreRules:
        """Return the rules inside a captured directory: below an ignored one only tracked files count."""
        if self.tracked_only or not (path in self.tracked.directories or path in self.above):
            return self
        if self.include.verdict(name, path, is_directory=True) or not self._implied(name, path, True):
            return self
        return replace(self, tracked_only=True, token=blake3(self.token + b"tracked only").digest())

    def enter(self, path: bytes, gitignore: bytes | None, holdfastignore: bytes | None) -> IgnoreRules:
        """Return these rules with those of a directory's own ignore files added."""
        rules, start = self, len(path) + 1 if path else 0
        if gitignore is not None and self.reads_git:
            token = blake3(rules.token + b"git" + path + b"\0" + gitignore).digest()
            rules = replace(rules, git=(*rules.git, (start, b"", parse(gitignore))), token=token)
        if holdfastignore is not None:
            token = blake3(rules.token + b"own" + path + b"\0" + holdfastignore).digest()
            rules = replace(rules, explicit=(*rules.explicit, (start, b"", parse(holdfastignore))), token=token)
        return rules

    def repository(self, path: bytes, excludes: Sequence[tuple[bytes, bytes]], tracked: Tracked) -> IgnoreRules:
        """Return the rules inside a repository: those of an outer one end at its door.

        `excludes` are contents of ignore files, each with what leads from its directory down to `path`.
        """
        start = len(path) + 1 if path else 0
        git = tuple((start, prefix, parse(content)) for prefix, content in excludes) if self.reads_git else ()
        parts = [self.token, path, tracked.token(), *(part for exclude in excludes for part in exclude)]
        token = blake3(b"repository" + b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()
        return replace(self, git=git, tracked=tracked, tracked_only=False, token=token)


def _last(layer: _Layer, name: bytes, path: bytes, is_directory: bool) -> bool | None:  # noqa: FBT001
    """Return the verdict of the innermost ignore file that has one."""
    for start, prefix, patterns in reversed(layer):
        verdict = patterns.verdict(name, prefix + path[start:], is_directory=is_directory)
        if verdict is not None:
            return verdict
    return None
