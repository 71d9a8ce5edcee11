"""A project and the command line, as in the tests of the command line; hooks called as an assistant calls them."""

from __future__ import annotations

import json

import pytest

from cli.conftest import hf, project, story

__all__ = ["hf", "project", "story", "tell"]


@pytest.fixture
def tell(hf, project):
    """Report an event as an assistant does: tell("Stop", prompt="..."); returns the parsed answer."""

    def call(event: str, *, session: str = "s-1", assistant: str | None = None, **fields: object) -> dict[str, object]:
        given = {"session_id": session, "hook_event_name": event, "cwd": str(project), **fields}
        words = ["--from", assistant] if assistant else []
        done = hf("hook", *words, stdin=json.dumps(given).encode())
        assert done.code == 0
        assert done.err == ""
        return dict(done.json)

    return call
