"""A coding task that must pass its gates, on a real git repository.

    python examples/gated_task.py DIRECTORY

A scripted coder writes a module that does not compile, then one that is wrong, then the right one; what it is told each
time is what the gate printed. Kill it whenever you like and start it again: no finished call is paid for twice, and no
gate that was passed runs again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from holdfast import Command

if TYPE_CHECKING:
    from holdfast.runtime.checks import GateFailure

TESTS = """\
import unittest

from slug import slug


class SlugTest(unittest.TestCase):
    def test_words_are_joined(self):
        self.assertEqual(slug("Hold  fast, then go on!"), "hold-fast-then-go-on")
"""
DRAFTS = [
    "def slug(title)\n    return title.lower().replace(' ', '-')\n",
    "def slug(title):\n    return title.lower().replace(' ', '-')\n",
    "import re\n\n\ndef slug(title):\n    return '-'.join(re.findall('[a-z0-9]+', title.lower()))\n",
]


class Coder:
    """A scripted agent; each call is written down, as a real one would be paid for."""

    def __init__(self, repository: Path) -> None:
        self.repository, self.calls = repository, repository.parent / "calls.log"

    def write(self) -> str:
        """Write the module."""
        return self.draft(0)

    def fix(self, failure: GateFailure) -> str:
        """Write it again, knowing what failed."""
        print(f"{failure.gate.command} failed: {failure.gate.stderr.strip().splitlines()[-1]}")
        return self.draft(failure.attempt)

    def draft(self, number: int) -> str:
        """Put a draft into the working tree."""
        with self.calls.open("a") as log:
            log.write(f"draft {number}\n")
        (self.repository / "slug.py").write_text(DRAFTS[number])
        return f"wrote draft {number} of slug.py"


def git(repository: Path, *arguments: str) -> str:
    """Run git."""
    identity = ["-c", "user.name=coder", "-c", "user.email=coder@example.invalid"]
    command = ["git", "-C", str(repository), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own


def make_repository(repository: Path) -> None:
    """Make a repository with a test in it: beside its place, then moved there, so that it is whole or not there."""
    if repository.exists():
        return
    repository.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=repository.parent) as beside:
        draft = Path(beside) / "repository"
        draft.mkdir()
        (draft / "test_slug.py").write_text(TESTS)
        git(draft, "init", "--quiet")
        git(draft, "add", ".")
        git(draft, "commit", "--quiet", "--message", "what slug() must do")
        draft.rename(repository)


def commit(repository: Path) -> str:
    """Commit the module, unless that is done: after a crash this may come a second time."""
    if git(repository, "status", "--porcelain", "slug.py"):
        git(repository, "add", "slug.py")
        git(repository, "commit", "--quiet", "--message", "add slug()")
    return git(repository, "log", "--format=%s").splitlines()[0]


def main(arguments: list[str]) -> int:
    """Do the task; return the exit code."""
    repository = Path(arguments[0]).resolve() / "repository"
    make_repository(repository)
    coder = Coder(repository)
    python = [sys.executable, "-B", "-m"]
    gates = [
        Command([*python, "py_compile", "slug.py"], cwd=repository),
        Command([*python, "unittest", "--quiet"], cwd=repository),
        Command(["git", "diff", "--check"], cwd=repository),
    ]
    store = repository.parent / ".holdfast"
    with holdfast.open(store) as hf, hf.run("add-slug", workspace=repository) as run:
        task = run.gates.task("add-slug", coder.write, gates, fix=coder.fix, max_fixes=3, files=True)
        outcome = task.run()
        if outcome.success:
            run.step(
                "commit",
                commit,
                repository,
                effect="commits slug.py",
                on_unknown="retry",
                retries=5,
                backoff=0.1,
                retry_on=subprocess.CalledProcessError,  # git of an earlier process may still be at it
            )
        print(f"{outcome.stage} after {outcome.fix_attempts} fixes: {git(repository, 'log', '--format=%s')}")
        run.complete()
    return 0 if outcome.success else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
