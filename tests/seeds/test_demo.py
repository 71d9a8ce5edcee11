"""`make demo` tells the truth: it ends with 0 only if all that it claims was so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from seeds.conftest import environment

DEMO = Path(__file__).parent.parent.parent / "examples" / "demo.py"


def test_the_demo_is_killed_goes_on_and_pays_for_nothing_twice():
    """Proves D8, X1, B9: a real flow on a real repository, SIGKILL, a ruined file, and what was saved."""
    done = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT SO" not in done.stdout
    assert done.stdout.endswith("All of it was so.\n")
