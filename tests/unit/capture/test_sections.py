from datetime import UTC, datetime

import pytest

from holdfast.capture.sections import PlainMemo, check_runtime, gather, plain, typed
from holdfast.errors import InvalidId, SectionInvalid, UsageError
from holdfast.model import sections as model
from holdfast.model.sections import SECTION_TYPES, Graph, StateVisit, TaskNode, Workflow
from holdfast.testing.strategies import same

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

WHOLE = {
    "progress": {"loop_count": 3, "detail": {"left": ["a", {"deep": 1}]}},
    "workflow": {
        "current_state": "BUILD",
        "previous_state": "PLAN",
        "history": [{"state": "PLAN", "entered_at": NOON, "trigger": "start", "exited_at": NOON}],
        "pending_transitions": ["done"],
        "pending_triggers": {"done": "t"},
        "earlier_visits": 3,
        "states": ["PLAN", "BUILD"],
    },
    "agents": [
        {
            "id": "coder", "status": "running", "started_at": NOON, "completed_at": None, "input": {"goal": ("a", 1)},
            "output": {1: b"x"}, "error": None, "attempts": 2, "tokens": {"input": 10, "output": 20},
            "role": "writes",
            "tasks": {
                "t": {
                    "status": "failed", "started_at": NOON, "completed_at": None, "input": (1,), "input_digest": "00",
                    "step": "draft",
                    "output": None, "summary": "s", "location": "out/t.md",
                    "error": {"message": "m", "code": "E1", "stack": "s"}, "reason": "r", "attempts": 2,
                    "tokens": {"input": 10, "output": 20},
                },
            },
        }
    ],
    "context": {
        "project": "p", "session": "s", "task": "t", "work_breakdown": {"1": ["a"]},
        "artifacts": [{"id": "1", "type": "file", "path": "a.py", "checksum": "00"}], "lessons": ["l"],
        "decisions": [{"id": "d", "decision": "x", "rationale": "y", "made_at": NOON}], "metadata": {"k": {1, 2}},
        "lesson_digests": ["00"],
    },
    "budget": {
        "spending": {
            "tokens": {"used": 5, "limit": 10, "raised": 2, "warned": True, "asked": 1, "reserved": 2, "lost": 1},
            "time_s": {"used": 0.5, "limit": None, "raised": 0, "warned": False, "asked": 0, "reserved": 0, "lost": 0},
        },
        "nested": {
            "phase:a": {
                "spending": {
                    "money": {"used": 1, "limit": 2, "raised": 0, "warned": False, "asked": 0, "reserved": 1, "lost": 0}
                }
            },
        },
        "counted": ["k"],
        "largest": {"coder": {"tokens": 5}},
    },
    "graph": {
        "id": "g", "completed_batches": [1], "current_batch": 2,
        "tasks": {
            "t": {
                "status": "failed", "result": (1,), "started_at": None, "completed_at": NOON,
                "error": {"message": "m", "code": "E1", "stack": "s"}, "attempts": 2, "needs": ["u"], "batch": 2,
                "effect": "mail", "on_unknown": "ask",
            },
        },
        "others": {"h": {"id": "h", "completed_batches": [], "current_batch": None, "tasks": {}, "others": {}}},
    },
    "gates": {
        "tasks": {
            "t": {
                "stage": "fix_1", "plan_path": "plan.md", "coder_response": {1: b"x"},
                "coder_result": {"status": "issue", "message": "m"},
                "gate_results": [
                    {
                        "level": 1, "description": "d", "success": True, "command": "c", "stdout": "o", "stderr": "e",
                        "exit_code": 0, "skipped": True, "duration_s": 0.5,
                    },
                ],
                "fix_attempt": 1,
                "fixes": [
                    {
                        "attempt": 1,
                        "failure": {
                            "level": 2, "description": "d", "success": False, "command": None, "stdout": "",
                            "stderr": "e", "exit_code": 1, "skipped": False, "duration_s": 0.5,
                        },
                        "response": (1,), "completed_at": NOON,
                    },
                ],
                "error": {"message": "m", "code": "E1", "stack": "s"}, "fingerprint": "f", "attempts": 1, "tries": 2,
                "started_at": NOON, "updated_at": NOON, "duration_s": 0.5,
            },
        },
    },
    "messages": {
        "pending": [{"to": "a"}], "awaiting_response": [{1}], "conflicts": [], "answers": {"m1": (1,)},
        "keys": {"k": "m1"}, "resolved": [{"name": "c"}], "sent": 3,
    },
    "team": {
        "id": "t", "members": [
            {
                "agent": "a", "role": "r", "status": "s", "tasks_completed": 1, "tasks_pending": 2,
                "completed": ["1"], "pending": ["2", "3"],
            },
        ],
    },
    "subject": {"id": "42", "title": "t", "body": "b", "labels": ["l"], "assignees": ["a"], "branch": "main",
                "session": "s", "url": "u", "seen_at": NOON, "metadata": {"k": (1,)}},
    "phases": {
        "plan": "plan.md", "current": "a", "order": ["a"],
        "phases": {
            "a": {
                "status": "running", "label": "l", "attempt": 2, "resumes": 1, "started_at": NOON, "completed_at": None,
                "duration_s": 0.5, "summary": "s",
                "artifacts": [{"id": "1", "type": "file", "path": "a.py", "checksum": "00"}], "result": {1: b"x"},
                "error": {"message": "m", "code": "E1", "stack": "s"}, "reason": "r",
            },
        },
        "replans": [{"phase": "a", "reason": "r", "at": NOON}], "limits": {"a": 3}, "metadata": {"k": {1}},
    },
    "knowledge": {
        "injected": [{"id": "1", "content": {1}, "kind": "k", "source": "s", "at": NOON}], "captured": [],
        "pending": [{"id": "2", "content": "c", "kind": "", "source": "", "at": None}],
    },
    "error": {"message": "m", "code": "E1", "stack": "s"},
}  # fmt: skip


