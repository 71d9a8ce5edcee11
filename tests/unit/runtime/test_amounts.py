from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.runtime.amounts import add, amount_of, from_stored, shown, stored, subtract

some = settings(derandomize=True, deadline=None, database=None, max_examples=60)


@pytest.mark.parametrize(
    ("given_", "amount"),
    [(5, 5), (0.1, Decimal("0.1")), ("0.25", Decimal("0.25")), (Decimal("1.50"), Decimal("1.50")), (3.0, 3), ("7", 7)],
)
def test_a_number_counts_as_it_is_written(given_, amount):
    assert amount_of("money", given_) == amount
    assert type(amount_of("money", given_)) is type(amount)


@pytest.mark.parametrize(
    "wrong", [-1, -0.5, float("nan"), float("inf"), Decimal("NaN"), "lots", "", None, True, [1], 10**40]
)
def test_what_is_no_amount_is_refused_by_name(wrong):
    with pytest.raises(UsageError, match="tokens="):
        amount_of("tokens", wrong)


def test_a_thousand_tenths_are_a_hundred():
    total = 0
    for _ in range(1000):
        total = add(total, amount_of("money", 0.1))
    assert total == 100
    assert sum([0.1] * 1000) != 100  # what floats would have made of it


@some
@given(st.lists(st.integers(0, 10**12), max_size=50))
def test_sums_of_millionths_are_exact_and_stay_so_when_they_are_stored(millionths):
    total = 0
    for one in millionths:
        total = add(total, amount_of("money", Decimal(one) / 10**6))
        if total < 10**9:
            assert from_stored(stored(total)) == total
    assert total == Decimal(sum(millionths)) / 10**6
    assert subtract(total, total) == 0


def test_amounts_are_shown_without_an_exponent():
    assert shown(1234567) == "1,234,567"
    assert shown(Decimal("1.50")) == "1.5"
    assert shown(Decimal("0.0000001")) == "0.0000001"
