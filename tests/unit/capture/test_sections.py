from datetime import UTC, datetime

import pytest

from holdfast.capture.sections import gather, plain, typed
from holdfast.errors import InvalidId, SectionInvalid, UsageError
from holdfast.model import sections as model
from holdfast.model.sections import SECTION_TYPES
from holdfast.testing.strategies import same

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

WHOLE = {
    "workflow": {
        "current_state": "BUILD",
        "previous_state": "PLAN",
        "history": [{"state": "PLAN", "entered_at": NOON, "trigger": "start", "exited_at": NOON}],
        "pending_transitions": ["done"],
    },
    "agents": [
        {
            "id": "coder", "status": "running", "started_at": NOON, "completed_at": None, "input": {"goal": ("a", 1)},
            "output": {1: b"x"}, "error": None, "attempts": 2, "tokens": {"input": 10, "output": 20},
        }
    ],
    "context": {
        "project": "p", "session": "s", "task": "t", "work_breakdown": {"1": ["a"]},
        "artifacts": [{"id": "1", "type": "file", "path": "a.py", "checksum": "00"}], "lessons": ["l"],
        "decisions": [{"id": "d", "decision": "x", "rationale": "y", "made_at": NOON}], "metadata": {"k": {1, 2}},
    },
    "budget": {"spending": {"tokens": {"used": 5, "limit": 10}, "time": {"used": 0.5, "limit": None}}},
    "graph": {
        "id": "g", "completed_batches": [1], "current_batch": 2,
        "tasks": {"t": {"status": "blocked", "result": (1,), "started_at": None, "completed_at": NOON}},
    },
    "messages": {"pending": [{"to": "a"}], "awaiting_response": [{1}], "conflicts": []},
    "team": {
        "id": "t", "members": [{"agent": "a", "role": "r", "status": "s", "tasks_completed": 1, "tasks_pending": 2}],
    },
    "subject": {"id": "42", "title": "t", "body": "b", "labels": ["l"], "assignees": ["a"], "branch": "main"},
    "error": {"message": "m", "code": "E1", "stack": "s"},
}  # fmt: skip


def test_every_typed_section_is_tried_here():
    assert WHOLE.keys() == SECTION_TYPES.keys()


@pytest.mark.parametrize("name", WHOLE)
def test_a_typed_section_is_kept_whole_whether_given_as_data_or_as_its_type(name):
    """Proves A4, A5, E1."""
    value = typed(name, WHOLE[name])
    assert same(plain(name, value), WHOLE[name])
    assert same(plain(name, typed(name, value)), WHOLE[name])


def test_times_may_be_given_as_text():
    visit = {"state": "A", "entered_at": "2030-01-01T12:00:00Z", "trigger": "t"}
    assert typed("workflow", {"current_state": "A", "history": [visit]}).history[0].entered_at == NOON


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("workflow", {}, ["current_state"]),
        ("workflow", {"current_state": 5}, ["str", "int", "$.current_state"]),
        ("workflow", {"current_state": "A", "histroy": []}, ["histroy"]),
        ("workflow", {"current_state": "A", "history": [{"state": "A", "entered_at": "noon", "trigger": "t"}]},
         ["$.history[0].entered_at"]),
        ("workflow", "BUILD", ["object", "str"]),
        ("workflow", None, ["null"]),
        ("agents", [{"id": "a", "status": "sleeping"}], ["sleeping", "$[0].status"]),
        ("agents", [{"id": "a", "status": "failed"}, {"id": "b"}], ["status", "$[1]"]),
        ("agents", {"a": 1}, ["array"]),
        ("agents", [{"id": "a", "status": "failed", "tokens": {"input": "many"}}], ["$[0].tokens.input"]),
        ("agents", [model.Agent(id=5, status="failed")], ["$[0].id"]),
        ("agents", [{"id": "a", "status": "failed", "tokens": model.TokenUsage(input="x")}], ["$[0].tokens.input"]),
        ("budget", {"spending": {"tokens": {"used": "5"}}}, ["$.spending[...].used"]),
        ("budget", {"spending": {"tokens": model.Spending(used=None)}}, ["$.spending[...].used"]),
        ("context", {"decisions": [{"id": 1}]}, ["$.decisions[0]"]),
        ("context", object(), ["object"]),
        ("graph", {"id": "g", "tasks": {"t": {"status": "lost"}}}, ["lost"]),
        ("error", {"message": "m", "more": 1}, ["more"]),
        ("subject", {"id": 42}, ["$.id"]),
    ],
)  # fmt: skip
def test_a_section_that_does_not_fit_is_refused_with_the_place(name, value, words):
    """Proves A4, A5, E1."""
    with pytest.raises(SectionInvalid) as caught:
        typed(name, value)
    assert caught.value.section == name
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("value", [None, object(), {"any": {1, 2}}, (1,), "text"])
def test_a_free_section_is_passed_on_as_it_is(value):
    assert typed("state", value) is value
    assert plain("state", value) is value
    assert typed("my-own", value) is value


def test_what_is_the_users_inside_a_typed_section_is_passed_on_as_it_is():
    mark = {"seen": {1}, "at": (NOON, b"x")}
    for field in ("input", "output"):
        agent = typed("agents", [{"id": "a", "status": "running", field: mark}])[0]
        assert getattr(agent, field) is mark


def test_an_unknown_keyword_is_named_with_the_nearest_known_one():
    with pytest.raises(UsageError, match="did you mean 'workflow'"):
        gather({"workflows": {}}, None)
    with pytest.raises(UsageError, match=r"known are .*agents.*workflow"):
        gather({"zzz": {}}, None)


def test_sections_of_the_users_own_are_taken_by_any_sound_name_but_not_twice():
    assert gather({"state": 1}, {"mine": 2, "team": 3}) == {"state": 1, "mine": 2, "team": 3}
    with pytest.raises(UsageError, match="twice"):
        gather({"state": 1}, {"state": 2})
    with pytest.raises(InvalidId):
        gather({}, {"../x": 1})
    with pytest.raises(InvalidId):
        gather({}, {5: 1})
