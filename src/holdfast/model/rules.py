"""Rules: one table from an event to what it causes: a checkpoint or not, with files or not, how many are kept.

Settings, presets, strategies and code compile to these rows; capture and retention both read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar, cast

import msgspec

from holdfast.errors import UsageError
from holdfast.model.triggers import TRIGGER_GROUPS, Trigger, checked_trigger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALL = -1
OTHERS = "*"
"""The name that stands for every trigger that is not named beside it."""


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many checkpoints of a trigger stay: the newest so many, of each phase or of all.

    ALL spares them from age and count. None says nothing about them: they stay until they are too old.
    """

    count: int | None = msgspec.field(name="keep")
    per_phase: bool = False


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What one event causes."""

    checkpoint: bool | Literal["asked"] = True
    """Whether it takes a checkpoint; "asked": only where somebody wants one for it (a step that wrote files)."""
    files: bool = False
    """Whether that checkpoint captures the workspace; otherwise the files are carried over."""
    keep: Keep = Keep(None)


class Rules(msgspec.Struct, frozen=True):
    """The table: a row for every trigger."""

    rows: dict[Trigger, Rule]

    def of(self, trigger: Trigger | str) -> Rule:
        """Return the row of a trigger; one that no version of this program knows is kept until it is too old."""
        return self.rows.get(cast("Trigger", trigger), _UNKNOWN)  # a Trigger equals its text

    def takes(self, trigger: Trigger, *, asked: bool = False) -> bool:
        """Tell whether an event takes a checkpoint by itself; `asked` says that somebody wants one for it."""
        wanted = self.rows[trigger].checkpoint
        return asked if wanted == "asked" else wanted

    def switched(self, switches: Mapping[str, bool]) -> Rules:
        """Return these rules with triggers, or groups of them, switched on or off; `*` is every one not named."""
        return self._changed(
            {
                trigger: msgspec.structs.replace(self.rows[trigger], checkpoint=is_on)
                for trigger, is_on in _by_trigger(switches, self.rows).items()
                if trigger is not Trigger.MANUAL  # which is always taken
            }
        )

    def capturing_files(self, triggers: Iterable[str]) -> Rules:
        """Return these rules with the workspace captured at these triggers, and at no other."""
        wanted = {checked_trigger(name) for name in triggers}
        return self._changed(
            {trigger: msgspec.structs.replace(row, files=trigger in wanted) for trigger, row in self.rows.items()}
        )

    def keeping(self, counts: Mapping[str, int | Keep | None]) -> Rules:
        """Return these rules with other counts; `*` is every trigger not named.

        A plain number keeps the row's own "of each phase".
        """
        return self._changed(
            {
                trigger: msgspec.structs.replace(self.rows[trigger], keep=_kept(trigger, count, self.rows[trigger]))
                for trigger, count in _by_trigger(counts, self.rows).items()
            }
        )

    def _changed(self, rows: Mapping[Trigger, Rule]) -> Rules:
        return Rules({**self.rows, **rows})


_V = TypeVar("_V")


def _by_trigger(given: Mapping[str, _V], others: Iterable[Trigger]) -> dict[Trigger, _V]:
    """Return what is given by name for each trigger it means."""
    found: dict[Trigger, _V] = {}
    for name, value in given.items():
        if name in TRIGGER_GROUPS:
            found.update(dict.fromkeys(TRIGGER_GROUPS[name], value))
        elif name != OTHERS:
            found[checked_trigger(name)] = value
    if OTHERS in given:
        found.update({trigger: given[OTHERS] for trigger in others if trigger not in found})
    return found


def _kept(trigger: Trigger, count: int | Keep | None, row: Rule) -> Keep:
    keep = count if isinstance(count, Keep) else Keep(count, row.keep.per_phase and count is not None)
    if keep.count is not None and keep.count < ALL:
        raise UsageError(f"retention of {trigger}: keep={keep.count}; give a number from 0 up, or -1 for all")
    return keep


_UNKNOWN = Rule()
_T = Trigger
RULES = Rules(
    {
        _T.STATE_TRANSITION: Rule(files=True),
        _T.PHASE_TRANSITION: Rule(files=True, keep=Keep(ALL)),
        _T.PHASE_COMPLETE: Rule(files=True),
        _T.BATCH_COMPLETE: Rule(files=True, keep=Keep(3, per_phase=True)),
        _T.AGENT_COMPLETE: Rule(files=True, keep=Keep(1, per_phase=True)),
        _T.STEP_COMPLETE: Rule(checkpoint="asked"),
        _T.STAGE_COMPLETE: Rule(),
        _T.GATE_COMPLETE: Rule(),
        _T.LOOP_COMPLETE: Rule(),
        _T.USER_APPROVAL: Rule(),
        _T.ERROR_OCCURRED: Rule(files=True),
        _T.CONFLICT_START: Rule(keep=Keep(1, per_phase=True)),
        _T.CONFLICT_RESOLVED: Rule(keep=Keep(ALL)),
        _T.REPLAN: Rule(),
        _T.BUDGET_WARNING: Rule(),
        _T.TIME_INTERVAL: Rule(),
        _T.BEFORE_DESTRUCTIVE: Rule(files=True),
        _T.USER_INTERRUPT: Rule(files=True, keep=Keep(1)),
        _T.SESSION_END: Rule(files=True, keep=Keep(1)),
        _T.RECOVERY: Rule(),
        _T.SHUTDOWN: Rule(files=True),
        _T.MANUAL: Rule(files=True, keep=Keep(ALL)),
    }
)
"""The defaults: the one place where they stand."""
