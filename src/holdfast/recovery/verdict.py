"""Verdict on resuming after the world moved: the one place that makes an error of it, however a run is resumed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol

from blake3 import blake3

from holdfast.errors import CannotResume, RunWaiting
from holdfast.model.verdicts import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.engine import Holdfast
    from holdfast.model.verdicts import Verdict
    from holdfast.recovery.subject import SubjectProvider, SubjectSource

_MOST_ASKED = 5


class Freshness(NamedTuple):
    """How to look at what moved outside a run since its checkpoint was taken."""

    verdicts: Mapping[str, Verdict] | None = None
    """What follows from each kind of change, where it is not the default: resume, warn, ask or fresh."""
    older_than: timedelta | None = None
    subject: SubjectSource | None = None
    """Who knows how the issue or task that the run is about is now."""
    flow: str | None = None
    """The digest of the flow's definition now, and when the checkpoint was taken."""
    flow_then: str | None = None


class FoundFacts(Protocol):
    """A finding, as far as its verdict goes."""

    @property
    def kind(self) -> str:
        """What moved."""

    @property
    def detail(self) -> str:
        """How, in words."""


def freshness_of(
    hf: Holdfast,
    given: Freshness,
    subject: SubjectProvider | str | None = None,
    verdicts: Mapping[str, Verdict] | None = None,
) -> Freshness:
    """Return how to look: what is given over what the settings say."""
    settings = hf.settings.recovery
    days = settings.max_age_days
    source = given.subject
    if subject is not None:
        from holdfast.recovery.subject import subject_source  # noqa: PLC0415 - few runs have one

        source = subject_source(subject)
    return given._replace(
        verdicts={**settings.verdicts, **(given.verdicts or {}), **(verdicts or {})},
        older_than=given.older_than or (timedelta(days=days) if days is not None else None),
        subject=source,
    )


def enforced(run: str, checkpoint: str, found: Sequence[FoundFacts]) -> Verdict:
    """Return the gravest verdict; CannotResume if that is to start fresh."""
    worst: Verdict = max((_verdict(one) for one in found), key=VERDICTS.index, default="resume")
    if worst == "fresh":
        reasons = tuple(one.detail for one in found if _verdict(one) == "fresh")
        back = f"`holdfast resume {run} --git`, hf.recover({run!r}, workspace=..., git=True), to bring the branch back"
        ways = (
            f"`holdfast resume {run} --fresh`, hf.recovery.start_fresh({run!r}), to start from the beginning",
            *((back,) if any(one.kind == "branch-gone" for one in found) else ()),
            f"`holdfast resume {run}` on a terminal, hf.recover(plan, confirmed=True), to resume all the same",
        )
        raise CannotResume(run, checkpoint, reasons, ways)
    return worst


def enforce(run: str, checkpoint: str, found: Sequence[FoundFacts]) -> None:
    """Raise CannotResume where to start fresh is the verdict, RunWaiting where a person has to be asked."""
    if enforced(run, checkpoint, found) == "ask":
        wait, question = wait_of(found)
        raise RunWaiting(run, wait, "approval", question)


def wait_of(found: Sequence[FoundFacts]) -> tuple[str, str]:
    """Return the name of the question whether to resume, and the question; the same findings ask the same."""
    asked = [one for one in found if _verdict(one) == "ask"]
    name = blake3("\n".join(f"{one.kind}: {one.detail}" for one in asked).encode("utf-8", "replace")).hexdigest()[:16]
    more = f"; and {len(asked) - _MOST_ASKED} more" if len(asked) > _MOST_ASKED else ""
    told = "; ".join(one.detail for one in asked[:_MOST_ASKED])
    return f"resume:{name}", f"resume all the same? {told}{more}"


def _verdict(one: FoundFacts) -> Verdict:
    verdict: Verdict = one.verdict  # type: ignore[attr-defined]
    return verdict
