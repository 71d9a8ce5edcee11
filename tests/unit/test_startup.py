"""What a short command pays for: nothing that it does not use."""

import re
import subprocess
import sys
from re import compile as re_compile

import pytest

import holdfast
from holdfast.lazy import pattern

_LOOK = """
import sys
import holdfast
with holdfast.open(sys.argv[1]) as hf:
    assert len(hf.checkpoints("r", limit=50)) == 3
"""
_READ = """
import sys
import holdfast
with holdfast.open(sys.argv[1]) as hf:
    assert hf.run("r").head.section("state") == 2
"""

_SAVE = """
import sys
import holdfast
with holdfast.open(sys.argv[1]) as hf:
    hf.run("r").checkpoint(state=3)
    hf.run("other").step("one", lambda: 1)
"""


def loaded_by(script, folder):
    """Return the modules that a fresh process has at the end of a script."""
    command = [sys.executable, "-c", script + "print(*sorted(sys.modules))", str(folder)]
    return set(subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout.split())


def fill(folder):
    with holdfast.open(folder) as hf:
        for n in range(3):
            hf.run("r").checkpoint(state=n)


def test_opening_and_listing_loads_only_what_it_needs(tmp_path):
    fill(tmp_path)
    loaded = loaded_by(_LOOK, tmp_path)
    assert "holdfast.store.sqlite" in loaded
    unneeded = {
        "hyperscan", "yaml", "tomllib", "psycopg", "obstore", "cryptography", "_hashlib", "holdfast.store.memory",
        "holdfast.store.files", "holdfast.store.postgres", "holdfast.transfer.copy", "holdfast.verify.check",
        "holdfast.retain.sweep", "holdfast.retain.worker", "holdfast.capture.redact", "holdfast.capture.watch",
        "holdfast.workspace.workspace", "holdfast.run_files", "holdfast.settings.apply",
    }  # fmt: skip
    assert loaded & unneeded == set()


def test_a_run_that_is_only_read_compiles_no_patterns(tmp_path):
    fill(tmp_path)
    assert "hyperscan" not in loaded_by(_READ, tmp_path)


def test_a_first_save_loads_neither_an_event_loop_nor_what_only_errors_need(tmp_path):
    fill(tmp_path)
    unneeded = {"asyncio", "ssl", "email", "zoneinfo", "difflib", "socket", "concurrent.futures"}
    assert loaded_by(_SAVE, tmp_path) & unneeded == set()


@pytest.mark.parametrize(
    ("line", "most"), [("begin plan.md --resume --run r", 165), ("phase start 1 --run r", 150), ("status r", 130)]
)
def test_a_short_command_loads_few_modules(line, most, tmp_path):
    """Proves B7: what a script calls at each phase takes a tenth of a second; most of that is loading."""
    (tmp_path / "plan.md").write_text("## Phase 1: One\n\n## Phase 2: Two\n")
    command = [sys.executable, "-X", "importtime", "-m", "holdfast"]
    subprocess.run([*command, "begin", "plan.md", "--run", "r"], check=True, capture_output=True, cwd=tmp_path)
    done = subprocess.run([*command, *line.split()], check=True, capture_output=True, text=True, cwd=tmp_path)
    loaded = {one.rpartition("|")[2].strip() for one in done.stderr.splitlines() if one.startswith("import time:")}
    own = {name for name in loaded if name.startswith("holdfast")}
    assert {"asyncio", "holdfast.flow.check", "holdfast.flow.model"}.isdisjoint(loaded)
    assert len(own) <= most, sorted(own)


_LOOKING = {"asyncio", "ctypes", "difflib", "hashlib", "json", "shutil", "subprocess", "tempfile"}
_READING_FILES = {f"holdfast.workspace.{name}" for name in ("gitdir", "index", "objects", "status", "tree", "diff")}
_RESTORING = {f"holdfast.workspace.{name}" for name in ("git_create", "planning", "stage", "swap", "diff", "merge")}


@pytest.mark.parametrize(
    ("line", "unneeded"),
    [
        ("status r", _LOOKING | _READING_FILES | {"holdfast.run_recorder", "holdfast.capture.writer"}),
        ("log r -n 20", _LOOKING | _READING_FILES | {"holdfast.run_recorder", "holdfast.capture.writer"}),
        ("ls", _LOOKING | _READING_FILES | {"holdfast.engine"}),
        ("show r", _READING_FILES - {"holdfast.workspace.tree"} | {"holdfast.run_recorder", "difflib", "ctypes"}),
        ("begin plan.md --resume --run r", _RESTORING | {"ctypes", "asyncio"}),
        ("phase start 1 --run r", _RESTORING | {"ctypes", "asyncio"}),
    ],
)
def test_a_command_on_a_run_with_files_loads_nothing_that_only_others_need(line, unneeded, tmp_path):
    (tmp_path / "plan.md").write_text("## Phase 1: One\n")
    subprocess.run(["git", "init", "-q", "."], check=True, cwd=tmp_path)
    command = [sys.executable, "-X", "importtime", "-m", "holdfast"]
    begin = ["begin", "plan.md", "--run", "r", "--workspace"]
    subprocess.run([*command, *begin], check=True, capture_output=True, cwd=tmp_path)
    done = subprocess.run([*command, *line.split()], check=True, capture_output=True, text=True, cwd=tmp_path)
    loaded = {one.rpartition("|")[2].strip() for one in done.stderr.splitlines() if one.startswith("import time:")}
    assert loaded & unneeded == set()


def test_a_lazy_pattern_is_compiled_at_its_first_use_and_does_what_the_compiled_one_does(monkeypatch):
    made = []
    monkeypatch.setattr("holdfast.lazy.re.compile", lambda *given: made.append(given) or re_compile(*given))
    lazy = pattern("(a)|B", re.IGNORECASE)
    assert made == []
    assert lazy.sub("x", "cAb") == "cxx"
    assert lazy.fullmatch("b") is not None
    assert lazy.pattern == "(a)|B"
    assert lazy.sub("x", "a") == "x"
    assert set(made) == {("(a)|B", re.IGNORECASE)}
