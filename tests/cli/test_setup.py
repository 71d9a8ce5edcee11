"""Setting up: init, doctor, completion."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from holdfast.cli.commands.init import SETTINGS
from holdfast.settings.file import load_settings
from holdfast.settings.values import Settings

BIN = Path(sys.executable).parent


def test_init_writes_settings_that_mean_the_defaults(hf, project):
    done = hf("init")
    assert done.code == 0
    assert done.out == "written holdfast.yaml\n"
    assert load_settings(project / "holdfast.yaml") == Settings()
    assert not (project / ".gitignore").exists()
    assert hf("ls").code == 0


def test_every_line_of_the_settings_is_understood_without_its_sign(project):
    lines = [re.sub(r"^# ?(?=[ a-z])", "", line) if ":" in line else "" for line in SETTINGS.splitlines()[2:]]
    (project / "all.yaml").write_text("\n".join(lines).replace("location: .holdfast ", "location: .holdfast"))
    found = load_settings(project / "all.yaml")
    assert found.retention.live == Settings().retention.live
    assert found.interval_s == Settings().interval_s


def test_init_keeps_the_store_out_of_git_and_overwrites_nothing(hf, project):
    subprocess.run(["git", "init", "-q", "."], check=True)
    (project / ".gitignore").write_text("dist")
    assert hf("init", "--json").json["written"] == ["holdfast.yaml", ".gitignore"]
    assert (project / ".gitignore").read_text() == "dist\n.holdfast/\n"
    (project / "holdfast.yaml").write_text("interval_s: 5\n")
    assert hf("init", "--json").json["written"] == []
    assert (project / "holdfast.yaml").read_text() == "interval_s: 5\n"
    assert (project / ".gitignore").read_text() == "dist\n.holdfast/\n"


def test_init_says_when_the_folder_cannot_be_written(hf, project):
    done = hf("init", "-C", "/proc")
    assert done.code == 6
    assert "Traceback" not in done.err
    (project / "holdfast.yaml").symlink_to("/no/such/folder/file")
    assert hf("init").code == 2  # a link is neither followed nor written through


def test_the_demo_loses_nothing_and_leaves_nothing(hf, project, tmp_path):
    done = hf("demo", "--json").json
    assert done == {"kept_steps": 3, "repeated_steps": 0, "files_restored": True, "sound": True}
    assert list(project.iterdir()) == []
    assert "killed. Kept: 3 steps" in hf("demo", "--keep", tmp_path / "there").out
    assert hf("demo", "--keep", tmp_path / "there").code == 2
    assert hf("log", "demo", "-C", tmp_path / "there").code == 0


def test_the_demo_ends_with_the_page_on_what_just_happened_when_asked(project, tmp_path):
    line = [BIN / "holdfast", "demo", "--ui"]
    environment = {**os.environ, "BROWSER": "true", "TMPDIR": str(tmp_path)}
    with subprocess.Popen(line, cwd=project, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        try:
            address = next(line.strip() for line in demo.stdout if line.startswith("http://127.0.0.1:"))
            with suppress(urllib.error.HTTPError):  # the page itself is not built here; that it answers is enough
                urllib.request.urlopen(address.partition("#")[0], timeout=60).close()
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == 0
        finally:
            demo.kill()
    assert not list(tmp_path.glob("holdfast-demo-*"))


def test_doctor_finds_a_sound_project_sound(hf, story):
    done = hf("doctor")
    assert done.code == 0
    for check in ("program", "sqlite", "git", "extras", "settings", "store", "permissions", "disk", "clock"):
        assert re.search(rf"^(ok|note) +{check} ", done.out, re.MULTILINE), check
    assert hf("doctor", "--json").json["healthy"] is True


def test_doctor_leaves_the_bytes_of_a_large_store_to_verify(hf, story, monkeypatch):
    with apsw.Connection(str(story / ".holdfast" / "holdfast.db")) as file:
        file.execute("UPDATE chunk SET holders = holders + 1")
    assert hf("doctor").code == 1
    monkeypatch.setattr("holdfast.cli.commands.doctor._CHECKED_WHOLE", 0)
    assert "`holdfast verify` checks" in hf("doctor").out
    assert hf("doctor").code == 0
    assert hf("verify").code == 5


def test_doctor_works_where_nothing_is_begun(hf, project):
    done = hf("doctor")
    assert done.code == 0
    assert "none here yet" in done.out
    assert list(project.iterdir()) == []


def test_doctor_names_what_is_wrong_and_what_to_do(hf, story):
    (story / "holdfast.yaml").write_text("nonsense: true\n")
    done = hf("doctor")
    assert done.code == 1
    assert "there is no setting" in done.out
    (story / "holdfast.yaml").unlink()
    (story / ".holdfast" / "holdfast.db").chmod(0o644)
    assert "chmod go=" in hf("doctor").out
    (story / ".holdfast" / "holdfast.db").write_bytes(b"junk" * 1000)
    assert hf("doctor").code == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(hf, shell):
    done = hf("completion", shell)
    assert done.code == 0
    assert "__complete" in done.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.out, text=True, check=True)
    assert hf("completion", "tcsh").code == 2


def offered(hf, *words):
    return [line.split("\t")[0] for line in hf("__complete", "--", *words).out.splitlines()]


def test_completion_offers_commands_options_runs_and_checkpoints(hf, story):
    assert offered(hf, "che") == ["checkpoint"]
    assert {"ls", "log"} <= set(offered(hf, "l"))
    assert offered(hf, "log", "is") == ["issue-42"]
    assert "--limit" in offered(hf, "log", "--li")
    assert "--json" in offered(hf, "log", "--js")
    assert {"issue-42", "good"} <= set(offered(hf, "show", ""))
    assert offered(hf, "show", "issue-42@") == ["issue-42@3", "issue-42@2", "issue-42@1"]
    assert offered(hf, "show", "go") == ["good"]
    short = hf("log", "issue-42").out.split()[1]
    assert offered(hf, "show", short[:3]) == [short]
    assert offered(hf, "cat", "issue-42:s") == ["issue-42:src/main.py"]
    assert offered(hf, "store", "") == ["migrate", "role", "key"]
    assert offered(hf, "store", "key", "r") == ["remove"]
    assert offered(hf, "completion", "") == ["bash", "zsh", "fish"]
    assert "archived" in offered(hf, "mark", "good", "a")
    assert "good" in hf("__complete", "--", "show", "issue-42@2").out


def test_completion_offers_values_of_options_and_phases(hf, project):
    (project / "PLAN.md").write_text("## Phase 1: Research\n## Phase 2: Ship\n")
    run = hf("begin", "PLAN.md", "-q").out.strip()
    hf("phase", "done", "1")
    assert offered(hf, "save", "--run", "pl") == [run]
    assert offered(hf, "phase", "start", "") == ["2-ship", "1-research"]
    assert offered(hf, "replan", "1") == ["1-research"]
    assert offered(hf, "load", "--from", run[:3]) == [run]
    assert offered(hf, "resume", run[:3]) == [run]


def test_completion_offers_what_may_stand_in_this_place(hf, story):
    assert offered(hf, "log", "--trigger", "st") == ["state_transition", "step_complete", "stage_complete"]
    assert offered(hf, "diff", "issue-42", "--only", "s") == ["state"]
    assert offered(hf, "show", "issue-42", "") == ["state", "workflow", "workspace"]
    assert offered(hf, "show", "issue-42", "--verbose", "state", "w") == ["workflow", "workspace"]
    assert offered(hf, "show", "issue-42:go") == ["issue-42:good"]
    assert offered(hf, "cat", "issue-42:") == ["issue-42:good", "issue-42:a.txt", "issue-42:src/main.py"]
    assert offered(hf, "cat", "issue-42@2:a") == ["issue-42@2:a.txt"]
    assert offered(hf, "diff", "issue-42", "go") == ["good"]
    assert offered(hf, "restore", "issue-42", "--into", "") == []


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_fish_offers_files_only_where_nothing_else_fits(hf, story):
    script = hf("completion", "fish").out.replace("$words[1] __complete", f"{BIN}/hold __complete")
    lines = [f"complete -C'{line}'" for line in ("holdfast log --trigger ma", "holdfast import a")]
    done = subprocess.run(["fish"], input="\n".join([script, *lines]), text=True, capture_output=True, check=True)
    assert done.stdout.split() == ["manual", "a.txt"]


def test_completion_is_silent_whatever_goes_wrong(hf, project):
    for words in (["show", ""], ["nothing", "x"], [], ["log", "--store", "ftp://x", "a"]):
        done = hf("__complete", "--", *words)
        assert (done.code, done.err) == (0, "")
