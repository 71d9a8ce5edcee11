"""What moved since a checkpoint was taken, and what that means for continuing from it.

`findings` is pure; `facts_then` and `facts_now` gather what it is told, reading only.
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.encode.documents import read_regular
from holdfast.errors import DocumentInvalid, IntegrityError, SubjectUnavailable, UsageError
from holdfast.model.checkpoint import FORMAT_VERSION
from holdfast.model.sections import WORKSPACE, Subject
from holdfast.model.verdicts import DEFAULT_VERDICTS, VERDICTS, Verdict, check_verdicts
from holdfast.recovery.record import SECTION, accepted_name, read_record
from holdfast.version import __version__
from holdfast.workspace import git
from holdfast.workspace.paths import raw, text
from holdfast.workspace.position import NO_REPOSITORY, GitPosition, Head

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.recovery.subject import SubjectProvider

_MAX_SMALL = 64 * 1024
_MOST_NAMED = 10
_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")


class FreshnessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the world at one moment; None where it was not looked at."""

    at: datetime | None = None
    head: Head | None = None
    branch: str | None = None
    commit: str | None = None
    has_branch: bool | None = None
    """Now: whether the branch of then is still there."""
    moved: str | None = None
    """Now: how HEAD lies to the commit of then, in words."""
    is_own: bool = False
    """Now: whether the run's own process moved HEAD, before it was interrupted."""
    files_changed: int | None = None
    """Now: how many files are not as they were captured."""
    changed_paths: tuple[str, ...] = ()
    subject: Subject | None = None
    is_subject_known: bool = False
    """Whether the subject was asked for and answered; without a subject, that there is none."""
    subject_problem: str | None = None
    flow: str | None = None
    program_version: str | None = None
    format_version: int | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that moved, and what to do about it."""

    kind: str
    detail: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.verdict}: {self.detail}"


class Taken(Protocol):
    """What freshness needs of a checkpoint."""

    @property
    def record(self) -> CheckpointRecord:
        """Its record."""

    @property
    def sections(self) -> tuple[str, ...]:
        """The names of its sections."""

    @property
    def git(self) -> GitPosition:
        """Where its repository stood."""

    def section(self, name: str) -> Any:
        """Return one section's value."""


def findings(
    then: FreshnessFacts,
    now: FreshnessFacts,
    *,
    verdicts: Mapping[str, Verdict] | None = None,
    older_than: timedelta | None = None,
) -> tuple[Finding, ...]:
    """Return all that moved between two moments, the gravest first; `verdicts` replaces defaults by kind."""
    chosen = DEFAULT_VERDICTS | check_verdicts(verdicts or {})
    found = [
        *_of_git(then, now),
        *_of_files(now),
        *_of_subject(then, now),
        *_of_versions(then, now),
        *_of_age(then, now, older_than),
    ]
    told = [Finding(kind=kind, detail=detail, verdict=chosen[kind]) for kind, detail in found]
    return tuple(sorted(told, key=lambda one: -VERDICTS.index(one.verdict)))


def facts_then(checkpoint: Taken, *, flow: str | None = None) -> FreshnessFacts:
    """Return what a checkpoint says of its moment; a section that is damaged says nothing."""
    envelope = checkpoint.record.envelope
    position = _read(lambda: checkpoint.git) if WORKSPACE in checkpoint.sections else None
    subject = _read(lambda: checkpoint.section("subject")) if "subject" in checkpoint.sections else None
    position = position or NO_REPOSITORY
    return FreshnessFacts(
        at=envelope.created_at,
        head=position.head if position.head not in ("none", "unknown") else None,
        branch=position.branch,
        commit=position.commit,
        subject=subject,
        flow=flow,
        program_version=envelope.program_version or None,
        format_version=envelope.format_version,
    )


def facts_now(
    then: FreshnessFacts,
    directory: str | os.PathLike[str] | None,
    *,
    at: datetime,
    changed_paths: Sequence[str] | None = None,
    provider: SubjectProvider | None = None,
    flow: str | None = None,
    worked_until_ns: int | None = None,
) -> FreshnessFacts:
    """Return how the world is now; `changed_paths` are those that the caller found to differ from the captured ones.

    Only what was there then is looked for: without a repository git is not run, without a subject nobody is asked. Up
    to `worked_until_ns` the run's own process was at work.
    """
    place: dict[str, Any] = {}
    if then.head is not None and directory is not None:
        place = _git_now(os.path.realpath(directory), then, worked_until_ns or 0)
    told = {} if then.subject is None or provider is None else _subject_now(then.subject, provider)
    return FreshnessFacts(
        at=at,
        files_changed=None if changed_paths is None else len(changed_paths),
        changed_paths=tuple(changed_paths or ())[:_MOST_NAMED],
        flow=flow,
        program_version=__version__,
        format_version=FORMAT_VERSION,
        **place,
        **told,
    )


