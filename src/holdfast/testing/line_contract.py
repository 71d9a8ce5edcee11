"""What every store must do with the lines of a run and the keys of checkpoints; StoreContract includes them.

Needs pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.errors import HeadMoved, NotFound, RunDiffers
from holdfast.retain.sweep import sweep
from holdfast.store.commit import Commit, Draft
from holdfast.store.run_copy import copy_run
from holdfast.testing.line import NOON, Line, chunk_of
from holdfast.verify.check import verify

if TYPE_CHECKING:
    from holdfast.store.store import Store


class LineContract:
    """The obligations of a store towards lines and keys."""

    def raw_chunk_ids(self, store: Store) -> set[bytes]:
        """Return the names of all stored chunks."""
        raise NotImplementedError

    def raw_holds(self, store: Store, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""
        raise NotImplementedError

    def test_a_sweep_keeps_what_any_line_reaches(self, store: Store) -> None:
        main, side = Line(store), Line(store, name="side")
        main.commit(chunk_of("main"))
        old = side.commit(chunk_of("old"))
        side.commit(chunk_of("side"))
        store.delete("run", [old.envelope.id])
        assert sweep(store, "run") == 1
        assert self.raw_chunk_ids(store) == {chunk_of("main").id, chunk_of("side").id}
        assert verify(store).sound

    def test_a_release_is_refused_after_a_commit_on_any_line(self, store: Store) -> None:
        main, side = Line(store), Line(store, name="side")
        main.commit(chunk_of("one"))
        side.commit(chunk_of("two"))
        with pytest.raises(HeadMoved):
            store.release("run", [chunk_of("two").id], expected_seq=1, created_at=NOON)
        store.release("run", [chunk_of("none").id], expected_seq=2, created_at=NOON)
        assert self.raw_holds(store, "run") == {chunk_of("one").id, chunk_of("two").id}

    def test_a_run_that_begins_on_another_line_is_listed_and_deleted_like_any(self, store: Store) -> None:
        Line(store, name="side").commit(chunk_of("one"))
        assert [run.id for run in store.runs()] == ["run"]
        assert store.line_names("run") == ["main", "side"]
        assert store.checkpoints("run") == []
        Line(store).commit()
        assert verify(store).sound
        store.delete_run("run")
        assert self.raw_chunk_ids(store) == set()
        assert store.runs() == []

    def test_checkpoints_are_found_by_their_key_highest_first(self, store: Store) -> None:
        line, other = Line(store), Line(store, name="other")
        for key in ("b", "d", None, "a", "c"):
            line.commit(key=key, attributes={"of": key})
        other.commit(key="z")
        assert [record.key for record in store.keyed("run")] == ["d", "c", "b", "a"]
        assert [record.key for record in store.keyed("run", below="d", limit=2)] == ["c", "b"]
        assert [record.key for record in store.keyed("run", below="a")] == []
        assert [record.key for record in store.keyed("run", line="other", limit=1)] == ["z"]
        found = store.by_key("run", "b")
        assert found is not None
        assert (found.envelope.seq, found.attributes) == (1, {"of": "b"})
        assert store.by_key("run", "z") is None
        assert store.by_key("no", "b") is None

    def test_of_several_checkpoints_with_one_key_the_newest_counts(self, store: Store) -> None:
        line = Line(store)
        for key in ("b", "a", "b", "b", "c"):
            line.commit(key=key)
        assert [(record.key, record.envelope.seq) for record in store.keyed("run")] == [("c", 5), ("b", 4), ("a", 2)]
        assert [record.envelope.seq for record in store.keyed("run", limit=2)] == [5, 4]
        assert [record.envelope.seq for record in store.keyed("run", below="b", limit=1)] == [2]
        newest = store.by_key("run", "b")
        assert newest is not None
        assert newest.envelope.seq == 4

    def test_a_copied_run_is_whole_and_outlives_the_original(self, store: Store) -> None:
        main, side = Line(store), Line(store, name="side")
        gone = main.commit(chunk_of("gone"))
        main.commit(chunk_of("one"), key="a", attributes={"step": 1})
        main.commit(chunk_of("two"), key="b")
        side.commit(chunk_of("side"), key="c")
        for text in ("first", "second", "third"):
            store.write(Commit(run="run", line="side", records=[Draft("kind", "path", 0.0, text.encode())]))
        store.journal.compact("run", [2], line="side")
        store.delete("run", [gone.envelope.id])
        sweep(store, "run")
        copy_run(store, "run", "copy")
        assert verify(store).sound
        assert [record.key for record in store.keyed("copy")] == ["b", "a"]
        assert [record.attributes for record in store.keyed("copy")] == [{}, {"step": 1}]
        assert [record.key for record in store.keyed("copy", line="side")] == ["c"]
        assert self.raw_holds(store, "copy") == self.raw_holds(store, "run")
        store.delete_run("run")
        assert verify(store).sound
        line = store.line("copy", line="side")
        assert line is not None
        assert [record.body for record in store.journal.of_path(line, "path")] == [b"first", b"third"]
        assert self.raw_chunk_ids(store) == {chunk_of(text).id for text in ("one", "two", "side")}

    def test_a_copy_onto_a_run_that_is_there_is_refused(self, store: Store) -> None:
        Line(store).commit(chunk_of("one"))
        Line(store, "other").commit(chunk_of("two"))
        with pytest.raises(RunDiffers):
            copy_run(store, "run", "other")
        with pytest.raises(NotFound):
            copy_run(store, "no", "new")
        assert self.raw_holds(store, "other") == {chunk_of("two").id}

    def test_lines_of_any_run_are_found_by_the_key_of_a_record(self, store: Store) -> None:
        for run, line, key in (("a", "main", "one"), ("b", "side", "one"), ("b", "main", "two"), ("a", "main", "one")):
            store.write(Commit(run=run, line=line, records=[Draft("kind", "path", 0.0, b"", key)]))
        found = {(line.run, line.name) for line in store.journal.lines_with("one")}
        assert found == {("a", "main"), ("b", "side")}
        assert store.journal.lines_with("three") == []
