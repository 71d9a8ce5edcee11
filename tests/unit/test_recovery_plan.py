"""The pure parts of a recovery: steps and their outcomes, sections as they are restored, plans as values."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.model.checkpoint import CheckpointRecord, Envelope, Marks, SectionRecord, Summary
from holdfast.model.recovery import RecoveryInfo
from holdfast.model.sections import Agent, AgentTask, Graph, StateVisit, TaskNode, TokenUsage, Workflow
from holdfast.recovery.find import Damage
from holdfast.recovery.outcomes import decided_records, repeated, settled, unknown_steps
from holdfast.recovery.plan import Gathered, Moved, PlanFinding, RecoveryPlan, Request, from_json, make_plan
from holdfast.recovery.record import Intent, RecoveryRecord, intent_value, read_intent, read_record
from holdfast.recovery.sections import Restoring, reset_workflow, restored
from holdfast.workspace.decide import Decisions
from holdfast.workspace.plan import PlanItem, RestorePlan
from holdfast.workspace.state import State

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
ID = "cp_" + "a" * 32
HEAD = "cp_" + "b" * 32
HOSTILE = {"path": "../x", "action": "write", "reason": ""}


def step(name, event, **fields):
    return {"step": name, "event": event, "at": NOW, "input": "00", "code": "m:f", **fields}


def record(**fields):
    envelope = Envelope(
        format_version=1, id=ID, run="r", seq=3, parent=None, parent_checksum=None, trigger="manual", reason="",
        created_at=NOW, program_version="1", sections=(SectionRecord("state", 1, b"\0" * 32, 5),), stored_bytes=0,
        codec="zstd", recovery=fields.pop("recovery", RecoveryInfo()), summary=Summary(phase="plan"),
    )  # fmt: skip
    return CheckpointRecord(envelope, b"\1" * 32, Marks())


def plan_of(request=None, *, kind="recover", **facts):
    chosen = {"record": record(), "head": HEAD, **facts}
    return make_plan(Gathered(**chosen), request or Request(), now=NOW, kind=kind)


LOG = [
    step("a", "done", result=1),
    step("b", "started", effect="push"),
    step("b", "done"),
    step("c", "failed"),
    step("d", "started", effect="post", idempotency="k"),
    step("e", "started", on_unknown="retry", effect="x"),
    step("f", "skipped"),
]


def test_a_steps_last_record_counts():
    assert list(settled(LOG)) == ["a", "b", "f"]
    assert list(settled([*LOG, step("a", "failed"), "no record", {"event": "done"}])) == ["b", "f"]


def test_a_step_without_an_end_is_asked_about_if_it_has_an_effect_unless_it_says_otherwise():
    found = unknown_steps([*LOG, step("g", "started")], {})
    assert [(each.step, each.treated, each.decided) for each in found] == [
        ("d", "ask", False),
        ("e", "retry", False),
        ("g", "retry", False),
    ]
    [d, _, _] = unknown_steps([*LOG, step("g", "started")], {"d": "skip"})
    assert (d.treated, d.decided, d.effect, d.key) == ("skip", True, "post", "k")


def test_a_decision_about_a_step_that_has_an_end_is_refused():
    with pytest.raises(UsageError, match="d, e"):
        unknown_steps(LOG, {"a": "skip"})


def test_what_a_person_decides_becomes_a_record_with_the_same_key_and_arguments():
    skip, retry = (decided_records(unknown_steps(LOG, {"d": way}), LOG, NOW) for way in ("skip", "retry"))
    assert [(one["event"], one["idempotency"], one["input"], one["code"]) for one in (*skip, *retry)] == [
        ("skipped", "k", "00", "m:f"),
        ("failed", "k", "00", "m:f"),
    ]
    assert decided_records(unknown_steps(LOG, {}), LOG, NOW) == []
    assert list(settled([*LOG, *skip])) == ["a", "b", "d", "f"]


def test_steps_that_are_done_now_and_not_then_run_again():
    assert repeated(LOG[:1], [*LOG, step("z", "done")]) == ("b", "f", "z")
    assert repeated(LOG, LOG) == ()


def test_running_things_come_back_as_pending_with_what_they_used():
    """Proves A12."""
    tokens = TokenUsage(input=3)
    tasks = {"t": AgentTask(status="running", attempts=2, tokens=tokens), "u": AgentTask(status="completed")}
    agents = [
        Agent(id="a", status="running", started_at=NOW, attempts=2, tokens=tokens, tasks=tasks),
        Agent(id="b", status="failed", attempts=1),
    ]
    graph = Graph(id="g", tasks={"x": TaskNode(status="running", started_at=NOW), "y": TaskNode(status="completed")})
    back = restored({"agents": agents, "graph": graph}, Restoring(), at=NOW)
    a, b = back["agents"]
    assert (a.status, a.started_at, a.attempts, a.tokens) == ("pending", None, 2, tokens)
    assert {name: (task.status, task.attempts) for name, task in a.tasks.items()} == {
        "t": ("pending", 2),
        "u": ("completed", 0),
    }
    assert b == agents[1]
    assert {name: task.status for name, task in back["graph"].tasks.items()} == {"x": "pending", "y": "completed"}
    assert [agent.status for agent in restored({"agents": agents}, Restoring(skip_failed=True), at=NOW)["agents"]] == [
        "pending",
        "skipped",
    ]


def test_what_comes_back_as_it_was_is_not_written_again():
    agents = [Agent(id="a", status="completed")]
    assert restored({"agents": agents, "graph": Graph(id="g")}, Restoring(skip_failed=True), at=NOW) == {}


def test_a_reset_keeps_the_history_and_closes_where_it_stood():
    before = Workflow(
        current_state="ERROR",
        history=[StateVisit(state="ERROR", entered_at=NOW - timedelta(hours=1), trigger="x")],
        pending_transitions=["DONE"],
    )
    after = reset_workflow(before, "planning", NOW)
    assert (after.current_state, after.previous_state, after.pending_transitions) == ("planning", "ERROR", [])
    assert [(visit.state, visit.exited_at, visit.trigger) for visit in after.history] == [
        ("ERROR", NOW, "x"),
        ("planning", None, "recovery"),
    ]


def test_a_plan_has_no_blocker_left_that_was_taken_away():
    sections = {
        "agents": [Agent(id="a", status="failed", attempts=3)],
        "workflow": Workflow(current_state="ABORTED", previous_state="planning"),
    }
    at_capture = record(recovery=RecoveryInfo(can_resume=False, blockers=("agent a failed 3 times", "something else")))
    blocked = plan_of(record=at_capture, sections=sections)
    assert len(blocked.blockers) == 3
    assert blocked.verdict == "blocked"
    free = plan_of(Request(skip_failed=True, reset_to="planning"), sections=sections)
    assert (free.blockers, free.suggestions) == ((), ())
    assert free.skipped_agents == ("a",)
    assert free.state == "planning"
    both = plan_of(Request(skip_failed=True, reset_to="planning"), record=at_capture, sections=sections)
    assert both.blockers == ("something else",)


def test_an_undo_changes_nothing_of_what_it_puts_back():
    sections = {"agents": [Agent(id="a", status="running"), Agent(id="b", status="failed", attempts=9)]}
    plan = plan_of(kind="undo", sections=sections)
    assert (plan.blockers, plan.pending_agents) == ((), ())
    assert "undo" in str(plan)


@pytest.mark.parametrize(
    ("findings", "warnings", "verdict"),
    [((), (), "resume"), ((), ("careful",), "warn"), (("ask",), (), "ask"), (("warn", "fresh", "ask"), (), "fresh")],
)
def test_the_verdict_is_the_gravest(findings, warnings, verdict):
    found = tuple(PlanFinding(kind="k", verdict=each, detail="d") for each in findings)
    assert plan_of(moved=Moved(found), warnings=warnings).verdict == verdict


def full_plan():
    conflict = PlanItem("a/b.txt", "conflict", "both", State("file", 0o644, 3, "0" * 64), State(), State("file"))
    files = RestorePlan("/tmp/x", "00", True, (conflict, *(PlanItem(f"f{n}", "write", "gone") for n in range(30))))
    return plan_of(
        Request(decisions=Decisions(conflicts="keep"), unknown={"d": "skip"}, files=True),
        steps=LOG,
        steps_now=None,
        files=files,
        git=("switch to branch main",),
        moved=Moved((PlanFinding(kind="head-moved", verdict="warn", detail="HEAD moved"),)),
        damage=(Damage(run="r", seq=4, checkpoint=None, detail="torn", lost="2 steps"),),
    )


def test_a_plan_says_everything_in_words():
    told = str(full_plan())
    for words in (
        "back to checkpoint 3", "torn", "2 steps", "'a/b.txt'", "and 11 more", "switch to branch main", "HEAD moved",
        "step d (post)", "it is skipped", "step e (x)", "it is done again", "keeps 3 steps",
        "cannot continue: one file",
        "cannot be told",
    ):  # fmt: skip
        assert words in told, words


def test_a_plan_survives_json_and_has_a_digest_that_does_not_depend_on_when_it_was_made():
    plan = full_plan()
    assert from_json(plan.to_json()) == plan
    later = msgspec.structs.replace(plan, made_at=NOW + timedelta(days=1))
    assert later.digest == plan.digest
    assert msgspec.structs.replace(plan, head=None).digest != plan.digest


@pytest.mark.parametrize(
    "change",
    [
        {"run": "../x"}, {"checkpoint": "latest"}, {"head": "cp_"}, {"sections": ["/"]}, {"format": 2}, {"more": 1},
        {"files": {"target": "/", "snapshot": "", "in_place": True, "items": [HOSTILE]}},
        {"unknown": [{"step": "a", "treated": "maybe"}]}, {"made_at": "soon"}, {"request": {"reset_to": 5}},
    ],
)  # fmt: skip
def test_a_plan_that_is_none_is_refused(change):
    """Proves D11: stored bytes are not trusted."""
    plain = json.loads(full_plan().to_json()) | change
    with pytest.raises(UsageError, match="plan"):
        RecoveryPlan.from_json(json.dumps(plain))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_plan_are_refused(data):
    with pytest.raises(UsageError, match="not a plan"):
        RecoveryPlan.from_json(data)


def test_what_a_recovery_leaves_is_read_back_or_taken_for_nothing():
    told = RecoveryRecord(source=ID, undo=HEAD, at=NOW, plan="d", warnings=("w",))
    assert told.value()["from"] == ID
    assert read_record(told.value()) == told
    for value in (None, 3, {"from": 5}, {"from": ID, "undo": ID, "at": "x"}):
        assert read_record(value) is None


def test_an_intent_is_read_back_or_taken_for_nothing():
    assert read_intent(intent_value(b"{}")) == Intent(b"{}", is_own=True)
    assert read_intent({**intent_value(b"{}"), "mark": "somebody else"}) == Intent(b"{}", is_own=False)
    for value in (None, {}, {"plan": "text"}, {"plan": b"no zlib"}):
        assert read_intent(value) is None
