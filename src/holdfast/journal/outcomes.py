"""Results of calls, looked up where a section or another result refers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.encode.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    LookUp = Callable[[str, str], Any]
    """Returns the result of a call by path and version, None where that is not there."""

SHOWING = frozenset({"agents", "graph", "gates", "phases"})
"""The sections that refer to results."""
_LONGEST_SUMMARY = 300


def resolved(value: Any, look_up: LookUp) -> Any:
    """Return plain data with the results in place of what refers to them."""
    if type(value) is Outcome:
        return shown(value, look_up)
    if type(value) is dict:
        return {key: resolved(item, look_up) for key, item in value.items()}
    if type(value) is list:
        return [resolved(item, look_up) for item in value]
    return value


def shown(outcome: Outcome, look_up: LookUp) -> Any:
    """Return what an outcome stands for."""
    found = look_up(outcome.path, outcome.version)
    for key in outcome.keys:
        found = found.get(key) if isinstance(found, dict) else None
    return summary_of(found) if outcome.is_summary else found


def refers_to_results(value: Any) -> bool:
    """Tell whether plain data holds something that refers to the result of a call."""
    if isinstance(value, dict):
        return any(map(refers_to_results, value.values()))
    return type(value) is Outcome or (isinstance(value, list) and any(map(refers_to_results, value)))


def summary_of(value: Any) -> str:
    """Return what was done in short: a summary that is given, or the last line that says something."""
    if isinstance(value, dict):
        for name in ("summary", "result", "message"):
            if isinstance(value.get(name), str):
                return summary_of(value[name])
        return ""
    if value is None:
        return ""
    if not isinstance(value, str):
        value = msgspec.json.encode(value, enc_hook=str).decode()
    line = next((line.strip() for line in reversed(value.splitlines()) if line.strip()), "")
    return line if len(line) <= _LONGEST_SUMMARY else line[: _LONGEST_SUMMARY - 3] + "..."
