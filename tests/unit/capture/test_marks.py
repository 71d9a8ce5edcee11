import pytest

from holdfast.capture.marks import MAX_TEXT_BYTES, checked_marks, checked_text
from holdfast.errors import LimitExceeded, UsageError
from holdfast.model.checkpoint import Marks


@pytest.mark.parametrize("status", ["creating", "valid", "corrupted", "expired", "archived"])
def test_every_status_of_the_ledger_is_taken(status):
    """Proves A2."""
    marks = Marks(status=status, pinned=True, label="é")
    assert checked_marks(marks) is marks


NONSENSE = [
    {"status": "lost"}, {"status": None}, {"pinned": 1}, {"pinned": "yes"}, {"label": 5}, {"label": "\ud800"},
]  # fmt: skip


@pytest.mark.parametrize("marks", [Marks(**given) for given in NONSENSE])
def test_marks_that_could_not_be_read_again_are_refused(marks):
    """Proves A2."""
    with pytest.raises(UsageError):
        checked_marks(marks)


@pytest.mark.parametrize("text", [5, None, b"x", ["a"], "\udfff"])
def test_a_reason_that_could_not_be_read_again_is_refused_by_name(text):
    with pytest.raises(UsageError, match="reason"):
        checked_text("reason", text)


def test_a_text_has_a_limit():
    assert checked_text("reason", "x" * MAX_TEXT_BYTES)
    with pytest.raises(LimitExceeded):
        checked_text("reason", "é" * MAX_TEXT_BYTES)
