"""Patch of a call: what one call changed in the files, from the trees before and after it.

Where trees between are gone, or calls ran at the same time, nobody can tell their changes apart: then all of them are
named, and the patch of the whole stretch can be had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.encode.tree import Ref
from holdfast.errors import NotFound, UsageError
from holdfast.journal.call_record import is_work
from holdfast.model.checkpoint import CheckpointRecord
from holdfast.model.nearest import hint
from holdfast.model.sections import WORKSPACE
from holdfast.model.triggers import Trigger
from holdfast.recovery.history import FileHistory
from holdfast.recovery.line import RunLine
from holdfast.workspace import snapshot as snapshots
from holdfast.workspace.compare import differing
from holdfast.workspace.directory import DIRECTORY
from holdfast.workspace.patch import git_patch
from holdfast.workspace.paths import text
from holdfast.workspace.tree import StoredTree

if TYPE_CHECKING:
    from holdfast.engine import Holdfast


class CallPatch(msgspec.Struct, frozen=True, kw_only=True):
    """What a call changed."""

    run: str
    call: str
    patch: bytes
    """For `git apply`; empty if it changed nothing."""
    paths: tuple[str, ...] = ()
    with_calls: tuple[str, ...] = ()
    """Other calls whose changes are in it, too."""
    since: int = 0
    """The checkpoint whose files it starts from."""
    until: int = 0


class _Capture(NamedTuple):
    """A checkpoint whose files were looked at."""

    record: CheckpointRecord
    section: Any

    @property
    def calls(self) -> int:
        """How many records of calls there were."""
        return self.record.envelope.summary.steps


def call_patch(hf: Holdfast, run: str, call: str, *, together: bool = False) -> CallPatch:
    """Return what a call changed in the files; NotFound if its changes cannot be told from those of other calls.

    `together` returns the patch of all these calls then.
    """
    history = FileHistory(hf, run)
    records = history.calls
    ends = [at for at, one in enumerate(records) if one["step"] == call and one["event"] in ("done", "failed")]
    if not ends:
        known = list(dict.fromkeys(one["step"] for one in records if one["event"] in ("done", "failed")))
        raise NotFound(
            "call", call, f"in run {run!r} {hint(call, known)}" if known else f"no call has ended in run {run!r}"
        )
    at = ends[-1]
    start_s = _began_s(records[at])
    captures = _captures(hf, run)
    after = next((place for place, one in enumerate(captures) if one.calls > at), None)
    if after is None:
        raise NotFound("patch of call", call, "no files were captured after it")
    before = next(
        (
            place
            for place in reversed(range(after))
            if captures[place].record.envelope.created_at.timestamp() <= start_s
        ),
        None,
    )
    if before is None:
        raise NotFound("patch of call", call, "no files were captured before it")
    old, new = captures[before], captures[after]
    until_s = new.record.envelope.created_at.timestamp()
    others = [
        one["step"]
        for number, one in enumerate(records)
        if one["event"] in ("done", "failed")
        and is_work(one)
        and number >= old.calls
        and (number < new.calls or _began_s(one) < until_s)
        and not _is_one(one["step"], call)
    ]
    others = list(dict.fromkeys(others))
    if others and not together:
        raise NotFound(
            "patch of call",
            call,
            f"the files between checkpoints {old.record.envelope.seq} and {new.record.envelope.seq} were changed by it "
            f"and by {', '.join(others)}, and no tree between tells them apart; together=True gives the patch of all",
        )
    trees = [StoredTree(history.reader, _root(history, one)) for one in (old, new)]
    return CallPatch(
        run=history.run,
        call=call,
        patch=git_patch(*trees),
        paths=tuple(sorted(text(path) for path, one, two in differing(*trees) if not _is_folder(one, two))),
        with_calls=tuple(others),
        since=old.record.envelope.seq,
        until=new.record.envelope.seq,
    )


def _captures(hf: Holdfast, run: str) -> list[_Capture]:
    """Return the checkpoints of a run whose files were looked at, oldest first."""
    rows = [row for row in RunLine(hf.store, run).line() if isinstance(row, CheckpointRecord)]
    found: list[_Capture] = []
    for record in reversed(rows):
        section = next((one for one in record.envelope.sections if one.name == WORKSPACE), None)
        if section is None:
            continue
        is_new = not found or found[-1].section.root != section.root
        if is_new or record.envelope.trigger == Trigger.STEP_COMPLETE:  # taken only for a call that may write files
            found.append(_Capture(record, section))
    if not found:
        raise UsageError(f"run {run!r} has no checkpoint with files: open it with workspace=directory")
    return found


def _root(history: FileHistory, capture: _Capture) -> Ref | None:
    section = capture.section
    return snapshots.load(history.reader, Ref(section.kind, section.size, section.root)).root


def _began_s(record: dict[str, Any]) -> float:
    return float(record["at"].timestamp() - (record.get("duration_s") or 0.0))


def _is_one(one: str, other: str) -> bool:
    """Tell whether one call is, or was made inside, the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _is_folder(one: Any, two: Any) -> bool:
    return all(entry is None or entry.kind == DIRECTORY for entry in (one, two))
