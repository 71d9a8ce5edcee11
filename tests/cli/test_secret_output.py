"""Secrets in what tasks print, ask and come to: neither the screen nor the store has them, however they are cut up."""

import json
import random
import string
from pathlib import Path

import pytest

import holdfast
from holdfast.flow.load import parse_flow

FIRST, SECOND = (
    "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=18)) for seed in ("first", "second")
)
TOKEN = f"ghp_{FIRST}{SECOND}"
COLOURED = {
    "colours": "ghp_" + FIRST + r"\033[1;31m" + SECOND + r"\033[0m",
    "a palette": "ghp_" + FIRST + r"\033[38:2::255:0:0m" + SECOND,
    "a link": "ghp_" + FIRST + r"\033]8;;https://example.org\033\\" + SECOND + r"\033]8;;\033\\",
    "a title": "ghp_" + FIRST + r"\033]0;busy\a" + SECOND,
    "a charset": "ghp_" + FIRST + r"\033(B" + SECOND,
    "a link to it": r"\033]8;;https://example.org/ghp_" + FIRST + SECOND + r"\033\\here\033]8;;\033\\",
}


@pytest.fixture
def leaked(project):
    """Return the texts that a part of the token stands in, and where it stands in the store's folder."""

    def look(*texts):
        found = [text for text in texts if FIRST in text or SECOND in text]
        files = [path for path in (project / ".holdfast").rglob("*") if path.is_file()]
        stored = [path.name for path in files if any(half.encode() in path.read_bytes() for half in (FIRST, SECOND))]
        return found, stored

    (project / "holdfast.yaml").write_text("compression: none\n")
    return look


def flow(text):
    """Write a flow file."""
    Path("f.yaml").write_text(text)


@pytest.mark.parametrize("form", COLOURED)
@pytest.mark.parametrize("way", ["printf '%b\\n' \"$SAID\"", "printf '%b\\n' \"$SAID\" >&2; exit 3"])
def test_escapes_inside_a_token_do_not_hide_it(hf, leaked, form, way, monkeypatch):
    """Threats 12, issue 18.6: result, failure, kept output, events and the screen."""
    monkeypatch.setenv("SAID", COLOURED[form])
    flow(f"flow: f\nphases:\n  p: {{run: {json.dumps(way)}, on_failure: abort}}\n")
    done = hf("run", "f.yaml", "-v", "--no-wait")
    again = hf("run", "f.yaml", "--json", "--fresh", "--no-wait")
    shown = [hf("status", "f", "--json"), hf("logs", "f"), hf("events", "f", "--json"), hf("show", "f", "--json")]
    assert done.code == (8 if "exit" in way else 0)
    assert leaked(*(text for one in (done, again, *shown) for text in (one.out, one.err))) == ([], [])
    assert "[redacted:" in done.out


def test_an_error_in_the_middle_of_a_line_does_not_hide_a_token(hf, project, leaked):
    """Each stream is looked at by itself, line by line, before they are put together."""
    parts = f"printf ghp_{FIRST}; sleep 0.3; echo a warning >&2; sleep 0.3; echo {SECOND}"
    (project / "says.sh").write_text(parts)
    (project / ".holdfastignore").write_text("says.sh\n")
    flow("flow: f\nphases:\n  p: sh says.sh\n")
    told = [hf("run", "f.yaml", "-v"), hf("run", "f.yaml", "--fresh", "--json"), hf("logs", "f")]
    assert leaked(*(one.out + one.err for one in told)) == ([], [])
    assert all("a warning" in one.out and "[redacted:" in one.out for one in told)


def test_questions_summaries_gates_and_results_are_shown_without_secrets(hf, project, leaked):
    """`holdfast run` prints what it stores: an approval, a summary and a result have no secret in them."""
    (project / "says.sh").write_text(f"echo the token is {TOKEN}")
    (project / "json.sh").write_text(f'echo \'{{"result": {{"deep": ["{TOKEN}"]}}}}\'')
    (project / ".holdfastignore").write_text("*.sh\n")
    flow(
        """
flow: f
phases:
  one: {run: sh says.sh, gates: [sh says.sh]}
  two: {run: sh json.sh}
  three: {approve: "Ship {phases.one.summary} {phases.two.result}?", run: "true"}
""",
    )
    told = [
        hf("run", "f.yaml", "--no-wait"),
        hf("run", "f.yaml", "--no-wait", "--json"),
        hf("run", "f.yaml", "--no-wait", "--json", "--fresh"),
        hf("run", "f.yaml", terminal=True, stdin=b"y\nlater\n"),
        hf("run", "f.yaml", "--fresh", terminal=True, stdin=b"y\n"),
        hf("run", "f.yaml", "--no-wait", "--json"),
    ]
    assert [one.code for one in told] == [9, 9, 9, 9, 0, 0]
    assert leaked(*(one.out + one.err for one in told)) == ([], [])
    assert all("[redacted:" in one.out + one.err for one in told[:5])


def test_a_question_of_a_task_is_seen_while_it_waits_and_half_a_token_is_not(project, leaked):
    """It was held back until its line ended, which nobody who does not see it brings about."""
    script = "printf 'Deploy? [y/N] '; for i in $(seq 600); do [ -e seen ] && break; sleep 0.1; done; [ -e seen ] "
    script += f"&& echo yes; printf 'it is ghp_{FIRST}'; sleep 1.2; echo {SECOND}"
    (project / "asks.sh").write_text(script)
    texts = []

    def watch(event):
        texts.append(event.text)
        if event.kind == "task_output" and event.text.endswith("[y/N] "):
            (project / "seen").touch()

    with holdfast.open() as opened:
        told = holdfast.run_flow(opened, parse_flow("flow: f\nphases:\n  p: sh asks.sh\n"), observer=watch)
    assert told.status == "completed"
    assert "it is [redacted:" in "".join(texts)
    assert leaked(*texts) == ([], [])
