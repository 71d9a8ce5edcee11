"""docs/reference/errors.md, made from the errors themselves: what each means, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import errors
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Iterator

WHAT_TO_DO = {
    "HoldfastError": "catch this one for all of them",
    "UsageError": "change the call or the value; the sentence names the place",
    "InvalidId": "use letters, digits and `_ . + = -`",
    "ValueRefused": "leave the value out, name its class in `holdfast.open(types=[...])`, or make plain data of it",
    "UnknownType": "name the class in `holdfast.open(types=[...])`",
    "LimitExceeded": "store less, or raise the limit in the settings",
    "RestoreRefused": "clear what stands in the way, or restore into another directory",
    "CaptureFailed": "fix the object's `snapshot` or `restore`",
    "SettingsInvalid": "fix the file at the place that is named",
    "SettingsUntrusted": "look at what the file asks for, then `holdfast trust`, or remove it",
    "KeyRefused": "give the key of this store, or none for a store without",
    "Ambiguous": "give more of the id",
    "IllegalTransition": "go by one of the states that are named",
    "GraphInvalid": "break the circle, or add what is missing",
    "RunClosed": "open the run again with `hf.run(...)`",
    "FlowInvalid": "fix the lines that are named; all problems are listed at once",
    "NotFound": "`holdfast ls` and `holdfast log RUN` show what there is; the nearest is named",
    "Conflict": "read again, then decide",
    "HeadMoved": "open the run again: it has a new head",
    "RunDiffers": "copy into another store, or delete one of the two",
    "LeaseHeld": "wait until the other process is done, or end it",
    "LeaseLost": "stop: another process moves the run now",
    "PlanOutdated": "make a new plan",
    "IntegrityError": "`holdfast verify` lists the damage, `holdfast repair` goes back to what is sound",
    "FormatTooNew": "upgrade holdfast",
    "StoreError": "fix the medium, then repeat",
    "StoreUnavailable": "look at the path, the rights, the server",
    "StoreFull": "make room: `holdfast prune`, or a larger disk",
    "StoreBusy": "repeat",
    "Unprotected": "fix why checkpoints fail; `on_checkpoint_failure` decides what happens",
    "RunPaused": "fix the cause, then call `run.checkpoint()`",
    "RunStopped": "fix the cause, then open the run again",
    "RecoveryError": "decide, then ask again",
    "CannotResume": "type one of the suggestions",
    "RecoveryIncomplete": "put right by hand what is named, or `holdfast undo RUN`; then open the run again",
    "EffectUncertain": "look outside, then choose retry or skip",
    "Divergence": "give a changed step a new name, or fork the run before it",
    "ReplayEnded": "continue live with `replay.fork(new_run)`",
    "RunWaiting": "`holdfast approve`, `answer`, `signal` or `budget`, then start the program again",
    "RunCancelled": "nothing; `holdfast fork` continues from one of its checkpoints",
    "ReplanLimit": "fix the cause by hand, or raise the limit",
    "BudgetExhausted": "raise the limit",
    "StepTimeout": "give it more time, or `retries`",
    "CommandFailed": "look at what the command said",
    "SubjectUnavailable": "repeat when it can be read",
    "SessionOver": "open the run again in a new session",
    "RestoreConflict": "make a new plan, and decide on the paths that are named",
    "RestoreFailed": "fix the file system; opening the run again finishes or undoes the restore",
}
_INTRODUCTION = """\
# Errors

Every error that Holdfast raises, grouped by what you can do about it. This page is made from the program: `make docs`.

Each has fields, says in a sentence what happened and what to do next, and survives pickling. On the command line it
ends the program with its exit code; `--json` gives kind, message and code. Retryable: the same call may succeed later.
"""


def error_reference() -> str:
    """Return the whole page."""
    lines = [_INTRODUCTION, "| error | when | exit code | retryable | what to do |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *_rows(HoldfastError, 0)]) + "\n"


def what_to_do(kind: type[HoldfastError]) -> str:
    """Return the advice on an error, or on the kind that it belongs to."""
    return next(WHAT_TO_DO[one.__name__] for one in kind.__mro__ if one.__name__ in WHAT_TO_DO)


def kinds_below(kind: type[HoldfastError]) -> list[type[HoldfastError]]:
    """Return the errors right below one, in the order in which they are drawn."""
    tree = str(errors.__doc__)
    own = [one for one in kind.__subclasses__() if one.__module__ == errors.__name__]
    return sorted(own, key=lambda one: tree.find(f"─ {one.__name__}"))


def _rows(kind: type[HoldfastError], depth: int) -> Iterator[str]:
    when = str(kind.__doc__).splitlines()[0].replace("|", "\\|")
    retryable = "yes" if kind.retryable else "no"
    name = "· " * depth + f"`{kind.__name__}`"
    yield f"| {name} | {when} | {kind.exit_code} | {retryable} | {what_to_do(kind)} |"
    for below in kinds_below(kind):
        yield from _rows(below, depth + 1)


if __name__ == "__main__":
    import sys

    sys.stdout.write(error_reference())
