import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.errors import UsageError
from holdfast.runtime.team import Team
from unit.runtime.recorder import Recorder, is_identity

some = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def test_members_have_a_role_a_status_and_the_names_of_their_tasks():
    """Proves C3."""
    team = Team(id="t-1", members={"ann": "coder", "bob": "reviewer"})
    team.assign("ann", "login")
    team.assign("ann", "logout")
    done = team.done("ann", "login")
    assert (done.role, done.status, done.completed, done.pending) == ("coder", "working", ["login"], ["logout"])
    assert (done.tasks_completed, done.tasks_pending) == (1, 1)
    assert team.done("ann", "logout").status == "idle"
    assert team["bob"].status == "idle"
    assert team.status("bob", "on leave").status == "on leave"
    assert team.assign("bob", "docs").status == "on leave"
    assert team.id == "t-1"


def test_saying_a_thing_twice_changes_nothing():
    """Proves C3."""
    team = Team(members={"ann": "coder"})
    team.assign("ann", "a")
    team.done("ann", "a")
    before = team.snapshot(), team.changes
    team.add("ann", "coder")
    team.assign("ann", "a")
    team.done("ann", "a")
    team.status("ann", "idle")
    assert (team.snapshot(), team.changes) == before


def test_a_task_that_is_given_to_another_member_is_only_theirs():
    """Proves C3."""
    team = Team(members={"ann": "coder", "bob": "coder"})
    team.assign("ann", "a")
    team.assign("bob", "a")
    assert (team["ann"].pending, team["ann"].status, team["bob"].pending) == ([], "idle", ["a"])
    assert team.remove("bob").pending == ["a"]
    assert "bob" not in team


def test_a_member_keeps_its_tasks_in_another_role():
    team = Team(members={"ann": "coder"})
    team.assign("ann", "a")
    assert team.add("ann", "lead").pending == ["a"]


@pytest.mark.parametrize("ask", [lambda t: t["eve"], lambda t: t.assign("eve", "a"), lambda t: t.done("eve", "a")])
def test_somebody_who_is_no_member_is_refused_with_those_who_are(ask):
    with pytest.raises(UsageError, match="'eve' is not a member of team 'alone' \\(ann\\)"):
        ask(Team(members={"ann": "coder"}))


def test_counts_of_tasks_without_names_are_kept():
    team = Team()
    team.restore(
        {"id": "t", "members": [{"agent": "a", "role": "r", "status": "s", "tasks_completed": 3, "tasks_pending": 1}]}
    )
    assert is_identity("team", team, Team())
    team.assign("a", "x")
    assert (team["a"].tasks_completed, team["a"].tasks_pending) == (3, 2)
    assert team.done("a", "x").tasks_completed == 4


@some
@given(
    st.lists(
        st.tuples(st.sampled_from(["assign", "done", "status", "add"]), st.sampled_from("ab"), st.sampled_from("xyz")),
        max_size=15,
    )
)
def test_a_snapshot_comes_back_whole_and_counts_agree_with_names(deeds):
    team, kept = Team(Recorder(), members={"a": "1", "b": "2"}), []
    for deed, agent, word in deeds:
        before = team.snapshot(), team.changes
        getattr(team, deed)(agent, word)
        assert (team.snapshot() != before[0]) == (team.changes > before[1])
        kept.append((team.snapshot(), msgspec.json.encode(team.snapshot())))
    for member in team.members:
        assert (member.tasks_pending, member.tasks_completed) == (len(member.pending), len(member.completed))
    assert is_identity("team", team, Team())
    assert all(msgspec.json.encode(taken) == then for taken, then in kept)


def test_a_run_knows_who_works_on_it(tmp_path):
    """Proves C3."""
    with holdfast.open(tmp_path) as hf, hf.run("r") as run:
        run.team.add("ann", "coder")
        run.team.assign("ann", "login")
    with holdfast.open(tmp_path) as hf, hf.run("r") as run:
        assert run.team["ann"].pending == ["login"]
        assert run.team.done("ann", "login").tasks_completed == 1
    with holdfast.open(tmp_path) as hf:
        assert hf.latest("r").section("team").members[0].completed == ["login"]
