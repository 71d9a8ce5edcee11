"""The examples on the pages about adapters run as they stand."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "adapters"
NEEDED = {
    "langgraph": "langgraph",
    "claude": "claude_agent_sdk",
    "openai": "agents",
    "agent-framework": "agent_framework",
    "pydantic-ai": "pydantic_ai",
}


@pytest.mark.parametrize("page", [name for name in NEEDED if (PAGES / f"{name}.md").exists()])
def test_the_examples_of_a_page_run_as_they_stand(page, tmp_path, monkeypatch):
    if importlib.util.find_spec(NEEDED[page]) is None:
        pytest.skip(f"{NEEDED[page]} is not installed")
    monkeypatch.chdir(tmp_path)
    text = (PAGES / f"{page}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, f"{page}.md", "exec", dont_inherit=True), names)
