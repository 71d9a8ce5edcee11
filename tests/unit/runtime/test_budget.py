import threading
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import BudgetExhausted, RunWaiting, UsageError
from holdfast.model import sections
from holdfast.model.runtime_sections import Reply
from holdfast.model.triggers import Trigger
from holdfast.runtime.budget import Budget, BudgetWarning
from holdfast.runtime.host import Alone
from unit.runtime.lives import Disk, Killed, Life, every_death, every_two_deaths, same_through_bytes, unbroken

some = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def raises_by(**more):
    return lambda wait: Reply(choice="raise", at=wait.until or Alone().now(), by="ann", value=more)


def test_used_and_limit_of_every_budget_are_kept():
    """Proves E1."""
    budget = Budget(
        limits={"tokens": 1000, "time_s": 60, "retries": 3, "subcalls": 5, "tool_calls": 9, "money": "2.50"}
    )
    budget.spend(tokens=100, retries=1, subcalls=2, tool_calls=3, money="0.25")
    value = budget.snapshot()
    assert {name: (one.used, one.limit) for name, one in value.spending.items() if name != "time_s"} == {
        "tokens": (100, 1000), "retries": (1, 3), "subcalls": (2, 5), "tool_calls": (3, 9), "money": (0.25, 2.5),
    }  # fmt: skip
    assert value.spending["time_s"].limit == 60


def test_a_budget_without_a_limit_is_counted():
    budget = Budget()
    budget.spend(tokens=10**12)
    assert budget.used("tokens") == 10**12
    assert budget.limit_of("tokens") is None
    assert budget.left("tokens") is None


def test_money_does_not_drift():
    budget = Budget(limits={"money": 1000})
    for _ in range(1000):
        budget.spend(money=0.1)
        again = Budget()
        again.restore(budget.snapshot())
        budget = again
    assert budget.used("money") == 100
    assert budget.snapshot().spending["money"].used == 100


