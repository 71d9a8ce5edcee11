"""The five systems of the ledger, rebuilt in the fewest lines; each script checks its document's own list."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from postgres_server import shared_server
from seeds.conftest import environment

PORTS = Path(__file__).parent.parent.parent / "examples" / "ports"


def checked(name: str, *arguments: object) -> list[str]:
    """Run a port in a process of its own and return what it checked."""
    done = subprocess.run(
        [sys.executable, PORTS / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("ok ")]


def test_system_a_passes_its_scenarios_and_its_checklist(tmp_path):
    """Proves A1, A2, A3, A5, A7, A10, A12, A13, A14, A15, A16: six scenarios, then the checklist."""
    assert len(checked("a_orchestrator.py", tmp_path / "a")) == 13


def test_system_b_is_moved_by_a_shell_script_and_has_all_that_its_document_asks_for(tmp_path):
    """Proves B1, B3, B4, B5, B6, B7, B9."""
    assert len(checked("b_plan.py", tmp_path / "b")) == 10


def test_system_c_takes_an_issue_through_its_phases_as_its_document_says(tmp_path):
    """Proves C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13, C14, C15."""
    assert len(checked("c_issue.py", tmp_path / "c")) == 12


def test_system_d_passes_its_test_cases_and_resumes_wherever_it_is_killed(tmp_path):
    """Proves D1, D3, D4, D5, D6, D7, D8, D9, D10, D11: sixteen cases of its test file, then the executor."""
    assert len(checked("d_coding_task.py", tmp_path / "d")) == 19


def test_system_e_passes_every_case_of_its_own_test_file_on_postgresql():
    """Proves E1, E2, E3, E4, E5, E6, E7: 26 cases, then a stop and resume, the view and the security list."""
    server = shared_server()
    url = server.database()
    try:
        assert len(checked("e_episodes.py", url)) == 26 + 3
    finally:
        server.drop(url)
