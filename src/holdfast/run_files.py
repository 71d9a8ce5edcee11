"""A run's directory: comparing it with checkpoints, and restoring them into it or elsewhere."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from blake3 import blake3

from holdfast.capture.files import FileCapture
from holdfast.errors import UsageError
from holdfast.lazy import lazily
from holdfast.model.sections import WORKSPACE
from holdfast.model.triggers import Trigger
from holdfast.store.keys import keys_of
from holdfast.workspace.heartbeat import last_sign
from holdfast.workspace.options import WorkspaceOptions
from holdfast.workspace.ownership import EDITS, Ownership, edits_value, fingerprint, read_edits
from holdfast.workspace.paths import text
from holdfast.workspace.restore import apply, recover_interrupted
from holdfast.workspace.stamp import last_directory, link_directory, read_stamp, write_stamp
from holdfast.workspace.state import State
from holdfast.workspace.tree import StoredTree, check_named
from holdfast.workspace.workspace import Workspace

with lazily():  # a capture compares nothing, restores nothing and makes no repository
    import tempfile

    from holdfast.workspace import compare, decide, git_create, planning
    from holdfast.workspace import diff as diffs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from holdfast.checkpoint import Checkpoint
    from holdfast.encode.chunks import ChunkReader
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.run import Run
    from holdfast.settings.values import WorkspaceSettings
    from holdfast.store.store import Store
    from holdfast.workspace.compare import Change
    from holdfast.workspace.decide import Decisions
    from holdfast.workspace.diff import FileDiff
    from holdfast.workspace.ownership import Owner
    from holdfast.workspace.plan import RestorePlan
    from holdfast.workspace.position import GitPosition
    from holdfast.workspace.restore import RestoreReport
    from holdfast.workspace.snapshot import Snapshot
    from holdfast.workspace.stamp import OwnerStamp
    from holdfast.workspace.tree import DiskTree

_log = logging.getLogger("holdfast")
_FOLDER = ".holdfast"
_MEGABYTE = 1 << 20


def options_of(settings: WorkspaceSettings) -> WorkspaceOptions:
    """Return the options that a user's settings make."""
    return WorkspaceOptions(
        ignore=tuple(settings.ignore),
        include=tuple(settings.include),
        use_gitignore=settings.use_gitignore,
        use_git=settings.use_git,
        max_files=settings.max_files,
        max_file_bytes=int(settings.max_file_mb * _MEGABYTE),
        max_total_bytes=int(settings.max_total_mb * _MEGABYTE),
        max_history_bytes=int(settings.git_history_mb * _MEGABYTE),
        clone=settings.clone,
    )


def open_files(
    store: Store, reader: ChunkReader, root: str | os.PathLike[str], options: WorkspaceOptions | None
) -> FileCapture:
    """Open a workspace for a run; what a killed restore left is brought to an end, our own store stays out of it."""
    capture = capture_of(store, reader, root, options)
    recover_interrupted(capture.workspace.root)
    if store.folder is None and git_create.has_repository(capture.workspace.root):
        git_create.hide_own_folder(capture.workspace.root)  # caches and stamps go there, and are nothing to commit
    return capture


def capture_of(
    store: Store, reader: ChunkReader, root: str | os.PathLike[str], options: WorkspaceOptions | None
) -> FileCapture:
    """Return the capture of a directory for looking at it; nothing is touched."""
    options = options or WorkspaceOptions()
    workspace = Workspace(root, options)
    own = _store_paths(store, Path(workspace.root))
    secret = _paths_inside(store.secret_paths, Path(workspace.root))
    workspace.options = replace(
        options,
        store_paths=(*options.store_paths, *own),
        secret_paths=(*options.secret_paths, *secret),
    )
    place = os.fsencode(workspace.root)
    name = blake3(place).digest()
    folder = _cache_folder(store, workspace.root)
    if folder.is_symlink():  # a repository may bring one; nothing would be written to it, so it is said at once
        raise UsageError(f"{folder} is a link, which is not followed: delete it")
    keys = keys_of(store)
    if keys is None:
        return FileCapture(workspace, reader, folder / f"workspace-{name.hex()[:16]}.cache")
    return FileCapture(
        workspace,
        reader,
        folder / f"workspace-{keys.hidden_name(name).hex()[:16]}.cache",
        lock=lambda blob: keys.lock_beside(blob, place),
        unlock=lambda blob: keys.unlock_beside(blob, place),
    )


class SideLock(NamedTuple):
    """How what lies beside a store is locked: with its key if it is encrypted, else not at all."""

    lock: Callable[[bytes], bytes] = bytes
    unlock: Callable[[bytes], bytes] = bytes


