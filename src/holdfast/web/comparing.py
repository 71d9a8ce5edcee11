"""Two points beside each other: any two checkpoints of any runs, or one and the directory now."""

from __future__ import annotations

import shlex
from contextlib import suppress
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.compare import StateDiff, compare_places
from holdfast.recovery.gather import file_capture
from holdfast.web.approvals import at_last_answer
from holdfast.web.history import ancestors, row_document
from holdfast.web.site import found, short_place
from holdfast.web.values import short
from holdfast.workspace.compare import changes
from holdfast.workspace.diff import diff
from holdfast.workspace.tree import StoredTree

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.recovery.compare import Difference
    from holdfast.web import answers
    from holdfast.web.site import Handle, Site
    from holdfast.workspace.compare import Change, Tree

NOW = "now"
_MOST_DIFFERENCES = 200
_MOST_FILES = 2000
_MOST_DIFF_CHARS = 400_000
_MOST_ANCESTORS = 20_000
_VALUE_CHARS = 500


class Pair:
    """Two points; the second is None where the directory now is meant."""

    def __init__(self, site: Site, handle: Handle, a: str, b: str) -> None:
        if not a or not b or a == NOW:
            raise UsageError("name two points: ?a=RUN@7&b=RUN@9, or b=now")
        self._site = site
        self._handle = handle
        self.old = found(handle, a)
        self.new = found(handle, b) if b != NOW else None
        self.key = ("pair", self.old.id, self.old.number, self.new.id if self.new else None, self._number())

    def _number(self) -> int:
        return self.new.number if self.new is not None else -1

    @property
    def until(self) -> Checkpoint:
        """The later point's state; until now means until the run's head."""
        return self.new if self.new is not None else found(self._handle, self.old.run)

    def state(self) -> StateDiff:
        """Return how the sections differ, as `holdfast diff` has it; what is shown of it is redacted later."""
        later = self.until
        if later.id == self.old.id and later.number == self.old.number:
            return StateDiff(old=self.old.id, new=later.id)
        key = ("state", self.old.id, self.old.number, later.id, later.number)
        found_state: StateDiff = self._site.looks.of(key, lambda: compare_places(self.old, later))
        return found_state

    def trees(self) -> tuple[Tree, Tree] | None:
        """Return both directories; None where there is nothing to compare."""
        from holdfast.web.files import captured  # noqa: PLC0415 - files and comparing use each other's neighbours

        if self.new is not None:
            if WORKSPACE not in self.new.sections:
                return None
            reader, after = captured(self._handle.hf, self.new.record)
            before = captured(self._handle.hf, self.old.record)[1].root if WORKSPACE in self.old.sections else None
            return StoredTree(reader, before), StoredTree(reader, after.root)
        if WORKSPACE not in self.old.sections or self._site.workspace is None:
            return None
        reader, before_now = captured(self._handle.hf, self.old.record)
        capture = file_capture(self._handle.hf, self.old.run, str(self._site.workspace), None)
        assert capture is not None
        head = found(self._handle, self.old.run)
        last = captured(self._handle.hf, head.record)[1] if WORKSPACE in head.sections else None
        disk, _ = capture.workspace.look(reader, last)
        return StoredTree(reader, before_now.root), disk

    def changes(self) -> list[Change]:
        """Return the paths that differ; of two stored points kept for the next look."""
        if self.new is None:
            return self._changes()
        found_changes: list[Change] = self._site.looks.of((*self.key, "files"), self._changes)
        return found_changes

    def _changes(self) -> list[Change]:
        trees = self.trees()
        return changes(*trees) if trees is not None else []


