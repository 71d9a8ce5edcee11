"""Messages, conflicts, knowledge and team as a flow file declares them, and what agents report of them."""

import json
import signal

import pytest

from crash.children import Child
from holdfast import FlowInvalid
from holdfast.flow.load import flow_from

TEAM = {"id": "T", "members": {"boss": "coordinator", "coder": "code", "tester": "test", "ann": "person"}}


def reporting(log, **said):
    """Return an agent that writes down what it is told, and reports this."""
    told = '"$HOLDFAST_TASK|$HOLDFAST_INPUT|$HOLDFAST_MESSAGES|$HOLDFAST_MESSAGE_ID|$HOLDFAST_CONFLICT_ROUND"'
    return f"echo {told} >> '{log}'; echo '{json.dumps(said)}'"


def section(bench, name, run="f"):
    with bench.open() as hf:
        return hf.latest(run).section(name)


def flow_of(agents, tasks, **more):
    return {"flow": "f", "agents": agents, "team": TEAM, "phases": {"p": {"parallel": 1, "tasks": tasks}}, **more}


def test_a_task_sends_a_message_and_waits_for_the_answer_of_an_agent(bench):
    """Proves C6."""
    agents = {"coder": reporting(bench.log, result="15 minutes")}
    tasks = {"life": {"message": {"from": "tester", "to": "coder", "text": "How long, {run.id}?", "answer": True}}}
    result = bench.run(flow_of(agents, tasks))
    assert result.results == {"p": {"life": "15 minutes"}}
    assert bench.said == ["life|How long, f?||m1|"]
    messages = section(bench, "messages")
    assert (messages.pending, messages.awaiting_response, messages.answers) == ([], [], {"m1": "15 minutes"})
    bench.run(flow_of(agents, tasks))
    assert len(bench.said) == 1


def test_a_message_is_given_to_its_reader_with_the_next_task_until_that_is_done(bench):
    """Proves C6, C17: pending messages are given again, and not twice once they are read."""
    coder = f"{reporting(bench.log, result='ok')}; test -e '{bench.folder / 'go'}'"
    tasks = {
        "note": {"message": {"from": "boss", "to": "coder", "text": "be brief"}},
        "one": {"agent": "coder", "input": "1", "needs": "note"},
        "two": {"agent": "coder", "input": "2", "needs": "one"},
    }
    flow = flow_of({"coder": coder}, tasks, on_failure="abort")
    assert bench.run(flow).status == "failed"
    assert [message["id"] for message in section(bench, "messages").pending] == ["m1"]
    (bench.folder / "go").touch()
    assert bench.run(flow).status == "completed"
    given = '[{"id": "m1", "from": "boss", "text": "be brief"}]'
    assert bench.said == [f"one|1|{given}||", f"one|1|{given}||", "two|2|||"]
    assert section(bench, "messages").pending == []


def test_a_message_to_somebody_who_is_no_agent_waits_for_an_answer_from_outside(bench):
    flow = flow_of({}, {"ask": {"message": {"to": "ann", "text": "May I?", "answer": True}}})
    waiting = bench.run(flow)
    assert (waiting.status, waiting.waits_for) == ("waiting", "answer:m1")
    assert waiting.detail == "f waits for an answer of ann: May I?"
    with bench.open() as hf:
        hf.control.signal("f", "answer:m1", "yes")
    assert bench.run(flow).results == {"p": {"ask": "yes"}}


def test_what_an_agent_reports_is_taken_in_once_and_what_cannot_be_is_said(bench):
    """Proves C6, C7: messages, answers and knowledge of agents that are commands."""
    agents = {
        "coder": reporting(
            bench.log,
            result="built",
            messages=[{"to": "tester", "text": "ready?", "answer": True}, {"to": "nobody", "text": "x"}],
            knowledge=["clocks jump", {"id": "K2", "text": "lock it", "kind": "decision"}],
        ),
        "tester": reporting(bench.log, result="tested", messages=[{"answer_to": "m1", "text": "yes"}]),
    }
    tasks = {
        "build": {"agent": "coder", "input": "1"},
        "test": {"agent": "tester", "input": "2", "needs": "build"},
        "again": {"agent": "coder", "input": "3", "needs": "test"},
    }
    assert bench.run(flow_of(agents, tasks)).status == "completed"
    refused = [event.text for event in bench.events if event.kind == "report_refused"]
    assert len(refused) == 2
    assert "there is no 'nobody' in the team" in refused[0]
    asked = '[{"id": "m1", "from": "coder", "text": "ready?", "expects_answer": true}]'
    answered = '[{"id": "m2", "from": "tester", "text": "yes", "answer_to": "m1"}]'
    assert bench.said == ["build|1|||", f"test|2|{asked}||", f"again|3|{answered}||"]
    messages = section(bench, "messages")
    assert (messages.answers, messages.sent) == ({"m1": "yes"}, 3)
    knowledge = section(bench, "knowledge")
    assert [(entry.content, entry.kind) for entry in knowledge.pending] == [
        ("clocks jump", ""),
        ("lock it", "decision"),
    ]


