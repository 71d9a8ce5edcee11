"""The soak of an hour, in sixty rounds: it finds nothing in the product, and what is planted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parent / "soak.py"


@pytest.mark.parametrize("leak", ["", "descriptors", "memory", "disk"])
def test_a_soak_finds_growth_where_there_is_some_and_nowhere_else(leak: str) -> None:
    """Proves E7: memory, descriptors, threads, the log and the disk stay as they are under a mixed load."""
    command = [sys.executable, SOAK, "60", "--rounds", *(["--leak", leak] if leak else [])]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    last = done.stdout.splitlines()[-1:]
    assert (done.returncode, done.stderr) == (1 if leak else 0, ""), done.stdout + done.stderr
    assert last[0].startswith(f"{leak} grew" if leak else "no growth in ")
