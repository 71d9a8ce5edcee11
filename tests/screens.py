"""The screens of the documents, made by running their commands: `python tests/screens.py PAGE` rewrites a page's.

In a ```console block a line that begins with `$ ` is typed (lines that begin with `> ` continue it), and what follows
is what it showed. `^C` as a line presses Ctrl+C when the line above it has come, `Killed` is kill -9. A block such as
```yaml file=story.yaml is written to that file first. A page is one session in an empty directory.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = [
    "docs/TUTORIAL.md",
    "docs/FLOWS.md",
    *(
        f"docs/howto/{page}.md"
        for page in ("flow-file", "guard", "python-loop", "recovery", "retention", "secrets", "shell-script")
    ),
    "docs/adapters/hooks.md",
]
BLOCK = re.compile(r"^```(?P<kind>\w+)(?: file=(?P<file>\S+))?\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
PATIENCE_S = 240
INTERRUPTS = {"^C": signal.SIGINT, "Killed": signal.SIGKILL}


class Typed(NamedTuple):
    """A command, and what the page says that it showed."""

    command: str
    shown: list[str]


def comparable(page: str) -> list[str]:
    """Return the lines of a page without widths and without running time, events that follow each other sorted.

    How many checkpoints and records a killed run has depends on the moment: tasks that ran at once may have ended.
    """
    lines = [re.sub(r" {2,}|-{3,}", "  ", line) for line in page.splitlines() if not line.startswith("~ budget ")]
    counts = r"(?<=@)\d+|(?<=Deleted )\d+|(?<=completed  just now  )\d+|\d+(?= records$)"
    lines = [re.sub(counts, "N", line) for line in lines]
    sorted_lines: list[str] = []
    for is_event, group in groupby(lines, key=lambda line: line.startswith("10:00:00 ")):
        together = list(group)
        sorted_lines += sorted(together) if is_event else together
    return sorted_lines


class Names:
    """Stable names for what differs from run to run: ids by the order in which they come, times, durations, paths."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: dict[str, str] = {}

    def stable(self, line: str) -> str:
        """Return a line with stable names."""
        line = line.replace(str(self._folder), "~")
        line = re.sub(r"\bcp_[0-9a-f]{32}\b", lambda match: f"cp_{self._id(match[0][15:23])}...", line)
        line = re.sub(r"\b[0-9a-f]{8}\b(?=[ ,.)]|$)", lambda match: self._id(match[0]), line)
        line = re.sub(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z| UTC)?", "2026-11-16 10:00:00", line)
        line = re.sub(r"(?<![\d-])\b\d\d:\d\d:\d\d\b", "10:00:00", line)
        line = re.sub(r"\[(\d+ms|\d+(\.\d+)?s)\]", "[1.0s]", line)
        line = re.sub(r"\b\d+ (s|min) ago\b", "just now", line)
        line = re.sub(r"\bowner .* is gone", "owner (process 4321) is gone", line)
        line = re.sub(r"\b(?:[0-9a-f]{16}){1,2}\b", lambda found: "0123456789abcdef" * (len(found[0]) // 16), line)
        line = re.sub(r"\bSQLite [\d.]+", "SQLite 3.54.0", line)
        line = re.sub(r"\btime_s [\d.]+", "time_s 1.0", line)
        line = re.sub(r"\b\d+\.\d s\b", "0.0 s", line)
        line = re.sub(r"\b[\d.,]+ (B|[kKMG]i?B)\b", r"1.0 \1", line)
        line = re.sub(r"\b\d+ chunks\b", "40 chunks", line)
        line = re.sub(r"^bash: line \d+: +\d+ Killed +", "Killed: ", line)
        return re.sub(r"\b(pid|process) \d+", r"\1 4321", line)

    def _id(self, found: str) -> str:
        number = len(self._ids) + 1
        return self._ids.setdefault(found, f"{number * 0x9E3779B1 % 2**32:08x}")


def rewritten(text: str, folder: Path) -> str:
    """Return a page with the screens that its commands give now."""
    names = Names(folder)
    place = folder / "project"
    place.mkdir()

    def block(match: re.Match[str]) -> str:
        nonlocal place
        if match["file"]:
            path = place / match["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(match["body"])
        if match["kind"] != "console":
            return match[0]
        lines: list[str] = []
        for typed in session(match["body"]):
            first, *more = typed.command.split("\n")
            lines += [f"$ {first}", *(f"> {line}" for line in more)]
            said, place = run(typed, place, folder)
            lines += [names.stable(line) for line in said]
        return "```console\n" + "\n".join(lines) + "\n```"

    return BLOCK.sub(block, text)


def session(body: str) -> list[Typed]:
    """Return the commands of a block."""
    found: list[Typed] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(Typed(line[2:], []))
        elif line.startswith("> ") and not found[-1].shown:
            found[-1] = Typed(f"{found[-1].command}\n{line[2:]}", [])
        else:
            found[-1].shown.append(line)
    return found


def run(typed: Typed, place: Path, folder: Path) -> tuple[list[str], Path]:
    """Run a command in a shell, and return what it showed and where the shell stands afterwards."""
    left = folder / "place"
    left.unlink(missing_ok=True)
    script = f"trap 'pwd > \"{left}\"' EXIT\n{typed.command}\n"
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=place,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    timer = threading.Timer(PATIENCE_S, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    said: list[str] = []
    breaks = [at for at, line in enumerate(typed.shown) if line in INTERRUPTS]
    awaited = _without_times(typed.shown[breaks[0] - 1]) if breaks else None
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line.rstrip("\n").expandtabs())
        if awaited is not None and _without_times(said[-1]) == awaited:
            key = typed.shown[breaks[0]]
            said.append(key)
            os.killpg(process.pid, INTERRUPTS[key])
            awaited = None
    process.stdout.close()
    process.wait()
    timer.cancel()
    timer.join()
    while said and not said[-1]:
        said.pop()
    return said, Path(left.read_text().strip()) if left.exists() else place


def _without_times(line: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d|\[[\d.]+m?s\]", "", line)


def environment(folder: Path) -> dict[str, str]:
    """Return an environment without anything of this machine's."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "TERM": "dumb",
        "USER": "ann",
        "LOGNAME": "ann",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ},  # see conftest.py
    }


def main(pages: list[str]) -> None:
    """Rewrite the pages that are named, or all."""
    for page in pages or PAGES:
        with tempfile.TemporaryDirectory(prefix="hf-screens-") as folder:
            path = ROOT / page
            path.write_text(rewritten(path.read_text(), Path(folder).resolve()))
            print(page)


if __name__ == "__main__":
    main(sys.argv[1:])