def side_lock(store: Store) -> SideLock:
    """Return how stamps and signs of life of a store are locked."""
    keys = keys_of(store)
    if keys is None:
        return SideLock()
    return SideLock(lambda blob: keys.lock_beside(blob, b"life"), lambda blob: keys.unlock_beside(blob, b"life"))


def heartbeat_file(store: Store, run: str, root: str) -> Path:
    """Return where the process that moves a run in a directory gives its signs of life; never captured."""
    name = blake3(os.fsencode(root) + b"\0" + run.encode()).hexdigest()[:16]
    return _cache_folder(store, root) / f"workspace-{name}.alive"


def stamped(store: Store, run: str, root: str) -> OwnerStamp | None:
    """Return what is known of a directory that a run worked in."""
    return read_stamp(_cache_folder(store, root), run, root, unlock=side_lock(store).unlock)


def stamp(store: Store, record: CheckpointRecord, root: str) -> None:
    """Note that a directory is a run's, with the files of a checkpoint."""
    lock = side_lock(store).lock
    write_stamp(_cache_folder(store, root), record.envelope.run, root, record.envelope.id, lock=lock)


def directory_of(store: Store, run: str) -> str | None:
    """Return the directory that a run worked in last, as far as this machine knows; it may be gone."""
    home = store.folder
    if home is None:
        return None
    folder, unlock = _cache_folder(store, str(home)), side_lock(store).unlock
    return last_directory(folder, run, project=home.resolve().parent, unlock=unlock)


def link_fork(store: Store, run: str, root: str) -> None:
    """Let commands that are typed in a fork's directory find its store and its run."""
    if store.folder is not None:
        git_create.hide_own_folder(root)
        link_directory(store.folder.resolve(), run, root)


def ownership_of(store: Store, run: str, root: str, known: Checkpoint | None) -> Ownership:
    """Return who works in a run's directory, and what people left there by the time of a checkpoint."""
    life = last_sign(heartbeat_file(store, run, root), run, root, unlock=side_lock(store).unlock)
    if known is None:
        return Ownership(life)
    edits = read_edits(known.section(EDITS)) if EDITS in known.sections else {}
    tree = next((one.root.hex() for one in known.record.envelope.sections if one.name == WORKSPACE), "")
    return Ownership(life, edits, tree)


def _store_paths(store: Store, root: Path) -> tuple[str, ...]:
    """Return what of the store lies in a workspace, by its own name and by where links lead."""
    for path in store.own_paths:
        for place in (path.parent.resolve() / path.name, path.resolve()):
            if root.is_relative_to(place):
                raise UsageError(
                    f"workspace {str(root)!r} is or lies in the store's own folder {str(place)!r}: "
                    "put the store elsewhere, for example in a folder of its own inside the workspace"
                )
    return _paths_inside(store.own_paths, root)


def _paths_inside(places: Sequence[Path], root: Path) -> tuple[str, ...]:
    """Return which places lie in a workspace, by their own name and by where links lead."""
    found = (place for path in places for place in (path.parent.resolve() / path.name, path.resolve()))
    inside = (text(os.fsencode(place.relative_to(root))) for place in found if place.is_relative_to(root))
    return tuple(dict.fromkeys(inside))


def _cache_folder(store: Store, root: str) -> Path:
    """Return where caches go: into the store's folder if that is all its own, else into one that is never captured."""
    home = store.folder
    if home is None:
        return Path(root) / _FOLDER
    if home.name == _FOLDER:
        return home
    return home.resolve() if home in store.own_paths else home / _FOLDER


class Changes(NamedTuple):
    """What changed in a directory since it was captured last, by who did it."""

    last: Snapshot
    ownership: Ownership
    by_owner: dict[Owner, list[str]]
    edits: dict[str, str]
    """What people left there, as fingerprints: at the last capture, and since."""

    @property
    def theirs(self) -> list[str]:
        """What a person changed, or nobody knows who."""
        return sorted(self.by_owner.get("person", []) + self.by_owner.get("unknown", []))

    @property
    def sections(self) -> dict[str, Any]:
        """What a capture has to be stored with, so that going back later does not take theirs for the run's."""
        return {EDITS: edits_value(self.edits)} if self.edits != self.ownership.edits else {}


def changes_by_owner(run: Run) -> Changes | None:
    """Return what changed since a run's directory was captured last, and who did it; None if it never was."""
    files, head = run.workspace, run.recorder.head_record
    capture = files.capture
    capture.remember(head)
    last = capture.last(head)
    if last is None:
        return None
    ownership = files.ownership()
    disk, _ = capture.workspace.look(capture.reader, last)
    changed = {path: now for path, _, now in compare.differing(StoredTree(capture.reader, last.root), disk)}
    found = Changes(last, ownership, {}, dict(ownership.edits))
    for path, owner in ownership.of_changes(str(files.path), changed).items():
        found.by_owner.setdefault(owner, []).append(text(path))
        if owner in ("person", "unknown"):
            found.edits[text(path)] = fingerprint(State.of(changed[path]))
    return found