def test_every_typed_section_is_tried_here():
    assert WHOLE.keys() == SECTION_TYPES.keys()


@pytest.mark.parametrize("name", WHOLE)
def test_a_typed_section_is_kept_whole_whether_given_as_data_or_as_its_type(name):
    """Proves A4, A5, E1."""
    value = typed(name, WHOLE[name])
    assert same(plain(name, value), as_stored(WHOLE[name]))
    assert same(plain(name, typed(name, value)), as_stored(WHOLE[name]))
    assert typed(name, plain(name, value)) == value


def as_stored(value):
    """Return section data as it is stored: times in UTC as text."""
    if isinstance(value, dict):
        return {key: as_stored(item) for key, item in value.items()}
    if type(value) is list:
        return [as_stored(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) and value.tzinfo is UTC else value


def test_a_value_that_is_the_same_object_is_made_plain_once():
    memo = PlainMemo()
    nodes = {f"t{number}": TaskNode(status="pending") for number in range(3)}
    first = plain("graph", Graph(id="g", tasks=nodes), memo)
    memo.begin()
    again = plain("graph", Graph(id="g", tasks={**nodes, "t1": TaskNode(status="running")}), memo)
    assert again["tasks"]["t0"] is first["tasks"]["t0"]
    assert again["tasks"]["t1"]["status"] == "running"


def test_a_value_whose_lists_may_change_is_made_plain_every_time():
    memo = PlainMemo()
    workflow = Workflow(current_state="A", history=[])
    plain("workflow", workflow, memo)
    memo.begin()
    workflow.history.append(StateVisit(state="A", entered_at=NOON, trigger="t"))
    assert len(plain("workflow", workflow, memo)["history"]) == 1


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
    with pytest.raises(UsageError, match=r"there are .*agents.*workflow"):
        gather({"zzz": {}}, None)


def test_sections_of_the_users_own_are_taken_by_any_sound_name_but_not_twice():
    assert gather({"state": 1}, {"mine": 2, "team": 3}) == {"state": 1, "mine": 2, "team": 3}
    with pytest.raises(UsageError, match="twice"):
        gather({"state": 1}, {"state": 2})
    with pytest.raises(InvalidId):
        gather({}, {"../x": 1})
    with pytest.raises(InvalidId):
        gather({}, {5: 1})


STEP = {"step": "plan", "at": NOON, "event": "done", "input": "00", "code": "ask", "result": {"anything": (1,)}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("waits", [1]),
        ("waits", {"open": {"a": {"id": "a", "kind": "nonsense"}}}),
        ("status", "running"),
        ("status", {"status": "sleeping", "since": NOON}),
    ],
)
def test_what_a_run_keeps_of_itself_is_refused_in_another_form(name, value):
    """Proves D11: the next process of the run would break at it."""
    with pytest.raises(SectionInvalid, match=f"section '{name}'"):
        gather({}, {name: value})


@pytest.mark.parametrize("name", ["steps", "journal"])
def test_views_of_the_journal_cannot_be_given_by_hand(name):
    with pytest.raises(UsageError, match=f"section '{name}' shows what the run's journal has"):
        gather({}, {name: []})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 5),
        ("steps", [{**STEP, "at": "yesterday"}]),
        ("steps", [{"step": "plan"}]),
        ("journal", {"kind": "x"}),
        ("journal", [{"at": NOON.isoformat(), "kind": "x"}]),
    ],
)
def test_lines_of_a_view_for_a_fork_are_refused_in_another_form(name, value):
    with pytest.raises(SectionInvalid, match=f"section '{name}'"):
        check_runtime(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("waits", {"open": {}, "signals": {"a": [{"choice": "yes", "at": NOON.isoformat()}]}}),
        ("status", {"status": "paused", "since": NOON}),
        ("steps.mine", 5),
    ],
)
def test_what_a_run_keeps_of_itself_may_be_given_in_its_form(name, value):
    assert gather({}, {name: value}) == {name: value}