@pytest.mark.parametrize("wrong", [{"tokens": -1}, {"tokens": float("nan")}, {"money": "free"}, {"tokens": True}])
def test_a_wrong_amount_is_refused_by_name_and_nothing_of_the_call_is_counted(wrong):
    budget = Budget(limits={"tokens": 10, "money": 1})
    before = budget.snapshot(), budget.changes
    with pytest.raises(UsageError, match=next(iter(wrong))):
        budget.spend(subcalls=1, **wrong)
    assert (budget.snapshot().spending.keys(), budget.changes) == (before[0].spending.keys(), before[1])
    assert budget.used("subcalls") == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda budget: budget.spend(token=5), r"there is no budget 'token': did you mean 'tokens'\?"),
        (lambda budget: budget.spend(time_s=5), "counts by itself"),
        (lambda budget: budget.used("monney"), "did you mean 'money'"),
        (lambda budget: budget.child("a/b"), "without '/'"),
        (lambda budget: budget.child("a", {"tokens": -5}), "tokens=-5"),
        (lambda budget: budget.limit(time=5), "did you mean 'time_s'"),
        (lambda budget: budget.raise_by({"tokens": 5}), "no limit that could be raised"),
        (lambda _budget: Budget(warn_at=0), "warn_at=0"),
        (lambda _budget: Budget(warn_at=float("nan")), "warn_at=nan"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(call, says):
    with pytest.raises(UsageError, match=says):
        call(Budget())


def test_a_custom_budget_is_known_once_it_is_declared():
    budget = Budget(limits={"searches": 2, "pages": None})
    budget.spend(searches=1, pages=7)
    assert (budget.used("searches"), budget.used("pages")) == (1, 7)


def test_a_warning_comes_once_and_with_a_checkpoint():
    """Proves E6 in part: a budget warning."""
    heard, life = [], Life(Disk())
    budget = life.attach("budget", Budget(life, {"tokens": 100}, warn_at=0.5, warned=heard.append))
    budget.spend(tokens=49)
    assert life.disk.saves == [("recorded", "spent: tokens")]
    budget.spend(tokens=1)
    budget.spend(tokens=20)
    assert heard == [BudgetWarning("tokens", 50, 100)]
    assert [save for save in life.disk.saves if save[0] != "recorded"] == [("budget_warning", "tokens: 50 of 100 used")]
    assert life.disk.notes == [("budget_warning", "tokens: 50 of 100 used", {})]
    again = Life(life.disk)
    restored = again.attach("budget", Budget(again, warn_at=0.5, warned=heard.append))
    restored.spend(tokens=1)
    assert len(heard) == 1


def test_at_the_limit_the_run_waits_and_goes_on_when_somebody_raises_it():
    """Proves E6 in part: exhaustion, across lives."""

    def program(life):
        budget = life.attach("budget", Budget(life, {"tokens": 100}))
        for i in range(4):
            budget.spend(tokens=40, once=f"call-{i}")
        return budget.used("tokens"), budget.limit_of("tokens")

    disk = Disk()
    with pytest.raises(RunWaiting, match=r"tokens is used up \(120 of 100\)"):
        program(Life(disk))
    with pytest.raises(RunWaiting):
        program(Life(disk))
    asked = []
    disk.answer = lambda wait: asked.append(wait) or raises_by(tokens=500)(wait)
    assert program(Life(disk)) == (160, 600)
    assert program(Life(disk)) == (160, 600)
    (wait,) = asked
    assert (wait.id, wait.kind, wait.options) == ("budget:tokens:1", "budget", ("raise", "limit", "stop"))
    assert wait.details == {"budget": "tokens", "part": "", "used": 120, "limit": 100}


def test_an_amount_is_used_up_at_its_limit_and_a_count_beyond_it():
    budget = Budget(limits={"tokens": 100, "retries": 3, "subcalls": 0})
    budget.spend(retries=3)
    budget.spend(tokens=99)
    with pytest.raises(BudgetExhausted, match="tokens used 100 of 100"):
        budget.spend(tokens=1)
    budget.raise_by({"tokens": 100})
    with pytest.raises(BudgetExhausted, match="retries used 4 of 3"):
        budget.spend(retries=1)
    assert Budget(limits={"subcalls": 0}).check() is None


def test_killed_at_any_save_every_call_is_counted_once():
    """Proves E1, E6: used and limit are the same however often the run started over."""

    def program(life):
        budget = life.attach("budget", Budget(life, {"tokens": 100, "money": 1}))
        phase = budget.child("phase:act", {"tokens": 150})
        for i in range(8):
            phase.spend(tokens=30, money=0.1, once=f"call-{i}")
        return [
            {name: (one.used, one.limit) for name, one in part.items() if name != "time_s"}
            for part in (budget.spending, phase.spending)
        ]

    answer = raises_by(tokens=1000)
    _disk, end, saves = unbroken(program, answer=answer)
    assert end == [{"tokens": (240, 1100), "money": (0.8, 1)}, {"tokens": (240, 1150), "money": (0.8, None)}]
    assert saves >= 7
    for where, _disk, again in (*every_death(program, answer=answer), *every_two_deaths(program, answer=answer)):
        assert again == end, where


@pytest.mark.parametrize(
    ("reply", "limit"),
    [
        (("raise", {"tokens": 50}), 150),
        (("raise", 50), 150),
        (("raise", "50"), 150),
        (("limit", {"tokens": 500}), 500),
        (("limit", 500), 500),
    ],
)
def test_a_reply_gives_more_or_a_new_limit(reply, limit):
    choice, value = reply
    disk = Disk(answer=lambda _wait: Reply(choice=choice, at=Alone().now(), value=value))
    budget = Budget(Life(disk), {"tokens": 100})
    budget.spend(tokens=100)
    assert budget.limit_of("tokens") == limit
    assert budget.snapshot().spending["tokens"].raised == limit - 100


def test_a_reply_that_does_not_help_is_noted_and_asked_again():
    replies = [{"tokens": -5}, {"time_s": 5}, None, {"tokens": 1}, {"tokens": 100}]
    asked = []

    def answer(wait):
        asked.append(wait.id)
        return Reply(choice="raise", at=Alone().now(), by="ann", value=replies[len(asked) - 1])

    life = Life(Disk(answer=answer))
    budget = Budget(life, {"tokens": 100})
    budget.spend(tokens=120)
    assert asked == [f"budget:tokens:{n}" for n in range(1, 6)]
    assert [kind for kind, *_ in life.disk.notes if kind != "budget_warning"] == [
        "budget_reply_refused", "budget_reply_refused", "budget_reply_refused", "budget_raised", "budget_raised",
    ]  # fmt: skip
    assert budget.limit_of("tokens") == 201


def test_a_reply_to_stop_ends_this_life_and_the_next_one_asks_again():
    disk = Disk(answer=lambda _wait: "stop")

    def program(life):
        budget = life.attach("budget", Budget(life, {"tokens": 10}))
        budget.spend(tokens=10, once="a")

    with pytest.raises(BudgetExhausted, match="tokens used 10 of 10"):
        program(Life(disk))
    disk.answer = raises_by(tokens=10)
    program(Life(disk))


def test_without_a_run_a_used_up_budget_is_an_error_with_both_numbers():
    with pytest.raises(BudgetExhausted) as caught:
        Budget(limits={"money": 1}).spend(money="1.25")
    assert (caught.value.budget, caught.value.used, caught.value.limit) == ("money", 1.25, 1)


def test_a_warning_may_stop_and_ask():
    """Proves E6 in part: stopping at a warning."""
    asked = []
    life = Life(Disk(answer=lambda wait: asked.append(wait.options) or "continue"))
    budget = Budget(life, {"tokens": 100}, on_warning="ask")
    budget.spend(tokens=85)
    budget.spend(tokens=5)
    assert asked == [("raise", "limit", "continue", "stop")]


def test_what_a_part_spends_counts_in_all_above_it_and_any_limit_stops():
    """Proves E1: nested budgets of run, phase and agent."""
    budget = Budget(limits={"tokens": 100})
    phase = budget.child("phase:research", {"tokens": 60})
    agent = phase.child("agent:reader", {"tool_calls": 2})
    other = budget.child("phase:write")
    agent.spend(tokens=20, tool_calls=1)
    other.spend(tokens=30)
    assert [part.used("tokens") for part in (budget, phase, agent, other)] == [50, 20, 20, 30]
    assert (agent.left("tokens"), other.left("tokens"), agent.left("tool_calls")) == (40, 50, 1)
    with pytest.raises(BudgetExhausted, match="phase:research/tokens used 60 of 60"):
        agent.spend(tokens=40)
    with pytest.raises(BudgetExhausted, match="tokens used 100 of 100"):
        other.spend(tokens=10)
    with pytest.raises(BudgetExhausted, match="phase:research/agent:reader/tool_calls used 3 of 2"):
        agent.spend(tool_calls=2)
    assert budget.snapshot().nested.keys() == {
        "phase:research", "phase:research/agent:reader", "phase:write",
    }  # fmt: skip


def test_a_child_of_an_earlier_life_goes_on_from_what_it_had_used():
    budget = Budget()
    budget.child("phase:a", {"tokens": 100}).spend(tokens=30)
    again = Budget()
    child = again.child("phase:a", {"tokens": 100})
    again.restore(budget.snapshot())
    child.spend(tokens=5)
    assert again.child("phase:a", {"tokens": 100}).used("tokens") == 35
    assert again.used("tokens") == 35


def test_declaring_a_limit_again_keeps_what_people_raised():
    budget = Budget(limits={"tokens": 100})
    budget.raise_by({"tokens": 50}, by="ann")
    again = Budget(limits={"tokens": 100})
    again.restore(budget.snapshot())
    before = again.changes
    again.limit(tokens=100)
    assert again.limit_of("tokens") == 150
    assert again.changes == before
    again.limit(tokens=200)
    assert again.limit_of("tokens") == 250


def test_a_larger_limit_that_is_declared_warns_anew():
    heard = []
    budget = Budget(limits={"tokens": 100}, warned=heard.append)
    budget.spend(tokens=90)
    budget.limit(tokens=1000)
    budget.spend(tokens=800)
    assert heard == [BudgetWarning("tokens", 90, 100), BudgetWarning("tokens", 890, 1000)]


def test_time_is_running_time_over_all_lives():
    """Proves E1, E6: time continues where it was, and the time between lives does not count."""
    life = Life(Disk())
    budget = life.attach("budget", Budget(life, {"time_s": 100}))
    life.clock = 30.0
    budget.spend(tokens=1)
    assert budget.used("time_s") == 30
    stored = budget.snapshot()
    later = Life(Disk())
    later.clock = 5000.0
    again = Budget(later)
    later.clock = 6000.0
    again.restore(stored)
    later.clock = 6010.5
    assert again.used("time_s") == Decimal("40.5")
    later.clock = 6070.0
    with pytest.raises(RunWaiting, match="time_s is used up"):
        again.check()


def test_running_time_is_one_change_a_second():
    life = Life(Disk())
    budget = Budget(life)
    before = budget.changes
    life.clock = 0.9
    assert budget.changes == before
    life.clock = 1.5
    assert budget.changes == before + 1
    with budget.stopped():
        life.clock = 9.0
    assert budget.changes == before + 1
    again = Budget(Life(Disk()))
    again.restore(budget.snapshot())
    assert again.changes == 1


def test_time_is_kept_although_nothing_is_spent_and_no_time_is_limited():
    """Proves E1."""
    life = Life(Disk(), 3, after=True)
    budget = life.attach("budget", Budget(life))

    def work():
        while True:
            life.clock += 10.0
            life.offer(Trigger.STEP_COMPLETE)

    with pytest.raises(Killed):
        work()
    again = Life(life.disk)
    assert again.attach("budget", Budget(again)).used("time_s") == 30
    assert budget.used("time_s") == 30


def test_time_does_not_run_while_it_is_stopped():
    life = Life(Disk())
    budget = Budget(life, {"time_s": 60})
    life.clock = 5.0
    assert (budget.used("time_s"), budget.left("time_s")) == (5, 55)
    with budget.stopped():
        life.clock += 100
    life.clock += 1
    assert (budget.used("time_s"), budget.left("time_s")) == (6, 54)


def test_the_time_of_a_part_runs_while_it_is_open():
    life = Life(Disk())
    budget = Budget(life)
    with budget.child("phase:a") as phase:
        life.clock = 10.0
    life.clock = 25.0
    assert (phase.used("time_s"), budget.used("time_s")) == (10, 25)
    with budget.child("phase:a"):
        life.clock = 30.0
    assert phase.used("time_s") == 15


def test_threads_spend_without_losing_anything_and_one_of_them_asks():
    asked = []
    life = Life(Disk(answer=lambda wait: asked.append(wait.id) or raises_by(tokens=10_000)(wait)))
    budget = Budget(life, {"tokens": 500})
    child = budget.child("agent:x")

    def work():
        for _ in range(100):
            child.spend(tokens=1, money=0.01)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (budget.used("tokens"), budget.used("money")) == (800, 8)
    assert asked == ["budget:tokens:1"]
    assert budget.limit_of("tokens") == 10_500


def test_what_is_reserved_fits_also_if_many_threads_ask_for_it_at_once():
    """Proves E1: a limit of twenty allows twenty, and each raise so many more."""
    asked, began = [], []
    life = Life(Disk(answer=lambda wait: asked.append(wait.details["used"]) or raises_by(subcalls=5)(wait)))
    budget = Budget(life, {"subcalls": 20})
    phase = budget.child("phase:p")

    def work():
        for _ in range(5):
            phase.reserve(subcalls=1)
            began.append(budget.used("subcalls") <= budget.limit_of("subcalls"))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert began == [True] * 30
    assert (asked, budget.used("subcalls"), budget.limit_of("subcalls")) == ([20, 25], 30, 30)


def test_without_a_run_what_has_no_room_is_an_error_and_is_not_counted():
    budget = Budget(limits={"retries": 1})
    budget.reserve(retries=1)
    with pytest.raises(BudgetExhausted, match="retries used 1 of 1"):
        budget.reserve(retries=1)
    assert budget.used("retries") == 1
    with pytest.raises(UsageError, match="only retries, subcalls, tool_calls are known beforehand"):
        budget.reserve(tokens=1)


@pytest.mark.parametrize("on_warning", ["continue", "ask"])
def test_a_question_that_nobody_answered_is_put_again_before_anything_else_begins(on_warning):
    """Proves E6."""

    def program(life):
        budget = life.attach("budget", Budget(life, {"subcalls": 5}, on_warning=on_warning))
        budget.check()
        try:
            for number in range(budget.used("subcalls"), 6):
                budget.reserve(subcalls=1)
                life.do(number)
        finally:
            life.save(Trigger.SHUTDOWN)  # as every process ends
        return budget.used("subcalls")

    disk, done = Disk(), 3 if on_warning == "ask" else 5
    for _ in range(3):
        with pytest.raises(RunWaiting):
            program(Life(disk))
        assert disk.did == list(range(done))
    disk.answer = raises_by(subcalls=10)
    assert program(Life(disk)) == 6
    assert disk.did == list(range(6))


def test_limits_are_raised_by_their_labels_and_the_next_question_is_another_one():
    life = Life(Disk())
    budget = Budget(life, {"tokens": 10})
    budget.child("phase:a", {"time_s": 5})
    budget.raise_labelled({"tokens": 5, "phase:a/time_s": 1, "phase:b/tokens": 1}, by="ann")
    value = budget.snapshot()
    assert (value.spending["tokens"].limit, value.spending["tokens"].asked) == (15, 1)
    assert value.nested["phase:a"].spending["time_s"].limit == 6
    assert [kind for kind, *_ in life.disk.notes] == ["budget_raised", "budget_raised", "budget_raise_refused"]


def test_restoring_is_the_identity():
    life = Life(Disk(answer=raises_by(tokens=7)))
    budget = Budget(life, {"tokens": 10, "money": "0.30"}, warn_at=0.5)
    budget.child("phase:a", {"tokens": 99}).child("agent:b").spend(tokens=12, money=0.1, once="k")
    life.clock = 2.5
    assert same_through_bytes("budget", budget, Budget(Life(Disk())))


def test_a_snapshot_does_not_change_afterwards():
    budget = Budget()
    budget.spend(tokens=1, once="a")
    value = budget.snapshot()
    budget.child("x").spend(tokens=1, once="b")
    assert value.spending["tokens"] == sections.Spending(used=1)
    assert value.nested == {}
    assert value.counted == ["a"]


def test_a_hostile_section_is_refused_and_nothing_is_taken():
    budget = Budget()
    budget.spend(tokens=1)
    with pytest.raises(UsageError, match="nan"):
        budget.restore({"spending": {"tokens": {"used": float("nan")}}})
    assert budget.used("tokens") == 1


PATHS = ((), ("phase:a",), ("phase:b",), ("phase:a", "agent:x"))
events = st.one_of(
    st.tuples(st.just("spend"), st.sampled_from(PATHS), st.integers(0, 10**6), st.one_of(st.none(), st.integers(0, 3))),
    st.tuples(st.just("resume")),
)


@some
@given(st.lists(events, max_size=40))
def test_whatever_is_spent_where_every_level_has_the_exact_sum(happenings):
    """Proves E1: nested budgets, counted once, over any number of lives."""
    budget = Budget()
    sums, seen = dict.fromkeys(PATHS, 0), set()
    for what, *rest in happenings:
        if what == "resume":
            value = budget.snapshot()
            budget = Budget()
            budget.restore(value)
            continue
        path, millionths, key = rest
        at = budget
        for name in path:
            at = at.child(name)
        at.spend(money=Decimal(millionths) / 10**6, once=None if key is None else str(key))
        if key is None or key not in seen:
            seen.add(key)
            for end in range(len(path) + 1):
                sums[path[:end]] += millionths
    for path, expected in sums.items():
        at = budget
        for name in path:
            at = at.child(name)
        assert at.used("money") == Decimal(expected) / 10**6
