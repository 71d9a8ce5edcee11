"""Running a phase in a fresh interpreter, and never leaving one behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.measure import Outcome, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
TAIL_CHARS = 600


class PhaseError(Exception):
    """A phase ended with an error; the message is the last it said."""


def run_phase(request: Request, scratch: Path, *, prefix: Sequence[str] = ()) -> Outcome:
    """Run one phase and return its outcome; `prefix` is a tracer to run it under."""
    request_file, outcome_file = scratch / "request.json", scratch / "outcome.json"
    outcome_file.unlink(missing_ok=True)
    request_file.write_bytes(msgspec.json.encode(request))
    command = [sys.executable, "-m", "benchmarks.measure", str(request_file), str(outcome_file)]
    # A session of its own: one signal ends the tracer and whatever it traces.
    child = subprocess.Popen(
        [*prefix, *command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = child.communicate()
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if child.returncode or not outcome_file.exists():
        raise PhaseError(f"{request.phase}: {said.strip()[-TAIL_CHARS:]}")
    return msgspec.json.decode(outcome_file.read_bytes(), type=Outcome)
