import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.errors import SectionInvalid, UsageError
from holdfast.runtime.context import Context
from unit.runtime.recorder import Recorder, is_identity

some = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def test_project_session_task_and_work_breakdown_are_kept():
    """Proves A5."""
    context = Context(project="shop", session="s-1")
    context.set(task="add login", work_breakdown={"oauth": ["research", "code"]})
    assert (context.project, context.session, context.task) == ("shop", "s-1", "add login")
    before = context.changes
    context.set(task="add login")
    assert context.changes == before
    context.set(task=None)
    assert context.task is None
    assert context.work_breakdown == {"oauth": ["research", "code"]}


@pytest.mark.parametrize(("about", "words"), [({"titel": "x"}, "no 'titel'"), ({"task": 5}, "give a text")])
def test_what_a_context_does_not_have_is_named(about, words):
    with pytest.raises(UsageError, match=words):
        Context().set(**about)


def test_an_artifact_is_checksummed_and_told_from_another_content(tmp_path):
    """Proves A5."""
    for name in ("kept.md", "changed.md", "gone.md"):
        (tmp_path / name).write_text(name)
    context = Context(root=tmp_path)
    for name in ("kept.md", "changed.md"):
        context.add_artifact(name, type="report")
    context.add_artifact(tmp_path / "gone.md", id="the-third")
    assert [one.path for one in context.artifacts] == ["kept.md", "changed.md", "gone.md"]
    assert context.check() == []
    (tmp_path / "changed.md").write_text("other")
    (tmp_path / "gone.md").unlink()
    assert [(one.artifact.id, one.change) for one in context.check()] == [
        ("changed.md", "changed"),
        ("the-third", "missing"),
    ]
    context.add_artifact("changed.md", type="report")
    assert len(context.artifacts) == 3
    assert [one.artifact.id for one in context.check()] == ["the-third"]


def test_an_artifact_is_found_on_another_machine(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for place in (here, there):
        place.mkdir()
        (place / "a.md").write_text("a")
    context = Context(root=here)
    context.add_artifact(here / "a.md")
    elsewhere = Context(root=there)
    elsewhere.restore(context.snapshot())
    assert elsewhere.check() == []


def test_a_path_outside_the_root_stays_as_it_was_given(tmp_path, monkeypatch):
    (tmp_path / "a.md").write_text("a")
    (tmp_path / "root").mkdir()
    assert Context(root=tmp_path / "root").add_artifact(tmp_path / "a.md").path == str(tmp_path / "a.md")
    monkeypatch.chdir(tmp_path)
    assert Context().add_artifact("a.md").path == "a.md"
    assert Context().check() == []


def test_lessons_and_decisions_are_kept_once_however_often_they_are_said():
    """Proves A5."""
    context = Context(Recorder())
    assert context.learn("mock no database")
    first = context.decide("use SQLite", "one file")
    changes = context.changes
    assert not context.learn("mock no database")
    assert context.decide("use SQLite", "one file") == first
    assert context.changes == changes
    other = context.decide("use SQLite", "it is tested", id="d1")
    assert [one.id for one in context.decisions] == [first.id, "d1"]
    assert (other.decision, other.rationale) == ("use SQLite", "it is tested")
    assert other.made_at > first.made_at
    with pytest.raises(UsageError, match="'d1' is 'use SQLite' already"):
        context.decide("use PostgreSQL", id="d1")


def test_what_it_was_given_and_what_it_gives_is_nobodys_to_change():
    parts, noted = {"a": [1]}, [1]
    context = Context(work_breakdown=parts)
    context.note(n=noted)
    taken = context.snapshot()
    parts["a"].append(2)
    noted.append(2)
    context.work_breakdown["a"].append(3)
    context.metadata["n"].append(3)
    assert (taken.work_breakdown, taken.metadata) == ({"a": [1]}, {"n": [1]})
    assert context.snapshot() is taken


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
DEEDS = st.one_of(
    st.tuples(st.just("learn"), TEXT),
    st.tuples(st.just("decide"), TEXT),
    st.tuples(st.just("set"), TEXT),
    st.tuples(st.just("note"), st.dictionaries(TEXT, st.lists(st.integers(-5, 5)))),
)


@some
@given(st.lists(DEEDS, max_size=10))
def test_a_snapshot_comes_back_whole_and_never_changes(deeds):
    context = Context(Recorder())
    kept = []
    for deed, value in deeds:
        if deed == "set":
            context.set(task=value, work_breakdown=[value])
        elif deed == "note":
            context.note(**value)
        else:
            getattr(context, deed)(value)
        kept.append((context.snapshot(), msgspec.json.encode(context.snapshot())))
    assert is_identity("context", context, Context())
    assert all(msgspec.json.encode(taken) == then for taken, then in kept)


def test_what_is_no_context_is_refused_with_the_place():
    with pytest.raises(SectionInvalid, match=r"lessons"):
        Context().restore({"lessons": [5]})


def test_what_holds_a_secret_is_kept_once_too_and_without_it(tmp_path):
    """Proves A5, E7."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    for _life in range(2):
        with holdfast.open(tmp_path) as hf, hf.run("r") as run:
            run.context.learn(f"use {secret}")
            run.context.decide(f"use {secret}", "it works")
            run.context.decide(f"not {secret}", "it does not", id="d1")
            run.knowledge.capture(f"use {secret}")
    with holdfast.open(tmp_path) as hf:
        context = hf.latest("r").section("context")
        assert len(context.lessons) == 1
        assert len(context.decisions) == 2
        assert len(hf.latest("r").section("knowledge").pending) == 1
        assert secret not in repr(context)


def test_a_run_remembers_what_it_is_about(tmp_path):
    """Proves A5."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.md").write_text("a")

    def say(run):
        run.context.set(project="shop", task="add login", work_breakdown=[("a", 1)])
        run.context.learn("mock no database")
        run.context.decide("use SQLite", "one file")

    with holdfast.open(tmp_path / "store") as hf, hf.run("r", workspace=tmp_path / "work") as run:
        say(run)
        assert run.context.add_artifact("a.md").path == "a.md"
        first = run.context.snapshot()
    with holdfast.open(tmp_path / "store") as hf, hf.run("r", workspace=tmp_path / "work") as run:
        assert run.context.snapshot() == first
        say(run)
        assert run.context.snapshot() == first
        assert run.context.check() == []
