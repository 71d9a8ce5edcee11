"""What a restore does with one path: a pure decision from three states and what a person decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from holdfast.workspace.ownership import Owner
    from holdfast.workspace.state import State

Action = Literal["write", "replace", "delete", "mode", "keep", "merge", "both", "conflict"]
Choice = Literal["refuse", "keep", "take", "merge", "both"]
Interrupted = Literal["ask", "keep", "roll_back"]


class Decisions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person decided.

    `conflicts` holds for files that the run and a person changed, `edits` for those that only a person changed,
    `deleted` for those that a person deleted, `created` for those that a person made, `interrupted` for what an
    interrupted call had changed, `paths` for single paths and what is below them.
    """

    conflicts: Choice = "refuse"
    edits: Literal["keep", "take"] = "keep"
    deleted: Literal["keep", "restore"] = "keep"
    created: Literal["keep", "delete"] = "keep"
    interrupted: Interrupted = "ask"  # undecided is kept, and said
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


def decide(
    path: str, checkpoint: State, last: State | None, disk: State, decisions: Decisions, *, owner: Owner = "unknown"
) -> tuple[Action, str]:
    """Return the action for a path that differs from the checkpoint, and why.

    `last` is what the run last captured there, None for a directory that it never saw; `owner` left it as it is.
    """
    restoring = _restoring(checkpoint, disk)
    chosen = decisions.choice(path)
    if disk.kind == "other":
        return "conflict", "something that is not captured is in the way"
    if last is None:
        return _decide_unseen(checkpoint, disk, chosen or decisions.conflicts, restoring)
    if owner in ("run", "interrupted"):
        if disk == last or last != checkpoint:
            return ("keep", "as decided") if chosen == "keep" else (restoring, "changed by the run since")
        return _decide_uncaptured(_did(last, disk), chosen, decisions, restoring, owner=owner)
    if last not in (disk, checkpoint):
        return _decide_both(checkpoint, disk, chosen, decisions, restoring)
    return _decide_edit(checkpoint, disk, chosen, decisions, restoring, owner=owner)


def _decide_uncaptured(
    did: str, chosen: Choice | None, decisions: Decisions, restoring: Action, *, owner: Owner
) -> tuple[Action, str]:
    """Decide on what the run's own process changed and no checkpoint has."""
    is_taken = chosen == "take" or (chosen is None and decisions.edits == "take")
    if is_taken or (chosen is None and owner == "interrupted" and decisions.interrupted == "roll_back"):
        return restoring, f"{did} by the run: rolled back"
    return "keep", f"{did} by the run: kept"


def _decide_edit(
    checkpoint: State, disk: State, chosen: Choice | None, decisions: Decisions, restoring: Action, *, owner: Owner
) -> tuple[Action, str]:
    """Decide on what a person, or nobody knows who, changed and the run did not."""
    did = _did(checkpoint, disk)
    who = f"you {did} it" if owner == "person" else f"{did} since the last checkpoint"
    is_taken = chosen == "take"
    if chosen is None and checkpoint.kind == "absent":  # what was created is deleted only if somebody says so
        is_taken = decisions.created == "delete"
    elif chosen is None:
        is_taken = decisions.edits == "take" or (disk.kind == "absent" and decisions.deleted == "restore")
    if is_taken:
        return restoring, f"{who}: the checkpoint's is taken"
    return "keep", f"{who}: kept{' deleted' if disk.kind == 'absent' else ''}"


def _decide_both(
    checkpoint: State, disk: State, chosen: Choice | None, decisions: Decisions, restoring: Action
) -> tuple[Action, str]:
    if disk.kind == checkpoint.kind == "directory" and chosen is None:
        return "keep", "you changed its mode: kept"
    if disk.kind == "absent" and chosen is None and decisions.deleted == "restore":
        return restoring, "you deleted it: the checkpoint's is taken"
    return _conflict(chosen or decisions.conflicts, restoring, "changed by the run, and by you since")


def _did(before: State, disk: State) -> str:
    if before.kind == "absent":
        return "created"
    return "deleted" if disk.kind == "absent" else "changed"


def _decide_unseen(checkpoint: State, disk: State, choice: Choice, restoring: Action) -> tuple[Action, str]:
    """Decide on a path of which the run does not know how it came to be as it is."""
    if disk.kind == "absent":
        return restoring, "is missing"
    if checkpoint.kind == "absent":
        return "keep", "was here before: kept"
    if disk.kind == checkpoint.kind == "directory":
        return "keep", "was here before: kept"
    return _conflict(choice, restoring, "was here before, and differs")


def _restoring(checkpoint: State, disk: State) -> Action:
    if disk.kind == "absent":
        return "write"
    if checkpoint.kind == "absent":
        return "delete"
    return "mode" if disk.kind == checkpoint.kind == "directory" else "replace"


def _conflict(choice: Choice, restoring: Action, why: str) -> tuple[Action, str]:
    if choice == "take":
        return restoring, f"{why}: the checkpoint's is taken"
    if choice == "keep":
        return "keep", f"{why}: yours is kept"
    if choice == "both":
        return "both", f"{why}: both are kept"
    if choice == "merge":
        return "merge", f"{why}: merged"
    return "conflict", why
