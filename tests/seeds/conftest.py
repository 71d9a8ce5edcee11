"""Whole systems: an example in a folder of its own, the command line in a process of its own, killed and resumed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import holdfast
from holdfast.flow.load import load_flow
from holdfast.flow.runner import run_flow
from seeds import killing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.flow.result import FlowResult

FLOWS = Path(__file__).parent.parent.parent / "examples" / "flows"


class Said(NamedTuple):
    """How a line of the command line ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that `run --json` printed, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class System:
    """A copy of an example, begun as its README says, with its store beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / ".holdfast"

    def command(self, *words: object) -> list[str]:
        """Return a line of the command line as a command."""
        return [sys.executable, "-m", "holdfast", *map(str, words)]

    def hf(self, *words: object, stdin: str = "", env: dict[str, str] | None = None) -> Said:
        """Call the command line in the example's folder."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=environment(env),
            timeout=120,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def sh(self, command: str) -> str:
        """Run a shell command in the example's folder; it must succeed."""
        done = subprocess.run(
            command, shell=True, cwd=self.folder, capture_output=True, text=True, check=False, env=environment()
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def open(self) -> holdfast.Holdfast:
        """Open the example's store."""
        return holdfast.open(self.store, settings=holdfast.Settings())

    def carry_on(self, file: str = "flow.yaml", *, workspace: str = "repo", **options: Any) -> FlowResult:
        """Carry the example's flow on in this process, until it ends, waits or fails."""
        with self.open() as hf:
            flow = load_flow(self.folder / file)
            return run_flow(hf, flow, workspace=self.folder / workspace, **{"waiting": "leave", **options})

    def copy(self, folder: Path) -> System:
        """Return a copy of it as it stands now."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return System(folder)

    def lines(self, file: str = "calls.log") -> list[str]:
        """Return the lines of a file, none if it is not there; scripted agents write a line there when they begin."""
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without what would lead a command elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, **(more or {})}


@pytest.fixture(scope="session")
def system(tmp_path_factory) -> Callable[[str], System]:
    """Copy an example of examples/flows into a folder of its own: system("a_orchestrator")."""

    def copied(name: str) -> System:
        return System(FLOWS / name).copy(tmp_path_factory.mktemp(name) / "system")

    return copied


@pytest.fixture
def kill_and_resume() -> Callable[..., killing.Lives]:
    """Start a command and kill it after a random while until it ends by itself; see seeds/killing.py."""
    return killing.kill_and_resume


@pytest.fixture
def hf() -> Iterator[holdfast.Holdfast]:
    """A store in memory."""
    with holdfast.open("memory:", settings=holdfast.Settings()) as opened:
        yield opened
