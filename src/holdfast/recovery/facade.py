"""The recoveries that a Holdfast offers; each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

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
        from holdfast.recovery.find import find  # noqa: PLC0415

        return find(self._hf, spec, run=run, sound=sound)

    def plan(self, spec: str, *, run: str | None = None, **options: Unpack[PlanOptions]) -> RecoveryPlan:
        """Return exactly what going back to a checkpoint, or to a position, would do, files too; nothing is touched.

        The options are those of `holdfast.recovery.plan.PlanOptions`. A checkpoint that blocks gives a plan with
        `blockers`; NotFound or IntegrityError if there is none to go to. What moved outside the run since (branch,
        files, program, the `subject` if that is named) is in its `findings`, each with what follows from it.
        """
        from holdfast.recovery.gather import plan_recovery  # noqa: PLC0415

        return plan_recovery(self._hf, spec, options, run=run)

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
        outside asks for a person, RunWaiting is raised, and where it means to start afresh CannotResume, unless the
        plan is `confirmed`. A dry run gives the plan in its result, `replay` the record to step through with next().
        """
        from holdfast.recovery.apply import recover  # noqa: PLC0415

        return recover(
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
    ) -> RecoveryResult:
        """Go back to before the last recovery, files too; undoing the undo goes forward again.

        What a person changed since the recovery is kept, and named in the warnings; with `take` it is not.
        """
        from holdfast.recovery.undo import undo  # noqa: PLC0415

        return undo(self._hf, run, workspace=workspace, workspace_options=workspace_options, take=take)

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
        from holdfast.recovery.fork import fork  # noqa: PLC0415

        return fork(self._hf, spec, new_run, sections=sections, drop=drop, label=label)

    def lineage(self, run: str) -> list[Origin]:
        """Return the forks that led to a run, the nearest first; none if it began by itself."""
        from holdfast.recovery.fork import lineage  # noqa: PLC0415

        return lineage(self._hf.store, run)

    def start_afresh(self, run: str) -> Checkpoint:
        """Set a run's line aside, archived under the time, and begin a new one; hf.undo(run) goes back to it."""
        from holdfast.recovery.fork import start_afresh  # noqa: PLC0415

        return start_afresh(self._hf, run)

    def replay(self, spec: str) -> Replay:
        """Step through a run by its record: results, state and files at each point, and nothing is called."""
        from holdfast.recovery.replay import replay  # noqa: PLC0415

        return replay(self._hf, spec)

    def diff(self, old: str | Checkpoint, new: str | Checkpoint, *, run: str | None = None) -> CheckpointDiff:
        """Compare two checkpoints or positions, of one run or of two: state, calls and notes, files by content."""
        from holdfast.recovery.compare import diff  # noqa: PLC0415

        return diff(self._hf, old, new, run=run)

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
        from holdfast.recovery.bisect import bisect  # noqa: PLC0415

        return bisect(self._hf, run, command, tell=tell, timeout_s=timeout_s)

    def file_history(self, run: str, path: str) -> list[FileVersion]:
        """Return what became of a file over a run's checkpoints, oldest first, with who made each version."""
        from holdfast.recovery.history import FileHistory  # noqa: PLC0415

        return FileHistory(self._hf, run).versions(path)

    def blame(self, run: str, path: str) -> list[BlamedLine]:
        """Return the lines of a file, each with the call, agent or person that wrote it, and what that cost."""
        from holdfast.recovery.history import FileHistory  # noqa: PLC0415

        return FileHistory(self._hf, run).blame(path)

    def patch(self, run: str, call: str, *, together: bool = False) -> CallPatch:
        """Return what one call changed in the files, as a patch; NotFound names the calls it cannot be told from.

        With `together` the patch of all of them is returned then.
        """
        from holdfast.recovery.patch import call_patch  # noqa: PLC0415

        return call_patch(self._hf, run, call, together=together)

    def recover_all(
        self,
        resume: Callable[[Run], object] | None = None,
        *,
        workspace: Callable[[str], str | os.PathLike[str] | None] | None = None,
        **options: Any,
    ) -> list[Recovered]:
        """Put back every run whose process is gone, and let `resume` move it on; each once, whoever else does it, too.

        A run that cannot go on by itself is reported with the reason. `options` are those of `plan`.
        """
        from holdfast.recovery.recover_all import recover_all  # noqa: PLC0415

        return recover_all(self._hf, resume, workspace=workspace, options=cast("PlanOptions", options))

    def recovery_status(self, spec: str) -> RecoveryStatus:
        """Say whether and from where a run, or one checkpoint of it, can continue, and what to do where it cannot."""
        from holdfast.recovery.inspect import recovery_status  # noqa: PLC0415

        return recovery_status(self._hf, spec)

    def recovery_points(self, run: str, *, limit: int | None = None) -> list[RecoveryPoint]:
        """Return the checkpoints that a run can go back to, newest first."""
        from holdfast.recovery.inspect import recovery_points  # noqa: PLC0415

        return recovery_points(self._hf, run, limit=limit)
