"""Token usage as the usual agents report it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.sections import TokenUsage

_INPUT = (
    ("input", "input_tokens", "prompt_tokens"),
    ("cache_creation_input_tokens",),
    ("cache_read_input_tokens",),
)  # of each row the first that is there; rows are added up
_OUTPUT = (("output", "output_tokens", "completion_tokens"),)
_TOTAL = (("total_tokens",),)
USAGE_NAMES = tuple(name for row in (*_INPUT, *_OUTPUT, *_TOTAL) for name in row)
"""Every name under which tokens are counted."""


def report_of(value: Any) -> Any:
    """Return the object that says what a call came to: of a list of messages the last, if that reports its usage."""
    last = value[-1] if isinstance(value, list) and value else None
    return last if isinstance(last, Mapping) and "usage" in last else value


def usage_of(value: Any) -> TokenUsage:
    """Return the tokens that a report, as data or as JSON text, has under `usage` or `tokens`; none if there are none.

    A total alone counts as input.
    """
    report = report_of(_read(value) if isinstance(value, str) else value)
    if not isinstance(report, Mapping):
        return TokenUsage()
    reported = report.get("usage", report.get("tokens"))
    if type(reported) is int:
        return TokenUsage(input=max(reported, 0))
    if isinstance(reported, TokenUsage):
        return reported
    if not isinstance(reported, Mapping):
        return TokenUsage()
    usage = TokenUsage(input=_added_up(reported, _INPUT), output=_added_up(reported, _OUTPUT))
    return usage if usage.input or usage.output else TokenUsage(input=_added_up(reported, _TOTAL))


def _read(text: str) -> Any:
    """Return what a text says as JSON, None if it is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def added(usage: TokenUsage, more: TokenUsage) -> TokenUsage:
    """Return both together."""
    return TokenUsage(input=usage.input + more.input, output=usage.output + more.output)


def _added_up(reported: Mapping[str, Any], rows: tuple[tuple[str, ...], ...]) -> int:
    total = 0
    for names in rows:
        found = next((reported[name] for name in names if name in reported), 0)
        total += found if type(found) is int and found > 0 else 0
    return total
