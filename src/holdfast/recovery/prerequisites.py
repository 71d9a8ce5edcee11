"""Prerequisites of a resume: the branch, the subject, the files, and what the run itself waits for; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.model.verdicts import OF_BRANCH, OF_FILES, OF_SUBJECT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.model.recovery import RecoveryInfo
    from holdfast.recovery.freshness import FreshnessFacts
    from holdfast.recovery.plan import PlanFinding

Kind = Literal["branch", "subject", "files", "wait"]
_UNMET = ("ask", "fresh")


class Prerequisite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that a run needs to continue, and whether it is there."""

    kind: Kind
    needs: str
    is_met: bool | None
    """None where nobody looked: no workspace or no subject was named."""
    detail: str = ""
    """What moved, or what is missing."""

    def __str__(self) -> str:
        return f"{self.needs}: {self.detail}" if self.detail else self.needs


def prerequisites_of(
    info: RecoveryInfo,
    then: FreshnessFacts | None,
    now: FreshnessFacts | None = None,
    found: Sequence[PlanFinding] = (),
    *,
    has_files: bool = False,
) -> tuple[Prerequisite, ...]:
    """Return what a checkpoint needs, each met unless what moved asks for a person or for a fresh start.

    Without `now` nobody looked how the world is.
    """
    outside = () if then is None else _outside(then, now or then.__class__(), found, has_files=has_files)
    return (*outside, *_waits(info))


def all_met(needed: Sequence[Prerequisite]) -> bool | None:
    """Tell whether all are there; None if nobody looked at one, and none that was looked at is missing."""
    met = {one.is_met for one in needed}
    return False if False in met else None if None in met else True


def _outside(
    then: FreshnessFacts, now: FreshnessFacts, found: Sequence[PlanFinding], *, has_files: bool
) -> Iterator[Prerequisite]:
    if then.head is not None:
        place = f"branch {then.branch!r}" if then.branch is not None else f"commit {(then.commit or 'none')[:12]}"
        yield _one("branch", place, OF_BRANCH, found, is_known=now.head is not None)
    if then.subject is not None:
        is_known = now.is_subject_known or now.subject_problem is not None
        yield _one("subject", f"subject {then.subject.id!r:.100}", OF_SUBJECT, found, is_known=is_known)
    if has_files:
        yield _one("files", "the files as captured", OF_FILES, found, is_known=now.files_changed is not None)


def _one(
    kind: Kind, needs: str, kinds: frozenset[str], found: Sequence[PlanFinding], *, is_known: bool
) -> Prerequisite:
    moved = [one for one in found if one.kind in kinds]
    is_met = all(one.verdict not in _UNMET for one in moved) if is_known else None
    return Prerequisite(kind=kind, needs=needs, is_met=is_met, detail="; ".join(one.detail for one in moved))


def _waits(info: RecoveryInfo) -> Iterator[Prerequisite]:
    for needs in info.prerequisites:
        yield Prerequisite(kind="wait", needs=needs, is_met=False)
    if not info.prerequisites:
        yield Prerequisite(kind="wait", needs="nothing that it waits for", is_met=True)