class ForOthers(NamedTuple):
    """What a capture needs that is not the run's own."""

    sections: dict[str, Any]
    warnings: tuple[str, ...] = ()


@contextmanager
def captured_for_others(run: Run, *, restored: Collection[str] = ()) -> Iterator[ForOthers]:
    """Give what a capture needs that is not the run's own, but that of somebody at a command line.

    Where no process ever worked in the directory, what such commands captured is all that the run did. What a killed
    process had half written is said, except of what is `restored` next: from here on nobody can tell it from what is
    done.
    """
    life = run.workspace.ownership().life
    found = changes_by_owner(run) if life is not None and not life.is_mine else None
    if found is None:
        yield ForOthers({})
        return
    told: tuple[str, ...] = ()
    head = run.recorder.head_record
    if head is not None and life is not None and not life.has_ended:
        from holdfast.recovery.gather import captured_beside, half_written  # noqa: PLC0415 - only after a kill

        told = captured_beside(run.holdfast, head, life, restored)
        if left := [path for path in found.by_owner.get("interrupted", []) if path not in restored]:
            way = half_written(left, run.id, head.envelope.seq)
            told = (*told, f"captured after {life.interrupted} was interrupted: {way}")
    for warning in told:
        run.host.note("warning", warning)
    capture = run.workspace.capture
    with capture.only_in(capture.looked(run.recorder.head_record)):
        yield ForOthers(found.sections, told)
    for warning in told:
        _log.warning("run %s: %s", run.id, warning)


