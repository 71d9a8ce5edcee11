import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.flow.duration import parse_duration, show_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("2h", 7200), ("1h30m", 5400), ("1.5m", 90), ("250ms", 0.25), ("1d", 86400), ("1m0.5s", 60.5)],
)
def test_a_duration_is_its_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "2x", "-3s", "1h 30m", "30m1h", "1s1s", "1:30", "s", "1e3s", "٣s", "9" * 99 + "s"]
)
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(1, 10**7))
def test_whole_seconds_are_shown_as_something_that_can_be_read_again(seconds):
    shown = show_duration(seconds)
    assert abs(parse_duration(shown) - seconds) < max(3600, seconds * 0.05) if seconds >= 86400 else True
    if seconds < 3600:
        assert parse_duration(shown) == seconds
