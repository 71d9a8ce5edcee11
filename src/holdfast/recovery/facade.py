"""What `hf.recovery` and `hf.files` offer; each part is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

from holdfast.lazy import lazily

with lazily():
    from holdfast.recovery import bisect as bisect_module
    from holdfast.recovery import fork as fork_module
    from holdfast.recovery import history, inspect, patch
    from holdfast.recovery import recover_all as recover_all_module
    from holdfast.runtime import audit

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.recovery.bisect import Bisected, Outcome
    from holdfast.recovery.fork import Origin
    from holdfast.recovery.history import BlamedLine, FileVersion
    from holdfast.recovery.inspect import RecoveryPoint, RecoveryStatus
    from holdfast.recovery.patch import CallPatch
    from holdfast.recovery.plan import PlanOptions
    from holdfast.recovery.recover_all import Recovered
    from holdfast.run import Run
    from holdfast.runtime.audit import Savings


class Recovery:
    """What `hf.recovery` offers beside the verbs of `Holdfast`: where runs can continue from, and why not."""

    def __init__(self, holdfast: Holdfast) -> None:
        self._hf = holdfast

    def status(self, spec: str, **options: Unpack[PlanOptions]) -> RecoveryStatus:
        """Say whether and from where a run, or one checkpoint of it, can continue, and what to do where it cannot.

        With `workspace=` and `subject=`, as for `plan`, its `prerequisites` say whether branch, files and subject are
        as they were.
        """
        return inspect.recovery_status(self._hf, spec, options)

    def points(self, run: str, *, limit: int | None = None) -> list[RecoveryPoint]:
        """Return the checkpoints that a run can go back to, newest first."""
        return inspect.recovery_points(self._hf, run, limit=limit)

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

    def start_fresh(self, run: str) -> Checkpoint:
        """Set a run's line aside, archived under the time, and begin a new one; hf.undo(run) goes back to it."""
        return fork_module.start_fresh(self._hf, run)

    def lineage(self, run: str) -> list[Origin]:
        """Return the forks that led to a run, the nearest first; none if it began by itself."""
        return fork_module.lineage(self._hf.store, run)

    def savings(self, run: str) -> Savings:
        """Return what resuming a run saved: work that was neither done nor paid for again."""
        head = self._hf.internals.present_of(run)
        agents = head.section("agents") if "agents" in head.sections else ()
        phases = head.section("phases").phases.values() if "phases" in head.sections else ()
        return audit.savings(head.log("journal"), head.log("steps"), agents, phases)


class RunHistory:
    """What `hf.files` offers: which call, agent or person made what of a run's files."""

    def __init__(self, holdfast: Holdfast) -> None:
        self._hf = holdfast

    def history(self, run: str, path: str) -> list[FileVersion]:
        """Return what became of a file over a run's checkpoints, oldest first, with who made each version."""
        return history.FileHistory(self._hf, run).versions(path)

    def blame(self, run: str, path: str) -> list[BlamedLine]:
        """Return the lines of a file, each with the call, agent or person that wrote it, and what that cost."""
        return history.FileHistory(self._hf, run).blame(path)

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

    def patch(self, run: str, call: str, *, together: bool = False) -> CallPatch:
        """Return what one call changed in the files, as a patch; NotFound names the calls it cannot be told from.

        With `together` the patch of all of them is returned then.
        """
        return patch.call_patch(self._hf, run, call, together=together)
