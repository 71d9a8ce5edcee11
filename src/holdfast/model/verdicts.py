"""What follows for a resume from each thing that may have moved outside the run; settings and code may say else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from holdfast.errors import UsageError
from holdfast.model.nearest import hint

if TYPE_CHECKING:
    from collections.abc import Mapping

Verdict = Literal["resume", "warn", "ask", "fresh"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # from the mildest on
DEFAULT_VERDICTS: dict[str, Verdict] = {
    "branch-gone": "fresh",
    "branch-switched": "ask",
    "head-moved": "warn",
    "moved-by-run": "warn",
    "repository-gone": "ask",
    "git-unknown": "warn",
    "files-changed": "warn",
    "labels-changed": "warn",
    "body-changed": "ask",
    "title-changed": "warn",
    "assignees-changed": "warn",
    "subject-branch-changed": "ask",
    "subject-gone": "ask",
    "subject-unknown": "warn",
    "flow-changed": "ask",
    "program-changed": "warn",
    "format-changed": "warn",
    "too-old": "ask",
}

OF_POSITION = frozenset({"branch-gone", "branch-switched", "head-moved", "moved-by-run", "repository-gone"})
"""What a recovery puts back that takes the git position, too."""
OF_BRANCH = OF_POSITION | {"git-unknown"}
OF_FILES = frozenset({"files-changed"})
OF_SUBJECT = frozenset(
    kind for kind in DEFAULT_VERDICTS if kind.startswith(("labels", "body", "title", "assignees", "subject"))
)


def check_verdicts(verdicts: Mapping[str, Any]) -> dict[str, Verdict]:
    """Return verdicts by kind, or raise UsageError that names the nearest kind or the verdicts there are."""
    for kind, verdict in verdicts.items():
        if kind not in DEFAULT_VERDICTS:
            raise UsageError(f"{kind!r:.80} is nothing that freshness looks at: {hint(str(kind), DEFAULT_VERDICTS)}")
        if verdict not in VERDICTS:
            raise UsageError(f"{kind}: {verdict!r:.80} is not a verdict: use {', '.join(VERDICTS)}")
    return cast("dict[str, Verdict]", dict(verdicts))
