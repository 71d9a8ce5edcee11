"""Counting fsync calls with strace, in short passes of their own because tracing is slow."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import Request
from benchmarks.processes import PhaseError, run_phase

SHORT_STEPS = 20
LONG_STEPS = 220
_CALL = re.compile(r"\b(fsync|fdatasync|sync_file_range|msync)\(")


def fsyncs_per_checkpoint(subject: str, workdir: Path) -> float | None:
    """Return the fsync calls of one checkpoint, or None where they cannot be counted."""
    if shutil.which("strace") is None:
        return None
    try:
        # The difference of two lengths leaves opening and closing out.
        short, long = (_fsyncs(subject, steps, workdir) for steps in (SHORT_STEPS, LONG_STEPS))
    except PhaseError:
        return None
    return (long - short) / (LONG_STEPS - SHORT_STEPS)


def _fsyncs(subject: str, steps: int, workdir: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=workdir) as scratch_name:
        scratch = Path(scratch_name)
        store = scratch / "store"
        store.mkdir()
        log = scratch / "strace.log"
        calls = "trace=fsync,fdatasync,sync_file_range,msync"
        tracer = ["strace", "-f", "-qq", "-e", calls, "-o", str(log)]
        run_phase(Request("save", subject, steps, str(store)), scratch, prefix=tracer)
        return len(_CALL.findall(log.read_text()))
