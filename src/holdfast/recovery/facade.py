"""The recoveries that a Holdfast offers; each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

from holdfast.lazy import lazily

with lazily():
    from holdfast.recovery import apply, compare, gather, history, inspect, patch
    from holdfast.recovery import bisect as bisect_module
    from holdfast.recovery import find as find_module
    from holdfast.recovery import fork as fork_module
    from holdfast.recovery import recover_all as recover_all_module
    from holdfast.recovery import replay as replay_module
    from holdfast.recovery import undo as undo_module

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.recovery.bisect import Bisected, Outcome
    from holdfast.recovery.compare import CheckpointDiff
    from holdfast.recovery.fork import Origin
    from holdfast.recovery.history import BlamedLine, FileVersion
    from holdfast.recovery.inspect import RecoveryPoint, RecoveryStatus
    from holdfast.recovery.patch import CallPatch
    from holdfast.recovery.plan import PlanOptions, RecoveryPlan
    from holdfast.recovery.recover_all import Recovered
    from holdfast.recovery.replay import Replay
    from holdfast.recovery.result import RecoveryResult
    from holdfast.run import Run
    from holdfast.workspace.options import WorkspaceOptions


class RecoveryFacade:
    """What `Holdfast` inherits: from a store to a running workflow again."""

    @property
    def _hf(self) -> Holdfast:
        return cast("Holdfast", self)

    def find(self, spec: str, *, run: str | None = None, sound: bool = True) -> Checkpoint:
        """Return a checkpoint by id, beginning of an id, label, `run`, `run@7`, `latest~3`, `run:before:phase`.

        `run#812` is a position in the run's journal: the newest checkpoint at or before it, and the records up to it.
        Where the spec names a run, damaged checkpoints are passed over unless `sound` is off; they are in `skipped`.
        """
        return find_module.find(self._hf, spec, run=run, sound=sound)

    def plan(self, spec: str, *, run: str | None = None, **options: Unpack[PlanOptions]) -> RecoveryPlan:
        """Return exactly what going back to a checkpoint, or to a position, would do, files too; nothing is touched.

        The options are those of `holdfast.recovery.plan.PlanOptions`. A checkpoint that blocks gives a plan with
        `blockers`; NotFound or IntegrityError if there is none to go to. What moved outside the run since (branch,
        files, program, the `subject` if that is named) is in its `findings`, each with what follows from it.
        """
        return gather.plan_recovery(self._hf, spec, options, run=run)

    def recover(
        self,
        plan: RecoveryPlan | str,
        *,
        run: Run | None = None,
        confirmed: bool = False,
        dry_run: bool = False,
        replay: bool = False,
        progress: Callable[[int, int], None] | None = None,
        **options: Unpack[PlanOptions],
    ) -> RecoveryResult:
        """Carry out a plan, exactly that or nothing; with a spec instead, plan it first with these options.

        `run` is the open run whose registered objects get their state back. A result without success says why, and
        nothing was touched. PlanOutdated if the world moved since. Doing it twice is the same as once. Where what moved
        outside asks for a person, RunWaiting is raised, and where it means to start fresh CannotResume, unless the
        plan is `confirmed`. A dry run gives the plan in its result, `replay` the record to step through with next().
        """
        return apply.recover(
            self._hf,
            plan,
            run=run,
            confirmed=confirmed,
            dry_run=dry_run,
            replay=replay,
            progress=progress,
            options=options,
        )

    def undo(
        self,
        run: str | Run,
        *,
        workspace: str | os.PathLike[str] | None = None,
        workspace_options: WorkspaceOptions | None = None,
        take: bool = False,
        allow_outside_links: bool = False,
    ) -> RecoveryResult:
        """Go back to before the last recovery, files too; undoing the undo goes forward again.

        What a person changed since the recovery is kept, and named in the warnings; with `take` it is not. A recovery
        that another user made is undone only in the given `workspace`, and links that lead out of it are restored
        only with `allow_outside_links`.
        """
        return undo_module.undo(
            self._hf,
            run,
            workspace=workspace,
            workspace_options=workspace_options,
            take=take,
            allow_outside_links=allow_outside_links,
        )

    def fork(
        self,
        spec: str,
        new_run: str,
        *,
        sections: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        label: str | None = None,
    ) -> Checkpoint:
        """Begin a new run from any checkpoint or position, with edited sections if some are given."""
        return fork_module.fork(self._hf, spec, new_run, sections=sections, drop=drop, label=label)

    def lineage(self, run: str) -> list[Origin]:
        """Return the forks that led to a run, the nearest first; none if it began by itself."""
        return fork_module.lineage(self._hf.store, run)

    def start_fresh(self, run: str) -> Checkpoint:
        """Set a run's line aside, archived under the time, and begin a new one; hf.undo(run) goes back to it."""
        return fork_module.start_fresh(self._hf, run)

    def replay(self, spec: str) -> Replay:
        """Step through a run by its record: results, state and files at each point, and nothing is called."""
        return replay_module.replay(self._hf, spec)

    def diff(self, old: str | Checkpoint, new: str | Checkpoint, *, run: str | None = None) -> CheckpointDiff:
        """Compare two checkpoints or positions, of one run or of two: state, calls and notes, files by content."""
        return compare.diff(self._hf, old, new, run=run)

    def bisect(
        self,
        run: str,
        command: Sequence[str],
        *,
        tell: Callable[[int, Outcome], object] = lambda _seq, _outcome: None,
        timeout_s: float | None = None,
    ) -> Bisected:
        """Return the first checkpoint of a run at whose files a command fails, with the call that made it.

        Binary search in a scratch directory; exit code 125 says that a checkpoint cannot be tried.
        """
        return bisect_module.bisect(self._hf, run, command, tell=tell, timeout_s=timeout_s)

    def file_history(self, run: str, path: str) -> list[FileVersion]:
        """Return what became of a file over a run's checkpoints, oldest first, with who made each version."""
        return history.FileHistory(self._hf, run).versions(path)

    def blame(self, run: str, path: str) -> list[BlamedLine]:
        """Return the lines of a file, each with the call, agent or person that wrote it, and what that cost."""
        return history.FileHistory(self._hf, run).blame(path)

    def patch(self, run: str, call: str, *, together: bool = False) -> CallPatch:
        """Return what one call changed in the files, as a patch; NotFound names the calls it cannot be told from.

        With `together` the patch of all of them is returned then.
        """
        return patch.call_patch(self._hf, run, call, together=together)

    def recover_all(
        self,
        resume: Callable[[Run], object] | None = None,
        *,
        workspace: Callable[[str], str | os.PathLike[str] | None] | None = None,
        **options: Any,
    ) -> list[Recovered]:
        """Put back every run whose process is gone, and let `resume` move it on; each once, whoever else does it, too.

        A run that cannot continue by itself is reported with the reason. `options` are those of `plan`.
        """
        return recover_all_module.recover_all(
            self._hf, resume, workspace=workspace, options=cast("PlanOptions", options)
        )

    def recovery_status(self, spec: str, **options: Unpack[PlanOptions]) -> RecoveryStatus:
        """Say whether and from where a run, or one checkpoint of it, can continue, and what to do where it cannot.

        With `workspace=` and `subject=`, as for `plan`, its `prerequisites` say whether branch, files and subject are
        as they were.
        """
        return inspect.recovery_status(self._hf, spec, options)

    def recovery_points(self, run: str, *, limit: int | None = None) -> list[RecoveryPoint]:
        """Return the checkpoints that a run can go back to, newest first."""
        return inspect.recovery_points(self._hf, run, limit=limit)
