from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import open as open_holdfast
from holdfast.errors import SubjectUnavailable, UsageError
from holdfast.model.checkpoint import FORMAT_VERSION
from holdfast.model.sections import Subject
from holdfast.recovery.freshness import DEFAULT_VERDICTS, VERDICTS, FreshnessFacts, facts_now, facts_then, findings
from holdfast.recovery.subject import FileSubject
from holdfast.testing.contract import NOON
from holdfast.version import __version__
from unit.workspace.kit import git, repository

SUBJECT = Subject(id="42", title="Add login", body="Use OAuth.\n", labels=["a", "b"], assignees=["ann"], branch="main")
THEN = FreshnessFacts(
    at=NOON,
    head="branch",
    branch="main",
    commit="a" * 40,
    subject=SUBJECT,
    flow="f1",
    program_version="1",
    format_version=1,
)
NOW = msgspec.structs.replace(THEN, has_branch=True, is_subject_known=True, at=NOON + timedelta(days=3))


def changed(**facts):
    return findings(THEN, msgspec.structs.replace(NOW, **facts))


def kinds(found):
    return [(one.kind, one.verdict) for one in found]


def subject(**fields):
    return changed(subject=msgspec.structs.replace(SUBJECT, **fields))


def test_where_nothing_moved_the_run_goes_on():
    assert changed() == ()


@pytest.mark.parametrize(
    ("found", "kind", "verdict", "told"),
    [
        (subject(labels=["b", "c"]), "labels-changed", "warn", "added 'c'; removed 'a'"),
        (subject(body="Use SAML."), "body-changed", "ask", "the text of '42' changed"),
        (changed(has_branch=False, branch="other"), "branch-gone", "fresh", "branch 'main' is gone"),
        (changed(files_changed=12, changed_paths=("a",)), "files-changed", "warn", "12 files changed since the last"),
        (changed(commit="b" * 40, moved="2 ahead"), "head-moved", "warn", "aaaaaaaaaaaa to bbbbbbbbbbbb (2 ahead)"),
        (changed(branch="other"), "branch-switched", "ask", "on branch 'other'"),
        (changed(branch="other", is_own=True), "moved-by-run", "warn", "the run itself went"),
        (changed(head="none", branch=None, commit=None), "repository-gone", "ask", "no git repository"),
        (changed(head="unknown", moved="dubious"), "git-unknown", "warn", "dubious"),
        (subject(title="Other"), "title-changed", "warn", "'Other'"),
        (subject(assignees=[]), "assignees-changed", "warn", "removed 'ann'"),
        (subject(branch="next"), "subject-branch-changed", "ask", "'next'"),
        (changed(subject=None), "subject-gone", "ask", "'42' is gone"),
        (changed(subject_problem="no network"), "subject-unknown", "warn", "no network"),
        (changed(flow="f2"), "flow-changed", "ask", "definition"),
        (changed(program_version="2"), "program-changed", "warn", "Holdfast 1, this is 2"),
        (changed(format_version=2), "format-changed", "warn", "format 1"),
        (findings(THEN, NOW, older_than=timedelta(days=2)), "too-old", "ask", "2 days"),
    ],
)  # fmt: skip
def test_each_thing_that_moved_is_found_with_its_verdict(found, kind, verdict, told):
    """Proves C15."""
    assert kinds(found) == [(kind, verdict)]
    assert told in found[0].detail


def test_every_kind_has_a_default():
    tested = test_each_thing_that_moved_is_found_with_its_verdict.pytestmark[0].args[1]
    assert {case[1] for case in tested} == set(DEFAULT_VERDICTS)


def test_the_gravest_finding_decides_and_comes_first():
    """Proves C15."""
    found = changed(has_branch=False, flow="f2", program_version="2")
    assert [one.verdict for one in found] == ["fresh", "ask", "warn"]


def test_verdicts_can_be_chosen():
    """Proves C15."""
    now = msgspec.structs.replace(NOW, has_branch=False, flow="f2")
    found = findings(THEN, now, verdicts={"branch-gone": "ask", "flow-changed": "resume"})
    assert kinds(found) == [("branch-gone", "ask"), ("flow-changed", "resume")]
    with pytest.raises(UsageError, match="did you mean 'branch-gone'"):
        findings(THEN, NOW, verdicts={"branch-gon": "ask"})
    with pytest.raises(UsageError, match="use resume, warn, ask, fresh"):
        findings(THEN, NOW, verdicts={"branch-gone": "panic"})


def test_what_an_editor_changes_by_itself_is_no_change():
    assert subject(body="Use OAuth.  \r\n\r\n", labels=["b", "a"]) == ()


def test_what_was_not_looked_at_says_nothing():
    assert findings(FreshnessFacts(), NOW) == ()
    assert findings(THEN, FreshnessFacts()) == ()


def test_names_from_outside_are_shown_escaped():
    hostile = "x\x1b[2J\u202e\n"
    found = subject(labels=[hostile], title=hostile) + changed(
        files_changed=1, changed_paths=(hostile,), branch=hostile
    )
    assert all(str(one).isprintable() for one in found)


