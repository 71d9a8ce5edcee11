"""An example that is killed or interrupted again and again, each time at a moment drawn by lot, until it is done."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import holdfast
from crash.children import Child, scratch
from holdfast.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from crash.children import Ended
    from holdfast.checkpoint import Checkpoint

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
_HANGS_S = 120
_DEATHS = 60

# What differs between two processes of the same work: when, how long, how often it was tried, and in which batch.
_PASSING = {
    "at", "since", "started_at", "completed_at", "entered_at", "exited_at", "updated_at", "sent_at", "made_at",
    "resolved_at", "duration_s", "attempts", "batch", "completed_batches", "stack", "time_s",
}  # fmt: skip
_SECONDS = re.compile(r"\bin \d+\.\d+s")  # as a test runner prints them


class Example(NamedTuple):
    """A script, the run that it moves, and which lines of its call log belong to work that a run has as finished."""

    name: str
    run: str
    finished: Callable[[Checkpoint], set[str]]
    arguments: tuple[str, ...] = ()
    before: Callable[[Path], None] = lambda _directory: None
    """Called in the process that runs the script, before it begins."""

    def live(self, directory: Path, death: Death | None = None) -> Ended:
        """Run the script in a process of its own, to its end or its death."""

        def life(report: Callable[[Any], None]) -> None:
            signal.alarm(_HANGS_S)
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - it ends with the process
            main = _main_of(self.name)
            self.before(directory)
            commits = _count_commits(death)
            began = time.monotonic()
            try:
                if death is not None and death.after_s is not None:
                    timer = threading.Timer(death.after_s, death.come)
                    timer.daemon = True
                    timer.start()
                code = main([str(directory), *self.arguments])
                report({"code": code, "commits": commits(), "took_s": time.monotonic() - began})
            except (KeyboardInterrupt, SystemExit):
                report({"interrupted": True})

        return Child(life).join()


class Death(NamedTuple):
    """When a process ends: before or after its n-th commit, or after a while."""

    signal: int
    commit: int | None = None
    is_stored: bool = False
    after_s: float | None = None

    def come(self) -> None:
        """Send this process the signal."""
        os.kill(os.getpid(), self.signal)


class Found(NamedTuple):
    """What a store and a directory hold after a process."""

    finished: set[str]
    calls: Counter[str]
    is_begun: bool


class Unbroken(NamedTuple):
    """A process that nothing interrupted."""

    end: Any
    calls: Counter[str]
    commits: int
    took_s: float


def unbroken(example: Example) -> Unbroken:
    """Run an example to its end, with nothing in its way."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):  # once, not in every process
        if module.name.startswith(
            ("holdfast.runtime.", "holdfast.capture.", "holdfast.workspace.", "holdfast.retain.")
        ):
            importlib.import_module(module.name)
    with scratch() as directory:
        told = _told(example.live(directory))
        return Unbroken(end_of(example, directory), look(example, directory).calls, told["commits"], told["took_s"])


def broken(
    example: Example, chance: Random, pace: Unbroken, *, by: Sequence[int] = (signal.SIGKILL,)
) -> tuple[list[Found], Found, Any]:
    """Kill an example again and again until it is done; return what was found at each death, and at the end."""
    deaths: list[Found] = []
    with scratch() as directory:
        while True:
            ended = example.live(directory, _drawn(chance, pace, chance.choice(by)))
            if ended.signal not in by and not (ended.reports and ended.reports[-1].get("interrupted")):
                _told(ended)
                return deaths, look(example, directory), end_of(example, directory)
            deaths.append(look(example, directory))
            assert len(deaths) < _DEATHS, "it comes no further from life to life"


def look(example: Example, directory: Path) -> Found:
    """Return what is there, by the store and by the log that the example's agents write."""
    log = directory / "calls.log"
    calls = Counter(log.read_text().splitlines() if log.exists() else ())
    with holdfast.open(directory / ".holdfast") as hf:
        is_begun = hf.has(example.run)
        return Found(example.finished(hf.latest(example.run)) if is_begun else set(), calls, is_begun)


def last_records(head: Checkpoint) -> dict[str, dict[str, Any]]:
    """Return the last record of every step, as it is stored."""
    return {record["step"]: record for record in head.calls}


def end_of(example: Example, directory: Path) -> Any:
    """Return all that must be the same however often a run was killed."""
    with holdfast.open(directory / ".holdfast") as hf:
        assert hf.verify().sound
        head = hf.latest(example.run)
        left_out = ("steps", "journal", "workspace", "edits")
        names = [name for name in head.sections if name.partition(".")[0] not in left_out]
        sections = {name: _lasting(msgspec.to_builtins(head.section(name)), str(directory)) for name in names}
        if "context" in sections:
            sections["context"].pop("session", None)  # made by chance, once for each run
        steps = last_records(head)
        return {
            "status": head.summary.status,
            "sections": sections,
            "steps": {
                name: _lasting({"event": one["event"], "result": one.get("result")}, str(directory))
                for name, one in steps.items()
            },
            "captured": {file.path: head.read(file.path) for file in head.files()}
            if "workspace" in head.sections
            else None,
            "files": _files(directory),
            "history": [_history(path.parent) for path in directory.glob("*/.git")],
        }


def _drawn(chance: Random, pace: Unbroken, by: int) -> Death:
    if chance.random() < 0.5:
        return Death(by, commit=chance.randint(1, max(2, pace.commits // 3)), is_stored=chance.random() < 0.5)
    return Death(by, after_s=chance.uniform(0, pace.took_s * 0.6))


def _told(ended: Ended) -> dict[str, Any]:
    assert ended.reports, f"it died of signal {ended.signal}"
    told: dict[str, Any] = ended.reports[-1]
    assert "traceback" not in told, told["traceback"]
    assert (ended.signal, told["code"]) == (0, 0)
    return told


def _main_of(name: str) -> Callable[[list[str]], int]:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main  # type: ignore[no-any-return]


def _count_commits(death: Death | None) -> Callable[[], int]:
    """Count the commits of this process, and let it die at one of them."""
    commit = SQLiteStore.write
    count = 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        is_last = death is not None and count == death.commit
        if is_last and not death.is_stored:
            death.come()
        result = commit(*args, **options)
        if is_last and death.is_stored:
            death.come()
        return result

    SQLiteStore.write = counted  # type: ignore[method-assign]
    return lambda: count


def _lasting(value: Any, directory: str = "\0") -> Any:
    """Return a value without what differs between two processes of the same work."""
    if isinstance(value, dict):
        return {name: _lasting(item, directory) for name, item in value.items() if name not in _PASSING}
    if isinstance(value, list):
        return [_lasting(item, directory) for item in value]
    return _SECONDS.sub("", value.replace(directory, "DIRECTORY")) if isinstance(value, str) else value


def _history(repository: Path) -> list[str]:
    command = ["git", "-C", str(repository), "log", "--format=%s"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def _files(directory: Path) -> dict[str, bytes]:
    """Return the files that the example made, but for its log and what git, Python and a death leave behind."""
    left_out = re.compile(r"(\.holdfast|\.git|__pycache__|calls\.log|new-.*)\Z")
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not any(map(left_out.match, path.relative_to(directory).parts))
    }
