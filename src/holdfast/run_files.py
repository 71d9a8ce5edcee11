"""A run's directory: comparing it with checkpoints, and restoring them into it or elsewhere."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from blake3 import blake3

from holdfast.capture.files import FileCapture
from holdfast.errors import UsageError
from holdfast.model.triggers import Trigger
from holdfast.store.sealed import SealedStore
from holdfast.workspace.checkout import checkout, plan_checkout
from holdfast.workspace.compare import changes
from holdfast.workspace.decide import Decisions
from holdfast.workspace.diff import diff
from holdfast.workspace.options import WorkspaceOptions
from holdfast.workspace.paths import text
from holdfast.workspace.planning import plan_restore
from holdfast.workspace.restore import apply, recover_interrupted
from holdfast.workspace.tree import StoredTree, check_named
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.encode.chunks import ChunkReader
    from holdfast.run import Run
    from holdfast.settings.values import WorkspaceSettings
    from holdfast.store.api import Store
    from holdfast.workspace.compare import Change
    from holdfast.workspace.diff import FileDiff
    from holdfast.workspace.plan import RestorePlan
    from holdfast.workspace.position import GitPosition
    from holdfast.workspace.restore import RestoreReport
    from holdfast.workspace.tree import DiskTree

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
    )


def open_files(
    store: Store, reader: ChunkReader, root: str | os.PathLike[str], options: WorkspaceOptions | None
) -> FileCapture:
    """Open a workspace for a run; what a killed restore left is brought to an end, our own store stays out of it."""
    capture = capture_of(store, reader, root, options)
    recover_interrupted(capture.workspace.root)
    return capture


def capture_of(
    store: Store, reader: ChunkReader, root: str | os.PathLike[str], options: WorkspaceOptions | None
) -> FileCapture:
    """Return the capture of a directory for looking at it; nothing is touched."""
    options = options or WorkspaceOptions()
    workspace = Workspace(root, options)
    own = _store_paths(store, Path(workspace.root))
    workspace.options = replace(options, store_paths=(*options.store_paths, *own))
    place = os.fsencode(workspace.root)
    name = blake3(place).digest()
    folder = _cache_folder(store, workspace.root)
    if not isinstance(store, SealedStore):
        return FileCapture(workspace, reader, folder / f"workspace-{name.hex()[:16]}.cache")
    return FileCapture(
        workspace,
        reader,
        folder / f"workspace-{store.hidden_name(name).hex()[:16]}.cache",
        lock=lambda blob: store.lock_beside(blob, place),
        unlock=lambda blob: store.unlock_beside(blob, place),
    )


def _store_paths(store: Store, root: Path) -> tuple[str, ...]:
    """Return what of the store lies in a workspace, by its own name and by where links lead."""
    found: dict[str, None] = {}
    for path in store.own_paths:
        for place in (path.parent.resolve() / path.name, path.resolve()):
            if root.is_relative_to(place):
                raise UsageError(
                    f"workspace {str(root)!r} is or lies in the store's own folder {str(place)!r}: "
                    "put the store elsewhere, for example in a folder of its own inside the workspace"
                )
            if place.is_relative_to(root):
                found[text(os.fsencode(place.relative_to(root)))] = None
    return tuple(found)


def _cache_folder(store: Store, root: str) -> Path:
    """Return where caches go: into the store's folder if that is all its own, else into one that is never captured."""
    home = store.folder
    if home is None:
        return Path(root) / _FOLDER
    return home if home in store.own_paths or home.name == _FOLDER else home / _FOLDER


class RunFiles:
    """The workspace of an open run."""

    def __init__(self, run: Run, capture: FileCapture) -> None:
        self._run = run
        self._capture = self.capture = capture
        self.path = Path(capture.workspace.root)

    def changes(self, since: Checkpoint | None = None) -> list[Change]:
        """Return what became of the files on disk since a checkpoint, by default the head."""
        old, new = self._trees(since)
        return changes(old, new)

    def diff(self, since: Checkpoint | None = None) -> list[FileDiff]:
        """Return the same as unified diffs."""
        old, new = self._trees(since)
        return [diff(change, old, new) for change in changes(old, new)]

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

        Files that were changed since the head are kept, as somebody else may have done it; what is named in `paths`
        is taken from the checkpoint, and `Decisions(edits="take")` takes everything.
        """
        if decisions is None:
            decisions = Decisions(edits="take" if paths else "keep")
        reader = self._capture.reader
        check_named(reader, checkpoint.workspace.root, paths, str(self.path if into is None else into))
        if into is None:
            return plan_restore(
                reader,
                self._capture.workspace,
                checkpoint.workspace,
                last=self._capture.last(self._run.head_record),
                only=paths,
                decisions=decisions,
                allow_outside_links=allow_outside_links,
            )
        options = self._capture.workspace.options
        with TemporaryDirectory() as empty:  # stands in for a directory that is not there yet
            return plan_restore(
                reader,
                Workspace(into if os.path.lexists(into) else empty, options),
                checkpoint.workspace,
                only=paths,
                decisions=decisions,
                in_place=False,
                allow_outside_links=allow_outside_links,
                target=os.path.realpath(into),
            )

    def restore(self, plan: RestorePlan, *, progress: Callable[[int, int], None] | None = None) -> RestoreReport:
        """Carry out exactly this plan, or nothing.

        In the run's own directory the present tree is checkpointed first if anything would be overwritten, so that one
        more restore undoes it; and the restored tree afterwards, so that it is what the run last knew.
        """
        here = Path(plan.target) == self.path
        if not here:
            Path(plan.target).mkdir(mode=0o700, parents=True, exist_ok=True)
            recover_interrupted(plan.target)
        report = apply(plan, self._capture.reader, safety=self._save_present if here else None, progress=progress)
        if here and plan.changes:
            self._run.checkpoint(trigger=Trigger.MANUAL, reason=f"restored files of snapshot {plan.snapshot[:16]}")
        return report

    def plan_git(self, checkpoint: Checkpoint) -> list[str]:
        """Return in words what `restore_git` would do; RestoreRefused if commits or staged work could be lost."""
        return plan_checkout(str(self.path), checkpoint.git, safe=self._safe_git())

    def restore_git(self, checkpoint: Checkpoint) -> list[str]:
        """Put branch, commit and index back as they were, without touching files; return what was done."""
        self._save_present()
        done = self.plan_git(checkpoint)
        checkout(str(self.path), checkpoint.git, self._capture.reader, safe=self._safe_git())
        return done

    def _safe_git(self) -> GitPosition | None:
        last = self._capture.last(self._run.head_record)
        return last.git if last is not None else None

    def _save_present(self) -> None:
        saved = self._run.checkpoint(trigger=Trigger.BEFORE_DESTRUCTIVE, reason="before a restore of files")
        if not saved.saved:
            raise UsageError("checkpointing is disabled, so the present files cannot be saved first; enable it")

    def _trees(self, since: Checkpoint | None) -> tuple[StoredTree, DiskTree]:
        reader = self._capture.reader
        last = self._capture.last(self._run.head_record)
        known = since.workspace if since is not None else last
        disk, _ = self._capture.workspace.look(reader, last)
        return StoredTree(reader, known.root if known is not None else None), disk
