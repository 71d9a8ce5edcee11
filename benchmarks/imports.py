"""How long `import holdfast` takes: fresh interpreters with and without it, in turn."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

LIMIT_MS = 60.0
REPEATS = 15
SLOWEST = 8


def measure_imports() -> dict[str, Any]:
    """Return the median cost of the import and its slowest parts."""
    bare_ms, with_import_ms = [], []
    for _ in range(REPEATS + 1):
        bare_ms.append(_python_ms("pass"))
        with_import_ms.append(_python_ms("import holdfast"))
    # The first of each writes and reads what the later ones find in caches.
    extra_ms = statistics.median(with_import_ms[1:]) - statistics.median(bare_ms[1:])
    return {
        "import_ms": extra_ms,
        "python_ms": statistics.median(bare_ms[1:]),
        "slowest": _slowest(),
    }


def import_lines(result: dict[str, Any]) -> list[str]:
    """Return the result as text."""
    summary = (
        f"import holdfast: {result['import_ms']:.1f} ms (at most {LIMIT_MS:.0f}) on top of "
        f"{result['python_ms']:.1f} ms for Python alone"
    )
    return [summary] + [f"  {ms:7.1f} ms  {name}" for name, ms in result["slowest"]]


def _python_ms(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return 1_000 * (time.perf_counter() - start)


def _slowest() -> list[tuple[str, float]]:
    """Return the modules that take longest without what they import themselves."""
    command = [sys.executable, "-X", "importtime", "-c", "import holdfast"]
    trace = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    own_ms = []
    for line in trace.splitlines():
        own, _, name = line.removeprefix("import time:").split("|")
        if own.strip().isdigit():
            own_ms.append((name.strip(), int(own) / 1_000))
    return sorted(own_ms, key=lambda module: -module[1])[:SLOWEST]