def position(log, *held):
    """Return an agent that holds one thing after the other, by the round."""
    cases = " ".join(f"{number}) said='{one}';;" for number, one in enumerate(held, 1))
    told = '"$HOLDFAST_INPUT $HOLDFAST_CONFLICT_ROUND $HOLDFAST_CONFLICT_POSITIONS"'
    report = '"{\\"conflict\\": {\\"position\\": \\"$said\\"}}"'
    return f"echo {told} >> '{log}'; case $HOLDFAST_CONFLICT_ROUND in {cases} esac; echo {report}"


def test_a_conflict_goes_through_rounds_until_all_hold_the_same(bench):
    """Proves C6."""
    agents = {"coder": position(bench.log, "hour", "minute"), "tester": position(bench.log, "minute", "minute")}
    tasks = {"lock": {"conflict": {"between": ["coder", "tester"], "question": "how long?"}}}
    assert bench.run(flow_of(agents, tasks)).results == {"p": {"lock": "minute"}}
    assert bench.said == [
        "how long? 1 {}",
        'how long? 1 {"coder": "hour"}',
        'how long? 2 {"coder": "hour", "tester": "minute"}',
        'how long? 2 {"coder": "minute", "tester": "minute"}',
    ]
    [settled] = section(bench, "messages").resolved
    assert (settled["name"], settled["round"], settled["resolution"]) == ("p/lock", 2, "minute")


def test_a_conflict_without_a_resolution_fails_and_continues_with_more_rounds(bench):
    agents = {"coder": position(bench.log, "a", "a", "b"), "tester": position(bench.log, "b", "b", "b")}
    tasks = {"lock": {"conflict": {"between": ["coder", "tester"], "question": "q", "rounds": 2}}}
    flow = flow_of(agents, tasks, on_failure="abort")
    failed = bench.run(flow)
    assert failed.status == "failed"
    assert "not settled after 2 rounds (coder: a; tester: b)" in failed.detail
    assert bench.run(flow).results == {"p": {"lock": "b"}}
    assert len(bench.said) == 6


def test_an_agent_may_settle_a_conflict_after_each_round(bench):
    said = '{"conflict": {"resolution": null}}', '{"conflict": {"resolution": "half"}}'
    boss = f"""[ "$HOLDFAST_CONFLICT_ROUND" = 1 ] && echo '{said[0]}' || echo '{said[1]}'"""
    agents = {"coder": position(bench.log, "a", "a"), "tester": position(bench.log, "b", "b"), "boss": boss}
    tasks = {"lock": {"conflict": {"between": ["coder", "tester"], "question": "q", "settle": "boss"}}}
    assert bench.run(flow_of(agents, tasks)).results == {"p": {"lock": "half"}}
    [settled] = section(bench, "messages").resolved
    assert (settled["resolved_by"], settled["round"]) == ("boss", 2)


def test_a_conflict_that_an_agent_opens_is_settled_by_the_task_of_its_name(bench):
    opened = {"name": "lock", "question": "how long?", "position": "hour"}
    agents = {
        "coder": f"""if test -n "$HOLDFAST_CONFLICT"; then {position(bench.log, "hour", "day")}
            else echo '{json.dumps({"conflict": opened})}'; fi""",
        "tester": position(bench.log, "day", "day"),
    }
    tasks = {
        "build": {"agent": "coder", "input": "all"},
        "lock": {"conflict": {"between": ["coder", "tester"], "question": "how long?"}, "needs": "build"},
    }
    assert bench.run(flow_of(agents, tasks)).results["p"]["lock"] == "day"
    assert len(bench.said) == 3  # what the coder held in the first round was known


