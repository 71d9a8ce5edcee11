"""What a workspace captures, and the limits it refuses to pass."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.workspace.credential_files import SECRETS

GENERATED = (
    "node_modules/",
    ".venv/",
    "venv/",
    ".tox/",
    ".nox/",
    "__pycache__/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".pytest_cache/",
    ".hypothesis/",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceOptions:
    """Choices for one workspace; patterns are written as in a .gitignore."""

    secrets: tuple[str, ...] = SECRETS
    generated: tuple[str, ...] = GENERATED
    ignore: tuple[str, ...] = ()
    include: tuple[str, ...] = ()  # captured whatever any other rule says
    made: tuple[str, ...] = ()  # paths that a run makes: captured although git ignores them, unless they are secrets
    use_gitignore: bool = True
    ignore_files: tuple[tuple[str, bytes], ...] | None = None
    """Path and content of the ignore files that count, in place of those on disk; None reads those."""
    exclude_files: tuple[tuple[str, bytes], ...] | None = None
    """The same for git's exclude files: path of the repository and content, and "/" for the user's own one."""
    use_git: bool = True
    store_paths: tuple[str, ...] = ()  # where our own store lies, if inside the workspace; never captured or written
    secret_paths: tuple[str, ...] = ()  # files that settings name as secrets; never captured, and left as they are
    allow_foreign_owner: bool = False
    allow_home: bool = False
    max_files: int = 200_000
    max_total_bytes: int = 8 * 1024**3
    max_file_bytes: int = 512 * 1024**2
    max_history_bytes: int = 64 * 1024**2  # of one repository's history; nothing is kept of it with 0
    clone: bool = False  # whether a restore may fetch commits from the remotes that a checkpoint names
    max_depth: int = 256
    max_listed: int = 1_000  # paths listed for each reason of not being captured; the counts are always exact
    racy_ns: int = 100_000_000  # younger entries are read again: the clock of a file system is coarser than its stamps
