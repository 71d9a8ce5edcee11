"""The plan of a restore: a frozen value that is shown, saved and then applied exactly as it is."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import msgspec
from blake3 import blake3

from holdfast.errors import RestoreRefused
from holdfast.workspace import paths
from holdfast.workspace.decide import Action
from holdfast.workspace.state import ABSENT, State

_FORMAT = 1
_HASH = re.compile("[0-9a-f]{64}")


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


class RestorePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a restore would do to `target`; equal plans have equal digests."""

    target: str
    snapshot: str
    in_place: bool
    items: tuple[PlanItem, ...]
    format: int = _FORMAT

    @property
    def digest(self) -> str:
        """Return the name of this very plan."""
        try:
            return blake3(msgspec.json.encode(self)).hexdigest()
        except UnicodeEncodeError:  # a name that is no UTF-8
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


def to_json(plan: RestorePlan) -> bytes:
    """Return a plan as JSON; names that are no UTF-8 are escaped as lone surrogates."""
    return json.dumps(msgspec.to_builtins(plan), sort_keys=True, separators=(",", ":")).encode("ascii")


def from_json(data: bytes | str) -> RestorePlan:
    """Return a plan from its JSON; RestoreRefused unless every path in it may be written."""
    try:
        plain: Any = json.loads(data)
        plan = msgspec.convert(plain, RestorePlan)
    except (ValueError, msgspec.ValidationError) as error:
        raise RestoreRefused(f"this is no plan of a restore ({error})") from error
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
