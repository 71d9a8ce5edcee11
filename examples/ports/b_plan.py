"""System B on Holdfast: a plan of phases, moved by a shell script; it needs no line of Python.

    python examples/ports/b_plan.py DIRECTORY

SCRIPT is the whole system: begin or resume, skip what is done, do a phase, record it, replan within a limit. Below it
is what that pattern's document asks for: the fields of its checkpoint, resume, decline, failure, replans, and its three
anti-patterns.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = r"""
hold begin specs/027_auth/plan.md >> runs || exit
hold save -q --path implementation_dir=specs/027_auth/impl/ --note 'research_reports=["001_oauth.md"]'
for phase in $(hold status --left); do
    hold phase start "$phase" || exit
    echo "$phase" >> done.log
    if test -e "fail-$phase"; then
        hold phase fail "$phase" --error "no network" --code 7
        exit 1
    fi
    echo "log of $phase" > "$phase.md"
    hold phase done "$phase" --artifact "$phase.md" --summary "$phase went well" || exit
done
"""
PLAN = "# Auth\n\n" + "".join(
    f"## Phase {n}: {name}\n\ntext\n\n" for n, name in enumerate(("Read", "Build", "Test"), 1)
)
NAMES = ["1-read", "2-build", "3-test"]


class Project:
    """A project with a plan, and the command line in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "specs" / "027_auth").mkdir(parents=True)
        self.plan = path / "specs" / "027_auth" / "plan.md"
        self.plan.write_text(PLAN)
        (path / "bin").mkdir()
        hold = path / "bin" / "hold"
        hold.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
        hold.chmod(0o755)
        self.env = {**os.environ, "PATH": f"{path / 'bin'}:{os.environ['PATH']}"}

    def sh(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script in the project, without a terminal."""
        return subprocess.run(
            ["sh", "-c", script],
            cwd=self.path,
            env=self.env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    @property
    def status(self) -> dict[str, Any]:
        """Where the plan stands."""
        told: dict[str, Any] = json.loads(self.sh("hold status --json").stdout)
        return told

    @property
    def done(self) -> list[str]:
        """The phases that were begun, in order."""
        return (self.path / "done.log").read_text().split()

    def at_a_terminal(self, line: str, answer: str) -> int:
        """Run a line with a terminal, and answer what it asks first."""
        main, side = pty.openpty()
        process = subprocess.Popen(
            ["sh", "-c", line], cwd=self.path, env=self.env, stdin=side, stdout=side, stderr=side
        )
        os.close(side)
        os.write(main, answer.encode())
        while process.poll() is None:
            try:
                os.read(main, 65536)
            except OSError:
                break
        code = process.wait()
        os.close(main)
        return code


def a_checkpoint_has_every_field(path: Path) -> None:
    """Structure."""
    project = Project(path)
    (path / "fail-3-test").touch()
    assert project.sh(SCRIPT).returncode == 1
    project.sh("hold replan 3 --reason complexity_exceeded")
    status = project.status
    assert status["run"] in (path / "runs").read_text()
    assert (status["plan"], status["current_phase"], status["completed_phases"]) == (
        "specs/027_auth/plan.md",
        3,
        [1, 2],
    )
    first = status["phases"]["1-read"]
    assert (first["status"], first["summary"]) == ("completed", "1-read went well")
    assert [one["path"] for one in first["artifacts"]] == ["1-read.md"]
    assert first["duration_s"] > 0
    assert first["completed_at"] > first["started_at"]
    (replan,) = status["replans"]
    assert (replan["phase"], replan["reason"], bool(replan["at"])) == ("3-test", "complexity_exceeded", True)
    assert status["replan_count"] == {"3": 1}
    assert status["artifact_paths"] == {"implementation_dir": "specs/027_auth/impl/"}
    assert status["context_metadata"] == {"research_reports": ["001_oauth.md"]}


def each_phase_ends_with_a_whole_checkpoint(path: Path) -> None:
    """Creation: one after each phase, atomic and verified."""
    project = Project(path)
    assert project.sh(SCRIPT).returncode == 0
    told = json.loads(project.sh(f"hold log {project.status['run']} --json").stdout)
    reasons = [one["reason"].split()[0] for one in told["checkpoints"] if one["trigger"] == "phase_complete"]
    assert reasons == NAMES[::-1]
    assert project.sh("hold verify").returncode == 0


def it_resumes_and_skips_what_is_done(path: Path) -> None:
    """Resume: without a terminal by itself; it says what is done."""
    project = Project(path)
    (path / "fail-3-test").touch()
    assert project.sh(SCRIPT).returncode == 1
    (path / "fail-3-test").unlink()
    again = project.sh(SCRIPT)
    assert again.returncode == 0
    assert "1-read" in again.stderr
    assert project.done == [*NAMES, "3-test"]
    over = project.sh(SCRIPT)
    assert (over.returncode, project.done) == (0, [*NAMES, "3-test"])
    assert "nothing" in over.stderr or "done" in over.stderr


def a_killed_session_resumes_in_the_same_phase(path: Path) -> None:
    """Resume: the same attempt continues."""
    project = Project(path)
    killed = SCRIPT.replace(
        'echo "log of', 'test "$phase" != 2-build || test -e once || { touch once; kill -9 $$; }\necho "log of'
    )
    assert project.sh(killed).returncode == -9
    assert project.sh(SCRIPT).returncode == 0
    assert project.done == ["1-read", "2-build", "2-build", "3-test"]
    assert (project.status["phases"]["2-build"]["attempt"], project.status["phases"]["2-build"]["resumes"]) == (1, 1)


def a_person_declines_and_the_old_one_is_archived(path: Path) -> None:
    """Resume: Y/n; no archives under the time and starts at phase one."""
    project = Project(path)
    (path / "fail-3-test").touch()
    project.sh(SCRIPT)
    (path / "fail-3-test").unlink()
    run = project.status["run"]
    assert project.at_a_terminal("hold begin specs/027_auth/plan.md", "n\n") == 0
    assert project.status["completed_phases"] == []
    told = json.loads(project.sh(f"hold log {run} --archived --json").stdout)
    assert [one["label"][:11] for one in told["checkpoints"] if one["label"]] == ["archived-20"]
    assert project.sh(SCRIPT).returncode == 0
    assert project.done == [*NAMES, *NAMES]


def the_same_plan_finds_its_run_and_no_other_does(path: Path) -> None:
    """The id follows from the plan's path: also when the plan was changed, not in another project."""
    project = Project(path)
    ids = {
        project.sh(f"hold begin {name} -q").stdout for name in ("specs/027_auth/plan.md", "./specs/027_auth/plan.md")
    }
    project.plan.write_text(PLAN + "## Phase 4: Ship\n")
    ids.add(project.sh("cd specs && hold begin 027_auth/plan.md -q").stdout)
    assert len(ids) == 1
    assert project.status["left"] == [*NAMES, "4-ship"]
    one, two = (Project(path / name) for name in ("one", "two"))
    ids = {at.sh("hold begin specs/027_auth/plan.md -q --store ../shared").stdout for at in (one, two, one, two)}
    assert len(ids) == 2


def a_failed_phase_is_kept_and_a_person_chooses(path: Path) -> None:
    """Failure: retry, skip or abort."""
    project = Project(path)
    (path / "fail-2-build").touch()
    project.sh(SCRIPT)
    failed = project.status["phases"]["2-build"]
    assert (failed["status"], failed["error"]["message"], failed["error"]["code"]) == ("failed", "no network", "7")
    (path / "fail-2-build").unlink()
    assert project.sh("hold phase skip 2 --reason 'not needed'").returncode == 0
    assert project.sh(SCRIPT).returncode == 0
    assert project.status["phases"]["2-build"]["status"] == "skipped"
    assert project.sh("hold phase retry 2").returncode == 0
    assert project.sh(SCRIPT).returncode == 0
    assert project.done == ["1-read", "2-build", "3-test", "2-build"]


def replanning_ends_at_its_limit_whatever_the_heading_says(path: Path) -> None:
    """Anti-pattern 3: twice for a phase, though each revision rewrites its heading."""
    project = Project(path)
    project.sh("hold begin specs/027_auth/plan.md; hold phase start 1; hold phase done 1")
    codes = []
    for revision in range(4):
        codes.append(project.sh(f"hold replan 2 --reason 'revision {revision}'").returncode)
        project.plan.write_text(PLAN.replace("Build", f"Build (revised {revision})"))
        project.sh("hold begin specs/027_auth/plan.md")
    assert codes == [0, 0, 11, 11]
    assert project.status["replan_count"] == {"2": 2}
    assert project.status["completed_phases"] == [1]


def checkpoints_are_per_phase_and_cheap(path: Path) -> None:
    """Anti-patterns 1 and 2: a few a phase, not one per call and not one at the end."""
    project = Project(path)
    project.sh(SCRIPT)
    told = json.loads(project.sh(f"hold log {project.status['run']} --json").stdout)
    assert len(NAMES) < len(told["checkpoints"]) <= 3 * len(NAMES) + 2


def the_audit_trail_says_what_a_resume_saved(path: Path) -> None:
    """Performance: one figure for what was not done again."""
    project = Project(path)
    (path / "fail-3-test").touch()
    project.sh(SCRIPT)
    saved = sum(one["duration_s"] for one in project.status["phases"].values() if one["status"] == "completed")
    assert abs(project.status["saved_s"] - saved) < 0.001
    events = project.sh("hold events").stdout
    assert [word in events for word in ("begun", "phase started", "phase completed", "phase failed")] == [True] * 4


CHECKS = (
    a_checkpoint_has_every_field, each_phase_ends_with_a_whole_checkpoint, it_resumes_and_skips_what_is_done,
    a_killed_session_resumes_in_the_same_phase, a_person_declines_and_the_old_one_is_archived,
    the_same_plan_finds_its_run_and_no_other_does, a_failed_phase_is_kept_and_a_person_chooses,
    replanning_ends_at_its_limit_whatever_the_heading_says, checkpoints_are_per_phase_and_cheap,
    the_audit_trail_says_what_a_resume_saved,
)  # fmt: skip


def main(folder: Path) -> int:
    """Check everything below a directory."""
    for check in CHECKS:
        place = folder / check.__name__
        place.mkdir(parents=True)
        check(place)
        print("ok", check.__name__.replace("_", " "))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
