"""What came of a recovery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.model.sections import WORKSPACE

if TYPE_CHECKING:
    from holdfast.recovery.plan import RecoveryPlan
    from holdfast.recovery.replay import Replay
    from holdfast.workspace.restore import RestoreReport


class ResultSource(Protocol):
    """A checkpoint, as far as a result needs it."""

    @property
    def id(self) -> str:
        """The id."""

    def section(self, name: str) -> Any:
        """Return one section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """What came of a recovery: without success nothing was touched, or all was put back, and `errors` say why.

    `checkpoint` is the run's new head, `undo` the checkpoint that hf.undo() goes back to. Both are there without
    success only if a recovery that was killed is finished now, and `errors` say what of it could not be done.
    """

    success: bool
    run: str = ""
    checkpoint: ResultSource | None = None
    restored_from: str | None = None
    restored_sections: tuple[str, ...] = ()
    skipped_agents: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    undo: str | None = None
    files: RestoreReport | None = None
    plan: RecoveryPlan | None = None
    """Of a dry run: what would be done."""
    replay: Replay | None = None
    """Where that was asked for: the record, to step through with next()."""
    is_dry: bool = False

    @property
    def is_recovered(self) -> bool:
        """Whether anything was put back; a run that stands where the plan goes needs none, which is a success, too."""
        return self.checkpoint is not None and self.checkpoint.id != self.restored_from

    @property
    def state(self) -> dict[str, Any]:
        """The restored sections, each read again and yours to change; files are in the checkpoint."""
        if self.checkpoint is None:
            return {}
        return {name: self.checkpoint.section(name) for name in self.restored_sections if name != WORKSPACE}

    @property
    def restored_state(self) -> str | None:
        """The workflow's state from here on; of a dry run, the one that it would have."""
        if self.plan is not None and self.checkpoint is None:
            return self.plan.request.reset_to or self.plan.state
        workflow = self.state.get("workflow")
        return None if workflow is None else str(workflow.current_state)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Say it in words, a line each."""
        if self.checkpoint is None and not self.success:
            return [f"run {self.run}: not recovered", *(f"  {error}" for error in self.errors)]
        if self.is_dry and self.plan is not None:
            return self.plan.lines()
        if not self.is_recovered:
            return [f"run {self.run}: nothing to recover, it stands at {self.restored_from}", *self._warned()]
        part = "" if self.success else ", but not all of it"
        told = [f"run {self.run}: recovered from {self.restored_from}{part}"]
        told += [f"  error: {error}" for error in self.errors]
        if self.files is not None:
            report = self.files
            told.append(f"  files: {report.written} written, {report.replaced} replaced, {report.deleted} deleted")
        if self.skipped_agents:
            told.append(f"  skipped: {', '.join(self.skipped_agents)}")
        told += self._warned()
        if self.undo is not None:
            told.append(f"  hf.undo({self.run!r}) goes back to {self.undo}")
        return told

    def _warned(self) -> list[str]:
        return [f"  warning: {warning}" for warning in self.warnings]
