"""Which call broke the tests, which made each version of a file, and which wrote each line; people are told apart."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import holdfast
from holdfast import NotFound, UsageError
from recovery.recovery_kit import tree


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    (root / "docs").mkdir(parents=True)
    (root / "code.py").write_text("one\ntwo\n")
    return root


@pytest.fixture
def hf(project):
    with holdfast.open(project / ".holdfast") as opened:
        yield opened


def wrote(run, name, file, text, **options):
    run.step(name, lambda: file.write_text(text) and {"tokens": len(text)}, wrote_files=True, **options)


def worked(hf, project, calls=12):
    """Let a run write a file in every call; at call 7 the word that a test looks for goes."""
    with hf.run("job", workspace=project) as run:
        for number in range(1, calls + 1):
            lines = ["one", "two", *(f"line {n}" for n in range(1, number + 1))]
            text = "\n".join(line for line in lines if number < 7 or line != "two") + "\n"
            wrote(run, f"call-{number}", project / "code.py", text)


def cli(project, *words):
    line = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(line, cwd=project, check=False, timeout=60, capture_output=True, text=True)


def test_bisect_names_the_call_since_which_a_command_fails(project, hf):
    """Proves X10: binary search, nothing of the user's touched, resumable."""
    worked(hf, project)
    before = tree(project)
    found = hf.files.bisect("job", ["grep", "-q", "two", "code.py"])
    assert found.first_bad is not None
    assert found.first_bad.calls == ("call-7",)
    assert found.last_good.calls == ("call-6",)
    assert found.tried <= 6
    assert found.trees == 13
    assert tree(project) == before
    again = hf.files.bisect("job", ["grep", "-q", "two", "code.py"])
    assert again.first_bad == found.first_bad
    assert again.files_written == 0, "what was tried is remembered"


@pytest.mark.parametrize("left_by", ["the tree before", "the command"])
def test_bisect_touches_nothing_that_a_link_in_its_directory_leads_to(project, hf, tmp_path, left_by):
    """Threat 6: a link in one tree and a directory in the next deleted what the link led to."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "kept").write_text("precious")
    (outside / "deep" / "kept").write_text("precious")
    before = tree(outside)
    place = project / "place"
    if left_by == "the tree before":
        place.symlink_to(outside)
    else:
        place.mkdir()
        (place / "unchanged").write_text("the same in all trees")
        (place / "kept").write_text("0")
    with hf.run("job", workspace=project) as run:
        run.checkpoint()
        place.unlink() if place.is_symlink() else (place / "kept").unlink()
        place.mkdir(exist_ok=True)
        for number in range(8):
            (place / "kept").write_text(f"of the run, {number}")
            (place / "deep").write_text(f"a file of the run, {number}")
            run.checkpoint()
    judged = "grep -qs 'of the run, [4-7]' place/kept; found=$?; "
    if left_by == "the command":
        judged += f"test -f place/unchanged || exit 126; rm -r place; ln -s {outside} place; "
    assert hf.files.bisect("job", ["sh", "-c", f"{judged} test $found != 0"]).first_bad.seq == 7
    assert tree(outside) == before


def test_bisect_says_so_where_there_is_nothing_to_find(project, hf):
    worked(hf, project, 3)
    assert "does not fail" in hf.files.bisect("job", ["true"]).reason
    assert "oldest files already" in hf.files.bisect("job", ["false"]).reason
    with pytest.raises(UsageError, match="cannot be run"):
        hf.files.bisect("job", ["no-such-command-here"])
    skipping = hf.files.bisect(
        "job", ["sh", "-c", "grep -q 'line 1' code.py || exit 0; grep -q 'line 3' code.py || exit 125; false"]
    )
    assert [one.calls for one in skipping.suspects] == [("call-1",), ("call-2",), ("call-3",)]


def test_a_command_that_spoils_files_spoils_no_later_try(project, hf):
    worked(hf, project)
    found = hf.files.bisect(
        "job", ["sh", "-c", "grep -q two code.py; was=$?; echo two > code.py; rm -rf docs; exit $was"]
    )
    assert found.first_bad.calls == ("call-7",)


def test_history_and_blame_name_calls_and_people(project, hf):
    """Proves X11."""
    worked(hf, project, 3)
    time.sleep(1.2)
    (project / "code.py").write_text("one\nby hand\nline 1\nline 2\nline 3\n")
    with hf.run("job", workspace=project) as run:
        wrote(run, "last", project / "code.py", "one\nby hand\nline 1\nline 2\nline 3\nthe end\n")
    versions = hf.files.history("job", "code.py")
    assert [(one.status, one.author.by) for one in versions] == [
        ("created", "before the run"),
        ("changed", "call-1"),
        ("changed", "call-2"),
        ("changed", "call-3"),
        ("changed", "you"),
        ("changed", "last"),
    ]
    assert versions[1].author.tokens == len("one\ntwo\nline 1\n")
    blamed = [(line.text, line.author.by) for line in hf.files.blame("job", "code.py")]
    assert blamed == [
        ("one", "before the run"),
        ("by hand", "you"),
        ("line 1", "call-1"),
        ("line 2", "call-2"),
        ("line 3", "call-3"),
        ("the end", "last"),
    ]
    with pytest.raises(NotFound, match=r"code\.py"):
        hf.files.blame("job", "cod.py")


def test_the_same_on_the_command_line(project, hf):
    worked(hf, project)
    searched = cli(project, "bisect", "job", "--", "grep", "-q", "two", "code.py")
    assert searched.returncode == 0, searched.stderr
    assert "made by call-7" in searched.stdout
    assert cli(project, "bisect", "job").returncode == 2
    assert "call-12" in cli(project, "history", "code.py", "job").stdout
    assert "call-4" in cli(project, "blame", "code.py", "job").stdout
    assert cli(project, "blame", "nothing.py", "job").returncode == NotFound.exit_code
