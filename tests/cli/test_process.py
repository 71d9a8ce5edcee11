"""The installed script as a process of its own: exit codes, closed pipes, no terminal, and how little it loads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

SCRIPT = Path(sys.executable).parent / "holdfast"


def run(*words, **options):
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False, **options)


def test_the_script_and_its_short_name_are_installed():
    assert run("--version").stdout == f"holdfast {holdfast.__version__}\n"
    short = subprocess.run([SCRIPT.with_name("hold"), "--version"], capture_output=True, text=True, check=True)
    module = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True)
    assert short.stdout == module.stdout == run("--version").stdout


def test_exit_codes_reach_the_shell(story):
    assert run("ls").returncode == 0
    assert run("nonsense").returncode == 2
    assert run("show", "nobody").returncode == 3
    assert run("restore", "issue-42@1", stdin=subprocess.DEVNULL).returncode == 12


def test_a_reader_that_leaves_ends_it_quietly(project):
    store = holdfast.open()
    writer = store.run("r")
    for i in range(300):
        writer.checkpoint(reason=f"{i} " + "x" * 1000)
    store.close()
    line = f'"{SCRIPT}" log r | head -n 1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    first, code = done.stdout.splitlines()
    assert first.startswith("* ")
    assert code == "141"
    assert done.stderr == ""


def test_a_closed_standard_output_is_no_traceback(story):
    done = subprocess.run(["bash", "-c", f'"{SCRIPT}" ls >&-'], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this machine")
def test_a_full_disk_behind_standard_output_is_said(story):
    done = subprocess.run(["bash", "-c", f'"{SCRIPT}" ls > /dev/full'], capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr


def test_without_any_locale_names_are_still_shown(project):
    store = holdfast.open()
    store.run("r").checkpoint(reason="grüße 漢字")
    store.close()
    done = run(
        "log",
        "r",
        env={
            **{name: os.environ[name] for name in ("PATH", "PYTHONPYCACHEPREFIX")},
            "LC_ALL": "C",
            "PYTHONIOENCODING": "ascii",
        },
    )
    assert done.returncode == 0
    assert "gr" in done.stdout


def test_ctrl_c_is_130(story):
    held = (
        "import sys, holdfast.cli.main as m\n"
        "m._carried_out = lambda line: (print('ready', flush=True), input())\n"
        "sys.exit(m.main())\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "Traceback" not in errors


def loaded(*words):
    """Return the modules that a line loads."""
    probe = (
        f"import sys; from holdfast.cli.main import main; main({list(words)!r}); "
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_version_and_help_load_neither_engine_nor_parser(story, words):
    modules = loaded(*words)
    for name in ("argparse", "msgspec", "apsw", "holdfast.engine", "holdfast.errors", "'json'"):
        assert name not in modules


def test_a_list_loads_its_own_command_and_no_other_part(story):
    modules = loaded("ls")
    for name in (
        "'holdfast.engine'",
        "holdfast.settings.file",
        "holdfast.cli.commands.log",
        "holdfast.cli.commands.restore",
        "holdfast.workspace.scan",
        "'yaml'",
        "'json.decoder'",
    ):
        assert name not in modules
