"""A project of its own for each test, and the command line called in it."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import pytest

import holdfast
from cli.streams import stream, text_of
from holdfast.cli.main import main


class Done(NamedTuple):
    """How a line ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty directory that is the present one; no setting of this machine reaches it."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("HOLDFAST_STORE", "HOLDFAST_RUN", "NO_COLOR", "PAGER", "LESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setenv("COLUMNS", "100")
    return folder


@pytest.fixture
def hf(project):
    """Call the command line: hf("ls", "--json", stdin=b"..."); with terminal=True a person seems to be there."""

    def call(*words: str, stdin: bytes = b"", terminal: bool = False) -> Done:
        out, err = stream(terminal=terminal), stream(terminal=terminal)
        before = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = stream(stdin, terminal=terminal), out, err
        try:
            code = main([str(word) for word in words])
        finally:
            sys.stdin, sys.stdout, sys.stderr = before
        return Done(code, text_of(out), text_of(err))

    return call


@pytest.fixture
def story(project):
    """A run of three checkpoints with files: @1 first, @2 second with the label good, @3 by an agent."""
    store = holdfast.open()
    run = store.run("issue-42", workspace=project)
    (project / "a.txt").write_text("one\n")
    (project / "src").mkdir()
    (project / "src" / "main.py").write_text("print(1)\n")
    run.checkpoint(reason="first", state={"step": 1}, workflow={"current_state": "PLAN"})
    (project / "a.txt").write_text("two\n")
    run.checkpoint(reason="second", state={"step": 2}, label="good")
    (project / "a.txt").write_text("three\n")
    run.checkpoint(trigger="agent_complete", state={"step": 3}, workflow={"current_state": "BUILD"})
    store.close()
    return project
