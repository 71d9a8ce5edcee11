"""The workflow that Temporal keeps for each submitted run: advance it, then wait as its outcome says, and again.

It holds nothing of the run but its name; what happens in the run is in the store. Its code must stay deterministic:
Temporal replays it.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

WORKFLOW, ACTIVITY, WAKE = "holdfast-run", "holdfast-advance", "wake"
_LONGEST_STRETCH = timedelta(days=365)


@workflow.defn(name=WORKFLOW)
class RunWorkflow:
    """One run, from its submission to its end."""

    def __init__(self) -> None:
        self._mark = 0

    @workflow.signal(name=WAKE)
    def wake(self, mark: int) -> None:
        """Note that the run's inbox has an entry of this number."""
        self._mark = max(self._mark, mark)

    @workflow.run
    async def run(self, order: dict[str, Any]) -> str:
        """Let workers advance the run until nothing is left to do; `order` names it and counts what went before."""
        self._mark = max(self._mark, order.get("mark", 0))
        while True:
            outcome = await workflow.execute_activity(
                ACTIVITY,
                order,
                heartbeat_timeout=timedelta(seconds=order["lease_s"]),
                start_to_close_timeout=_LONGEST_STRETCH,
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=1)
                ),
            )
            if outcome["kind"] == "done":
                return str(outcome["status"])
            order = {**order, "crashes": outcome["crashes"]}
            mark = outcome["mark"] if outcome["kind"] == "until" else None
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    partial(self._is_woken, mark), timeout=timedelta(seconds=max(0.0, outcome["after_s"]))
                )
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new({**order, "mark": self._mark})

    def _is_woken(self, mark: int | None) -> bool:
        return mark is not None and self._mark >= mark