def test_knowledge_is_told_learned_and_handed_on_once(bench):
    """Proves C7: injected, captured, pending; no duplicate capture after a resume."""
    learned = bench.workspace / "learned"
    flow = {
        "flow": "f",
        "params": {"n": 7},
        "knowledge": {
            "entries": [{"id": "K1", "text": "issue {params.n}", "kind": "decision"}, "sessions live in memory"],
            "read": """echo '{"id": "K0", "text": "old"}'""",
            "write": f'test -e go && echo "$HOLDFAST_ENTRY_ID $HOLDFAST_ENTRY_TEXT" >> "{learned}"',
        },
        "agents": {"coder": f'echo "$HOLDFAST_KNOWLEDGE" > "{bench.log}"; echo done'},
        "phases": {
            "p": {"agent": "coder", "knowledge": [{"id": "L1", "text": "{result} in {params.n}"}]},
            "q": {"run": "test -e go", "on_failure": "abort"},
        },
    }
    assert bench.run(flow).status == "failed"
    assert [event.kind for event in bench.events].count("knowledge_failed") == 1
    told = json.loads(bench.said[0])
    assert [(one["id"], one["text"]) for one in told][::2] == [("K1", "issue 7"), ("K0", "old")]
    assert [entry.id for entry in section(bench, "knowledge").pending] == ["L1"]
    (bench.workspace / "go").touch()
    assert bench.run(flow).status == "completed"
    assert bench.run(flow, redo=["p"]).status == "completed"
    assert learned.read_text() == "L1 done in 7\n"
    knowledge = section(bench, "knowledge")
    assert [entry.id for entry in knowledge.captured] == ["L1"]
    assert (len(knowledge.injected), knowledge.pending) == (3, [])


def test_what_decides_a_message_or_a_conflict_runs_it_again_and_its_rounds_do_not(bench):
    """Proves F1."""
    agents = {"coder": position(bench.log, "a", "a"), "tester": position(bench.log, "a", "a")}

    def flow(question="q", rounds=3, more=""):
        between = {"between": ["coder", "tester"], "question": question, "rounds": rounds}
        return flow_of({**agents, "coder": agents["coder"] + more}, {"lock": {"conflict": between}})

    bench.run(flow())
    bench.run(flow(rounds=9))
    assert len(bench.said) == 2
    bench.run(flow(question="another"))
    assert len(bench.said) == 4
    bench.run(flow(question="another", more="; true"))
    assert len(bench.said) == 6
    for number in (4, 5):
        bench.run(flow(question="another", more="; true"), redo=["p/lock"])
        assert len(bench.said) == 2 * number


def test_killed_while_it_runs_again_a_task_takes_no_answer_of_the_time_before(bench):
    """Proves F1."""
    deadly = bench.folder / "deadly"
    coder = f"if test -e '{deadly}'; then kill -9 $PPID; sleep 9; fi; {reporting(bench.log, result='15 minutes')}"
    flow = flow_of({"coder": coder}, {"life": {"message": {"to": "coder", "text": "How long?", "answer": True}}})
    bench.run(flow)
    deadly.touch()
    for _ in range(2):  # the second time its start is stored
        assert Child(lambda _report: bench.run(flow, redo=["p/life"])).join().signal == signal.SIGKILL
    deadly.unlink()
    for _ in range(2):
        assert bench.run(flow).status == "completed"
        assert len(bench.said) == 2


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"message": {"to": "nobody", "text": "x"}}, "there is no agent 'nobody'"),
        ({"message": {"from": "who", "to": "ann", "text": "x"}}, "there is no agent 'who'"),
        ({"message": {"to": "ann", "text": "{phases.x}"}}, "there is no 'phases.x'"),
        ({"message": {"to": "ann", "text": "x"}, "run": "true"}, "give one of message and run"),
        ({"message": {"to": "ann", "text": "x"}, "input": "y"}, "put it there"),
        ({"conflict": {"between": ["coder"], "question": "x"}}, "two agents or more"),
        ({"conflict": {"between": ["coder", "ann"], "question": "x"}}, "there is no agent 'ann'"),
        ({"conflict": {"between": ["coder", "tester"], "question": "x", "settle": "me"}}, "there is no agent 'me'"),
        ({"run": "true", "knowledge": "{nothing}"}, "there is no 'nothing'"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_runs(task, said):
    with pytest.raises(FlowInvalid, match=said):
        flow_from(flow_of({"coder": "true", "tester": "true"}, {"t": task}))


def test_a_scripted_agent_reports_too(bench):
    script = [{"output": "ok", "knowledge": ["learned"], "messages": [{"to": "ann", "text": "hello"}]}]
    bench.run(flow_of({"coder": {"script": script}}, {"t": {"agent": "coder"}}))
    assert [entry.content for entry in section(bench, "knowledge").pending] == ["learned"]
    assert [message["body"] for message in section(bench, "messages").pending] == ["hello"]
