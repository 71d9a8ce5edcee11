"""Take an issue from enrich to docs; interrupted, the same line continues where it was.

    python issue.py [--yes | --take | --fresh]

The store is a folder that people can read: store/issue-42/latest. Before the run is resumed, what has changed since is
looked at: the issue, the branch, the files.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import holdfast
from holdfast.flow.load import load_flow
from holdfast.flow.runner import run_flow
from holdfast.recovery.subject import FileSubject
from holdfast.workspace.decide import Decisions

RUN, ISSUE, REPO = "issue-42", Path("issues/42.json"), Path("repo")


def set_up() -> None:
    """Make the project's repository, with the issue's branch; in one move, so that it is there whole or not at all."""
    if REPO.exists():
        return
    made = Path("repo.new")
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree("project", made)
    issue = FileSubject(ISSUE).fetch("42")
    assert issue is not None
    assert issue.branch is not None
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "-A"],
        ["-c", "user.name=ann", "-c", "user.email=ann@example.com", "commit", "--quiet", "-m", "begin"],
        ["checkout", "--quiet", "-b", issue.branch],
    ):
        subprocess.run(["git", "-C", str(made), *command], check=True)  # noqa: S603, S607 - the user's git
    made.rename(REPO)


def may_go_on(hf: holdfast.Holdfast, choice: str) -> bool:
    """Say what has changed since the last checkpoint, and whether the run continues after that."""
    plan = hf.plan(RUN, workspace=REPO, subject=FileSubject(ISSUE))
    print(*plan.lines(), sep="\n")
    if any(finding.kind == "files-changed" for finding in plan.findings):
        with closing(hf.run(RUN, workspace=REPO)) as run:
            print(*(changed.text for changed in run.workspace.diff()), sep="", end="")
    if choice == "--fresh":
        hf.recovery.start_fresh(RUN)
    elif choice == "--take":
        result = hf.recover(RUN, workspace=REPO, decisions=Decisions(edits="take"), confirmed=True)
        print(*result.errors, sep="\n")
        return result.success
    elif choice == "--yes":
        return hf.recover(plan, confirmed=True).success
    elif plan.verdict in ("resume", "warn"):
        pass
    else:
        print(f"{plan.verdict}: continue with --yes, put the files back with --take, or start over with --fresh")
        return False
    return True


def main(arguments: list[str]) -> int:
    """Carry the issue on as far as it goes; return the exit code."""
    set_up()
    with holdfast.open() as hf:  # where holdfast.yaml says
        is_over = hf.has(RUN) and hf.latest(RUN, required=True).summary.status == "completed"
        if hf.has(RUN) and not is_over and not may_go_on(hf, arguments[0] if arguments else ""):
            return holdfast.CannotResume.exit_code
        flow = load_flow("issue.yaml")
        result = run_flow(hf, flow, run_id=RUN, workspace=REPO, observer=_told, waiting="leave")
        print(f"{result.status}: {result.detail}" if result.detail else result.status)
        return 0 if result.status == "completed" else 1


def _told(event: object) -> None:
    kind, phase, task = (getattr(event, name) for name in ("kind", "phase", "task"))
    if kind.startswith(("phase", "task")) and kind != "task_output":
        print(f"  {kind:<14} {phase}{f'/{task}' if task else ''}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; all that was done is saved: the same line continues from there")
