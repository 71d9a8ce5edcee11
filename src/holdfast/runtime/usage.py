"""Token usage, money and tool calls as the usual agents report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import UsageError
from holdfast.model.sections import TokenUsage
from holdfast.runtime.amounts import Amount, add, amount_of

_INPUT = (
    ("input", "input_tokens", "prompt_tokens"),
    ("cache_creation_input_tokens",),
    ("cache_read_input_tokens",),
)  # of each row the first that is there; rows are added up
_OUTPUT = (("output", "output_tokens", "completion_tokens"),)
_TOTAL = (("total_tokens",),)
USAGE_NAMES = tuple(name for row in (*_INPUT, *_OUTPUT, *_TOTAL) for name in row)
"""Every name under which tokens are counted."""
MONEY_NAMES = ("total_cost_usd", "cost_usd", "cost")
"""Every name under which money is counted; the first that is there."""


class Spent(NamedTuple):
    """What a call cost, as far as it says so."""

    tokens: int = 0
    tool_calls: int = 0
    money: Amount = 0


def spent_of(value: Any, tokens: TokenUsage | None = None) -> Spent:
    """Return what a report says that was spent; numbers that make no sense count as nothing.

    UsageError if they are more than can be counted. Money and tool calls stand in the report itself, or under `usage`.
    Tokens that are known already are given.
    """
    tokens = usage_of(value) if tokens is None else tokens
    report = report_of(_read(value) if isinstance(value, str) else value)
    found = Spent(tokens=int(add(tokens.input, tokens.output)))
    if not isinstance(report, Mapping):
        return found
    usage = report.get("usage")
    places = [report, usage] if isinstance(usage, Mapping) else [report]
    prices = (place[name] for place in places for name in MONEY_NAMES if place.get(name) is not None)
    calls = next((place["tool_calls"] for place in reversed(places) if "tool_calls" in place), 0)
    return found._replace(money=_price(next(prices, 0)), tool_calls=_count("tool_calls", calls))


def _price(given: Any) -> Amount:
    try:
        return amount_of("money", given)
    except UsageError:
        return 0


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
        return TokenUsage(input=_count("tokens", reported))
    if isinstance(reported, TokenUsage):
        return counted(reported)
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


def counted(usage: TokenUsage) -> TokenUsage:
    """Return usage that a program made; UsageError unless both are numbers that can be counted."""
    for tokens in (usage.input, usage.output):
        if type(tokens) is not int:
            raise UsageError(f"tokens={tokens!r:.40}: give a whole number")
        amount_of("tokens", tokens)
    return usage


def added(usage: TokenUsage, more: TokenUsage) -> TokenUsage:
    """Return both together, each at most what can be counted."""
    return TokenUsage(input=int(add(usage.input, more.input)), output=int(add(usage.output, more.output)))


def _added_up(reported: Mapping[str, Any], rows: tuple[tuple[str, ...], ...]) -> int:
    total = 0
    for names in rows:
        found = next((reported[name] for name in names if name in reported), 0)
        total += _count("tokens", found)
    return int(amount_of("tokens", total))


def _count(name: str, given: Any) -> int:
    return int(amount_of(name, given)) if type(given) is int and given > 0 else 0
