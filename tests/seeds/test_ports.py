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


def test_system_e_passes_every_case_of_its_own_test_file_on_postgresql():
    """Proves E1, E2, E3, E4, E5, E6, E7: 26 cases, then a stop and resume, the view and the security list."""
    server = shared_server()
    url = server.database()
    try:
        assert len(checked("e_episodes.py", url)) == 26 + 3
    finally:
        server.drop(url)
