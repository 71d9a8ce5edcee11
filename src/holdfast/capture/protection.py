"""Whether a run's position is saved: never silent about a checkpoint that failed; pure."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from holdfast.errors import HoldfastError, RunPaused, RunStopped, Unprotected

OnFailure = Literal["continue", "pause", "stop"]


class UnprotectedWarning(UserWarning):
    """A checkpoint failed, and the work continues without one."""


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is protected: since when it is not, how many checkpoints failed since, and the last reason."""

    since: datetime | None = None
    failures: int = 0
    detail: str = ""

    def failed(self, detail: str, now: datetime) -> Protection:
        """Return the protection after one more failure; `since` stays at the first."""
        return Protection(since=self.since or now, failures=self.failures + 1, detail=detail)

    def sentence(self, run: str) -> str:
        """Say since when, why, and what to do."""
        if self.since is None:
            return f"run {run!r} is protected"
        times = "" if self.failures == 1 else f" ({self.failures} checkpoints failed)"
        return (
            f"run {run!r} is unprotected since {self.since.isoformat(timespec='seconds')}{times}: {self.detail}. "
            "The work continues; a crash would lose what was done since then"
        )

    def error(self, run: str, policy: OnFailure) -> Unprotected | None:
        """Return the error that this policy raises, None if the work continues."""
        if self.since is None or policy == "continue":
            return None
        kind = RunPaused if policy == "pause" else RunStopped
        return kind(run, self.since.isoformat(timespec="seconds"), self.detail)


def reason_of(error: BaseException) -> str:
    """Return what an error says, with its class where that is all it has."""
    return str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
