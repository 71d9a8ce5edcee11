"""What every store must do, as tests: subclass StoreContract, say how to open your store and how to look behind it.

The accessors go round the store (its file, its tables, its dictionaries), so that a store cannot vouch for itself.
Needs pytest.
"""

from __future__ import annotations

import multiprocessing
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.encode.chunks import Chunk
from holdfast.errors import CheckpointCorrupt, Conflict, HeadMoved, IntegrityError, NotFound, UsageError
from holdfast.model.checkpoint import CheckpointRecord, Marks
from holdfast.model.ids import RESERVED
from holdfast.store.commit import CheckpointDraft, Commit
from holdfast.store.inspection import Inspection
from holdfast.testing.feed_contract import FeedContract
from holdfast.testing.journal_contract import JournalContract
from holdfast.testing.line import NOON, Line, chunk_of
from holdfast.testing.line_contract import LineContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.store.store import Store

__all__ = ["NOON", "Line", "StoreContract", "chunk_of"]


class StoreContract(JournalContract, FeedContract, LineContract):
    """The obligations of a store; a subclass is collected by pytest."""

    def raw_chunk(self, store: Store, chunk: bytes) -> Chunk | None:
        """Return a chunk as it is stored."""
        raise NotImplementedError

    def raw_chunk_ids(self, store: Store) -> set[bytes]:
        """Return the names of all stored chunks."""
        raise NotImplementedError

    def raw_holds(self, store: Store, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""
        raise NotImplementedError

    def raw_numbers(self, store: Store, run: str) -> list[int]:
        """Return the numbers of a run's stored checkpoints, rising."""
        raise NotImplementedError

    def raw_tombstones(self, store: Store, run: str) -> set[str]:
        """Return the ids of a run's deleted checkpoints."""
        raise NotImplementedError

    def damage_chunk(self, store: Store, chunk: bytes) -> None:
        """Change a chunk's stored bytes."""
        raise NotImplementedError

    def lose_chunk(self, store: Store, chunk: bytes) -> None:
        """Take a chunk away."""
        raise NotImplementedError

    def damage_checkpoint(self, store: Store, checkpoint: str) -> None:
        """Change one byte of a checkpoint's record; asked of durable stores only."""
        raise NotImplementedError

    def lose_checkpoint(self, store: Store, checkpoint: str) -> None:
        """Take a checkpoint away without a trace; asked of durable stores only."""
        raise NotImplementedError

    def test_a_commit_stores_chunks_holds_and_number_and_moves_the_head(self, store: Store) -> None:
        """Proves A10."""
        chunk = chunk_of("one")
        record = Line(store).commit(chunk)
        assert self.raw_chunk(store, chunk.id) == chunk
        assert self.raw_holds(store, "run") == {chunk.id}
        assert self.raw_numbers(store, "run") == [1]
        assert store.run("run").head == record.envelope.id

    def test_what_commit_returns_is_what_is_read_later(self, store: Store) -> None:
        """Proves A7."""
        record = Line(store).commit(chunk_of("one"), marks=Marks(pinned=True, label="here"))
        assert store.checkpoint(record.envelope.id) == record
        assert store.checkpoint_at("run", 1) == record
        assert list(store.checkpoints("run")) == [record]

    def test_a_checkpoint_may_bring_no_chunk_at_all(self, store: Store) -> None:
        line = Line(store)
        line.commit()
        line.commit()
        assert self.raw_numbers(store, "run") == [1, 2]

    def test_a_commit_of_hundreds_of_chunks_is_kept_whole(self, store: Store) -> None:
        chunks = [chunk_of(f"chunk {n}") for n in range(700)]
        Line(store).commit(*chunks)
        assert self.raw_chunk_ids(store) == {chunk.id for chunk in chunks}
        assert dict(store.fetch([chunk.id for chunk in chunks])) == {chunk.id: chunk for chunk in chunks}

    def test_a_commit_on_a_head_that_moved_is_refused_and_leaves_nothing(self, store: Store) -> None:
        """Proves D10."""
        first, second = Line(store), Line(store)
        first.commit(chunk_of("mine"))
        kept = first.store.checkpoint_at("run", 1)
        with pytest.raises(HeadMoved) as caught:
            second.commit(chunk_of("theirs"))
        assert (caught.value.expected, caught.value.actual) == (None, kept.envelope.id if kept else None)
        assert self.raw_chunk_ids(store) == {chunk_of("mine").id}
        assert list(store.checkpoints("run")) == [kept]

    def test_a_commit_that_expects_a_head_of_an_unknown_run_is_refused(self, store: Store) -> None:
        line = Line(store, "elsewhere")
        head = line.commit()
        line.run = "unknown"
        with pytest.raises(HeadMoved) as caught:
            line.commit(chunk_of("lost"))
        assert (caught.value.run, caught.value.expected, caught.value.actual) == ("unknown", head.envelope.id, None)
        assert [run.id for run in store.runs()] == ["elsewhere"]
        assert self.raw_chunk_ids(store) == set()

    @pytest.mark.parametrize("seq", [1, 3, 0, -1])
    def test_a_number_that_is_not_the_next_one_is_refused(self, store: Store, seq: int) -> None:
        line = Line(store)
        head = line.commit()
        with pytest.raises(HeadMoved):
            store.commit(line.envelope((), seq=seq), Marks(), (), expected_head=head.envelope.id)
        assert self.raw_numbers(store, "run") == [1]

    def test_a_commit_on_a_head_that_was_deleted_meanwhile_is_refused(self, store: Store) -> None:
        """Proves D10: the number alone would still fit."""
        line = Line(store)
        first, second = line.commit(), line.commit()
        store.delete("run", [second.envelope.id])
        with pytest.raises(HeadMoved) as caught:
            line.commit(chunk_of("on nothing"))
        assert (caught.value.expected, caught.value.actual) == (second.envelope.id, first.envelope.id)
        assert self.raw_chunk_ids(store) == set()
        assert self.raw_numbers(store, "run") == [1]

    def test_a_commit_that_breaks_off_in_the_middle_leaves_nothing(self, store: Store) -> None:
        line = Line(store)
        line.commit(chunk_of("before"))
        before = store.run("run")
        with pytest.raises(_BrokenOffError):
            store.commit(
                line.envelope([chunk_of("half")]),
                Marks(),
                _Torn([chunk_of("half"), chunk_of("rest")]),
                expected_head=before.head,
            )
        assert self.raw_chunk_ids(store) == {chunk_of("before").id}
        assert self.raw_holds(store, "run") == {chunk_of("before").id}
        assert store.run("run") == before
        line.commit(chunk_of("after"))
        assert self.raw_numbers(store, "run") == [1, 2]

    def test_order_and_head_follow_the_number_though_the_clock_jumps_back(self, store: Store) -> None:
        line = Line(store)
        for days in (0, -30, 5, -400):
            line.at = NOON + timedelta(days=days)
            line.commit()
        assert [record.envelope.seq for record in store.checkpoints("run")] == [4, 3, 2, 1]
        assert line.head is not None
        assert store.run("run").head == line.head.envelope.id

    def test_a_list_comes_in_pages_that_neither_miss_nor_repeat(self, store: Store) -> None:
        line = Line(store)
        for _ in range(7):
            line.commit()
        pages = []
        before = None
        while page := store.checkpoints("run", limit=3, before_seq=before):
            pages.append([record.envelope.seq for record in page])
            before = pages[-1][-1]
        assert pages == [[7, 6, 5], [4, 3, 2], [1]]

    @pytest.mark.parametrize(
        ("limit", "before_seq", "expected"),
        [
            (None, None, [3, 2, 1]),
            (0, None, []),
            (2, None, [3, 2]),
            (None, 1, []),
            (None, 99, [3, 2, 1]),
            (9, 3, [2, 1]),
        ],
    )
    def test_limit_and_before_seq_bound_a_list(
        self, store: Store, limit: int | None, before_seq: int | None, expected: list[int]
    ) -> None:
        line = Line(store)
        for _ in range(3):
            line.commit()
        listing = store.checkpoints("run", limit=limit, before_seq=before_seq)
        assert [record.envelope.seq for record in listing] == expected
        assert listing.damaged == ()

    def test_runs_are_listed_the_last_begun_first_whatever_the_clock_says(self, store: Store) -> None:
        for number, run in enumerate(("a", "b", "c")):
            Line(store, run, at=NOON - timedelta(days=number)).commit()
        first = Line(store, "a")
        first.follow()
        first.commit()
        assert [run.id for run in store.runs()] == ["c", "b", "a"]
        assert [run.id for run in store.runs(limit=2)] == ["c", "b"]
        assert store.runs(limit=0) == []
        store.delete_run("a")
        Line(store, "a").commit()
        assert [run.id for run in store.runs()] == ["a", "c", "b"]

    def test_a_run_record_counts_and_dates_its_checkpoints(self, store: Store) -> None:
        line = Line(store)
        line.commit()
        line.at = NOON + timedelta(hours=1)
        line.commit()
        run = store.run("run")
        assert (run.last_seq, run.checkpoints, run.created_at, run.updated_at) == (2, 2, NOON, line.at)

    def test_runs_that_differ_in_case_or_by_a_wildcard_are_different_runs(self, store: Store) -> None:
        """Proves D10."""
        names = ["a_b", "axb", "A_B", "a.b", "a_b:1"]
        for name in names:
            Line(store, name).commit(chunk_of(name))
        store.delete_run("a_b")
        assert {run.id for run in store.runs()} == set(names) - {"a_b"}
        assert self.raw_chunk_ids(store) == {chunk_of(name).id for name in names[1:]}

    def test_asking_for_what_is_not_there_says_not_found(self, store: Store) -> None:
        """Proves D11."""
        line = Line(store)
        known = line.commit()
        unknown = line.envelope(()).id
        calls: list[Callable[[], object]] = [
            lambda: store.run("no"),
            lambda: store.checkpoints("no"),
            lambda: store.delete_run("no"),
            lambda: store.held("no"),
            lambda: store.release("no", [], expected_seq=0, created_at=NOON),
            lambda: store.checkpoint(unknown),
            lambda: store.mark(unknown, Marks()),
            lambda: store.mark_many("no", {known.envelope.id: (Marks(), Marks())}),
            lambda: store.delete("run", [unknown]),
            lambda: store.delete("no", [known.envelope.id]),
        ]
        for call in calls:
            with pytest.raises(NotFound):
                call()
        assert list(store.checkpoints("run")) == [known]

    def test_a_tombstone_that_never_was_is_none(self, store: Store) -> None:
        record = Line(store).commit()
        assert store.tombstone("run", record.envelope.id) is None
        assert store.tombstone("no", record.envelope.id) is None

    def test_marks_are_replaced_and_nothing_else_changes(self, store: Store) -> None:
        """Proves A2."""
        line = Line(store)
        first, second = line.commit(), line.commit()
        marks = Marks(status="archived", pinned=True, label="kept")
        store.mark(first.envelope.id, marks)
        assert store.checkpoint(first.envelope.id) == CheckpointRecord(first.envelope, first.checksum, marks)
        assert store.checkpoint(second.envelope.id) == second

    def test_marks_that_are_not_as_expected_by_now_stay(self, store: Store) -> None:
        """Proves D10."""
        line = Line(store)
        record = line.commit(marks=Marks(label="one"))
        name = record.envelope.id
        store.mark(name, Marks(label="two"), expected=Marks(label="one"))
        with pytest.raises(Conflict):
            store.mark(name, Marks(label="three"), expected=Marks(label="one"))
        assert store.checkpoint(name).marks == Marks(label="two")
        with pytest.raises(NotFound):
            store.mark(line.envelope(()).id, Marks(), expected=Marks())

    def test_many_marks_are_replaced_where_they_are_as_expected(self, store: Store) -> None:
        """Proves D10."""
        line, other = Line(store), Line(store, "other")
        records = [line.commit(marks=Marks(label=f"{n}")) for n in range(4)]
        foreign, unknown = other.commit(), line.envelope(())
        gone = records.pop()
        store.delete("run", [gone.envelope.id])
        store.mark(records[1].envelope.id, Marks(pinned=True, label="1"))
        changes = {r.envelope.id: (r.marks, Marks(status="archived", label=r.marks.label)) for r in records}
        strangers = [gone.envelope.id, foreign.envelope.id, unknown.id]
        left = store.mark_many("run", {**changes, **{name: (Marks(), Marks(pinned=True)) for name in strangers}})
        assert sorted(left) == sorted([records[1].envelope.id, *strangers])
        assert [r.marks for r in store.checkpoints("run")] == [
            Marks(status="archived", label="2"), Marks(pinned=True, label="1"), Marks(status="archived", label="0"),
        ]  # fmt: skip
        assert store.checkpoint(foreign.envelope.id) == foreign
        assert store.mark_many("run", {}) == []
        with pytest.raises(NotFound):
            store.mark_many("no", {gone.envelope.id: (Marks(), Marks())})

    def test_of_threads_that_race_for_marks_one_wins(self, store: Store) -> None:
        """Proves D10."""
        name = Line(store).commit().envelope.id
        outcomes: list[str] = []
        start = threading.Barrier(6)

        def race(text: str) -> None:
            start.wait()
            try:
                store.mark(name, Marks(label=text), expected=Marks())
            except Conflict:
                return
            outcomes.append(text)

        threads = [threading.Thread(target=race, args=(f"{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [store.checkpoint(name).marks.label] == outcomes

    def test_branches_are_the_checkpoints_that_were_not_taken_on_the_one_before(self, store: Store) -> None:
        """Proves X7: what a graph of any length is drawn from, also where nothing was recorded between two of them."""
        line = Line(store)
        made = [line.commit() for _ in range(4)]
        assert store.branches("run") == []

        def back_to(one: CheckpointRecord) -> CheckpointRecord:
            envelope = line.envelope((), parent=one.envelope.id, parent_checksum=one.checksum)
            head = made[-1].envelope.id
            draft = CheckpointDraft(envelope, Marks())
            done = store.write(Commit(run="run", expected_head=head, back_to=one.ranges, checkpoints=[draft]))
            (line.head,) = done.checkpoints
            line.seq += 1
            return line.head

        made.append(back_to(made[1]))
        made.append(line.commit())
        made.append(back_to(made[4]))
        made.append(back_to(made[6]))  # the head: nothing is left
        found = store.branches("run")
        assert [(one.envelope.seq, one.envelope.parent) for _, one in found] == [
            (5, made[1].envelope.id), (7, made[4].envelope.id),
        ]  # fmt: skip
        assert store.branches("run", after=found[0][0]) == found[1:]
        assert store.branches("other") == []
        store.delete("run", [made[4].envelope.id])
        assert [one.envelope.seq for _, one in store.branches("run")] == [6, 7]

    def test_checkpoints_are_found_by_the_beginning_of_their_id(self, store: Store) -> None:
        """Proves D11."""
        line = Line(store)
        names = []
        for hours in range(4):
            line.at = NOON + timedelta(hours=hours * 400)
            names.append(line.commit().envelope.id)
        names.append(Line(store, "other", at=line.at).commit().envelope.id)
        names.sort()
        for prefix in ("", "c", "cp_", *(name[:length] for name in names for length in (8, 15, 34, 35))):
            wanted = [name for name in names if name.startswith(prefix)]
            assert store.find(prefix, limit=99) == wanted
            assert store.find(prefix, limit=2) == wanted[:2]
        assert store.find("cp_", limit=0) == []

    def test_what_can_begin_no_id_finds_nothing(self, store: Store) -> None:
        """Proves D11."""
        Line(store).commit()
        for prefix in (
            *("%", "_", "cp%", "c__", "cp_%", "'", "cp_' OR 1=1 --", "\0", "cp_\0", "cp_0\0", "CP_", "cp_A", "cp-"),
            *(" ", "cp_ ", "cp_0\n", "\n", "*", "cp_*", "cp_[0-9]", "x", "cp_g", "\ud800", "cp_\uff10"),
            *("cp_" + "0" * 33, "cp_" * 9999),
        ):
            assert store.find(prefix, limit=99) == []

    def test_a_deleted_checkpoint_is_gone_and_leaves_its_checksum(self, store: Store) -> None:
        """Proves D5, E2."""
        line = Line(store)
        first, second, third = (line.commit() for _ in range(3))
        store.delete("run", [second.envelope.id])
        assert self.raw_numbers(store, "run") == [1, 3]
        assert self.raw_tombstones(store, "run") == {second.envelope.id}
        assert store.tombstone("run", second.envelope.id) == second.checksum
        assert store.checkpoint_at("run", 2) is None
        listing = store.checkpoints("run")
        assert (list(listing), listing.damaged) == ([third, first], ())
        assert (store.run("run").head, store.run("run").checkpoints) == (third.envelope.id, 2)
        with pytest.raises(NotFound):
            store.checkpoint(second.envelope.id)

    def test_deleting_spares_what_is_pinned_by_now_if_asked(self, store: Store) -> None:
        """Proves A9: the head may be among them, and nothing is half done."""
        line = Line(store)
        first, second, third = (line.commit() for _ in range(3))
        names = [record.envelope.id for record in (first, second, third)]
        store.mark(names[0], Marks(pinned=True))
        store.mark(names[2], Marks(pinned=True))
        assert sorted(store.delete("run", names, spare_pinned=True)) == sorted([names[0], names[2]])
        assert (self.raw_numbers(store, "run"), self.raw_tombstones(store, "run")) == ([1, 3], {names[1]})
        assert (store.run("run").head, store.run("run").checkpoints) == (names[2], 2)
        with pytest.raises(NotFound):
            store.delete("run", [names[0], names[1]], spare_pinned=True)
        assert list(store.delete("run", [names[0], names[2]])) == []
        assert store.run("run").head is None

    def test_when_the_head_goes_the_newest_one_left_is_the_head(self, store: Store) -> None:
        line = Line(store)
        records = [line.commit() for _ in range(4)]
        store.delete("run", [records[3].envelope.id, records[2].envelope.id])
        assert store.run("run").head == records[1].envelope.id
        assert store.run("run").last_seq == 4

    def test_a_run_without_checkpoints_goes_on_counting(self, store: Store) -> None:
        line = Line(store)
        records = [line.commit() for _ in range(2)]
        store.delete("run", [record.envelope.id for record in records])
        assert (store.run("run").head, store.run("run").checkpoints) == (None, 0)
        assert store.checkpoints("run") == []
        line.follow()
        line.commit()
        assert self.raw_numbers(store, "run") == [3]

    def test_deleting_is_all_or_nothing(self, store: Store) -> None:
        line, other = Line(store), Line(store, "other")
        mine, theirs = line.commit(), other.commit()
        with pytest.raises(NotFound):
            store.delete("run", [mine.envelope.id, theirs.envelope.id])
        assert (self.raw_numbers(store, "run"), self.raw_numbers(store, "other")) == ([1], [1])
        assert self.raw_tombstones(store, "run") == set()

    def test_chunks_of_a_deleted_checkpoint_stay_until_released(self, store: Store) -> None:
        line = Line(store)
        old = line.commit(chunk_of("old"))
        line.commit(chunk_of("new"))
        store.delete("run", [old.envelope.id])
        assert self.raw_chunk_ids(store) == {chunk_of("old").id, chunk_of("new").id}
        assert store.held("run") == self.raw_holds(store, "run") == {chunk_of("old").id, chunk_of("new").id}

    def test_a_released_chunk_goes_unless_another_run_holds_it(self, store: Store) -> None:
        mine, shared = chunk_of("mine"), chunk_of("shared")
        Line(store).commit(mine, shared)
        Line(store, "other").commit(shared)
        store.release("run", [mine.id, shared.id, chunk_of("unknown").id], expected_seq=1, created_at=NOON)
        assert self.raw_chunk_ids(store) == {shared.id}
        assert (self.raw_holds(store, "run"), self.raw_holds(store, "other")) == (set(), {shared.id})

    def test_a_release_worked_out_before_another_commit_is_refused(self, store: Store) -> None:
        line = Line(store)
        line.commit(chunk_of("one"))
        line.commit(chunk_of("two"))
        with pytest.raises(HeadMoved):
            store.release("run", [chunk_of("one").id], expected_seq=1, created_at=NOON)
        assert self.raw_holds(store, "run") == {chunk_of("one").id, chunk_of("two").id}

    def test_a_release_worked_out_for_another_run_of_the_name_is_refused(self, store: Store) -> None:
        """A run that was deleted and begun again during a sweep has the same number, and is another."""
        Line(store).commit(chunk_of("shared"), chunk_of("old"))
        store.delete_run("run")
        later = NOON + timedelta(microseconds=1)
        Line(store, at=later).commit(chunk_of("shared"))
        with pytest.raises(HeadMoved):
            store.release("run", [chunk_of("shared").id], expected_seq=1, created_at=NOON)
        assert self.raw_holds(store, "run") == self.raw_chunk_ids(store) == {chunk_of("shared").id}
        store.release("run", [chunk_of("shared").id], expected_seq=1, created_at=later)
        assert self.raw_chunk_ids(store) == set()

    def test_deleting_a_run_is_complete_and_spares_the_chunks_of_others(self, store: Store) -> None:
        """Proves E2."""
        line = Line(store)
        first = line.commit(chunk_of("mine"), chunk_of("shared"))
        line.commit(chunk_of("more"))
        store.delete("run", [first.envelope.id])
        Line(store, "other").commit(chunk_of("shared"), chunk_of("theirs"))
        store.delete_run("run")
        assert self.raw_chunk_ids(store) == {chunk_of("shared").id, chunk_of("theirs").id}
        assert (self.raw_numbers(store, "run"), self.raw_tombstones(store, "run")) == ([], set())
        assert self.raw_holds(store, "run") == set()
        with pytest.raises(NotFound):
            store.run("run")
        assert Line(store).commit().envelope.seq == 1

    def test_fetch_returns_what_is_there_and_leaves_out_the_rest(self, store: Store) -> None:
        one, two = chunk_of("one"), chunk_of("two")
        Line(store).commit(one, two)
        assert dict(store.fetch([])) == {}
        assert dict(store.fetch([chunk_of("no").id])) == {}
        assert dict(store.fetch([two.id, chunk_of("no").id, one.id, two.id])) == {one.id: one, two.id: two}
        assert set(store.chunk_ids()) == self.raw_chunk_ids(store)

    def test_a_chunk_that_two_commits_bring_is_stored_once(self, store: Store) -> None:
        """Proves X2."""
        line, shared = Line(store), chunk_of("shared")
        line.commit(shared)
        line.commit(shared)
        Line(store, "other").commit(shared)
        assert self.raw_chunk_ids(store) == {shared.id}
        assert store.stats().chunks == 1

    def test_a_damaged_chunk_is_repaired_by_the_next_commit_that_brings_it(self, store: Store) -> None:
        """Proves X3."""
        line, chunk = Line(store), chunk_of("precious")
        line.commit(chunk)
        self.damage_chunk(store, chunk.id)
        assert self.raw_chunk(store, chunk.id) != chunk
        assert store.fetch([chunk.id])[chunk.id] != chunk
        line.commit(chunk)
        assert self.raw_chunk(store, chunk.id) == chunk

    def test_a_lost_chunk_is_left_out_of_what_is_fetched(self, store: Store) -> None:
        """Proves X3."""
        gone, kept = chunk_of("gone"), chunk_of("kept")
        Line(store).commit(gone, kept)
        self.lose_chunk(store, gone.id)
        assert dict(store.fetch([gone.id, kept.id])) == {kept.id: kept}

    def test_a_damaged_record_is_named_and_the_others_stay_readable(self, store: Store) -> None:
        """Proves D11, X3."""
        _needs_durable(store)
        line = Line(store)
        first, second, third = (line.commit() for _ in range(3))
        self.damage_checkpoint(store, second.envelope.id)
        with pytest.raises(CheckpointCorrupt) as caught:
            store.checkpoint(second.envelope.id)
        assert caught.value.checkpoint == second.envelope.id
        with pytest.raises(CheckpointCorrupt):
            store.checkpoint_at("run", 2)
        listing = store.checkpoints("run")
        assert list(listing) == [third, first]
        assert [type(error) for error in listing.damaged] == [CheckpointCorrupt]

    def test_a_vanished_record_is_damage_never_just_a_shorter_list(self, store: Store) -> None:
        """Proves X3."""
        _needs_durable(store)
        line = Line(store)
        first, second, third = (line.commit() for _ in range(3))
        self.lose_checkpoint(store, second.envelope.id)
        listing = store.checkpoints("run")
        assert list(listing) == [third, first]
        assert len(listing.damaged) == 1
        with pytest.raises(IntegrityError):
            store.checkpoint_at("run", 2)

    def test_a_sound_store_finds_nothing_wrong_with_itself(self, store: Store) -> None:
        line = Line(store)
        doomed = line.commit(chunk_of("one"))
        line.commit(chunk_of("two"))
        store.delete("run", [doomed.envelope.id])
        store.release("run", [chunk_of("one").id], expected_seq=2, created_at=NOON)
        store.reclaim()
        assert list(Inspection(store).check()) == []

    def test_statistics_count_what_is_there(self, store: Store) -> None:
        empty = store.stats()
        assert (empty.runs, empty.checkpoints, empty.chunks, empty.stored_bytes) == (0, 0, 0, 0)
        assert (empty.oldest_at, empty.newest_at) == (None, None)
        line = Line(store)
        line.commit(chunk_of("12345"))
        line.at = NOON + timedelta(days=2)
        line.commit(chunk_of("1234567"))
        Line(store, "other", at=NOON + timedelta(days=1)).commit()
        Line(store, f"{RESERVED}inbox", at=NOON + timedelta(days=1)).commit()
        stats = store.stats()
        assert (stats.runs, stats.checkpoints, stats.chunks) == (2, 4, 2)
        assert (stats.chunk_bytes, stats.stored_bytes) == (12, 12)
        assert (stats.oldest_at, stats.newest_at) == (NOON, line.at)
        assert stats.url == store.url
        assert stats.engine

    def test_closing_twice_is_fine_and_a_closed_store_refuses_everything(self, store: Store) -> None:
        line = Line(store)
        record = line.commit(chunk_of("one"))
        store.close()
        store.close()
        name = record.envelope.id
        calls: list[Callable[[], object]] = [
            line.commit,
            lambda: store.run("run"),
            store.runs,
            lambda: store.checkpoint(name),
            lambda: store.checkpoint_at("run", 1),
            lambda: store.checkpoints("run"),
            lambda: store.fetch([chunk_of("one").id]),
            lambda: list(store.chunk_ids()),
            lambda: store.find("cp_", limit=1),
            lambda: store.mark(name, Marks()),
            lambda: store.mark(name, Marks(), expected=Marks()),
            lambda: store.mark_many("run", {name: (Marks(), Marks())}),
            lambda: store.delete("run", [name]),
            lambda: store.delete_run("run"),
            lambda: store.held("run"),
            lambda: store.release("run", [], expected_seq=1, created_at=NOON),
            lambda: store.tombstone("run", name),
            store.stats,
        ]
        for call in calls:
            with pytest.raises(UsageError, match="closed"):
                call()

    def test_what_was_committed_is_there_after_opening_again(self, store: Store, tmp_path: Path) -> None:
        """Proves A10."""
        _needs_durable(store)
        line = Line(store)
        first, second = line.commit(chunk_of("one")), line.commit(marks=Marks(label="end"))
        store.close()
        again = self.open_store(tmp_path)
        try:
            assert list(again.checkpoints("run")) == [second, first]
            assert dict(again.fetch([chunk_of("one").id])) == {chunk_of("one").id: chunk_of("one")}
        finally:
            again.close()

    def test_of_threads_that_race_for_a_head_one_wins_each_number(self, store: Store) -> None:
        """Proves D10."""
        lines = [Line(store) for _ in range(6)]
        outcomes: list[str] = []
        start = threading.Barrier(len(lines))

        def race(line: Line, text: str) -> None:
            start.wait()
            outcomes.append(_attempt(line, chunk_of(text)))

        for turn in range(3):
            threads = [threading.Thread(target=race, args=(line, f"{turn} {n}")) for n, line in enumerate(lines)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for line in lines:
                line.follow()
        assert sorted(outcomes) == ["moved"] * 15 + ["won"] * 3
        assert self.raw_numbers(store, "run") == [1, 2, 3]
        assert len(self.raw_chunk_ids(store)) == 3

    def test_processes_that_write_at_once_lose_nothing(self, store: Store, tmp_path: Path) -> None:
        """Proves D10."""
        if not store.traits.many_processes:
            pytest.skip("this store serves one process")
        store.close()
        context = multiprocessing.get_context("fork")
        writers = [context.Process(target=self._write_in_child, args=(tmp_path, n)) for n in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [writer.exitcode for writer in writers] == [0] * 4
        again = self.open_store(tmp_path)
        try:
            for n in range(4):
                assert self.raw_numbers(again, f"own-{n}") == list(range(1, 7))
            assert self.raw_numbers(again, "run") == list(range(1, 25))
            everything = {chunk_of(f"{n} {turn}").id for n in range(4) for turn in range(6)}
            assert self.raw_holds(again, "run") == everything
            assert list(Inspection(again).check()) == []
        finally:
            again.close()

    def _write_in_child(self, folder: Path, number: int) -> None:
        store = self.open_store(folder)
        own, shared = Line(store, f"own-{number}"), Line(store)
        for turn in range(6):
            own.commit(chunk_of(f"{number} {turn}"))
            while _attempt(shared, chunk_of(f"{number} {turn}")) == "moved":
                shared.follow()
        store.close()


def _attempt(line: Line, chunk: Chunk) -> str:
    try:
        line.commit(chunk)
    except HeadMoved:
        return "moved"
    return "won"


def _needs_durable(store: Store) -> None:
    if not store.traits.durable:
        pytest.skip("this store has no medium that could be damaged or opened again")


class _BrokenOffError(Exception):
    """What a torn sequence of chunks ends with."""


class _Torn(list[Chunk]):
    """Chunks that break off after the first."""

    def __iter__(self) -> Iterator[Chunk]:
        yield self[0]
        raise _BrokenOffError
