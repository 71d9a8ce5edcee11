import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.errors import SectionInvalid, UsageError
from holdfast.runtime.subject import Subject
from unit.runtime.recorder import Recorder, is_identity

some = settings(derandomize=True, deadline=None, database=None, max_examples=40)
ISSUE = {"id": "42", "title": "Login", "body": "as a user", "labels": ["ready", "web"], "assignees": ["ann"]}


def test_an_issue_is_kept_as_it_was_seen():
    """Proves C2, C1."""
    host = Recorder("issue-42")
    subject = Subject(host, **ISSUE, session="s-1")
    seen = subject.value
    assert (seen.id, seen.title, seen.body, seen.labels, seen.assignees) == tuple(ISSUE.values())
    assert (seen.session, seen.branch) == ("s-1", None)
    later = subject.update(branch="feature/login", labels=("ready",))
    assert (later.branch, later.labels, later.title) == ("feature/login", ["ready"], "Login")
    assert later.seen_at > seen.seen_at
    assert Subject(host).value.id == "issue-42"


def test_what_changed_since_is_named_whatever_the_order_of_labels():
    """Proves C2."""
    subject = Subject(**ISSUE, branch="main")
    assert subject.differences({**ISSUE, "labels": ["web", "ready"], "branch": "main"}) == []
    assert subject.differences({**ISSUE, "labels": ["web"], "body": "new"}) == ["body", "labels", "branch"]


@pytest.mark.parametrize(
    ("about", "error", "words"),
    [
        ({"titel": "x"}, UsageError, "no 'titel'"),
        ({"id": 42}, SectionInvalid, "id"),
        ({"labels": "ready"}, SectionInvalid, "labels"),
        ({"labels": [5]}, SectionInvalid, "labels"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(about, error, words):
    subject = Subject(**ISSUE)
    before = subject.snapshot(), subject.changes
    with pytest.raises(error, match=words):
        subject.update(**about)
    assert (subject.snapshot(), subject.changes) == before


def test_metadata_is_nobody_elses_to_change():
    extra = {"votes": [1]}
    subject = Subject(metadata=extra)
    taken = subject.snapshot()
    extra["votes"].append(2)
    assert taken.metadata == {"votes": [1]}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@some
@given(TEXT, st.none() | TEXT, st.lists(TEXT, max_size=3), st.dictionaries(TEXT, st.integers(), max_size=3))
def test_a_snapshot_comes_back_whole(title, body, labels, metadata):
    subject = Subject(Recorder(), title=title, body=body, labels=labels, metadata=metadata)
    assert is_identity("subject", subject, Subject())


def test_a_run_knows_what_it_works_on(tmp_path):
    """Proves C2."""
    with holdfast.open(tmp_path) as hf, hf.run("r") as run:
        run.subject.update(**ISSUE)
        first = run.subject.snapshot()
    with holdfast.open(tmp_path) as hf, hf.run("r") as run:
        assert run.subject.snapshot() == first == hf.latest("r").section("subject")
