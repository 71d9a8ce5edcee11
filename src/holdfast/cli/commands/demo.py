"""Show it: an agent that costs money by the step is killed, continues without paying twice, and its files are restored.

Everything happens in a folder of its own; --keep leaves it for you to look around in, --ui opens the page on it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.commands.ui import check_extra
from holdfast.cli.main import main
from holdfast.cli.output import Paint
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.output import Output
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.engine import Holdfast

_RUN = "demo"
_PROGRAM = """\
import os, signal, sys
from pathlib import Path
import holdfast

def agent(number):
    print(f"  the agent does step {number} (this costs money)", flush=True)
    with Path("story.txt").open("a") as story:
        story.write(f"line {number}\\n")
    return {"tokens": 1200}

with holdfast.open().run("demo", workspace=".") as run:
    for number in range(1, 6):
        if number == 4 and "--die" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        run.step(f"step-{number}", agent, number, wrote_files=True)
        run.budget.spend(tokens=1200)
    run.complete("the story is told")
"""


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--keep", metavar="DIR", help="play it in this new folder, and leave it there")
    parser.add_argument("--ui", action="store_true", help="at its end open the page on what happened, until Ctrl+C")


def execute(arguments: Namespace, session: Session) -> int:
    """Play it."""
    if arguments.ui:
        check_extra()
    folder = _folder(arguments.keep)
    try:
        played = _play(folder, session)
        session.out.document(played)
        if arguments.keep is not None:
            session.out.note(f"Look around: cd {arguments.keep}; holdfast log {_RUN}")
        if arguments.ui:
            session.close()
            session.out.flush()
            return main(["ui", "-C", str(folder), "--store", str(folder / ".holdfast")])
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _folder(given: str | None) -> Path:
    if given is None:
        return Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        Path(given).mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{given!r} is there already: name a new folder") from None
    return Path(given)


def _play(folder: Path, session: Session) -> dict[str, object]:
    out = session.out
    (folder / "agent.py").write_text(_PROGRAM)
    _title(out, "1. An agent works, and is killed before its fourth step (kill -9)")
    killed = _agent(folder, out, "--die")
    if killed.returncode != -signal.SIGKILL:
        raise UsageError(f"the agent ended with {killed.returncode} instead of being killed: {killed.stderr[-500:]}")
    hf = session.open(str(folder / ".holdfast"))
    kept = hf.latest(_RUN, required=True).summary.steps
    out.line(f"  killed. Kept: {kept} steps, {hf.stats().checkpoints} checkpoints, and its files.")
    _title(out, "2. The same program is started again: it continues, and pays for no step twice")
    again = _agent(folder, out)
    if again.returncode != 0:
        raise UsageError(f"the agent ended with {again.returncode}: {again.stderr[-500:]}")
    repeated = [line for line in again.stdout.splitlines() if line in killed.stdout.splitlines()]
    out.line(f"  {len(repeated)} steps were repeated.")
    _title(out, "3. Somebody ruins a file: it is restored from the newest checkpoint")
    whole = _ruin_and_restore(folder, hf)
    lines = len((folder / "story.txt").read_text().splitlines())
    out.line(f"  story.txt is {'whole again' if whole else 'NOT whole'}: {lines} lines.")
    report = hf.verify()
    _title(out, "4. Every record and every byte is checked")
    out.line(f"  {report.checkpoints} checkpoints, {report.chunks} chunks: {'sound' if report.sound else 'DAMAGED'}.")
    return {"kept_steps": kept, "repeated_steps": len(repeated), "files_restored": whole, "sound": report.sound}


def _agent(folder: Path, out: Output, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(  # noqa: S603 - our own interpreter and program
        [sys.executable, "agent.py", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        out.line(line)
    return done


def _ruin_and_restore(folder: Path, hf: Holdfast) -> bool:
    from holdfast.workspace.decide import Decisions  # noqa: PLC0415

    story = folder / "story.txt"
    before = story.read_bytes()
    story.write_text("ruined\n")
    run = hf.run(_RUN, workspace=folder)
    run.workspace.restore(run.workspace.plan(hf.latest(_RUN, required=True), decisions=Decisions(edits="take")))
    return story.read_bytes() == before


def _title(out: Output, text: str) -> None:
    out.line(Paint(text, "bold"))
