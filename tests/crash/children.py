"""Child processes for crash tests: one that may be killed while it reports, and several that share out the work."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import signal
import tempfile
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TORTURE = bool(os.environ.get("HOLDFAST_TORTURE"))
WORKERS = 2
_HANGS_S = 60


class Ended(NamedTuple):
    """How a child ended: by which signal (0 for none), with which exit code, and what it reported before."""

    signal: int
    code: int
    reports: list[Any]


class Child:
    """A forked child that runs a function with a way to report; what it reported is kept even if it is killed.

    Reports go into a file: a pipe holds 64 KB, and a child with more to report would wait for its parent, not work.
    """

    def __init__(self, function: Callable[[Callable[[Any], None]], object]) -> None:
        self._reports = tempfile.TemporaryFile()  # noqa: SIM115 - closed by join()
        self.pid = os.fork()
        if self.pid == 0:
            self._live(function, self._reports.fileno())

    def _live(self, function: Callable[[Callable[[Any], None]], object], writer: int) -> None:
        code = 1
        try:
            function(lambda report: _write_all(writer, json.dumps(report).encode() + b"\n"))
            code = 0
        except BaseException:  # noqa: BLE001 - a child must not return into its parent's test run
            _write_all(writer, json.dumps({"traceback": traceback.format_exc()}).encode() + b"\n")
        finally:
            os._exit(code)

    def join(self) -> Ended:
        """Wait for the end."""
        status = os.waitpid(self.pid, 0)[1]
        with self._reports as stream:
            stream.seek(0)
            lines = stream.read().splitlines()
        died_of = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return Ended(died_of, os.waitstatus_to_exitcode(status), [json.loads(line) for line in lines])


def sampled(points: Sequence[Any], count: int) -> list[Any]:
    """Return all points under torture, else so many of them, the same ones every time."""
    return list(points) if TORTURE else random.Random(count).sample(list(points), min(count, len(points)))


def spread(points: Sequence[Any], check: Callable[[Any], Any]) -> list[Any]:
    """Check all points in a few processes and return what each check returned; the first failure fails the test."""

    def work(number: int) -> Callable[[Callable[[Any], None]], object]:
        def share(report: Callable[[Any], None]) -> None:
            for point in points[number::WORKERS]:
                signal.alarm(_HANGS_S)  # a check that hangs is a worker that died of SIGALRM
                faulthandler.dump_traceback_later(_HANGS_S - 5)  # and shows where it hung
                try:
                    found = check(point)
                    signal.alarm(0)
                    faulthandler.cancel_dump_traceback_later()
                    report({"found": found})
                except BaseException as error:
                    raise AssertionError(f"at {point}") from error

        return share

    ended = [child.join() for child in [Child(work(number)) for number in range(WORKERS)]]
    for end in ended:
        failure = end.reports[-1].get("traceback") if end.reports else None
        assert failure is None, failure
        assert (end.signal, end.code) == (0, 0), f"a worker died of signal {end.signal} after {len(end.reports)} checks"
    return [report["found"] for end in ended for report in end.reports]


@contextmanager
def scratch() -> Iterator[Path]:
    """Give out a folder that is gone afterwards; in memory where there is some, since nothing here cuts the power."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="holdfast-crash-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
