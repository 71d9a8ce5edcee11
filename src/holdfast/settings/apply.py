"""From settings to the options of each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.capture.redact import RedactionRules
from holdfast.capture.strategy import AnyOf, Condition, Every, On, OnBudgetWarning, OnLoopComplete, OnPhaseComplete
from holdfast.capture.watch import WatchOptions

if TYPE_CHECKING:
    from holdfast.settings.values import RedactionSettings, Settings, StrategySettings


def watch_options(settings: Settings, strategy: Condition | None) -> WatchOptions:
    """Return how runs are watched; a strategy given in code wins over the settings'."""
    return WatchOptions(
        automatic=settings.automatic,
        rules=settings.rules,
        strategy=strategy or make_strategy(settings.strategy),
        operations=settings.operations,
        interval_s=settings.interval_s,
        signals=settings.session.signals,
        deadline_s=settings.session.deadline_s,
        lead_s=settings.session.lead_s,
        on_failure=settings.on_checkpoint_failure,
    )


def make_strategy(settings: StrategySettings) -> Condition:
    """Return the conditions that are set, joined by "or"; where none is, every trigger leads to one, or none does."""
    conditions: list[Condition] = []
    if settings.phases is not None:
        conditions.append(OnPhaseComplete(*settings.phases))
    if settings.every_loops is not None:
        conditions.append(OnLoopComplete(every=settings.every_loops))
    if settings.on_budget_warning:
        conditions.append(OnBudgetWarning())
    if settings.every_s is not None:
        conditions.append(Every(settings.every_s))
    return On() if not conditions and settings.otherwise == "all" else AnyOf(conditions)


def redaction_rules(settings: RedactionSettings) -> RedactionRules | None:
    """Return what is kept out, None if redaction is switched off."""
    if not settings.enabled:
        return None
    return RedactionRules(
        keys=tuple(dict.fromkeys((*settings.keys, *settings.more_keys))),
        paths=tuple(settings.paths),
        patterns=tuple(settings.patterns.items()),
        fill=tuple(settings.fill.items()),
    )
