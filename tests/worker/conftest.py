"""Workers as processes of their own, each with a host name and a directory of its own, on a real PostgreSQL."""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.settings.values import WorkerSettings

ENGINES = [
    name for name, module in (("absurd", "absurdctl"), ("temporal", "temporalio")) if importlib.util.find_spec(module)
]

LEASE_S = 3


class Fleet:
    """A store that several machines share, and the workers that are running."""

    def __init__(self, url, folder, engine, address):
        self.url = url
        self.engine = engine
        self.address = address
        self._settings = f"workers: {{engine: {engine}, temporal: '{address}'}}\n"
        home = folder / "config" / "holdfast"
        home.mkdir(parents=True)
        (home / "holdfast.yaml").write_text(self._settings)
        self._own = holdfast.Settings(workers=WorkerSettings(engine=engine, temporal=address or None))
        self.environment = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.log = folder / "log"
        self._workers = []

    def cli(self, *words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "--store", self.url, *map(str, words)],
            cwd=self.project, env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def submit(self, text, *words, name="flow.yaml", code=0):
        (self.project / name).write_text(text)
        return self.cli("submit", name, *words, code=code)

    def start(self, host, *words, store=None, lease=LEASE_S, program=("-m", "holdfast"), root=None, **environment):
        """Start a worker on a machine of its own name and directory; `program` is what the interpreter is given."""
        line = [
            sys.executable, *program, "--store", store or self.url, "worker", "--root", str(root or self.folder / host),
            "--lease", str(lease), *words,
        ]  # fmt: skip
        script = f"hostname {host} 2>/dev/null; exec {shlex.join(map(str, line))}"
        with (self.folder / f"{host}.err").open("ab") as errors:
            worker = subprocess.Popen(
                ["unshare", "-u", "sh", "-c", script] if os.geteuid() == 0 else line,
                cwd=self.folder, env={**self.environment, **environment},
                stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            )  # fmt: skip
        self._workers.append(worker)
        return worker

    def drain(self, host, *words):
        """Let a worker do all that is due; it leaves by itself, in order."""
        assert self.start(host, *words, "--drain").wait(120) == 0

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

    def signal(self, run):
        with holdfast.open(self.url, settings=self._own) as hf:
            hf.control.signal(run, "go")

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


@pytest.fixture(scope="session")
def temporal(tmp_path_factory):
    """A Temporal server of the tests' own; it ends with them."""
    with temporal_server(tmp_path_factory.mktemp("temporal"), free_port()) as address:
        yield address


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def temporal_server(folder, port):
    """A Temporal server on loopback that keeps what it knows in a folder; killed at the end of the block."""
    program = Path(sys.executable).with_name("temporal")
    line = [
        program,
        "server",
        "start-dev",
        "--headless",
        "--ip",
        "127.0.0.1",
        "--port",
        str(port),
        "--log-level",
        "error",
    ]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*line, "--db-filename", folder / "db"], stdout=log, stderr=log)
    try:
        until(lambda: _listens(port))
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(params=ENGINES)
def fleet(request, tmp_path):
    """Machines on each engine that is installed; `make test-workers` brings both."""
    from postgres_server import shared_server  # noqa: PLC0415 - a server is started for it

    with _machines(request, tmp_path, shared_server()) as made:
        yield made


@pytest.fixture(params=ENGINES)
def own_fleet(request, tmp_path):
    """Machines with a database server of their own, and that server: it may be stopped."""
    from postgres_server import Server  # noqa: PLC0415

    server = Server()
    try:
        with _machines(request, tmp_path, server) as made:
            yield made, server
    finally:
        server.stop()


@contextmanager
def _machines(request, folder, server):
    address = request.getfixturevalue("temporal") if request.param == "temporal" else ""
    with machines(folder, server, request.param, address) as made:
        yield made


@contextmanager
def machines(folder, server, engine, address):
    """Machines that share a database of this server."""
    url = server.database()
    holdfast.open(url, settings=holdfast.Settings()).close()
    made = Fleet(url, folder, engine, address)
    try:
        yield made
    finally:
        made.close()
        server.drop(url)
        for file in folder.glob("*.err"):
            print(file.name, file.read_text())
