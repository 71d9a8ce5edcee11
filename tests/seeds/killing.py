"""A command that is killed with SIGKILL over and over, each time at a moment drawn by lot, until it ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.engine import Holdfast

TORTURE = bool(os.environ.get("HOLDFAST_TORTURE"))
KILLS = 200 if TORTURE else 6  # of each of the five systems
_MARK = "HOLDFAST_TEST_MARK"
_HANGS_S = 120
_GONE_S = 20
_EARLY = 0.15  # of the kills may come while the program is still starting


class Lives(NamedTuple):
    """How a command came to its end: how often it was killed before, and how it ended then."""

    kills: int
    code: int
    out: str
    err: str
    took_s: float
    """How long its last process took."""


def live(command: Sequence[str], cwd: Path, *, env: Mapping[str, str] | None = None) -> Lives:
    """Let a command run to its end, with nothing in its way."""
    return kill_and_resume(command, cwd, 0, 0, env=env)


def kill_and_resume(
    command: Sequence[str],
    cwd: Path,
    kills: int,
    seed: object,
    *,
    within_s: float = 1.0,
    startup_s: float = 0.0,
    env: Mapping[str, str] | None = None,
    after_each: Callable[[], None] = lambda: None,
) -> Lives:
    """Start a command and kill it after a random while, at most so many times, until it ends by itself.

    `after_each` is called when a process is gone, killed or not: to look at what it left.

    `within_s` is how long a process that nobody breaks takes, `startup_s` one that has nothing to do: most kills come
    after that, where they hurt. Each time, nothing that it started may be left behind.
    """
    chance = Random(str(seed))
    for killed in range(kills + 1):
        is_last = killed == kills
        earliest = 0.0 if chance.random() < _EARLY else min(startup_s * 0.8, within_s)
        ended = _life(command, cwd, None if is_last else chance.uniform(earliest, within_s), env)
        after_each()
        if ended is not None:
            return ended._replace(kills=killed)
    raise AssertionError("unreachable: the last process is not killed")


def pace(command: Sequence[str], cwd: Path) -> dict[str, float]:
    """Let a command run to its end, and once more with nothing left to do; return how long each took."""
    took, again = live(command, cwd).took_s, live(command, cwd).took_s
    return {"within_s": took, "startup_s": again}


def resumes(hf: Holdfast, run: str) -> int:
    """Return how often a run was resumed after it had begun: what a kill before that interrupted was nothing."""
    return sum(event.kind == "resumed" for event in hf.events(run))


def kill_when(command: Sequence[str], cwd: Path, is_time: Callable[[], bool]) -> bool:
    """Start a command and kill it as soon as something is the case; False if it ended well before that."""
    mark = uuid.uuid4().hex
    process = _started(command, cwd, {_MARK: mark})
    deadline = time.monotonic() + _HANGS_S
    while not is_time():
        if process.poll() is not None:
            out, err = process.communicate()
            assert process.returncode == 0, out + err
            return False
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate()
    _wait_until_gone(mark)
    return True


def _started(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _life(command: Sequence[str], cwd: Path, after_s: float | None, env: Mapping[str, str] | None) -> Lives | None:
    mark = uuid.uuid4().hex
    began = time.monotonic()
    process = _started(command, cwd, {**(env or {}), _MARK: mark})
    try:
        out, err = process.communicate(timeout=_HANGS_S if after_s is None else after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        _wait_until_gone(mark)
        assert after_s is not None, f"{command} hung for {_HANGS_S} s"
        return None
    return Lives(0, process.returncode, out, err, time.monotonic() - began)


def _wait_until_gone(mark: str) -> None:
    """Wait until nothing lives that was started under a mark; what stays is ended and is an error."""
    deadline = time.monotonic() + _GONE_S
    while left := _marked(mark):
        if time.monotonic() > deadline:
            for process in left:
                os.kill(process, signal.SIGKILL)
            raise AssertionError(f"left behind by a killed process: {left}")
        time.sleep(0.01)


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and entry.name != str(os.getpid()):
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue  # gone, or not ours
            if mark.encode() in environment:
                found.append(int(entry.name))
    return found