facts = st.builds(
    FreshnessFacts,
    at=st.none() | st.just(NOON),
    head=st.none() | st.sampled_from(["none", "unknown", "unborn", "branch", "detached"]),
    branch=st.none() | st.text(max_size=3),
    commit=st.none() | st.text("ab", max_size=3),
    has_branch=st.none() | st.booleans(),
    files_changed=st.none() | st.integers(0, 3),
    subject=st.none() | st.builds(Subject, id=st.text(), body=st.none() | st.text(), labels=st.lists(st.text())),
    is_subject_known=st.booleans(),
)


@given(facts, facts)
def test_any_two_moments_can_be_compared_and_the_overall_verdict_is_the_gravest(then, now):
    found = findings(then, now, older_than=timedelta(0))
    assert all(VERDICTS.index(one.verdict) <= VERDICTS.index(found[0].verdict) for one in found)
    assert len({one.kind for one in found}) == len(found)


@pytest.fixture
def place(tmp_path):
    root = tmp_path / "repo"
    repository(root)
    (root / "a.txt").write_text("one\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    git(root, "branch", "-M", "main")
    git(root, "checkout", "-qb", "feature/x")
    return root


@pytest.fixture
def then(place, tmp_path):
    with open_holdfast(tmp_path / "store") as hf:
        run = hf.run("r", workspace=place)
        yield facts_then(run.checkpoint(state={}, subject={"id": "42", "title": "T", "body": "B"}), flow="f")


def now(then, directory, **options):
    return facts_now(then, directory, at=NOON, flow="f", **options)


def seen(then, directory, **options):
    return [one.kind for one in findings(then, now(then, directory, **options))]


def test_facts_are_gathered_from_a_checkpoint_and_from_the_directory(then, place):
    assert (then.head, then.branch, len(then.commit)) == ("branch", "feature/x", 40)
    assert (then.program_version, then.format_version, then.subject.title) == (__version__, FORMAT_VERSION, "T")
    found = now(then, place)
    assert (found.head, found.branch, found.commit, found.has_branch) == ("branch", "feature/x", then.commit, True)
    assert seen(then, place) == []
    (place / "below").mkdir()
    assert seen(then, place / "below") == []


def test_a_branch_that_is_gone_is_found_and_one_below_its_name_is_another(then, place):
    """Proves C15."""
    git(place, "checkout", "-q", "main")
    assert seen(then, place) == ["branch-switched"]
    git(place, "branch", "-qD", "feature/x")
    git(place, "branch", "feature/x/y")
    assert seen(then, place) == ["branch-gone"]


def test_a_head_that_moved_is_found_with_how_far(then, place):
    """Proves C15."""
    git(place, "commit", "-qm", "two", "--allow-empty")
    git(place, "commit", "-qm", "three", "--allow-empty")
    assert seen(then, place) == ["head-moved"]
    assert now(then, place).moved == "2 ahead"
    git(place, "checkout", "-q", "--orphan", "fresh")
    git(place, "commit", "-qm", "other root", "--allow-empty")
    git(place, "branch", "-M", "feature/x")
    assert now(then, place).moved == "1 ahead, 1 behind"


def test_a_detached_head_an_unborn_branch_and_no_repository_are_told_apart(then, place, tmp_path):
    git(place, "checkout", "-q", "--detach")
    assert now(then, place).head == "detached"
    assert seen(then, place) == ["branch-switched"]
    repository(tmp_path / "empty")
    assert now(then, tmp_path / "empty").head == "unborn"
    (tmp_path / "bare").mkdir()
    assert seen(then, tmp_path / "bare") == ["repository-gone"]
    (tmp_path / "broken" / ".git").mkdir(parents=True)
    assert seen(then, tmp_path / "broken") == ["git-unknown"]


def test_a_commit_that_is_no_commit_reaches_no_command_line(then, place):
    hostile = msgspec.structs.replace(then, commit="--output=x", branch="feature/x")
    assert seen(hostile, place) == ["head-moved"]
    assert now(hostile, place).moved is None


def test_files_that_others_changed_are_counted(then, place):
    """Proves C15."""
    found = now(then, place, changed_paths=[f"{n}.py" for n in range(30)])
    assert (found.files_changed, len(found.changed_paths)) == (30, 10)


def test_the_subject_is_asked_for_anew(then, place, tmp_path):
    """Proves C15."""
    issue = tmp_path / "42.md"
    issue.write_text("---\ntitle: T\nlabels: [urgent]\n---\nB\n")
    assert seen(then, place, provider=FileSubject(issue)) == ["labels-changed"]
    issue.write_text("---\ntitle: T\n---\nanother text\n")
    assert seen(then, place, provider=FileSubject(issue)) == ["body-changed"]
    issue.unlink()
    assert seen(then, place, provider=FileSubject(issue)) == ["subject-gone"]


def test_a_provider_that_cannot_answer_is_a_finding_and_no_error(then, place):
    def fetch(subject):
        raise SubjectUnavailable(subject, "no network")

    assert seen(then, place, provider=SimpleNamespace(fetch=fetch)) == ["subject-unknown"]


def test_without_a_workspace_or_subject_nobody_is_asked(tmp_path):
    with open_holdfast(tmp_path / "store") as hf:
        then = facts_then(hf.run("r").checkpoint(state={}))
        assert then.head is None
        assert seen(then, tmp_path, provider=SimpleNamespace()) == []
