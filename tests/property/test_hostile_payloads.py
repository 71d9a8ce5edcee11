"""Stored bytes that nobody wrote with Holdfast: nothing runs, nothing outside is touched.

A sample by default; a thousand payloads a store, and every bomb, with HOLDFAST_TORTURE.
"""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from postgres_server import shared_server

CHILD = Path(__file__).parents[1] / "hostile_payloads.py"
TORTURE = bool(os.environ.get("HOLDFAST_TORTURE"))
PAYLOADS = 1_000 if TORTURE else 24
EVERY_BOMB = 1 if TORTURE else 100  # the first alone
MOST_MB = 512


@contextmanager
def place(kind, folder):
    """Return the URL of a store of this kind."""
    if kind != "postgres":
        yield {"memory": "memory:", "sqlite": str(folder / "store"), "files": f"file://{folder}/store"}[kind]
        return
    url = shared_server().database()
    try:
        yield url
    finally:
        shared_server().drop(url)


def run(kind, folder, first, count):
    with place(kind, folder) as url:
        done = subprocess.run(
            [sys.executable, str(CHILD), url, str(folder), str(first), str(count)],
            capture_output=True, check=False, timeout=1_800,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:].decode()
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["memory", "sqlite", "files", "postgres"])
def test_a_payload_in_any_store_runs_nothing_and_gives_a_value_or_a_typed_error(kind, tmp_path):
    """Threats 1, 2 and 8; issue 18: sections, nodes, records, inbox, sealed and altered rows."""
    found = run(kind, tmp_path, 0, PAYLOADS)
    assert found["other"] == []
    assert found["seen"] == []
    assert not found["imported"]
    assert found["refused"] > PAYLOADS
    assert found["read"] > PAYLOADS
    assert found["peak_mb"] < MOST_MB


@pytest.mark.parametrize("kind", ["memory", "sqlite", "files", "postgres"] if TORTURE else ["sqlite"])
def test_a_megabyte_that_unfolds_stays_below_512_mb(kind, tmp_path):
    """Threats 8: values of 60 MB that are stored in less than one, as a section and as the result of a call."""
    found = run(kind, tmp_path, -1, EVERY_BOMB)
    assert found["other"] == []
    assert found["refused"] > 0
    assert found["read"] > 0
    assert found["peak_mb"] < MOST_MB
