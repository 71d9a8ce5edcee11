"""Paths on the line: from the folder where a person stands; what is not there is said."""

from __future__ import annotations

import pytest

import holdfast


@pytest.fixture
def below(story, monkeypatch):
    """Stand in src/, with a file beside it that was captured, too."""
    (story / "src" / "main.py").write_text("print(2)\n")
    monkeypatch.chdir(story / "src")
    return story / "src"


def test_every_command_takes_a_path_from_where_one_stands(hf, below):
    assert hf("files", "issue-42", "main.py").out == "src/main.py\n"
    assert hf("files", "issue-42", "../a.txt").out == "a.txt\n"
    assert hf("files", "issue-42", "*.py").out == "src/main.py\n"
    assert "+print(2)" in hf("diff", "issue-42", "--path", "main.py").out
    assert "main.py" not in hf("diff", "issue-42", "--path", "../a.txt").out
    assert "src/main.py" in hf("restore", "issue-42", "main.py", "--dry-run").out
    assert "src/main.py" in hf("restore", "issue-42", ".", "--dry-run").out


def test_behind_a_checkpoint_a_path_counts_from_the_top(hf, below):
    assert hf("cat", "issue-42:src/main.py").out == hf("cat", "issue-42:./main.py").out == "print(1)\n"
    assert hf("cat", "issue-42:a.txt").out == hf("cat", "issue-42:../a.txt").out == "three\n"
    assert hf("cat", f"issue-42:{below}/main.py").out == "print(1)\n"


def test_a_path_outside_is_refused(hf, below):
    for words in (
        ["files", "issue-42", "../../x"],
        ["cat", "issue-42:../../x"],
        ["cat", "issue-42:/etc/passwd"],
        ["cat", "issue-42:a/../b"],
        ["restore", "issue-42", "/etc/passwd"],
        ["diff", "issue-42", "--path", "/etc"],
    ):
        done = hf(*words)
        assert (done.code, done.out) == (2, ""), words
        assert "unexpected" not in done.err


def test_the_way_to_the_workspace_may_lead_through_a_link_and_a_link_in_it_is_not_followed(hf, below, tmp_path):
    way = tmp_path / "way"
    way.symlink_to(below.parent)
    assert hf("files", "issue-42", f"{way}/a.txt").out == "a.txt\n"
    assert hf("files", "issue-42", f"{way}/src/").out == "src/main.py\n"
    assert hf("files", "issue-42", way).out == hf("files", "issue-42", "..").out
    assert hf("cat", f"issue-42:{way}/src/main.py").out == "print(1)\n"
    assert hf("files", "issue-42", f"{way}/../x").code == 2
    (below.parent / "out").symlink_to("/etc/hostname")
    hf("checkpoint", "issue-42", "--workspace")
    assert hf("files", "issue-42", f"{way}/out").out == hf("files", "issue-42", "../out").out == "out\n"


def test_an_artifact_is_a_path_too(hf, project, monkeypatch):
    (project / "holdfast.yaml").write_text("")
    (project / "PLAN.md").write_text("## Phase 1: Look\n")
    (project / "notes").mkdir()
    monkeypatch.chdir(project / "notes")
    hf("begin", "../PLAN.md")
    done = hf("phase", "done", "1", "--artifact", "../PLAN.md", "--json")
    assert done.json["phases"]["1-look"]["artifacts"][0]["path"] == "PLAN.md"


def test_a_path_that_a_checkpoint_does_not_have_is_not_found_and_the_nearest_is_named(hf, story):
    for words in (
        ["restore", "issue-42", "main.py", "--yes"],
        ["files", "issue-42", "main.py"],
        ["diff", "issue-42", "--path", "main.py"],
        ["diff", "issue-42@1", "issue-42@2", "--path", "main.py"],
        ["cat", "issue-42:main.py"],
    ):
        done = hf(*words)
        assert (done.code, done.out) == (3, ""), words
        assert "there is no captured file 'main.py': did you mean 'src/main.py'?" in done.err


def test_a_path_that_came_since_may_be_named(hf, story):
    (story / "new.txt").write_text("new\n")
    assert hf("restore", "issue-42", "new.txt", "--dry-run").code == 0
    assert "+new" in hf("diff", "issue-42", "--path", "new.txt").out


def test_a_recovery_of_files_that_are_not_there_is_no_success(story):
    with holdfast.open() as store:
        result = store.recover("issue-42@1", files=["nope"], workspace=story)
        assert not result.success
        assert "there is no captured file 'nope'" in result.errors[0]


def test_names_of_files_stay_on_their_line(hf, project):
    odd = project / "new\nline.txt"
    odd.write_text("a\n")
    hf("checkpoint", "r", "--workspace")
    odd.write_text("b\r\n")
    assert hf("diff", "r", "--stat").out.splitlines()[0] == r" new\nline.txt | 2 +-"
    assert hf("diff", "r").out.splitlines()[:3] == [
        r"modified new\nline.txt",
        r"--- a/new\nline.txt",
        r"+++ b/new\nline.txt",
    ]
    assert hf("diff", "r").out.splitlines()[-1] == r"+b\r"
