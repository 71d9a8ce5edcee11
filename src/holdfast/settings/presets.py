"""Presets: the settings that suit one kind of work, as plain data below what a user sets."""

from __future__ import annotations

from typing import Any

from holdfast.errors import UsageError

PRESETS: dict[str, dict[str, Any]] = {
    "workflow": {},
    "plan": {},
    "issue": {"triggers": {"agent_complete": False}, "compression": "none", "retention": {"total_mb": 50}},
    "task": {
        "retention": {
            "live": None,
            "age_days": None,
            "last": 5,
            "triggers": {"*": None},
        },
    },
    "episode": {
        "strategy": {"otherwise": "none"},
        "retention": {"age_days": 7, "last": 10, "triggers": {"*": None}},
    },
}


def preset_under(data: dict[str, Any]) -> dict[str, Any]:
    """Return settings as plain data, the preset that they name put below them; UsageError if there is none such.

    What is set wins, also where it is the default: that it is there is what counts.
    """
    name = data.get("preset", "workflow")
    if not isinstance(name, str) or name not in PRESETS:
        raise UsageError(f"preset: there is no {name!r:.80}; use {', '.join(PRESETS)}")
    return _over(PRESETS[name], {key: value for key, value in data.items() if key != "preset"})


def _over(below: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    merged = {**below, **given}
    for name, value in below.items():
        if isinstance(value, dict) and isinstance(given.get(name), dict):
            merged[name] = _over(value, given[name])
    return merged