def without_accepted(found: Sequence[Finding], head: Taken | None, record: CheckpointRecord) -> tuple[Finding, ...]:
    """Return what was found but for what a person accepted already, by the last recovery before a head."""
    told = _read(lambda: head.section(SECTION)) if head is not None and SECTION in head.sections else None
    known = read_record(told) if told is not None else None
    accepted = known.accepted if known is not None else ()
    return tuple(one for one in found if not accepted or accepted_name(record, one.detail) not in accepted)


def _of_git(then: FreshnessFacts, now: FreshnessFacts) -> Iterator[tuple[str, str]]:
    if then.head is None or now.head is None:
        return
    if now.head == "none":
        yield "repository-gone", "there is no git repository any more where there was one"
    elif now.head == "unknown":
        yield "git-unknown", f"git cannot say where the repository stands ({now.moved})"
    elif now.is_own and then.branch != now.branch:
        yield "moved-by-run", f"the run itself went from {_place(then)} to {_place(now)} before it was interrupted"
    elif then.branch is not None and now.has_branch is False:
        yield "branch-gone", f"branch {_shown(then.branch)} is gone"
    elif then.branch != now.branch:
        yield "branch-switched", f"it was on {_place(then)} and is on {_place(now)}"
    elif then.commit != now.commit:
        detail = f"HEAD moved from {_commit(then)} to {_commit(now)}"
        yield "head-moved", f"{detail} ({now.moved})" if now.moved else detail


def _of_files(now: FreshnessFacts) -> Iterator[tuple[str, str]]:
    if not now.files_changed:
        return
    count = "1 file" if now.files_changed == 1 else f"{now.files_changed:,} files"
    more = now.files_changed - len(now.changed_paths)
    names = ", ".join(map(_shown, now.changed_paths)) + (f" and {more:,} more" if more and now.changed_paths else "")
    yield "files-changed", f"{count} changed since the last checkpoint" + (f": {names}" if names else "")


def _of_subject(then: FreshnessFacts, now: FreshnessFacts) -> Iterator[tuple[str, str]]:
    before, after = then.subject, now.subject
    if before is None:
        return
    name = _shown(before.id)
    if now.subject_problem is not None:
        yield "subject-unknown", now.subject_problem
    elif after is None:
        if now.is_subject_known:
            yield "subject-gone", f"subject {name} is gone"
    else:
        for kind, what in (("labels-changed", "labels"), ("assignees-changed", "assignees")):
            detail = _changes(getattr(before, what), getattr(after, what))
            if detail:
                yield kind, f"{what} of {name}: {detail}"
        if _plain(before.body) != _plain(after.body):
            sizes = f"{len(before.body or ''):,} characters then, {len(after.body or ''):,} now"
            yield "body-changed", f"the text of {name} changed ({sizes})"
        if _plain(before.title) != _plain(after.title):
            yield "title-changed", f"the title of {name} changed from {_shown(before.title)} to {_shown(after.title)}"
        if before.branch is not None and after.branch is not None and before.branch != after.branch:
            detail = f"the branch of {name} changed from {_shown(before.branch)} to {_shown(after.branch)}"
            yield "subject-branch-changed", detail


def _of_versions(then: FreshnessFacts, now: FreshnessFacts) -> Iterator[tuple[str, str]]:
    if then.flow is not None and now.flow is not None and then.flow != now.flow:
        yield "flow-changed", "the flow's definition is not the one that the checkpoint was taken with"
    if None not in (then.program_version, now.program_version) and then.program_version != now.program_version:
        yield "program-changed", f"taken by Holdfast {then.program_version}, this is {now.program_version}"
    if None not in (then.format_version, now.format_version) and then.format_version != now.format_version:
        yield "format-changed", f"stored in format {then.format_version}, this program writes {now.format_version}"


def _of_age(then: FreshnessFacts, now: FreshnessFacts, older_than: timedelta | None) -> Iterator[tuple[str, str]]:
    if older_than is None or then.at is None or now.at is None or now.at - then.at <= older_than:
        return
    yield "too-old", f"it was taken on {then.at:%Y-%m-%d %H:%M} UTC, more than {older_than} ago"


