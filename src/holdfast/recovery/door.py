"""The recoveries that a Holdfast offers; each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.verdicts import Verdict
    from holdfast.recover.automatic import Recovered
    from holdfast.recover.fork import Origin
    from holdfast.recover.outcomes import Treatment
    from holdfast.recover.plan import RecoveryPlan
    from holdfast.recover.replay import Replay
    from holdfast.recover.result import RecoveryResult
    from holdfast.recover.status import RecoveryPoint, RecoveryStatus
    from holdfast.recover.subject import SubjectProvider
    from holdfast.recovery.comparing import CheckpointDiff
    from holdfast.recovery.gather import Files, Freshness
    from holdfast.run import Run
    from holdfast.workspace.decide import Decisions
    from holdfast.workspace.options import WorkspaceOptions


class RecoveryDoor:
    """What `Holdfast` inherits: from a store to a running workflow again."""

    @property
    def _hf(self) -> Holdfast:
        return cast("Holdfast", self)

    def find(self, spec: str, *, run: str | None = None, sound: bool = True) -> Checkpoint:
        """Return a checkpoint by id, beginning of an id, label, `run`, `run@7`, `latest~3`, `run:before:phase`.

        Where the spec names a run, damaged checkpoints are passed over unless `sound` is off; they are in `skipped`.
        """
        from holdfast.recovery.gather import find  # noqa: PLC0415

        return find(self._hf, spec, run=run, sound=sound)

    def plan(
        self,
        spec: str,
        *,
        run: str | None = None,
        skip_failed: bool = False,
        reset_to: str | None = None,
        files: Files = "auto",
        git: bool = False,
        decisions: Decisions | None = None,
        unknown: Mapping[str, Treatment] | None = None,
        workspace: str | os.PathLike[str] | None = None,
        workspace_options: WorkspaceOptions | None = None,
        into: str | os.PathLike[str] | None = None,
        allow_outside_links: bool = False,
        subject: SubjectProvider | None = None,
        verdicts: Mapping[str, Verdict] | None = None,
        freshness: Freshness | Literal[False] | None = None,
        now: datetime | None = None,
    ) -> RecoveryPlan:
        """Return exactly what going back to a checkpoint would do, files too; nothing is touched.

        A checkpoint that blocks gives a plan with `blockers`; NotFound or IntegrityError if there is none to go to.
        What moved outside the run since (branch, files, program, the `subject` if its provider is given) is in its
        `findings`, each with what follows from it; `verdicts` and the settings say otherwise. `freshness=False` does
        not look.
        """
        from holdfast.recovery.gather import plan_recovery  # noqa: PLC0415

        return plan_recovery(
            self._hf,
            spec,
            run=run,
            skip_failed=skip_failed,
            reset_to=reset_to,
            files=files,
            git=git,
            decisions=decisions,
            unknown=unknown,
            workspace=workspace,
            workspace_options=workspace_options,
            into=into,
            allow_outside_links=allow_outside_links,
            subject=subject,
            verdicts=verdicts,
            freshness=freshness,
            now=now,
        )

    def recover(
        self,
        plan: RecoveryPlan | str,
        *,
        run: Run | None = None,
        workspace_options: WorkspaceOptions | None = None,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> RecoveryResult:
        """Carry out a plan, exactly that or nothing; with a spec instead, plan it first with these options.

        `run` is the open run whose registered objects get their state back. A result without success says why, and
        nothing was touched. PlanOutdated if the world moved since. Doing it twice is the same as once.
        """
        from holdfast.recovery.carry_out import recover  # noqa: PLC0415

        return recover(self._hf, plan, run=run, workspace_options=workspace_options, progress=progress, **options)

    def undo(
        self,
        run: str | Run,
        *,
        workspace: str | os.PathLike[str] | None = None,
        workspace_options: WorkspaceOptions | None = None,
    ) -> RecoveryResult:
        """Go back to before the last recovery, files too; undoing the undo goes forward again."""
        from holdfast.recovery.carry_out import undo  # noqa: PLC0415

        return undo(self._hf, run, workspace=workspace, workspace_options=workspace_options)

    def fork(
        self,
        spec: str,
        new_run: str,
        *,
        sections: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        label: str | None = None,
    ) -> Checkpoint:
        """Begin a new run from any checkpoint, with edited sections if some are given; chunks are shared."""
        from holdfast.recovery.lines import fork  # noqa: PLC0415

        return fork(self._hf, spec, new_run, sections=sections, drop=drop, label=label)

    def lineage(self, run: str) -> list[Origin]:
        """Return the forks that led to a run, the nearest first; none if it began by itself."""
        from holdfast.recover.fork import lineage  # noqa: PLC0415

        return lineage(self._hf.store, run)

    def start_afresh(self, run: str) -> Checkpoint:
        """Set a run's line aside, archived under the time, and begin a new one; hf.undo(run) goes back to it."""
        from holdfast.recovery.lines import start_afresh  # noqa: PLC0415

        return start_afresh(self._hf, run)

    def replay(self, spec: str) -> Replay:
        """Step through a run by its record: results, state and files at each point, and nothing is called."""
        from holdfast.recovery.replaying import replay  # noqa: PLC0415

        return replay(self._hf, spec)

    def diff(self, old: str, new: str, *, run: str | None = None) -> CheckpointDiff:
        """Compare two checkpoints, of one run or of two: state by structure, files by content."""
        from holdfast.recovery.comparing import diff  # noqa: PLC0415

        return diff(self._hf, old, new, run=run)

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
        from holdfast.recovery.automatic import recover_all  # noqa: PLC0415

        return recover_all(self._hf, resume, workspace=workspace, **options)

    def recovery_status(self, run: str) -> RecoveryStatus:
        """Say whether and from where a run can go on, what keeps it from it, and what can be done about that."""
        from holdfast.recovery.status import recovery_status  # noqa: PLC0415

        return recovery_status(self._hf, run)

    def recovery_points(self, run: str, *, limit: int | None = None) -> list[RecoveryPoint]:
        """Return the checkpoints that a run can go back to, newest first."""
        from holdfast.recovery.status import recovery_points  # noqa: PLC0415

        return recovery_points(self._hf, run, limit=limit)
