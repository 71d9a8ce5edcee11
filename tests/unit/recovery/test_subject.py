import json
import stat
import sys

import pytest

from holdfast.errors import SubjectUnavailable, UsageError
from holdfast.model.sections import Subject
from holdfast.recovery.subject import MAX_FILE_BYTES, FileSubject, GitHubSubject

WANTED = Subject(
    id="42", title="Add login", body="Use OAuth.", labels=["auth", "web"], assignees=["ann"], branch="f/42"
)


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    return FileSubject(path)


def test_an_issue_is_read_from_yaml_json_and_markdown_alike(tmp_path):
    """Proves C2."""
    fields = {
        "number": 42, "title": "Add login", "body": "Use OAuth.", "branch": "f/42",
        "labels": [{"name": "auth"}, "web"], "assignees": [{"login": "ann"}],
    }  # fmt: skip
    front = "---\nid: '#42'\ntitle: Add login\nlabels: auth, web\nassignees: [ann]\nbranch: f/42\n---\nUse OAuth.\n"
    yaml = "number: 42\ntitle: Add login\nbody: Use OAuth.\nlabels: [auth, web]\nassignees: ann\nbranch: f/42\n"
    assert write(tmp_path, "a.json", json.dumps(fields)).fetch("42") == WANTED
    assert write(tmp_path, "a.yaml", yaml).fetch("#42") == WANTED
    found = write(tmp_path, "a.md", front).fetch("42")
    assert (found.title, found.body, found.labels, found.branch) == ("Add login", "Use OAuth.", ["auth", "web"], "f/42")


def test_markdown_without_anything_before_it_has_its_heading_as_title(tmp_path):
    found = write(tmp_path, "42.md", "# Add login\n\nUse OAuth.\n").fetch("42")
    assert (found.id, found.title, found.body) == ("42", "Add login", "# Add login\n\nUse OAuth.")


def test_a_path_may_hold_the_id_and_no_id_leaves_the_directory(tmp_path):
    (tmp_path / "issues").mkdir()
    (tmp_path / "issues" / "7.md").write_text("# Seven\n")
    provider = FileSubject(tmp_path / "issues" / "{id}.md")
    assert provider.fetch("7").title == "Seven"
    assert provider.fetch("8") is None
    for hostile in ("../7", "a/b", "", "..", "x\0y"):
        with pytest.raises(UsageError):
            provider.fetch(hostile)


def test_a_file_that_is_gone_or_of_another_subject_is_no_subject(tmp_path):
    assert FileSubject(tmp_path / "none.md").fetch("1") is None
    assert write(tmp_path, "a.yaml", "id: 43\ntitle: other\n").fetch("42") is None


BOMB = "a: &a [x, x, x]\nb: &b [*a, *a, *a]\ntitle: [*b, *b]\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", "title: [unclosed"),
        ("a.yaml", "!!python/object/apply:os.system ['true']"),
        ("a.yaml", BOMB),
        ("a.yaml", "just text"),
        ("a.yaml", "labels: {a: b}"),
        ("a.yaml", "[" * 5_000),
        ("a.json", "{"),
        ("a.json", "[1, 2]"),
        ("a.json", "[" * 100_000),
        ("a.md", f"---\n{BOMB}---\ntext"),
        ("a.md", "---\n- a\n- b\n---\ntext"),
        ("a.yaml", "x" * (MAX_FILE_BYTES + 1)),
        ("a.yaml", "[" + "a," * 200_000 + "]"),
    ],
)
def test_a_malformed_or_hostile_file_gives_a_clear_error(tmp_path, name, content):
    """Proves D11."""
    with pytest.raises(SubjectUnavailable, match="subject '42' cannot be read"):
        write(tmp_path, name, content).fetch("42")


def test_bytes_that_are_no_text_and_a_directory_give_a_clear_error(tmp_path):
    (tmp_path / "a.md").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "a.md", tmp_path):
        with pytest.raises(SubjectUnavailable):
            FileSubject(path).fetch("1")


@pytest.fixture
def gh(tmp_path):
    """Put a real program called gh into a directory of its own, and return that directory as a search path."""

    def install(source):
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        program = place / "gh"
        program.write_text(f"#!{sys.executable}\nimport json, sys, time\n{source}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return str(place)

    return install


def test_an_issue_is_read_through_the_github_command(gh):
    path = gh(
        "assert sys.argv[1:3] == ['issue', 'view'], sys.argv\n"
        "body = ' '.join(sys.argv[4:])\n"
        "print(json.dumps({'number': int(sys.argv[3]), 'title': 'T', 'body': body, 'url': 'u',"
        " 'labels': [{'name': 'a'}], 'assignees': [{'login': 'ann'}]}))"
    )
    found = GitHubSubject("owner/name", path=path).fetch("#42")
    assert (found.id, found.title, found.labels, found.assignees, found.url) == ("42", "T", ["a"], ["ann"], "u")
    assert found.body == "--repo owner/name --json number,title,body,labels,assignees,url"
    assert GitHubSubject(path=path).fetch("7").body.startswith("--json")


def test_the_command_runs_in_the_directory_of_the_repository(gh, tmp_path):
    path = gh("import os\nprint(json.dumps({'title': os.getcwd()}))")
    assert GitHubSubject(directory=tmp_path, path=path).fetch("1").title == str(tmp_path.resolve())


def test_an_issue_that_is_not_there_is_none(gh):
    said = "GraphQL: Could not resolve to an issue or pull request with the number of 9. (repository.issue)"
    assert GitHubSubject(path=gh(f"sys.exit({said!r})")).fetch("9") is None


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("sys.exit('To get started with GitHub CLI, please run:  gh auth login')", "gh auth login"),
        ("sys.exit(\"GraphQL: Could not resolve to a Repository with the name 'a/b'. (repository)\")", "Repository"),
        ("sys.exit(3)", "gh failed: 3"),
        ("print('no json')", "not valid JSON"),
        ("print('[]')", "no fields"),
        ("print('x' * 9_000_000)", "bytes"),
    ],
)
def test_a_command_that_fails_says_why(gh, source, told):
    with pytest.raises(SubjectUnavailable, match=told):
        GitHubSubject(path=gh(source)).fetch("1")


def test_a_command_that_hangs_is_given_up(gh):
    with pytest.raises(SubjectUnavailable, match="did not answer within"):
        GitHubSubject(path=gh("time.sleep(600)"), timeout_s=0.3).fetch("1")


def test_without_the_command_it_says_what_to_do(tmp_path):
    with pytest.raises(SubjectUnavailable, match="not installed: install it, or use a file"):
        GitHubSubject(path=str(tmp_path)).fetch("1")


@pytest.mark.parametrize("subject", ["", "-1", "--web", "1 2", "1;ls", "https://example.test/1", "1\n"])
def test_only_numbers_reach_the_command(gh, subject):
    with pytest.raises(UsageError):
        GitHubSubject(path=gh("sys.exit('reached')")).fetch(subject)


@pytest.mark.parametrize("repo", ["", "name", "-o/name", "a/b/c/d", "a/b;ls", "a/ b"])
def test_only_a_repository_reaches_the_command(repo):
    with pytest.raises(UsageError):
        GitHubSubject(repo)
