"""What redaction costs per megabyte that is packed for the first time, with hyperscan and without: pure computing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from benchmarks.conversation import Conversation
from benchmarks.processes import run_process
from benchmarks.table import Row, Scale
from holdfast.capture.redact import RedactingPacker, RedactionRules, register_markers
from holdfast.encode.types import TypeRegistry
from holdfast.encode.values import Packer

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT = """
import sys
sys.modules["hyperscan"] = None
from benchmarks.redaction import per_megabyte, texts
print(*(per_megabyte(messages) for messages in texts(int(sys.argv[1])).values()))
"""


def texts(count: int) -> dict[str, list[dict[str, object]]]:
    """Return messages of prose and of code."""
    files = sorted(Path(holdfast.__file__).parent.rglob("*.py"))
    code = [{"role": "tool", "content": path.read_text()[:4_000]} for path in files]
    return {"prose": [step.message for step in Conversation(count).advance()], "code": (code * 2)[:count]}


def per_megabyte(messages: list[dict[str, object]]) -> float:
    """Return how many ms longer packing takes with redaction, per megabyte."""
    types = TypeRegistry()
    register_markers(types)
    plain, redacting = Packer(types), RedactingPacker(types, RedactionRules())
    size = sum(len(plain.pack(message, "m")) for message in messages)
    best = {}
    for _ in range(7):
        for name, packer in (("plain", plain), ("redacting", redacting)):
            if packer is redacting:
                packer.forget()
                packer.begin("state")
            begun = time.thread_time()
            for index, message in enumerate(messages):
                packer.pack(message, f"state.messages[{index}]")
            best[name] = min(best.get(name, 1e9), time.thread_time() - begun)
    return 1_000 * (best["redacting"] - best["plain"]) / (size / 1e6)


def rows(scale: Scale) -> Iterator[Row]:
    """Yield the rows with hyperscan, where it is installed, and without."""
    count = scale.of(1_000, 40)
    try:
        import hyperscan  # noqa: F401, PLC0415 - an extra of the machine
    except ImportError:
        pass
    else:
        for what, messages in texts(count).items():
            yield Row(f"redaction per new MB, hyperscan, {what}", "CPU", per_megabyte(messages), "ms", 1.5)
    said = run_process("-c", WITHOUT, str(count)).said.split()
    for what, figure in zip(("prose", "code"), said, strict=True):
        yield Row(f"redaction per new MB, without, {what}", "CPU", float(figure), "ms", 6)
