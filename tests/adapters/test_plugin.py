"""The Claude Code plugin, judged by Claude Code itself: the program that comes with the SDK."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

claude_agent_sdk = pytest.importorskip("claude_agent_sdk")

PLUGIN = Path(__file__).parents[2] / "plugins" / "claude-code"
CLAUDE = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"


@pytest.mark.skipif(not CLAUDE.exists(), reason="this SDK comes without its program")
def test_the_real_validator_has_no_complaint(tmp_path):
    """Proves X6: no error, no warning, and all that the plugin provides is seen."""
    done = subprocess.run(
        [CLAUDE, "plugin", "validate", "--strict", "--profile", "directory", "--json", PLUGIN],
        capture_output=True, text=True, check=False, timeout=120, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    found = [report["manifest"], *report["contents"]]
    assert [(one["errors"], one["warnings"]) for one in found if one["errors"] or one["warnings"]] == []
    assert report["directory"]["findings"] == []
    configured = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]
    assert {hook["event"] for hook in report["provides"]["hooks"]} == set(configured)
    assert report["provides"]["skills"] == ["holdfast:compare", "holdfast:resume", "holdfast:rewind"]
