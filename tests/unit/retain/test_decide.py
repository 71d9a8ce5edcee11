from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import RetentionPolicy, UsageError
from holdfast.model.checkpoint import RunRecord
from holdfast.model.rules import ALL, RULES, Keep
from holdfast.model.triggers import Trigger
from holdfast.retain.policy import RetentionRow, check_policy, decide, in_two_sweeps, policy_by_hand

NOW = datetime(2026, 11, 15, tzinfo=UTC)
SAYS_NOTHING = RULES.keeping({"*": None})


def row(seq, trigger="step_complete", *, phase=None, days=0.0, size=100, status="valid", pinned=False, resumes=True,
        parent=None, expired_days=None):  # fmt: skip
    when = NOW - timedelta(days=days)
    expired_at = None if expired_days is None else NOW - timedelta(days=expired_days)
    return RetentionRow(f"cp{seq}", seq, trigger, phase, when, size, status, pinned, resumes, parent, expired_at)


def run_at(head, *, status=None, days=0.0):
    return RunRecord(
        format_version=2, id="r", head=head, last_seq=0, checkpoints=0, created_at=NOW,
        updated_at=NOW - timedelta(days=days), status=status,
    )  # fmt: skip


def decided(rows, policy, *, head=None, now=NOW, status=None, days=0.0, **options):
    head = head or f"cp{max(one.seq for one in rows)}"
    return decide(rows, policy, now=now, run=run_at(head, status=status, days=days), **options)


def chosen(action, rows, policy, **options):
    return sorted(one.seq for one in decided(rows, policy, **options) if one.action == action)


def test_the_table_has_a_row_for_every_trigger_and_the_counts_of_the_ledger():
    """Proves C13."""
    assert set(RULES.rows) == set(Trigger)
    assert {name.value: rule.keep for name, rule in RULES.rows.items() if rule.keep.count is not None} == {
        "phase_transition": Keep(ALL), "batch_complete": Keep(3, per_phase=True),
        "agent_complete": Keep(1, per_phase=True), "conflict_start": Keep(1, per_phase=True),
        "conflict_resolved": Keep(ALL), "user_interrupt": Keep(1), "session_end": Keep(1), "manual": Keep(ALL),
    }  # fmt: skip


def test_the_oldest_beyond_the_live_count_are_archived_whatever_their_rule():
    """Proves A9, A10, C13: "all" is archived beyond the limit, too."""
    rows = [row(seq, "manual" if seq % 2 else "step_complete") for seq in range(1, 61)]
    policy = RetentionPolicy(live=50, age_days=30)
    assert chosen("archive", rows, policy) == list(range(1, 11))
    assert chosen("delete", rows, policy) == []
    archived = [row(seq, status="archived" if seq <= 10 else "valid") for seq in range(1, 61)]
    assert chosen("archive", archived, policy) == []


def test_each_trigger_keeps_its_last_ones_of_each_phase_or_of_all():
    """Proves C13."""
    rows = [row(seq, "batch_complete", phase="a" if seq <= 10 else "b") for seq in range(1, 21)] + [row(21)]
    assert chosen("keep", rows, RetentionPolicy()) == [8, 9, 10, 18, 19, 20, 21]
    over_all = RetentionPolicy(rules=RULES.keeping({"batch_complete": Keep(3)}))
    assert chosen("keep", rows, over_all) == [18, 19, 20, 21]


def test_what_is_too_old_goes_and_a_clock_set_back_ages_nothing():
    """Proves A9, E2."""
    rows = [row(1, days=31), row(2, days=29), row(3, days=-400), row(4)]
    assert chosen("delete", rows, RetentionPolicy(age_days=30)) == [1]


