"""A run, open for taking checkpoints."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.capture.sections import gather
from holdfast.checkpoint import Checkpoint, NotSaved
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Marks
from holdfast.model.triggers import Trigger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.capture.checkpointer import Checkpointer
    from holdfast.engine import Holdfast

_log = logging.getLogger("holdfast")


class Run:
    """One writer's handle on a run; two handles on one run are two writers, and the slower one gets HeadMoved."""

    def __init__(self, holdfast: Holdfast, run: str, checkpointer: Checkpointer) -> None:
        self.id = run
        self._holdfast = holdfast
        self._checkpointer = checkpointer

    def checkpoint(
        self,
        *,
        trigger: Trigger | str = Trigger.MANUAL,
        reason: str = "",
        label: str | None = None,
        pinned: bool = False,
        sections: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        **known_sections: Any,
    ) -> Checkpoint:
        """Store a checkpoint durably and return it.

        Known sections (`state`, `workflow`, `agents`, ...) are keywords, your own go into `sections`. What is not given
        is carried over from the checkpoint before, unless named in `drop`.
        """
        values = gather(known_sections, sections)
        try:
            trigger = Trigger(trigger)
        except ValueError:
            raise UsageError(f"unknown trigger {trigger!a}: use one of {', '.join(Trigger)}") from None
        if not self._holdfast.enabled:
            _log.info("run %s: checkpointing is disabled, nothing was saved", self.id)
            return NotSaved()
        record = self._checkpointer.take(
            values, drop=drop, trigger=trigger.value, reason=reason, marks=Marks(pinned=pinned, label=label)
        )
        return self._holdfast.opened(record)

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that the next one will be taken on."""
        record = self._checkpointer.head
        return None if record is None else self._holdfast.opened(record)

    def reload(self) -> None:
        """Go to the run's present head, wherever another writer moved it."""
        self._checkpointer.reload()

    def __repr__(self) -> str:
        return f"<Run {self.id}>"