class RunFiles:
    """The workspace of an open run."""

    def __init__(self, run: Run, capture: FileCapture) -> None:
        self._run = run
        self._capture = self.capture = capture
        self.path = Path(capture.workspace.root)

    @property
    def before_entry(self) -> Checkpoint | None:
        """The head that the run had before it was entered and captured what had changed meanwhile, if anything had."""
        record = self._capture.before_entry
        return self._run.holdfast.internals.opened(record) if record is not None else None

    def changes(self, since: Checkpoint | None = None) -> list[Change]:
        """Return what became of the files on disk since a checkpoint, by default the head."""
        old, new = self._trees(since)
        return compare.changes(old, new)

    def diff(self, since: Checkpoint | None = None) -> list[FileDiff]:
        """Return the same as unified diffs."""
        old, new = self._trees(since)
        return [diffs.diff(change, old, new) for change in compare.changes(old, new)]

    def plan(
        self,
        checkpoint: Checkpoint,
        *,
        paths: Sequence[str] = (),
        into: str | os.PathLike[str] | None = None,
        decisions: Decisions | None = None,
        allow_outside_links: bool = False,
    ) -> RestorePlan:
        """Return exactly what a restore would do, here or into another directory; nothing is touched.

        Files that are missing are restored. What a person changed since the head is kept; what is named in `paths` is
        taken from the checkpoint, and `Decisions(edits="take")` takes everything.
        """
        if decisions is None:
            decisions = decide.Decisions(edits="take" if paths else "keep", deleted="restore")
        reader = self._capture.reader
        if not paths:
            self._capture.planned[checkpoint.workspace.digest.hex()] = checkpoint.workspace
        check_named(reader, checkpoint.workspace.root, paths, str(self.path if into is None else into))
        if into is None:
            return planning.plan_restore(
                reader,
                self._capture.workspace,
                checkpoint.workspace,
                last=self._capture.last(self._run.recorder.head_record),
                only=paths,
                decisions=decisions,
                ownership=self.ownership(),
                allow_outside_links=allow_outside_links,
            )
        options = self._capture.workspace.options
        with tempfile.TemporaryDirectory() as empty:  # stands in for a directory that is not there yet
            return planning.plan_restore(
                reader,
                Workspace(into if os.path.lexists(into) else empty, options),
                checkpoint.workspace,
                only=paths,
                decisions=decisions,
                in_place=False,
                allow_outside_links=allow_outside_links,
                target=os.path.realpath(into),
            )

    def plan_of(
        self, snapshot: Snapshot, last: Snapshot | None, decisions: Decisions, ownership: Ownership | None = None
    ) -> RestorePlan:
        """Return what bringing the directory, which stood at `last`, to a snapshot would do."""
        capture = self._capture
        return planning.plan_restore(
            capture.reader, capture.workspace, snapshot, last=last, decisions=decisions, ownership=ownership
        )

    def ownership(self) -> Ownership:
        """Return who works in the directory, and what people left there."""
        return ownership_of(self._run.holdfast.store, self._run.id, str(self.path), self._run.head)

    def restore(self, plan: RestorePlan, *, progress: Callable[[int, int], None] | None = None) -> RestoreReport:
        """Carry out exactly this plan, or nothing.

        In the run's own directory the present tree is checkpointed first if anything would be overwritten, so that one
        more restore undoes it; and the restored tree afterwards, so that it is what the run last knew.
        """
        since, report = perf_counter(), None
        try:
            report = self._carry_out(plan, progress)
        finally:
            is_whole = report is not None and report.verified
            self._run.holdfast.internals.tell("restored", self._run.id, since=since, is_good=is_whole)
        return report

    def _carry_out(self, plan: RestorePlan, progress: Callable[[int, int], None] | None) -> RestoreReport:
        here = Path(plan.target) == self.path
        if not here:
            Path(plan.target).mkdir(mode=0o700, parents=True, exist_ok=True)
            recover_interrupted(plan.target)
        snapshot, reader = self._capture.planned.get(plan.snapshot), self._capture.reader
        if snapshot is not None:
            git_create.announce(plan.target, snapshot)
        none: AbstractContextManager[ForOthers] = nullcontext(ForOthers({}))
        put = {item.path for item in plan.changes}
        with captured_for_others(self._run, restored=put) if here and put else none as (edits, _):
            safety = (lambda: self._save_present(edits)) if here else None
            report = apply(plan, reader, safety=safety, progress=progress)
        if snapshot is not None:
            git_create.put_git(plan.target, snapshot, reader, git_create.Asked(clone=self._clones(clone=False)))
        if here and plan.changes:
            reason = f"restored files of snapshot {plan.snapshot[:16]}"
            self._run.checkpoint(trigger=Trigger.MANUAL, reason=reason, sections=edits)
        return report

    def plan_git(
        self,
        checkpoint: Checkpoint,
        *,
        into: str | os.PathLike[str] | None = None,
        clone: bool = False,
        keep_commits: bool = False,
    ) -> list[str]:
        """Return in words what `restore_git` would do; RestoreRefused if commits or staged work could be lost.

        With `keep_commits`, commits that no branch would reach get one, and what is staged is captured first.
        """
        safe: GitPosition | Literal["saved first"] | None = "saved first" if keep_commits else self._safe_git(into)
        asked = git_create.Asked(git=True, clone=self._clones(clone), keep_commits=keep_commits)
        plan = git_create.plan_git(self._place(into), checkpoint.workspace, asked, safe=safe)
        return [*plan.words, *plan.problems]

    def restore_git(
        self,
        checkpoint: Checkpoint,
        *,
        into: str | os.PathLike[str] | None = None,
        clone: bool = False,
        keep_commits: bool = False,
    ) -> list[str]:
        """Put branch, commit and index back as they were, without touching files; return what was done.

        Where there is no repository, it is made from what the checkpoint kept of its history; `clone` lets it fetch
        from the remote what was too large to be kept.
        """
        if into is None:
            with captured_for_others(self._run) as (edits, _):
                self._save_present(edits)
        asked = git_create.Asked(git=True, clone=self._clones(clone), keep_commits=keep_commits)
        done = git_create.put_git(
            self._place(into), checkpoint.workspace, self._capture.reader, asked, safe=self._safe_git(into)
        )
        return [*done.words, *done.problems]

    def new_git(self, checkpoint: Checkpoint, *, into: str | os.PathLike[str] | None = None) -> list[str]:
        """Return which repositories a restore of this checkpoint's files would make, and which it cannot."""
        plan = git_create.plan_git(
            self._place(into), checkpoint.workspace, git_create.Asked(clone=self._clones(clone=False))
        )
        return [*plan.words, *plan.problems]

    def _place(self, into: str | os.PathLike[str] | None) -> str:
        return str(self.path) if into is None else os.path.realpath(into)

    def _clones(self, clone: bool) -> bool:  # noqa: FBT001
        return clone or self._capture.workspace.options.clone

    def _safe_git(self, into: str | os.PathLike[str] | None) -> GitPosition | None:
        if into is not None:
            return None
        last = self._capture.last(self._run.recorder.head_record)
        return last.git if last is not None else None

    def _save_present(self, edits: dict[str, Any]) -> None:
        reason = "before a restore of files"
        saved = self._run.checkpoint(trigger=Trigger.BEFORE_DESTRUCTIVE, reason=reason, sections=edits)
        if not saved.saved:
            raise UsageError("checkpointing is disabled, so the present files cannot be saved first; enable it")

    def _trees(self, since: Checkpoint | None) -> tuple[StoredTree, DiskTree]:
        reader = self._capture.reader
        last = self._capture.last(self._run.recorder.head_record)
        known = since.workspace if since is not None else last
        disk, _ = self._capture.workspace.look(reader, last)
        return StoredTree(reader, known.root if known is not None else None), disk
