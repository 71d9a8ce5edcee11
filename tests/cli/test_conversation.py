"""Messages, conflicts and knowledge of a flow, killed in the middle of each: `kill -9`, and the same line again."""

import subprocess
import sys

FLOW = """
flow: f
team: {id: T, members: {boss: coordinator, coder: code, tester: test, ann: reader}}
knowledge:
  entries: [{id: K1, text: sessions live in memory}]
  write: exec sh write.sh
agents: {coder: exec sh agent.sh, tester: exec sh agent.sh}
phases:
  talk:
    tasks:
      note: {message: {from: boss, to: coder, text: be brief}}
      life: {message: {from: tester, to: coder, text: "How long?", answer: true}, needs: note}
      lock: {conflict: {between: [coder, tester], question: "What then?"}, needs: life}
  build: {agent: coder, input: go, knowledge: [{id: L1, text: "{result}"}]}
"""
WRITE = """
grep -qs "^$HOLDFAST_ENTRY_ID " known || echo "$HOLDFAST_ENTRY_ID $HOLDFAST_ENTRY_TEXT" >> known
echo "$HOLDFAST_ENTRY_ID" >> written
[ "$(grep -c . written)" = 1 ] && { kill -9 $PPID; sleep 9; }
true
"""


def agent_of(killed):
    """Return an agent that kills its run the first time that it is asked for this."""
    return f"""
echo "$HOLDFAST_TASK $HOLDFAST_CONFLICT_ROUND $HOLDFAST_MESSAGES" >> said
[ "$HOLDFAST_TASK" = {killed} ] && mkdir killed 2>/dev/null && {{ kill -9 $PPID; sleep 9; }}
[ -n "$HOLDFAST_CONFLICT" ] && {{ echo '{{"result": "lock it"}}'; exit; }}
echo '{{"result": "done", "messages": [{{"to": "ann", "text": "ready"}}],
  "knowledge": [{{"id": "L2", "text": "jumps"}}]}}'
"""


def killed_and_resumed(project, hf, killed):
    (project / "f.yaml").write_text(FLOW)
    (project / "agent.sh").write_text(agent_of(killed))
    (project / "write.sh").write_text(WRITE if killed == "write" else WRITE.replace("kill -9 $PPID", ":"))
    line = [sys.executable, "-m", "holdfast", "run", "f.yaml"]
    first = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)
    assert first.returncode == -9
    at_kill = hf("status", "f", "--json").json
    assert hf("run", "f.yaml").code == 0
    return at_kill, [line.split(" ", 2) for line in (project / "said").read_text().splitlines()]


NOTE = '[{"id": "m1", "from": "boss", "text": "be brief"}]'


def test_killed_while_an_agent_answers_the_message_is_sent_again(hf, project):
    """Proves C6, C17."""
    at_kill, said = killed_and_resumed(project, hf, "life")
    assert at_kill["messages"] == {"pending": 2, "awaiting_response": 1}
    assert said[:2] == [["life", "", NOTE]] * 2  # nothing of it was dealt with
    assert [line[:2] for line in said[2:]] == [["lock", "1"], ["lock", "1"], ["build", ""]]
    shown = hf("status", "f", "--json").json
    assert shown["messages"] == {"pending": 2, "awaiting_response": 0}  # what ann was told


def test_killed_in_a_conflict_it_continues_where_it_stood(hf, project):
    """Proves C6, C17."""
    (project / "said").write_text("")
    at_kill, said = killed_and_resumed(project, hf, "lock")
    assert at_kill["conflicts"] == [{"name": "talk/lock", "agents": ["coder", "tester"], "round": 1}]
    assert "answer" not in [line[0] for line in said]
    assert [line[0] for line in said] == ["life", "lock", "lock", "lock", "build"]  # only who was cut short, again
    assert "conflict" not in hf("status", "f").out


def test_killed_while_what_was_learned_is_handed_on_it_is_kept_once(hf, project):
    """Proves C7: no duplicate capture after a resume."""
    at_kill, _ = killed_and_resumed(project, hf, "write")
    assert at_kill["knowledge"] == {"injected": 1, "captured": 0, "pending": 1}
    assert hf("status", "f", "--json").json["knowledge"] == {"injected": 1, "captured": 2, "pending": 0}
    assert (project / "written").read_text().split() == ["L2", "L2", "L1"]  # the same one came again, by its id
    assert (project / "known").read_text().splitlines() == ["L2 jumps", "L1 done"]


def test_status_shows_team_messages_and_knowledge(hf, project):
    """Proves C16."""
    (project / "f.yaml").write_text(
        FLOW.replace("phases:", "phases:\n  ask: {message: {to: ann, text: Now?, answer: true}}")
    )
    (project / "agent.sh").write_text("true")
    waiting = hf("run", "f.yaml")
    assert waiting.code == 9
    assert "`holdfast answer TEXT f --wait answer:m1` answers" in waiting.err
    shown = hf("status", "f").out
    assert "messages    1 pending, 1 awaiting a response" in shown
    assert "knowledge   1 told, 0 handed on, 0 pending" in shown
    assert "team        coder (code): idle" in shown
    assert hf("answer", "yes", "f", "--wait", "answer:m1").code == 0
    assert hf("show", "f", "--json").code == 0
