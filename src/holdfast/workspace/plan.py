"""The plan of a restore: a frozen value that is shown, saved and then applied exactly as it is."""

from __future__ import annotations

import json
import re
from collections import Counter

import msgspec
from blake3 import blake3

from holdfast.encode.documents import Bounds, parse_json
from holdfast.errors import DocumentInvalid, RestoreRefused
from holdfast.workspace import paths
from holdfast.workspace.decide import Action
from holdfast.workspace.ownership import Owner
from holdfast.workspace.state import ABSENT, State

_FORMAT = 1
_BOUNDS = Bounds(size_bytes=256 << 20, nodes=10_000_000)  # a plan names every file of a tree
_HASH = re.compile("[0-9a-f]{64}")
_ORDER = ("interrupted", "person", "unknown", "run")
_SIGNS = {
    "write": "+",
    "replace": "~",
    "delete": "-",
    "mode": "~",
    "merge": "m",
    "both": "2",
    "keep": "=",
    "conflict": "!",
}


class PlanItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One path that differs from the checkpoint: its three states, what is done with it, and why.

    `merged` is the content's hash of a merge, `beside` the path that takes the checkpoint's file when both are kept.
    """

    path: str
    action: Action
    reason: str
    checkpoint: State = ABSENT
    last: State | None = None
    disk: State = ABSENT
    mtime_ns: int = 0
    merged: str = ""
    beside: str = ""
    owner: Owner = "run"


class RestorePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a restore would do to `target`; equal plans have equal digests."""

    target: str
    snapshot: str
    in_place: bool
    items: tuple[PlanItem, ...]
    interrupted: str = ""
    """What was interrupted and had changed some of the files."""
    format: int = _FORMAT

    @property
    def digest(self) -> str:
        """Return the name of this very plan."""
        try:
            return blake3(msgspec.json.encode(self)).hexdigest()
        except UnicodeEncodeError:  # a name that is not UTF-8
            return blake3(to_json(self)).hexdigest()

    @property
    def conflicts(self) -> tuple[PlanItem, ...]:
        """Return what a person has to decide first."""
        return tuple(item for item in self.items if item.action == "conflict")

    @property
    def changes(self) -> tuple[PlanItem, ...]:
        """Return what would be done."""
        return tuple(item for item in self.items if item.action not in ("keep", "conflict"))

    @property
    def overwrites(self) -> bool:
        """Return whether anything that is on disk would be replaced or deleted."""
        return any(item.action in ("replace", "delete", "merge", "mode") for item in self.items)

    def counts(self) -> dict[str, int]:
        """Return how many paths there are for each action."""
        return dict(Counter(item.action for item in self.items))

    def kept(self, *owners: Owner, deleted: bool | None = None) -> tuple[PlanItem, ...]:
        """Return what is kept of these owners' changes; with `deleted`, only what they did or did not delete."""
        found = (item for item in self.items if item.action == "keep" and item.owner in owners)
        return tuple(item for item in found if deleted is None or (item.disk.kind == "absent") == deleted)

    def lines(self, *, most: int = 20) -> list[str]:
        """Say it in words: what happens to whose changes, each with its files."""
        groups: dict[str, list[PlanItem]] = {}
        for item in sorted(self.items, key=lambda item: (_ORDER.index(item.owner), item.action != "conflict")):
            groups.setdefault(_heading(item, self.interrupted), []).append(item)
        told, left = [], most
        for heading, items in groups.items():
            count = "1 file" if len(items) == 1 else f"{len(items):,} files"
            told.append(heading.replace("#", count))
            told += [f"  {_SIGNS[item.action]} {item.path!r}{_beside(item)}" for item in items[:left]]
            if len(items) > left:
                told.append(f"  and {len(items) - left:,} more")
            left = max(3, left - len(items))
        return told


def to_json(plan: RestorePlan) -> bytes:
    """Return a plan as JSON; names that are not UTF-8 are escaped as lone surrogates."""
    return json.dumps(msgspec.to_builtins(plan), sort_keys=True, separators=(",", ":")).encode("ascii")


def from_json(data: bytes | str) -> RestorePlan:
    """Return a plan from its JSON; RestoreRefused unless every path in it may be written."""
    try:
        plain = parse_json(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data, "it", _BOUNDS)
        plan = msgspec.convert(plain, RestorePlan)
    except (DocumentInvalid, ValueError, msgspec.ValidationError) as error:
        raise RestoreRefused(f"this is not a plan of a restore ({error})") from error
    check(plan)
    return plan


def check(plan: RestorePlan) -> None:
    """Raise RestoreRefused if a plan names a path twice or one that may not be written."""
    seen: set[str] = set()
    try:
        for item in plan.items:
            for path in (item.path, item.beside) if item.beside else (item.path,):
                paths.split(path)
                if path in seen:
                    raise RestoreRefused(f"the plan names {path!r} twice")
                seen.add(path)
            if item.checkpoint.hash and not _HASH.fullmatch(item.checkpoint.hash):
                raise RestoreRefused(f"the plan names no content for {item.path!r}")
    except ValueError as error:
        raise RestoreRefused(f"the plan names a path that may not be written: {error}") from error


def _heading(item: PlanItem, interrupted: str) -> str:
    """Return what is done with such an item, and whose change it was; # stands for how many there are."""
    if item.action == "conflict":
        return f"# to decide about ({item.reason}): --take, --keep, --both or --merge"
    did = "created" if item.checkpoint.kind == "absent" else "deleted" if item.disk.kind == "absent" else "changed"
    is_kept = item.action in ("keep", "both")
    end = {"keep": "kept", "delete": "deleted", "merge": "merged", "both": "both are kept"}.get(item.action, "restored")
    if item.last is None:
        return f"# {'that were here before' if item.disk.kind != 'absent' else 'missing'}: {end}"
    if item.owner == "interrupted":
        end = "kept; `--roll-back` restores them" if is_kept else "rolled back"
        return f"{interrupted} was interrupted and had changed #: {end}"
    if item.owner == "run":
        return f"the run {did} # since: {'kept' if is_kept else end}"
    who = f"you {did} #" if item.owner == "person" else f"# {did} since the last checkpoint, by whom is not known"
    if not is_kept:
        return f"{who}: {end}"
    if did == "created":
        return f"{who}: kept"
    return f"{who}: kept{' deleted' if did == 'deleted' else ''}; `--take` restores the checkpoint's"


def _beside(item: PlanItem) -> str:
    return f" -> {item.beside!r}" if item.beside else ""
