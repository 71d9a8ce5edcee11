"""Amounts of a budget, added without drift; pure.

An amount is an int or a Decimal. A float counts as the number that it is written as (0.1 is a tenth), so a thousand
times 0.1 is 100. In a section an amount is an int or a float, which keeps 15 digits of it exactly.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, InvalidOperation

from holdfast.errors import UsageError

Amount = int | Decimal
Given = int | float | Decimal | str
_EXACT = Context(prec=60)
LARGEST = 10**18  # a store takes whole numbers below 2**63


def amount_of(name: str, given: Given) -> Amount:
    """Return what a caller gave as an amount; UsageError names the budget unless it is a number from 0 up."""
    if isinstance(given, bool) or not isinstance(given, int | float | Decimal | str):
        raise UsageError(f"{name}={given!r}: give a number")
    try:
        exact = given if isinstance(given, int) else Decimal(str(given))
    except InvalidOperation:
        raise UsageError(f"{name}={given!r}: that is not a number") from None
    if isinstance(exact, Decimal) and not exact.is_finite():
        raise UsageError(f"{name}={given!r}: give a number that is one")
    if exact < 0:
        raise UsageError(f"{name}={given!r}: what is spent cannot be taken back; give a number from 0 up")
    if exact > LARGEST:
        raise UsageError(f"{name}={repr(given)[:40]}: that is more than can be counted")
    return _shortest(exact)


def add(one: Amount, other: Amount) -> Amount:
    """Return the exact sum, at most what can be counted: more could not be stored, and no budget reaches further."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one + other, LARGEST)
    return min(_shortest(_EXACT.add(Decimal(one), Decimal(other))), LARGEST)


def subtract(one: Amount, other: Amount) -> Amount:
    """Return the exact difference."""
    return _shortest(_EXACT.subtract(Decimal(one), Decimal(other)))


def stored(amount: Amount) -> int | float:
    """Return an amount as sections have it."""
    return amount if isinstance(amount, int) else float(amount)


def from_stored(value: float) -> Amount:
    """Return an amount of a section; UsageError if it is none."""
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        raise UsageError(f"the stored budget has {value!r}, which is not a number")
    return _shortest(Decimal(str(value)))


def shown(amount: Amount) -> str:
    """Return an amount for people."""
    return f"{amount:,}" if isinstance(amount, int) else f"{amount.normalize(_EXACT):,f}"


def _shortest(exact: Amount) -> Amount:
    """Return whole numbers as int, so that equal amounts are stored alike."""
    if isinstance(exact, Decimal) and exact == exact.to_integral_value():
        return int(exact)
    return exact
