"""What a process of its own takes, and what this one has written."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Took(NamedTuple):
    """Seconds that a process took, and what it printed."""

    wall: float
    cpu: float
    said: str


def run_process(*arguments: str, folder: Path | None = None) -> Took:
    """Run Python with these arguments; RuntimeError with what it said if it failed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, begun = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder or ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    wall, after = time.perf_counter() - begun, os.times()
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)[:200]}: {done.stderr[-2_000:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Took(wall, cpu, done.stdout)


def written_bytes() -> int:
    """Return how many bytes this process has handed to the kernel for writing so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/io has no wchar")


def stored_bytes(folder: Path) -> int:
    """Return the size of all files below a directory."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
