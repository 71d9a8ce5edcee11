from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import RetentionPolicy, UsageError
from holdfast.retain.policy import Row, TriggerRule, check_policy, decide

NOW = datetime(2026, 11, 15, tzinfo=UTC)
FREE = RetentionPolicy(triggers={}, live=None, age_days=None)


def row(seq, trigger="step_complete", *, phase=None, days=0.0, size=100, archived=False, pinned=False, sound=True,
        resumes=True, parent=None):  # fmt: skip
    when = NOW - timedelta(days=days)
    return Row(f"cp{seq}", seq, trigger, phase, when, size, archived, pinned, sound, resumes, parent)


def actions(rows, policy, **options):
    options = {"head": f"cp{max(one.seq for one in rows)}", "now": NOW, **options}
    return {decision.seq: decision.action for decision in decide(rows, policy, **options)}


def chosen(action, rows, policy, **options):
    return sorted(seq for seq, done in actions(rows, policy, **options).items() if done == action)


def test_the_defaults_are_those_of_the_ledger():
    """Proves A9, C13."""
    policy = RetentionPolicy()
    assert (policy.live, policy.age_days) == (50, 30)
    assert {name: rule.keep for name, rule in policy.triggers.items()} == {
        "phase_transition": -1, "batch_complete": 3, "agent_complete": 1, "conflict_resolved": -1,
        "user_interrupt": 1, "manual": -1,
    }  # fmt: skip


def test_the_oldest_beyond_the_live_count_are_archived():
    """Proves A9, A10."""
    rows = [row(seq) for seq in range(1, 61)]
    assert chosen("archive", rows, RetentionPolicy()) == list(range(1, 11))
    assert chosen("delete", rows, RetentionPolicy()) == []
    archived = [row(seq, archived=seq <= 10) for seq in range(1, 61)]
    assert chosen("archive", archived, RetentionPolicy()) == []


def test_each_trigger_keeps_its_last_ones_of_each_phase_or_of_all():
    """Proves C13."""
    rows = [row(seq, "batch_complete", phase="a" if seq <= 10 else "b") for seq in range(1, 21)] + [row(21)]
    policy = RetentionPolicy(triggers={"batch_complete": TriggerRule(3, per_phase=True)}, live=None, age_days=None)
    assert chosen("keep", rows, policy) == [8, 9, 10, 18, 19, 20, 21]
    over_all = RetentionPolicy(triggers={"batch_complete": TriggerRule(3)}, live=None, age_days=None)
    assert chosen("keep", rows, over_all) == [18, 19, 20, 21]


def test_what_is_too_old_goes_and_a_clock_set_back_ages_nothing():
    """Proves A9, E2."""
    rows = [row(1, days=31), row(2, days=29), row(3, days=-400), row(4)]
    assert chosen("delete", rows, RetentionPolicy()) == [1]


def test_the_last_and_the_total_size_are_limits_over_all():
    """Proves D6, E2, E7."""
    rows = [row(seq) for seq in range(1, 11)]
    assert chosen("keep", rows, RetentionPolicy(triggers={}, live=None, age_days=None, last=5)) == [6, 7, 8, 9, 10]
    assert chosen("keep", rows, RetentionPolicy(triggers={}, live=None, age_days=None, total_bytes=450)) == [
        7,
        8,
        9,
        10,
    ]


def test_head_pins_fork_points_and_what_a_recovery_needs_always_stay():
    harsh = RetentionPolicy(triggers={"*": TriggerRule(0)}, live=1, age_days=0.001, last=1, total_bytes=1)
    rows = [
        row(1, days=99, pinned=True), row(2, days=99), row(3, "before_destructive", days=99), row(4, days=99),
        row(5, days=99, parent="cp4"), row(6, days=99, parent="cp4"), row(7, days=99), row(8, days=99),
        row(9, days=99, sound=False), row(10, days=99, resumes=False), row(11, days=99), row(12, days=99, sound=False),
    ]  # fmt: skip
    decided = {
        one.seq: one for one in decide(rows, harsh, now=NOW, head="cp12", needed={"cp2": "run x was forked from it"})
    }
    kept = {seq: one.reason for seq, one in decided.items() if one.action == "keep"}
    assert kept == {
        1: "pinned", 2: "run x was forked from it", 3: "it stands before the last destructive operation",
        4: "a fork point", 8: "recovery falls back to it", 11: "the newest sound one to resume from", 12: "the head",
    }  # fmt: skip


@pytest.mark.parametrize("policy", [
    RetentionPolicy(live=0), RetentionPolicy(live=-5), RetentionPolicy(last=0), RetentionPolicy(age_days=0),
    RetentionPolicy(age_days=-1), RetentionPolicy(age_days=float("nan")), RetentionPolicy(total_bytes=0),
    RetentionPolicy(triggers={"manual": TriggerRule(-2)}), RetentionPolicy(triggers={"*": TriggerRule(0)}),
])  # fmt: skip
def test_a_policy_that_makes_no_sense_or_would_delete_everything_is_refused(policy):
    with pytest.raises(UsageError):
        check_policy(policy)


def test_an_age_beyond_the_calendar_keeps_everything():
    assert chosen("delete", [row(1, days=9_000), row(2)], RetentionPolicy(age_days=1e9)) == []


ROWS = st.lists(
    st.builds(
        lambda trigger, phase, days, size, *flags: (trigger, phase, days, size, flags),
        st.sampled_from(["manual", "batch_complete", "step_complete"]), st.sampled_from([None, "a", "b"]),
        st.floats(-50, 50), st.integers(0, 500), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
    ), min_size=1, max_size=40,
)  # fmt: skip
POLICIES = st.builds(
    RetentionPolicy,
    triggers=st.dictionaries(
        st.sampled_from(["manual", "batch_complete", "*"]), st.builds(TriggerRule, st.integers(-1, 4), st.booleans())
    ),
    live=st.none() | st.integers(1, 20), last=st.none() | st.integers(1, 20),
    total_bytes=st.none() | st.integers(1, 3_000),
    age_days=st.none() | st.floats(0.1, 60),
)  # fmt: skip


@given(ROWS, POLICIES)
def test_whatever_the_policy_every_row_is_decided_and_a_recovery_stays_possible(drawn, policy):
    rows = [
        Row(f"cp{n}", n, trigger, phase, NOW - timedelta(days=days), size, *flags)
        for n, (trigger, phase, days, size, flags) in enumerate(drawn, 1)
    ]
    head = rows[-1].id
    decided = {one.id: one for one in decide(rows, policy, now=NOW, head=head)}
    assert decided.keys() == {one.id for one in rows}
    assert all(one.reason for one in decided.values())
    assert decided[head].action == "keep"
    assert all(decided[one.id].action == "keep" for one in rows if one.is_pinned)
    usable = [one for one in rows if one.is_sound and one.can_resume]
    assert not usable or decided[usable[-1].id].action == "keep"
    # Deciding again over what is left takes nothing more: the policy settles.
    left = [one for one in rows if decided[one.id].action != "delete"]
    again = decide(left, policy, now=NOW, head=head)
    assert all(one.action != "delete" for one in again)
