"""What a restore does with one path: a pure decision from three states and what a person decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from holdfast.workspace.state import State

Action = Literal["write", "replace", "delete", "mode", "keep", "merge", "both", "conflict"]
Choice = Literal["refuse", "keep", "take", "merge", "both"]


class Decisions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person decided, to be saved for unattended recovery.

    `conflicts` holds for files that both sides changed, `edits` for files that only others changed since we last saw
    them, `paths` for single paths and what is below them.
    """

    conflicts: Choice = "refuse"
    edits: Literal["keep", "take"] = "keep"
    merge_clean: bool = True  # merge three ways by itself where both sides changed different lines
    paths: dict[str, Choice] = {}

    def choice(self, path: str) -> Choice | None:
        """Return what was decided for this very path or the nearest one above it."""
        while self.paths:
            if path in self.paths:
                return self.paths[path]
            above, slash, _ = path.rpartition("/")
            if not slash:
                return None
            path = above
        return None


def save_decisions(decisions: Decisions) -> bytes:
    """Return decisions as JSON."""
    return msgspec.json.format(msgspec.json.encode(decisions), indent=2)


def load_decisions(data: bytes) -> Decisions:
    """Return saved decisions; msgspec.ValidationError says what is wrong with them."""
    return msgspec.json.decode(data, type=Decisions)


def decide(path: str, checkpoint: State, last: State | None, disk: State, decisions: Decisions) -> tuple[Action, str]:
    """Return the action for a path that differs from the checkpoint, and why.

    `last` is what we last knew to be there; None when we never saw this directory.
    """
    restoring = _restoring(checkpoint, disk)
    chosen = decisions.choice(path)
    if disk.kind == "other":
        return "conflict", "something that is not captured is in the way"
    if last is None:
        return _decide_unseen(checkpoint, disk, chosen or decisions.conflicts, restoring)
    if disk == last:
        return ("keep", "as decided") if chosen == "keep" else (restoring, "as we left it")
    if last == checkpoint:
        if checkpoint.kind == "absent" and chosen != "take":
            return "keep", "was created by others"
        if (chosen or decisions.edits) == "take":
            return restoring, "was changed by others; the checkpoint's is taken as decided"
        return "keep", "was changed by others only"
    if disk.kind == checkpoint.kind == "directory" and chosen is None:
        return "keep", "has a mode that was changed by others"
    return _conflict(chosen or decisions.conflicts, restoring, "was changed by others and by the run")


def _decide_unseen(checkpoint: State, disk: State, choice: Choice, restoring: Action) -> tuple[Action, str]:
    """Decide on a path of which we do not know how it came to be as it is."""
    if disk.kind == "absent":
        return restoring, "is missing"
    if checkpoint.kind == "absent":
        return "keep", "is not ours to delete"
    if disk.kind == checkpoint.kind == "directory":
        return "keep", "is a directory that we never saw"
    return _conflict(choice, restoring, "differs, and we never saw it here")


def _restoring(checkpoint: State, disk: State) -> Action:
    if disk.kind == "absent":
        return "write"
    if checkpoint.kind == "absent":
        return "delete"
    return "mode" if disk.kind == checkpoint.kind == "directory" else "replace"


def _conflict(choice: Choice, restoring: Action, why: str) -> tuple[Action, str]:
    if choice == "take":
        return restoring, f"{why}; the checkpoint's is taken as decided"
    if choice == "keep":
        return "keep", f"{why}; kept as decided"
    if choice == "both":
        return "both", f"{why}; both are kept as decided"
    if choice == "merge":
        return "merge", f"{why}; merged as decided"
    return "conflict", why
