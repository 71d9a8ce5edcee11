import pytest

from holdfast.errors import UsageError
from holdfast.runtime.conflicts import Conflicts
from holdfast.runtime.mailbox import Mailbox
from unit.runtime.lives import Disk, Life, every_death, every_two_deaths, unbroken


def debate(life, rounds=3):
    """Two agents move towards each other until they hold the same."""
    mailbox = life.attach("messages", Mailbox(life, ["low", "high"]))
    conflict = mailbox.conflicts.start("price", ["low", "high"], "How much?")

    def speak(agent, conflict):
        life.do((conflict.round, agent))
        return conflict.round * 10 if agent == "low" else 60 - conflict.round * 10

    def settle(conflict):
        low, high = conflict.positions["low"], conflict.positions["high"]
        return {"price": low} if low == high else None

    resolution = conflict.debate(speak, settle, max_rounds=rounds, by="both")
    return resolution, conflict.round, conflict.positions, conflict.is_resolved


def test_a_conflict_begins_has_positions_in_rounds_and_is_resolved():
    """Proves C6, C10."""
    disk, end, _saves = unbroken(debate)
    assert end == ({"price": 30}, 3, {"low": 30, "high": 30}, True)
    assert disk.saves[0] == ("conflict_start", "conflict price: low, high")
    assert disk.saves[-1] == ("conflict_resolved", "conflict price resolved by both")
    assert [reason for _trigger, reason in disk.saves[1:3]] == [
        "conflict price: low in round 1", "conflict price: high in round 1",
    ]  # fmt: skip


def test_killed_at_any_save_it_goes_on_where_it_stood():
    """Proves C17: a conflict resumes where it stood, and nobody is asked twice for what was saved."""
    disk, end, _saves = unbroken(debate)
    told = disk.did
    for where, disk, again in every_death(debate):
        assert again == end, where
        assert list(dict.fromkeys(disk.did)) == told, where
        assert len(disk.did) <= len(told) + (where[1] == "before"), where
    assert all(again == end for _where, _disk, again in every_two_deaths(debate))


def test_a_resolved_conflict_is_not_fought_again():
    disk = Disk()
    debate(Life(disk))
    told = list(disk.did)
    assert debate(Life(disk))[0] == {"price": 30}
    assert disk.did == told


def test_rounds_may_run_out_and_a_person_may_settle_it():
    life = Life(Disk())
    assert debate(life, rounds=2) == (None, 2, {"low": 20, "high": 40}, False)
    mailbox = life._parts["messages"]
    assert mailbox.conflicts.running == ["price"]
    mailbox.conflicts.get("price").resolve(25, by="ann")
    assert mailbox.conflicts.running == []
    value = mailbox.snapshot()
    assert value.conflicts == []
    assert (value.resolved[0]["resolution"], value.resolved[0]["resolved_by"]) == (25, "ann")


def test_a_settled_conflict_stays_as_it_was_settled():
    conflict = Conflicts().start("c", ["a", "b"])
    conflict.resolve("first")
    conflict.resolve("second")
    assert conflict.resolution == "first"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda conflicts: conflicts.start("d", "ab"), "name the agents in a list"),
        (lambda conflicts: conflicts.start("d", []), "name the agents in a list"),
        (lambda conflicts: conflicts.get("naminng"), "did you mean 'naming'"),
        (lambda conflicts: conflicts.get("naming").position("codr", 1), "'codr' has no part in conflict 'naming': did"),
        (lambda conflicts: conflicts.get("naming").position("coder", 1), "has spoken in round 1 already"),
        (lambda conflicts: conflicts.get("over").next_round(), "'over' is resolved"),
        (lambda conflicts: conflicts.get("over").position("coder", 1), "'over' is resolved"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(call, says):
    conflicts = Conflicts()
    conflicts.start("naming", ["coder", "tester"]).position("coder", "x")
    conflicts.start("over", ["coder"]).resolve(1)
    before = conflicts.snapshot()
    with pytest.raises(UsageError, match=says):
        call(conflicts)
    assert conflicts.snapshot() == before


def test_who_is_to_speak_is_known():
    conflict = Conflicts().start("c", ["a", "b", "c"])
    conflict.position("b", 1)
    assert conflict.to_speak == ["a", "c"]
    assert conflict.next_round() == 2
    assert conflict.to_speak == ["a", "b", "c"]
    assert conflict.positions == {"b": 1}