def compare(site: Site, handle: Handle, a: str, b: str) -> answers.Comparison:
    """Return what differs between two points: sections, files, budgets, agents, and where both came from."""
    pair = Pair(site, handle, a, b)
    state = pair.state()
    files = pair.changes()
    counts: dict[str, int] = {}
    for change in files:
        counts[change.status] = counts.get(change.status, 0) + 1
    told = state.to_json(most=0, max_chars=_VALUE_CHARS)
    return {
        "a": row_document(handle.hf, pair.old.record, head=None),
        "b": row_document(handle.hf, pair.new.record, head=None) if pair.new is not None else None,
        "now": short_place(str(site.workspace)) if pair.new is None else None,
        "sections": [{"name": one.name, "kind": one.kind, "count": len(one.differences)} for one in state.sections],
        "unchanged": told["unchanged"],
        "budget": told["budget"],
        "agents": told["agents"],
        "files": [_file(change) for change in files[:_MOST_FILES]],
        "files_total": len(files),
        "files_counts": counts,
        "ancestor": _ancestor(handle, pair.old, pair.new) if pair.new is not None else None,
        "seconds": (pair.new.created_at - pair.old.created_at).total_seconds() if pair.new is not None else None,
        "steps": (pair.old.summary.steps, pair.until.summary.steps),
        "since": _since(handle, pair.until),
        "command": shlex.join(["holdfast", "diff", a, *([b] if b != NOW else [])]),
    }


def section(
    site: Site, handle: Handle, a: str, b: str, name: str, *, offset: int, limit: int
) -> answers.DifferencePage:
    """Return a page of the differences in one section."""
    state = Pair(site, handle, a, b).state()
    one = next((part for part in state.sections if part.name == name), None)
    if one is None:
        return {"name": name, "total": 0, "offset": 0, "differences": []}
    shown = one.differences[offset : offset + min(limit, _MOST_DIFFERENCES)]
    return {
        "name": name,
        "total": len(one.differences),
        "offset": offset,
        "differences": [_difference(handle, difference) for difference in shown],
    }


def file(site: Site, handle: Handle, a: str, b: str, path: str) -> answers.FileDiffAnswer:
    """Return how one file differs, as a unified diff."""
    pair = Pair(site, handle, a, b)
    change = next((one for one in pair.changes() if one.path == path), None)
    trees = pair.trees()
    if change is None or trees is None:
        raise NotFound("file that differs", path)
    told = diff(change, *trees)
    text = handle.clean_text(told.text)
    return {
        **_file(change),
        "added": told.added,
        "removed": told.removed,
        "note": told.note or None,
        "diff": text[:_MOST_DIFF_CHARS],
        "cut": len(text) > _MOST_DIFF_CHARS,
    }


def _since(handle: Handle, later: Checkpoint) -> dict[str, str]:
    """Return where the later point's phase began, and where the run stood at its last answer."""
    points: dict[str, str] = {}
    if later.summary.phase:
        with suppress(HoldfastError):  # a phase that the run began with, or whose beginning was deleted
            points["phase"] = found(handle, f"{later.run}:before:{later.summary.phase}").place
    answered = at_last_answer(handle, later)
    if answered is not None:
        points["answer"] = answered.place
    return {name: place for name, place in points.items() if place != later.place}


def _file(change: Change) -> answers.FileChange:
    before, after = change.before, change.after
    return {
        "path": change.path,
        "status": change.status,
        "old_path": before.path if before is not None else None,
        "kind": (after or before).kind if after or before else "file",  # type: ignore[union-attr]
        "old_size": before.size if before is not None else None,
        "size": after.size if after is not None else None,
    }


def _difference(handle: Handle, one: Difference) -> answers.DifferenceAnswer:
    from holdfast.recovery.short_form import jsonable  # noqa: PLC0415 - with the rest of a comparison

    def shown(value: object) -> tuple[str, str]:
        if isinstance(value, str):
            return handle.clean_text(str(jsonable(value, max_chars=4000))), "text"
        return handle.clean_text(short(handle.clean(value, one.path))), type(value).__name__

    told: answers.DifferenceAnswer = {"path": one.path, "kind": one.kind}
    if one.kind != "added":
        told["old"], told["old_kind"] = shown(one.old)
    if one.kind != "removed":
        told["new"], told["new_kind"] = shown(one.new)
    return told


def _ancestor(handle: Handle, old: Checkpoint, new: Checkpoint) -> answers.PlaceAnswer | None:
    """Return the newest checkpoint that both points were taken on, over forks too."""
    seen: set[str] = set()
    pairs = zip_longest(ancestors(handle.hf.store, old.record), ancestors(handle.hf.store, new.record))
    for record in islice(chain.from_iterable(pairs), 2 * _MOST_ANCESTORS):
        if record is None:
            continue
        name = record.envelope.id
        if name in seen:
            return {"id": name, "run": record.envelope.run, "seq": record.envelope.seq}
        seen.add(name)
    return None
