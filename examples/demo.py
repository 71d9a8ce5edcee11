"""The whole story in seconds: a real flow on a real git repository is killed, loses a file, and continues.

Run it with `make demo`. A scripted coder must pass four gates (`examples/flows/d_coding`). Its process is killed with
SIGKILL in the middle of a gate, then somebody ruins a file. The file is restored, the same command continues there,
and nothing that was finished is done or paid for again. The exit code is 0 only if all of that really was so.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast.workspace.decide import Decisions

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parent / "flows" / "d_coding"
RUN = "add-slug"
SHOWN = ("phase_", "gate_done", "gate_failed", "gate_kept", "fix_started", "flow_")


class Story:
    """What is claimed on the way; each claim is checked where it is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / "repo"
        self.broken: list[str] = []

    def tell(self) -> bool:
        """Tell it from beginning to end; return whether all of it was so."""
        shutil.copytree(EXAMPLE, self.folder, dirs_exist_ok=True)
        subprocess.run(["sh", "setup.sh"], cwd=self.folder, check=True)  # noqa: S607 - our own script
        print("A coder writes slug.py on a git repository; format, types, tests and an end-to-end call must pass.\n")
        self.work_until_killed()
        self.lose_a_file_and_get_it_back()
        self.go_on()
        self.count()
        return not self.broken

    def claim(self, claimed: str, *, is_so: bool) -> None:
        """Say something, and remember if it is not so."""
        print(f"  {'=>' if is_so else 'NOT SO:'} {claimed}")
        if not is_so:
            self.broken.append(claimed)

    def work_until_killed(self) -> None:
        """Run the flow in a process of its own, and kill it when the second draft has passed two of its gates."""
        print("1. It works, and is killed with SIGKILL in the middle of a gate:")
        process = self.start()
        for event in read_events(process):
            if event["kind"] == "gate_started" and event["gate"] == "tests":
                process.send_signal(signal.SIGKILL)
                break
        process.communicate()
        self.claim("the process is gone, by SIGKILL", is_so=process.returncode == -signal.SIGKILL)
        self.claim("two calls of the coder were paid for", is_so=self.lines("calls.log") == ["coder 0", "coder 1"])

    def lose_a_file_and_get_it_back(self) -> None:
        """Ruin a file while nobody is looking, see it in the plan, and put it back."""
        print("\n2. Meanwhile somebody empties the tests, so that they would all pass:")
        tests = self.repository / "test_slug.py"
        whole = tests.read_bytes()
        tests.write_text("")
        with holdfast.open(self.folder / ".holdfast") as hf:
            plan = hf.plan(RUN, workspace=self.repository, decisions=Decisions(edits="take", conflicts="take"))
            changed = [item.path for item in plan.files.items] if plan.files is not None else []
            self.claim(f"the plan of the recovery shows it before it acts: {changed}", is_so=changed == [tests.name])
            result = hf.recover(plan)
        self.claim("it is back, byte for byte", is_so=result.success and tests.read_bytes() == whole)

    def go_on(self) -> None:
        """Give the same command again."""
        print("\n3. The same command is given again:")
        process = self.start()
        for _ in read_events(process):
            pass
        process.communicate()
        self.claim("it came to its end", is_so=process.returncode == 0)
        check = [sys.executable, "-B", "-m", "unittest", "--quiet"]
        passed = subprocess.run(check, cwd=self.repository, capture_output=True, check=False)  # noqa: S603 - our own
        self.claim("slug.py does what its tests ask for", is_so=passed.returncode == 0)

    def count(self) -> None:
        """Say what was not paid for twice, and what it cost to be able to say so."""
        print("\n4. What was not done again, and what that cost:")
        calls, gates = Counter(self.lines("calls.log")), Counter(self.lines("gates.log"))
        self.claim("every call of the coder was paid for once", is_so=calls == Counter(f"coder {n}" for n in range(3)))
        repeated = [gate for gate, times in gates.items() if times > 1]
        interrupted = {"tests # draft 1"}
        self.claim("no gate that had given its verdict ran again", is_so=set(repeated) <= interrupted)
        with holdfast.open(self.folder / ".holdfast") as hf:
            saved, stats, report = hf.recovery.savings(RUN), hf.stats(), hf.verify()
            full = sum(one.size_bytes for one in hf.checkpoints(RUN, archived=True))
        told = f"{saved.steps} calls, {saved.seconds:.1f} s and {saved.tokens:,} tokens were kept over the kill"
        self.claim(told, is_so=saved.steps > 0 and saved.tokens > 0)
        told = f"{stats.checkpoints} checkpoints with all files take {stats.file_bytes / 1024:,.0f} KB on disk"
        self.claim(f"{told}; their state alone is {full / 1024:,.0f} KB", is_so=stats.checkpoints > 0)
        self.claim(f"every one of their {report.chunks} chunks is sound", is_so=report.sound)

    def start(self) -> subprocess.Popen[str]:
        """Start the flow, its events on a pipe."""
        command = [sys.executable, "-m", "holdfast", "run", "flow.yaml", "--workspace", "repo", "--resume", "--json"]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own

    def lines(self, file: str) -> list[str]:
        """Return the lines of a log that agents and gates write as they begin."""
        return (self.folder / file).read_text().splitlines()


def read_events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what a flow says, and show the better part of it."""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["kind"].startswith(SHOWN):
            place = event.get("gate") or event.get("phase") or ""
            print(f"   {event['kind'].replace('_', ' ')} {place}")
        yield event


def main() -> int:
    """Tell it in a temporary folder."""
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # that a lease was taken over is what this is about
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        is_so = Story(Path(folder)).tell()
    print("\nAll of it was so." if is_so else "\nNot all of it was so.")
    return 0 if is_so else 1


if __name__ == "__main__":
    sys.exit(main())
