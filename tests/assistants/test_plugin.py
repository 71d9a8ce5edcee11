"""The Claude Code plugin fits what the product does; the real validator is asked where it is installed."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import yaml
from mcp import Client

from holdfast.cli.main import make_parser
from holdfast.cli.table import BY_NAME
from holdfast.hook.dialects import CLAUDE
from holdfast.hook.session import HookPlace
from holdfast.mcp.scope import Grants, Scope
from holdfast.mcp.server import make_server
from holdfast.version import __version__

PLUGIN = Path(__file__).parents[2] / "plugins" / "claude-code"


def hooks():
    groups = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]
    return [
        (event, group.get("matcher", ""), hook)
        for event in groups
        for group in groups[event]
        for hook in group["hooks"]
    ]


def test_every_hook_is_of_an_event_that_does_something():
    for event, matcher, hook in hooks():
        rule = CLAUDE.events[event]
        assert matcher == rule.matcher
        if hook["type"] == "command":
            assert hook.get("async", False) is not rule.waits
        else:  # a server that is not connected yet misses it: only for what the next command makes up for
            assert not rule.waits
    assert {event for event, _, _ in hooks()} == set(CLAUDE.events) - {"SessionEnd"}


def test_the_commands_of_the_plugin_are_ones_of_the_program():
    server = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]["holdfast"]
    lines = [[hook["command"], *hook["args"]] for _, _, hook in hooks() if hook["type"] == "command"]
    for program, name, *words in [*lines, [server["command"], *server["args"]]]:
        assert program == "holdfast"
        make_parser(BY_NAME[name]).parsed(words)


def test_the_tools_that_hooks_and_skills_name_are_served(tmp_path):
    scope = Scope(tmp_path, lambda _: None, (), Grants(write=True, restore=True))
    place = HookPlace(tmp_path, lambda: None, None, ())

    async def served():
        async with Client(make_server(scope, place)) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    tools = anyio.run(served)
    for _, _, hook in hooks():
        if hook["type"] == "mcp_tool":
            assert hook["server"] == "plugin:holdfast:holdfast"
            assert set(hook["input"]) <= set(tools[hook["tool"]].input_schema["properties"])
    for skill in ("rewind", "compare", "resume"):
        _, head, body = (PLUGIN / "skills" / skill / "SKILL.md").read_text().split("---\n", 2)
        assert yaml.safe_load(head)["name"] == skill
        named = {word.strip("`") for word in body.split() if word.startswith("`") and "_" in word}
        assert {name for name in named if name.isidentifier()} <= set(tools)


def test_the_plugin_has_the_version_of_the_program():
    assert json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())["version"] == __version__
