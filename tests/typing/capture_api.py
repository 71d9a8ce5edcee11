"""Capture as a type checker sees it in a user's program; checked by mypy, never run."""

from __future__ import annotations

from datetime import datetime
from typing import assert_type

import holdfast
from holdfast import Checkpoint, Every, Holdfast, OnPhaseComplete, Redacted, RetentionPolicy, Secret, Settings, When
from holdfast.capture.strategy import Condition


class Notes:
    """A live object of the user's."""

    def snapshot(self) -> list[str]:
        """Return the state."""
        return []

    def restore(self, value: object) -> None:
        """Take it back."""


def watching(hf: Holdfast) -> None:
    with hf.run("r") as run:
        run.register("notes", Notes())
        run.register("notes", object())  # type: ignore[type-var]
        assert_type(run.maybe_checkpoint("phase_complete", phase="plan", state=1), Checkpoint | None)
        with run.destructive("git_push", "origin main") as before:
            assert_type(before, Checkpoint | None)
        assert_type(run.protection.since, datetime | None)
        assert_type(run.recorder.restore_registered(), list[str])


def opening() -> None:
    assert_type(OnPhaseComplete("plan") | ~Every(60) & When(lambda _event, _position: True), Condition)
    holdfast.open(strategy=Every(60), settings=Settings(), key_env="KEY", on_checkpoint_failure="stop")
    holdfast.open(on_checkpoint_failure="ignore")  # type: ignore[arg-type]
    assert_type(holdfast.generate_key(), str)


def keeping(hf: Holdfast) -> None:
    pruned = hf.prune(policy=RetentionPolicy(last=5), dry_run=True)
    assert_type(pruned.archived, list[str])
    assert_type(Secret("x", env="X").reveal(), str)
    assert_type(Redacted("key").env, str | None)
