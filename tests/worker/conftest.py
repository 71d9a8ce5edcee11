"""Workers as processes of their own, each with a host name and a directory of its own, on a real PostgreSQL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast

pytest.importorskip("absurdctl", reason="the queue needs the extra `absurd`")

LEASE_S = 3


class Fleet:
    """A store that several machines share, and the workers that are running."""

    def __init__(self, url, folder):
        self.url = url
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.log = folder / "log"
        self._workers = []

    def cli(self, *words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "--store", self.url, *map(str, words)],
            cwd=self.project, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def submit(self, text, *words, name="flow.yaml", code=0):
        (self.project / name).write_text(text)
        return self.cli("submit", name, *words, code=code)

    def start(self, host, *words):
        """Start a worker on a machine of its own name and directory."""
        root = self.folder / host
        line = [
            sys.executable, "-m", "holdfast", "--store", self.url, "worker", "--root", str(root), "--lease",
            str(LEASE_S), *words,
        ]  # fmt: skip
        script = f"hostname {host} 2>/dev/null; exec " + " ".join(map(str, line))
        with (self.folder / f"{host}.err").open("ab") as errors:
            worker = subprocess.Popen(
                ["unshare", "-u", "sh", "-c", script] if os.geteuid() == 0 else line,
                cwd=self.folder, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            )  # fmt: skip
        self._workers.append(worker)
        return worker

    def said(self):
        return self.log.read_text().split("\n")[:-1] if self.log.exists() else []

    def until_said(self, line):
        until(lambda: line in self.said())

    def status(self, run):
        with holdfast.open(self.url, settings=holdfast.Settings()) as hf:
            latest = hf.latest(run)
            return None if latest is None else latest.summary.status

    def until_status(self, run, *wanted):
        until(lambda: self.status(run) in wanted)

    def kill(self, worker):
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def close(self):
        for worker in self._workers:
            if worker.poll() is None:
                self.kill(worker)


def until(condition, timeout=90):
    """Wait until something is so; the time is a bound, not an expectation."""
    ends = time.monotonic() + timeout
    while time.monotonic() < ends:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not become so")


@pytest.fixture
def fleet(tmp_path):
    from postgres_server import shared_server  # noqa: PLC0415 - a server is started for it

    url = shared_server().database()
    holdfast.open(url, settings=holdfast.Settings()).close()
    made = Fleet(url, tmp_path)
    try:
        yield made
    finally:
        made.close()
        shared_server().drop(url)
        for file in tmp_path.glob("*.err"):
            print(file.name, Path(file).read_text())