def test_all_is_spared_by_age_and_count_and_not_by_the_size_limit():
    """Proves C13, C14."""
    rows = [row(seq, "conflict_resolved" if seq % 2 else "step_complete", days=90) for seq in range(1, 9)] + [row(9)]
    assert chosen("delete", rows, RetentionPolicy(age_days=30)) == [2, 4, 6]
    assert chosen("delete", rows, RetentionPolicy(last=3)) == [2, 4, 6]
    assert chosen("keep", rows, RetentionPolicy(total_bytes=350)) == [7, 8, 9]


def test_the_last_and_the_total_size_are_limits_over_all():
    """Proves D6, E2, E7."""
    rows = [row(seq) for seq in range(1, 11)]
    assert chosen("keep", rows, RetentionPolicy(last=5)) == [6, 7, 8, 9, 10]
    assert chosen("keep", rows, RetentionPolicy(total_bytes=450)) == [7, 8, 9, 10]


def test_head_pins_fork_points_and_what_a_recovery_needs_always_stay():
    harsh = RetentionPolicy(rules=RULES.keeping({"*": 0}), live=1, age_days=0.001, last=1, total_bytes=1)
    rows = [
        row(1, days=99, pinned=True), row(2, days=99), row(3, "before_destructive", days=99), row(4, days=99),
        row(5, days=99, parent="cp4"), row(6, days=99, parent="cp4"), row(7, days=99), row(8, days=99),
        row(9, days=99, status="corrupted"), row(10, days=99, resumes=False), row(11, days=99),
        row(12, days=99, status="corrupted"),
    ]  # fmt: skip
    found = {one.seq: one for one in decided(rows, harsh, needed={"cp2": "run x was forked from it"})}
    kept = {seq: one.reason for seq, one in found.items() if one.action == "keep"}
    assert kept == {
        1: "pinned", 2: "run x was forked from it", 3: "it stands before the last destructive operation",
        4: "a fork point", 8: "recovery falls back to it", 11: "the newest sound one to resume from", 12: "the head",
    }  # fmt: skip


def test_a_finished_run_expires_as_a_whole_but_for_pins_and_an_unfinished_one_never():
    """Proves E2, C13: only a whole expired run takes "all" along, and pins stay."""
    rows = [row(1, "manual", days=90), row(2, "manual", days=90, pinned=True), row(3, days=90)]
    policy = RetentionPolicy(age_days=30)
    assert chosen("delete", rows, policy, status="completed", days=31) == [1, 3]
    assert chosen("delete", rows, policy, status="cancelled", days=31) == [1, 3]
    assert chosen("delete", rows, policy, status="completed", days=29) == []
    for status in (None, "running", "waiting", "failed", "ended"):
        assert 3 not in chosen("delete", rows, policy, status=status, days=90)
    assert chosen("delete", rows, policy, status="completed", days=31, needed={"cp1": "a fork"}) == [3]


def test_the_pin_that_a_fork_gives_its_first_checkpoint_does_not_keep_a_finished_run():
    rows = [row(1, days=90, pinned=True, parent="cp9"), row(2, days=90)]
    assert chosen("delete", rows, RetentionPolicy(age_days=30), status="completed", days=31) == [1, 2]


def test_an_automatic_sweep_marks_what_is_too_old_and_deletes_it_a_day_later():
    """Proves A2."""
    policy = RetentionPolicy(age_days=30)
    rows = [
        row(1, days=40), row(2, days=40, status="expired", expired_days=0.9),
        row(3, days=40, status="expired", expired_days=1.1), row(4, days=40, status="expired", expired_days=-3),
        row(5, days=10, status="expired", expired_days=2), row(6, "agent_complete"), row(7, "agent_complete"),
        row(8), row(9),
    ]  # fmt: skip
    found = in_two_sweeps(decided(rows, policy), {one.id: one for one in rows}, NOW)
    assert {one.seq: one.action for one in found} == {
        1: "expire", 2: "keep", 3: "delete", 4: "keep", 5: "revive", 6: "delete", 7: "keep", 8: "keep", 9: "keep",
    }  # fmt: skip


