"""Hooks: a person hears that a run waits or failed, each event once at most, and the run does not wait for it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from holdfast.errors import FlowInvalid
from holdfast.flow.load import flow_from

AWS_KEY = "AKIAIOSFODNN7EXAMPLE"


def asking(hook, **more):
    phases = {"a": "true", "ship": {"approve": "Ship {phases.a.status}?", "run": "true"}}
    return {"flow": "f", "hooks": {"on_wait": hook}, "phases": phases, **more}


def test_a_wait_is_told_once_over_all_lives_of_the_run(bench):
    """Proves F10."""
    flow = asking(f'echo "$HOLDFAST_EVENT $HOLDFAST_RUN $HOLDFAST_PHASE: $HOLDFAST_TEXT" >> "{bench.log}"')
    for _ in range(3):
        assert bench.run(flow).status == "waiting"
    assert bench.said == ["waiting f ship: Ship completed?"]


def test_a_failure_is_told_without_secrets(bench):
    """Proves F10."""
    flow = {
        "flow": "f",
        "on_failure": "abort",
        "hooks": {"on_failure": f'echo "$HOLDFAST_EVENT: $HOLDFAST_TEXT" >> "{bench.log}"'},
        "phases": {"a": f"echo no {AWS_KEY} >&2; exit 1"},
    }
    assert bench.run(flow).status == "failed"
    assert bench.said[0].startswith("failed: ")
    assert AWS_KEY not in "".join(bench.said)


@pytest.fixture
def server():
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}/", got
    made.shutdown()
    made.server_close()


def test_a_webhook_gets_the_event_as_json(bench, server):
    """Proves F10."""
    url, got = server
    assert bench.run(asking({"url": url})).status == "waiting"
    (told,) = got
    assert {name: told[name] for name in ("run", "event", "phase", "options", "text")} == {
        "run": "f",
        "event": "waiting",
        "phase": "ship",
        "options": ["approve", "reject"],
        "text": "Ship completed?",
    }


@pytest.mark.parametrize("hook", ["exit 7", {"url": "http://127.0.0.1:1/"}, {"run": "sleep 60", "timeout": 0.2}])
def test_a_hook_that_fails_stops_nothing_and_is_said(bench, hook):
    """Proves F10."""
    assert bench.run(asking(hook)).status == "waiting"
    assert next(event.text for event in bench.events if event.kind == "hook_failed").startswith("nobody was told")


def test_the_run_goes_on_while_a_hook_is_under_way(bench):
    """Proves F10: the hook ends only because the phase after it was done."""
    flow = {
        "flow": "f",
        "hooks": {
            "on_wait": {
                "run": f"while ! test -e '{bench.folder}/done'; do sleep 0.05; done; echo told >> '{bench.log}'"
            }
        },
        "phases": {"a": {"approve": "ok?", "run": f"touch '{bench.folder}/done'"}},
    }

    def answer(event):
        bench.events.append(event)
        if event.kind == "waiting":
            with bench.open() as other:
                other.control.answer("f", "approve")

    assert bench.run(flow, observer=answer, waiting="block").status == "completed"
    assert bench.said == ["told"]
    assert not bench.kinds("hook_failed")


@pytest.mark.parametrize("hook", [{}, {"run": "x", "url": "http://x/"}, {"url": "file:///etc/passwd"}])
def test_a_hook_is_a_command_or_a_web_address(hook):
    with pytest.raises(FlowInvalid):
        flow_from(asking(hook))
