"""What can be typed against each thing that keeps a run from going on; pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from holdfast.model.recovery import Blocker, RecoveryInfo


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """One way out: what to type, what it does, and the same as options of `hf.plan` where it is a plan."""

    blocker: str
    words: str
    does: str
    options: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self.words} ({self.does})"


def suggestions(info: RecoveryInfo, *, run: str = "RUN", checkpoint: str = "CHECKPOINT") -> tuple[Suggestion, ...]:
    """Return ways out for every blocker, each once, the one that keeps most work first."""
    found: dict[str, Suggestion] = {}
    for blocker in info.blocked_by:
        for suggestion in _against(blocker, info, shlex.quote(run), shlex.quote(checkpoint)):
            found.setdefault(suggestion.words, suggestion)
    return tuple(found.values())


def _against(blocker: Blocker, info: RecoveryInfo, run: str, checkpoint: str) -> list[Suggestion]:
    back = Suggestion(
        blocker=blocker.text, words=f"hf resume {run}~1", does="goes on from the last checkpoint that allows it"
    )
    fork = Suggestion(
        blocker=blocker.text,
        words=f"hf fork {checkpoint}",
        does="goes on from it in a new run, and leaves this one as it is",
    )
    if blocker.kind == "agent-failed":
        who = f"agent {blocker.about}" if blocker.about else "agents that failed"
        skip = Suggestion(
            blocker=blocker.text,
            words=f"hf resume {run} --skip-failed",
            does=f"goes on without {who}",
            options={"skip_failed": True},
        )
        return [skip, back, fork]
    if blocker.kind == "dead-state":
        options = {"reset_to": info.reset_to} if info.reset_to is not None else {}
        reset = Suggestion(
            blocker=blocker.text,
            words=f"hf resume {run} --reset-to {shlex.quote(info.reset_to) if info.reset_to is not None else 'STATE'}",
            does="sets the workflow back to that state",
            options=options,
        )
        return [reset, back, fork]
    return [fork] if blocker.kind == "cancelled" else [back, fork]
