"""What the tests of adapters share: stores to run on, and a program that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import pytest

import holdfast
from holdfast import generate_key


@contextmanager
def _place(kind, folder):
    if kind != "postgres":
        yield {"sqlite": str(folder / "store.db"), "encrypted": str(folder / "sealed.db"), "memory": "memory:"}[kind]
        return
    from postgres_server import shared_server  # noqa: PLC0415 - a server is started for it

    url = shared_server().database()
    try:
        yield url
    finally:
        shared_server().drop(url)


@pytest.fixture(params=["sqlite", "encrypted", "postgres", "memory"])
def hf(request, tmp_path):
    """A store of each kind; `verify` must find it sound when the test is over."""
    with _place(request.param, tmp_path) as place:
        key = {"key": generate_key()} if request.param == "encrypted" else {}
        with holdfast.open(place, **key) as opened:
            yield opened
            assert opened.verify().faults == ()


@pytest.fixture
def place(tmp_path):
    """Where a store can be opened again and again."""
    return tmp_path / "store.db"


class Program:
    """A Python program with a store of its own, run in another process."""

    def __init__(self, folder, place):
        self.folder = folder
        self.place = place
        self._file = folder / "program.py"

    def write(self, text):
        self._file.write_text(textwrap.dedent(text))

    def run(self, *arguments):
        """Run it to its end and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-W", "ignore", self._file, str(self.place), *arguments],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run_killed(self, *arguments):
        """Run it; it kills itself with SIGKILL."""
        done = subprocess.run(
            [sys.executable, "-W", "ignore", self._file, str(self.place), *arguments],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr
        return done.stdout


@pytest.fixture
def program(tmp_path, place):
    folder = tmp_path / "work"
    folder.mkdir()
    return Program(folder, place)
