"""The ignore matcher says what git says."""

from __future__ import annotations

import pytest

from holdfast.workspace.ignore import parse
from unit.workspace.kit import git, repository, write


@pytest.mark.parametrize(
    ("pattern", "path", "is_directory", "expected"),
    [
        ("*.pyc", "a/b.pyc", False, True),
        ("build/", "build", False, None),
        ("build/", "build", True, True),
        ("/top", "sub/top", False, None),
        ("/top", "top", False, True),
        ("doc/*.txt", "doc/a.txt", False, True),
        ("doc/*.txt", "doc/x/a.txt", False, None),
        ("**/logs", "a/b/logs", True, True),
        ("logs/**", "logs/a/b", False, True),
        ("logs/**", "logs", True, None),
        ("a/**/z", "a/z", False, True),
        ("a/**/z", "a/b/c/z", False, True),
        ("[a-c]x", "bx", False, True),
        ("[!a-c]x", "bx", False, None),
        ("[[:digit:]]", "7", False, True),
        ("foo[", "foo[", False, None),
        ("\\#x", "#x", False, True),
        ("#x", "#x", False, None),
        ("x\\ ", "x ", False, True),
        ("x   ", "x", False, True),
        ("!x", "x", False, False),
        ("a\r", "a", False, True),
    ],
)
def test_one_pattern_decides_as_git_documents_it(pattern, path, is_directory, expected):
    verdict = parse(pattern.encode()).verdict(
        path.rpartition("/")[2].encode(), path.encode(), is_directory=is_directory
    )
    assert verdict is expected


def test_the_last_matching_pattern_decides():
    patterns = parse(b"*.log\n!keep.log\nkeep.log.old\n")
    assert patterns.verdict(b"a.log", b"a.log", is_directory=False) is True
    assert patterns.verdict(b"keep.log", b"keep.log", is_directory=False) is False


def test_a_directory_of_git_test_cases_is_judged_as_git_judges_it(tmp_path):
    rules = "*.o\n!keep.o\n/only_top\nsub/*.x\n**/deep/\n\\!bang\n[ab]?.t\nend/\n*\\*star\nmid/**/leaf\n.hid*\n"
    names = ["a.o", "keep.o", "only_top", "sub/a.x", "sub/q/a.x", "x/deep/f", "!bang", "a1.t", "c1.t", "end/f", "y/end"]
    names += ["a*star", "astar", "mid/leaf", "mid/1/2/leaf", ".hidden", "sub/only_top", "sub/.hid/x"]
    repository(tmp_path)
    write(tmp_path, {".gitignore": rules} | dict.fromkeys(names, "x"))
    ignored = set(git(tmp_path, "ls-files", "-z", "-o", "-i", "--exclude-standard").split("\0")) - {""}
    from unit.workspace.kit import Box  # noqa: PLC0415

    box = Box(tmp_path)
    captured = set(box.paths(box.capture())) - {".gitignore"}
    assert captured == set(names) - ignored
