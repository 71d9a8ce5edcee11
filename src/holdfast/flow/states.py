"""The phases of a flow with routes, as the states of its run's state machine: where it stands and how it came there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.flow.model import END
from holdfast.flow.order import ways_out
from holdfast.recovery.sections import RECOVERY_TRIGGER
from holdfast.runtime.machine import COMPLETE, StateMachine

if TYPE_CHECKING:
    from holdfast.flow.model import Flow
    from holdfast.flow.position import Kept
    from holdfast.run import Run


class States:
    """Keeps the run's state machine in step with its flow; a flow whose phases follow each other has none."""

    def __init__(self, run: Run, flow: Flow, position: Kept) -> None:
        self._machine: StateMachine | None = None
        if flow.in_order:
            return
        ways = {name: [_state(way) for way in ways_out(flow, name)] for name in flow.phases}
        self._machine = StateMachine(run.host, states=list(flow.phases), transitions=ways, initial=flow.first)
        try:
            run.host.attach("workflow", self._machine, journaled=True)
        except UsageError:  # it stood in a phase that is no longer in the flow
            run.recorder.live.register("workflow", self._machine)
        self._take_reset(run, flow, position)
        current = position.value.current
        if current in flow.phases and self._machine.current != current:
            self._machine.reset(current, "flow changed")

    def _take_reset(self, run: Run, flow: Flow, position: Kept) -> None:
        """Start over in the state that a recovery set the run back to, once; phases from there on are done again."""
        assert self._machine is not None
        visit = self._machine.history[-1]
        if visit.trigger != RECOVERY_TRIGGER or visit.state not in flow.phases:
            return
        if position.value.reset_at != visit.entered_at:
            position.change(
                current=visit.state, marks={}, retries={}, replanning={}, stopped=None, is_done=False,
                reset_at=visit.entered_at,
            )  # fmt: skip
            run.host.waits.withdraw()

    def move(self, name: str, following: str) -> None:
        """Continue to the next phase; saved with all that led there."""
        if self._machine is not None:
            self._machine.to(_state(following), f"{name} is over")


def _state(phase: str) -> str:
    return COMPLETE if phase == END else phase
