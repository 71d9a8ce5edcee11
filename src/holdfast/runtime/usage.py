"""Token usage as the usual agents report it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.model.sections import TokenUsage

_INPUT = (
    ("input", "input_tokens", "prompt_tokens"),
    ("cache_creation_input_tokens",),
    ("cache_read_input_tokens",),
)  # of each row the first that is there; rows are added up
_OUTPUT = (("output", "output_tokens", "completion_tokens"),)


def usage_of(value: Any) -> TokenUsage:
    """Return the tokens that a mapping reports under `usage`; none if it reports none that make sense."""
    reported = value.get("usage") if isinstance(value, Mapping) else None
    if isinstance(reported, TokenUsage):
        return reported
    if not isinstance(reported, Mapping):
        return TokenUsage()
    return TokenUsage(input=_added_up(reported, _INPUT), output=_added_up(reported, _OUTPUT))


def added(usage: TokenUsage, more: TokenUsage) -> TokenUsage:
    """Return both together."""
    return TokenUsage(input=usage.input + more.input, output=usage.output + more.output)


def _added_up(reported: Mapping[str, Any], rows: tuple[tuple[str, ...], ...]) -> int:
    total = 0
    for names in rows:
        found = next((reported[name] for name in names if name in reported), 0)
        total += found if type(found) is int and found > 0 else 0
    return total