def _git_now(directory: str, then: FreshnessFacts, worked_until_ns: int) -> dict[str, Any]:
    """Return where the repository around a directory stands, and what became of the branch and commit of then."""
    worktree = _worktree_around(directory)
    if worktree is None:
        return {"head": "none"}
    if _is_unmoved(worktree, then):
        return {"head": then.head, "branch": then.branch, "commit": then.commit, "has_branch": True}
    try:
        git.run(worktree, "rev-parse", "--git-dir")
    except git.GitFailed as error:
        return {"head": "unknown", "moved": str(error)}
    reference = _git(worktree, "symbolic-ref", "--quiet", "HEAD")
    branch = text(reference[len(b"refs/heads/") :]) if reference.startswith(b"refs/heads/") else None
    commit = _git(worktree, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode() or None
    head: Head = "detached" if branch is None else "branch" if commit else "unborn"
    is_own = _head_moved_ns(Path(worktree)) <= worked_until_ns
    facts: dict[str, Any] = {"head": head, "branch": branch, "commit": commit, "is_own": is_own}
    if then.branch is not None:
        name = b"refs/heads/" + raw(then.branch)
        found = _git(worktree, "for-each-ref", "--format=%(refname)", os.fsdecode(name)).split(b"\n")
        facts["has_branch"] = name in found or branch == then.branch
    if then.commit and commit and then.commit != commit and _COMMIT.match(then.commit):
        facts["moved"] = _moved(worktree, then.commit, commit)
    return facts


def _is_unmoved(worktree: str, then: FreshnessFacts) -> bool:
    """Tell from two small files that HEAD is where it was, which it mostly is; False where git has to be asked."""
    folder = Path(worktree) / ".git"
    if then.branch is None or then.commit is None or not folder.is_dir():
        return False
    name = f"refs/heads/{then.branch}"
    try:
        is_there = read_regular(folder / "HEAD", limit=_MAX_SMALL).strip() == f"ref: {name}".encode()
        return is_there and read_regular(folder / name, limit=_MAX_SMALL).strip() == then.commit.encode()
    except (OSError, ValueError, DocumentInvalid):
        return False


def _head_moved_ns(worktree: Path) -> int:
    """Return when a repository last went to another branch, or to another commit without one."""
    folder = worktree / ".git"
    try:
        if folder.is_file():  # of a linked worktree: it names the folder
            folder = worktree / os.fsdecode(read_regular(folder, limit=_MAX_SMALL).removeprefix(b"gitdir:").strip())
        return (folder / "HEAD").lstat().st_ctime_ns
    except (OSError, ValueError, DocumentInvalid):
        return 2**63


def _moved(worktree: str, old: str, new: str) -> str:
    counted = _git(worktree, "rev-list", "--left-right", "--count", f"{old}...{new}").split()
    if len(counted) != 2:  # noqa: PLR2004
        return "the old commit is not there any more"
    behind, ahead = (int(count) for count in counted)
    parts = [f"{ahead:,} ahead"] * bool(ahead) + [f"{behind:,} behind"] * bool(behind)
    return ", ".join(parts)


def _git(worktree: str, *arguments: str) -> bytes:
    """Return what git prints, nothing if it finds nothing."""
    try:
        return git.run(worktree, *arguments).rstrip(b"\n")
    except git.GitFailed:
        return b""


def _worktree_around(directory: str) -> str | None:
    """Return the nearest directory at or above this one that holds a .git."""
    while not os.path.lexists(os.path.join(directory, ".git")):  # noqa: PTH118
        parent = os.path.dirname(directory)  # noqa: PTH120
        if parent == directory:
            return None
        directory = parent
    return directory


def _subject_now(then: Subject, provider: SubjectProvider) -> dict[str, Any]:
    try:
        return {"subject": provider.fetch(then.id), "is_subject_known": True}
    except (SubjectUnavailable, UsageError) as error:
        return {"subject_problem": str(error)}


def _read(read: Any) -> Any:
    try:
        return read()
    except IntegrityError:
        return None  # the restore of that section says so


def _changes(before: Sequence[str], after: Sequence[str]) -> str:
    added = [_shown(name) for name in dict.fromkeys(after) if name not in before]
    removed = [_shown(name) for name in dict.fromkeys(before) if name not in after]
    parts = [
        f"{word} {', '.join(names[:_MOST_NAMED])}" for word, names in (("added", added), ("removed", removed)) if names
    ]
    return "; ".join(parts)


def _plain(value: str | None) -> str:
    """Return text without what an editor or a web form changes by itself."""
    return "\n".join(line.rstrip() for line in (value or "").replace("\r\n", "\n").split("\n")).strip()


def _place(facts: FreshnessFacts) -> str:
    if facts.branch is not None:
        return f"branch {_shown(facts.branch)}"
    return f"no branch, at {_commit(facts)}"


def _commit(facts: FreshnessFacts) -> str:
    return facts.commit[:12] if facts.commit else "no commit"


def _shown(value: str | None) -> str:
    return "nothing" if value is None else f"{value!r:.100}"
