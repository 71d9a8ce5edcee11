"""What --json writes is what the reference and `--help` promise: one document with its fields, or lines."""

from __future__ import annotations

import json
import re

import pytest

import holdfast
from holdfast.cli.documents import CHECKPOINT, DOCUMENTS, PHASES, RUN
from holdfast.cli.table import COMMANDS

APART = {
    "run",
    "guard",
    "load",
    "mcp",
    "worker",
    "__complete",
}  # what others say: events, a program, a value, a protocol


def test_every_command_has_its_document():
    assert {name.split()[0] for name in DOCUMENTS} == {command.name for command in COMMANDS} - APART


@pytest.fixture
def documents(hf, story, tmp_path):
    """What each command says, in an order in which each has something to say."""
    store = holdfast.open()
    with pytest.raises(holdfast.RunWaiting), store.run("asks", waiting="leave") as run:
        run.approve("Deploy?")
    store.close()
    (story / "PLAN.md").write_text("## Phase 1: Research\n")
    (story / "s.json").write_text("{}")
    (story / "f.yaml").write_text("flow: f\nphases: {a: 'true'}\n")
    lines = {
        "ls": "ls", "log": "log issue-42", "show": "show issue-42", "show SECTION": "show issue-42 state",
        "files": "files issue-42", "files --left-out": "files issue-42 --left-out", "cat": "cat issue-42:a.txt",
        "history": "history a.txt issue-42", "cost": "cost issue-42", "blame": "blame a.txt issue-42",
        "bisect": "bisect --json issue-42 -- grep -q one a.txt",
        "diff": "diff issue-42@1 issue-42", "stats": "stats", "checkpoint": "checkpoint issue-42",
        "label": "label issue-42 name", "pin": "pin issue-42", "mark": "mark issue-42@1 archived",
        "restore": "restore issue-42@1 --yes", "delete": "delete issue-42@2 --dry-run", "prune": "prune --dry-run",
        "begin": "begin PLAN.md", "phase": "phase start 1", "replan": "replan 1 --reason x",
        "save": "save --state s.json", "status": "status", "resume": "resume issue-42@1 --yes --take",
        "undo": "undo issue-42 --yes",
        "fork": "fork issue-42 other", "replay": "replay issue-42", "events": "events issue-42",
        "approve": "approve asks", "signal": "signal asks go", "pause": "pause asks", "cancel": "cancel asks --yes",
        "verify": "verify", "repair": "repair", "copy": f"copy .holdfast {tmp_path}/copy issue-42",
        "export": f"export issue-42 -o {tmp_path}/run.holdfast",
        "import": f"import {tmp_path}/run.holdfast --store {tmp_path}/third", "store migrate": "store migrate",
        "hook install": "hook install claude --yes", "hook status": "hook status",
        "store key ls": "store key ls", "store key new": "store key new k.key", "init": "init", "doctor": "doctor",
        "trust": "trust", "completion": "completion bash", "flow check": "flow check f.yaml",
    }  # fmt: skip
    said = {}
    for name, line in lines.items():
        done = hf(*line.split(), *([] if "--json" in line else ["--json"]))
        assert done.code == (14 if name == "resume" else 0), (line, done)  # its own program continues it
        assert done.err == "", line
        said[name] = done.json
    return said


def test_the_fields_are_those_of_the_reference(documents):
    differing = {
        name: set(said) - {"warnings"} ^ set(DOCUMENTS[name])
        for name, said in documents.items()
        if set(said) - {"warnings"} != set(DOCUMENTS[name])
    }
    assert differing == {}
    untested = {
        "reject",
        "ui",
        "answer",
        "budget",
        "demo",
        "logs",
        "patch",
        "submit",
        "queue",
        "advance",
    }  # the same function as approve; a run that waits for one; test_setup; test_flow_commands; test_patch; test_worker
    assert set(DOCUMENTS) - set(documents) == untested
    assert {frozenset(one) for one in documents["ls"]["runs"]} == {frozenset(RUN)}
    assert {frozenset(one) for one in documents["log"]["checkpoints"]} == {frozenset(CHECKPOINT)}
    assert set(PHASES) <= set(documents["begin"])


@pytest.fixture
def flow(hf, project):
    """A flow that ran."""
    (project / "f.yaml").write_text("flow: f\nphases: {a: 'echo one; echo two'}\n")
    assert hf("run", "f.yaml").code == 0
    return project


@pytest.mark.parametrize("line", ["run f.yaml --fresh --yes", "events f -f", "logs f -f"])
def test_lines_are_lines_each_a_value_and_the_help_says_so(hf, flow, line):
    done = hf(*line.split(), "--json")
    assert len([json.loads(one) for one in done.out.splitlines()]) > 1
    assert "JSON line" in described(hf, line.split()[0])


@pytest.mark.parametrize("line", ["run f.yaml --dry-run", "events f", "logs f"])
def test_a_command_that_writes_lines_elsewhere_says_where_it_writes_a_document(hf, flow, line):
    assert hf(*line.split(), "--json").json
    assert "document" in described(hf, line.split()[0])


def test_the_help_of_every_command_describes_its_json(hf, project):
    has_document = {name.split()[0] for name in DOCUMENTS} | {"run"}
    for command in COMMANDS:
        assert ("one JSON document" in described(hf, command.name)) == (command.name in has_document), command.name


def described(hf, name):
    """Return what the help of a command says of --json, without line breaks."""
    return re.search(r"^  --json +(.*?)(?=\n  -)", hf(name, "--help").out, re.DOTALL | re.MULTILINE)[1]


def test_each_line_that_is_followed_names_its_task(hf, flow):
    lines = [json.loads(one) for one in hf("logs", "f", "-f", "--json").out.splitlines()]
    assert [(one["task"], one["line"]) for one in lines][-2:] == [("a/a", "one"), ("a/a", "two")]


def test_a_warning_that_no_document_carries_is_on_standard_error(hf, project):
    done = hf("hook", "install", "cursor", "--yes", "--json")
    assert (done.code, done.json["changed"]) == (0, True)
    assert "were not tried" in done.err
