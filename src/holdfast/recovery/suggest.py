"""What can be typed against each thing that keeps a run from continuing; pure."""

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


def suggestions(info: RecoveryInfo, *, spec: str = "RUN", checkpoint: str = "CHECKPOINT") -> tuple[Suggestion, ...]:
    """Return ways out for every blocker, each once, the one that keeps most work first.

    `spec` is what a person types for the point to resume from: the run for its head, RUN@7 for another checkpoint.
    """
    found: dict[str, Suggestion] = {}
    for blocker in info.blocked_by:
        for suggestion in _against(blocker, info, shlex.quote(spec), shlex.quote(checkpoint)):
            found.setdefault(suggestion.words, suggestion)
    return tuple(found.values())


def _against(blocker: Blocker, info: RecoveryInfo, spec: str, checkpoint: str) -> list[Suggestion]:
    def resume(words: str, does: str, **options: Any) -> Suggestion:
        typed = f"holdfast resume {spec} {words}".replace(f"{spec} ~", f"{spec}~")
        return Suggestion(blocker=blocker.text, words=typed, does=does, options=options)

    back = resume("~1", "resumes from the last checkpoint before it that can")
    if blocker.kind == "agent-failed":
        who = f"agent {blocker.about}" if blocker.about else "the agents that failed"
        skip = resume("--skip-failed", f"resumes without {who}", skip_failed=True)
        return [resume("--retry-failed", f"lets {who} try again", retry_failed=True), skip, back]
    if blocker.kind == "dead-state":
        state = shlex.quote(info.reset_to) if info.reset_to is not None else "STATE"
        options = {"reset_to": info.reset_to} if info.reset_to is not None else {}
        return [resume(f"--reset-to {state}", "sets the workflow back to that state", **options), back]
    if blocker.kind == "cancelled":
        fork = Suggestion(
            blocker=blocker.text,
            words=f"holdfast fork {checkpoint}",
            does="continues from it in a new run, and leaves this one as it is",
        )
        return [fork]
    return [back]