def test_by_hand_the_newest_so_many_stay_whatever_their_trigger():
    """Proves D5, D6, E2."""
    rows = [row(seq, "manual", days=9 if seq == 2 else 0) for seq in range(1, 8)]
    assert chosen("delete", rows, policy_by_hand(5, None)) == [1, 2]
    assert chosen("delete", rows, policy_by_hand(None, timedelta(days=7))) == [2]
    assert chosen("delete", rows, policy_by_hand(4, timedelta(days=7))) == [1, 2, 3]
    assert chosen("delete", rows, policy_by_hand(1, None)) == [1, 2, 3, 4, 5, 6]


def test_newest_means_highest_number_though_the_clock_jumped_back_and_the_list_is_shuffled():
    rows = [row(seq, days=days) for seq, days in ((3, 10), (1, 0), (4, 99), (2, 50))]
    assert chosen("delete", rows, policy_by_hand(2, None)) == [1, 2]


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_nothing_by_hand_is_refused(keep):
    with pytest.raises(UsageError, match="delete_run"):
        policy_by_hand(keep, None)


@pytest.mark.parametrize("policy", [
    RetentionPolicy(live=0), RetentionPolicy(live=-5), RetentionPolicy(last=0), RetentionPolicy(age_days=0),
    RetentionPolicy(age_days=-1), RetentionPolicy(age_days=float("nan")), RetentionPolicy(total_bytes=0),
    RetentionPolicy(rules=RULES.keeping({"*": 0})),
])  # fmt: skip
def test_a_policy_that_makes_no_sense_or_would_delete_everything_is_refused(policy):
    with pytest.raises(UsageError):
        check_policy(policy)


def test_a_count_below_all_is_refused():
    with pytest.raises(UsageError, match="keep=-2"):
        RULES.keeping({"manual": -2})


def test_an_age_beyond_the_calendar_keeps_everything():
    assert chosen("delete", [row(1, days=9_000), row(2)], RetentionPolicy(age_days=1e9)) == []


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["manual", "batch_complete", "step_complete"]), st.sampled_from([None, "a", "b"]),
        st.floats(-50, 50), st.integers(0, 500), st.sampled_from(["valid", "archived", "corrupted", "expired"]),
        st.booleans(), st.booleans(),
    ), min_size=1, max_size=40,
)  # fmt: skip
POLICIES = st.builds(
    RetentionPolicy,
    rules=st.dictionaries(
        st.sampled_from(["manual", "batch_complete", "*"]),
        st.none() | st.builds(Keep, st.integers(-1, 4), st.booleans()),
    ).map(RULES.keeping),
    live=st.none() | st.integers(1, 20), last=st.none() | st.integers(1, 20),
    total_bytes=st.none() | st.integers(1, 3_000),
    age_days=st.none() | st.floats(0.1, 60),
)  # fmt: skip


@given(ROWS, POLICIES, st.integers(1, 40))
def test_whatever_the_policy_every_row_is_decided_and_a_recovery_stays_possible(drawn, policy, count):
    rows = [
        RetentionRow(f"cp{n}", n, trigger, phase, NOW - timedelta(days=days), size, *flags)
        for n, (trigger, phase, days, size, *flags) in enumerate(drawn, 1)
    ]
    head = rows[-1].id
    found = {one.id: one for one in decided(rows, policy)}
    assert found.keys() == {one.id for one in rows}
    assert all(one.reason for one in found.values())
    assert found[head].action == "keep"
    assert all(found[one.id].action == "keep" for one in rows if one.is_pinned)
    usable = [one for one in rows if one.status != "corrupted" and one.can_resume]
    assert not usable or found[usable[-1].id].action == "keep"
    # Deciding again over what is left takes nothing more: the policy settles.
    left = [one for one in rows if found[one.id].action != "delete"]
    again = decided(left, policy, head=head)
    assert all(one.action != "delete" for one in again)
    # The newest are decided in the same way without those before them.
    newest = rows[-count:]
    assert {one.id: one for one in decided(newest, policy)} == {one.id: found[one.id] for one in newest}
