from datetime import timedelta

import pytest

from holdfast.errors import UsageError
from holdfast.model.checkpoint import CheckpointRecord, Marks
from holdfast.retain.policy import decide_simply
from holdfast.testing.contract import NOON, Line


def checkpoints(count, *, pinned=(), ages_in_days=None):
    line, made = Line(None), []
    for number in range(1, count + 1):
        line.at = NOON - timedelta(days=ages_in_days[number - 1] if ages_in_days else 0)
        made.append(CheckpointRecord(line.envelope(()), b"", Marks(pinned=number in pinned)))
        line.seq = number
    return made


def numbers(records, **options):
    options = {"head": records[-1].envelope.id, "keep": None, "before": None, **options}
    return sorted(one.seq for one in decide_simply(records, **options) if one.action == "delete")


def test_all_but_the_newest_are_expendable():
    """Proves D5, D6, E2."""
    assert numbers(checkpoints(7), keep=5) == [1, 2]
    assert numbers(checkpoints(5), keep=5) == []
    assert numbers(checkpoints(2), keep=10) == []


def test_newest_means_highest_number_though_the_clock_jumped_back_and_the_list_is_shuffled():
    records = checkpoints(4, ages_in_days=[0, 50, 10, 99])
    assert numbers(records[::-1], keep=2, head=records[-1].envelope.id) == [1, 2]


def test_what_is_older_than_the_limit_is_expendable():
    """Proves E2."""
    records = checkpoints(4, ages_in_days=[30, 8, 6, 0])
    assert numbers(records, before=NOON - timedelta(days=7)) == [1, 2]


def test_age_and_count_together_delete_what_either_deletes():
    records = checkpoints(5, ages_in_days=[1, 1, 1, 30, 0])
    assert numbers(records, keep=3, before=NOON - timedelta(days=7)) == [1, 2, 4]


def test_the_head_and_pinned_ones_always_stay():
    """Proves E2."""
    records = checkpoints(5, pinned={1, 3}, ages_in_days=[99] * 5)
    assert numbers(records, keep=1, before=NOON) == [2, 4]
    assert numbers(records, keep=1, head=records[1].envelope.id) == [4]


def test_each_checkpoint_has_its_own_reason():
    records = checkpoints(5, pinned={2}, ages_in_days=[9, 9, 9, 1, 0])
    head = records[-1].envelope.id
    decided = decide_simply(
        records, head=head, keep=3, before=NOON - timedelta(days=7), needed={records[2].envelope.id: "a fork point"}
    )
    assert [one.reason for one in decided] == [
        "the head",
        "new enough",
        "a fork point",
        "pinned",
        "beyond the newest 3 and from before 2029-12-25 12:00:00 UTC",
    ]


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_nothing_is_refused(keep):
    with pytest.raises(UsageError, match="delete_run"):
        numbers(checkpoints(2), keep=keep)


def test_a_policy_without_a_limit_is_refused():
    with pytest.raises(UsageError, match="keep= or older_than="):
        numbers(checkpoints(2))
