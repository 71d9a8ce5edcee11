"""An adapter says which versions of its framework it was tested with, and its page and its extra say the same."""

from __future__ import annotations

import tomllib
import warnings
from importlib import import_module
from pathlib import Path

import pytest

from holdfast.adapters import requirement

TOP = Path(__file__).parents[2]
ADAPTERS = {
    "langgraph": ("holdfast.adapters.langgraph", "HoldfastSaver", ()),
    "claude": ("holdfast.adapters.claude", "HoldfastSessionStore", ()),
    "openai": ("holdfast.adapters.openai", "HoldfastSession", ("session",)),
    "agent-framework": ("holdfast.adapters.agent_framework", "HoldfastCheckpointStorage", ()),
    "pydantic-ai": ("holdfast.adapters.pydantic_ai", "HoldfastConversationStore", ()),
}
RANGES = {  # package, the last that is too old, the first and the last that are fine, the first of another series
    "langgraph": ("langgraph-checkpoint", "4.2.9", "4.3.0", "4.99.1", "5.0.0rc1"),
    "claude": ("claude-agent-sdk", "0.2.182", "0.2.183", "0.2.999", "0.3.0"),
    "openai": ("openai-agents", "0.23.9", "0.24.0", "0.24.9", "0.25.0"),
    "agent-framework": ("agent-framework-core", "1.22.9", "1.23.0", "1.99.0", "2.0.0"),
    "pydantic-ai": ("pydantic-ai-slim", "2.65.9", "2.66.0", "2.99.0", "3.0.0"),
}


def warned(name, monkeypatch, version):
    module, cls, given = ADAPTERS[name]
    pytest.importorskip({"claude": "claude_agent_sdk", "openai": "agents"}.get(name, name.replace("-", "_")))
    monkeypatch.setattr(requirement, "version", lambda package: {RANGES[name][0]: version}[package])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        getattr(import_module(module), cls)(*given, "memory:").close()
    return [str(one.message) for one in found if one.category is requirement.UntestedVersionWarning]


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_version_outside_the_tested_range_is_warned_about(name, monkeypatch):
    package, old, first, last, other = RANGES[name]
    for version in (old, other):
        (said,) = warned(name, monkeypatch, version)
        assert f"{package} {version}" in said
    for version in (first, last):
        assert warned(name, monkeypatch, version) == []


@pytest.mark.parametrize("name", ADAPTERS)
def test_page_and_extra_name_the_range_that_is_warned_about(name, monkeypatch):
    package, old, *_ = RANGES[name]
    (said,) = warned(name, monkeypatch, old)
    first, last = said.split("(from ")[1].split(")")[0].split(", below ")
    assert f"(from {first}, below {last})" in (TOP / "docs" / "adapters" / f"{name}.md").read_text()
    extras = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"{package}>={first}" in extras[name]
