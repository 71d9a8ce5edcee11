"""What every store must do with journals, budgets, inboxes and leases, as tests; StoreContract includes them.

The accessors go round the store, so that a store cannot vouch for itself. Needs pytest.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.encode.chunks import Chunk
from holdfast.encode.tree import leaf_id
from holdfast.errors import (
    Conflict,
    HeadMoved,
    IntegrityError,
    LeaseHeld,
    LeaseLost,
    LimitExceeded,
    NotFound,
    UsageError,
)
from holdfast.model.checkpoint import Marks
from holdfast.store.commit import WENT_BACK, CheckpointDraft, Commit, Draft
from holdfast.store.ranges import upto
from holdfast.store.tables import AccountRow
from holdfast.testing.line import NOON, Line, chunk_of
from holdfast.verify.check import verify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.store.commit import Committed
    from holdfast.store.store import Store
    from holdfast.store.tables import LineRow


def draft(text: str, *, path: str = "path", key: str | None = None) -> Draft:
    """Return a record with this body."""
    return Draft("kind", path, NOON.timestamp(), text.encode(), key)


def append(store: Store, *texts: str, run: str = "run", **given: Any) -> Committed:
    """Append records with these bodies."""
    return store.write(Commit(run=run, records=[draft(text) for text in texts], **given))


def bodies(store: Store, run: str = "run") -> list[str]:
    """Return the bodies of all records of a line, by number."""
    line = store.line(run)
    return [] if line is None else [record.body.decode() for record in store.journal.records(line)]


def broken_chain(store: Store, line: LineRow) -> list[IntegrityError]:
    """Return what is wrong with the records of a line and the chain that joins them."""
    return [step.fault for step in store.journal.walk(line) if step.fault is not None]


def line_of(store: Store, run: str = "run") -> LineRow:
    """Return the head of a run's main line."""
    line = store.line(run)
    assert line is not None
    return line


class JournalContract:
    """The obligations of a store towards those who append to it."""

    def open_store(self, folder: Path) -> Store:
        """Open the store of this folder: the same one each time, if it is durable."""
        raise NotImplementedError

    def raw_records(self, store: Store, run: str) -> list[int]:
        """Return the numbers of the stored records of a run's main line, rising."""
        raise NotImplementedError

    def damage_record(self, store: Store, run: str, number: int) -> None:
        """Flip one bit of a record's value."""
        raise NotImplementedError

    def lose_record(self, store: Store, run: str, number: int) -> None:
        """Take a record away without a trace."""
        raise NotImplementedError

    def swap_records(self, store: Store, run: str, one: int, other: int) -> None:
        """Let two records change places, with their seals."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """Open the store under test."""
        store = self.open_store(tmp_path)
        yield store
        store.close()

    # Appending

    def test_records_are_numbered_from_one_and_read_in_order(self, store: Store) -> None:
        """Proves A10."""
        first = append(store, "a", "b")
        second = append(store, "c")
        assert [record.number for record in (*first.records, *second.records)] == [1, 2, 3]
        assert self.raw_records(store, "run") == [1, 2, 3]
        assert bodies(store) == ["a", "b", "c"]
        line = line_of(store)
        assert line == second.line
        assert (line.number, line.ranges) == (3, ((1, 3),))
        assert store.journal.records(line) == [*first.records, *second.records]
        assert [record.number for record in store.journal.records(line, low=2)] == [2, 3]
        assert [record.number for record in store.journal.records(line, high=2, reverse=True)] == [2, 1]
        assert [record.number for record in store.journal.records(line, limit=1)] == [1]

    def test_a_record_keeps_all_that_it_says(self, store: Store) -> None:
        given = Draft("step.ended", "main/ä[1]", 1.25, os.urandom(3000), "the key", (leaf_id(b"x"),))
        (record,) = store.write(Commit(run="run", records=[given])).records
        (found,) = store.journal.records(line_of(store))
        assert found == record
        assert Draft(found.kind, found.path, found.at, found.body, found.key, found.chunks) == given

    def test_every_record_names_the_seal_of_the_one_before_it(self, store: Store) -> None:
        """Proves A7."""
        append(store, "a", "b", "c")
        append(store, "d")
        line = line_of(store)
        records = store.journal.records(line)
        assert records[0].prev == b""
        assert len({record.prev for record in records} | {line.chain}) == 5
        assert broken_chain(store, line) == []

    def test_a_run_that_only_has_records_is_a_run(self, store: Store) -> None:
        append(store, "a", run="journal")
        run = store.run("journal")
        assert (run.head, run.last_seq, run.checkpoints) == (None, 0, 0)
        assert [one.id for one in store.runs()] == ["journal"]
        store.delete_run("journal")
        assert store.line("journal") is None
        assert self.raw_records(store, "journal") == []
        assert append(store, "b", run="journal").line.number == 1

    def test_lines_of_a_run_are_numbered_apart(self, store: Store) -> None:
        append(store, "a")
        store.write(Commit(run="run", line="side", records=[draft("x"), draft("y")]))
        append(store, "b")
        assert [(line.name, line.number) for line in store.lines("run")] == [("main", 2), ("side", 2)]
        side = store.line("run", line="side")
        assert side is not None
        assert [record.body for record in store.journal.records(side)] == [b"x", b"y"]
        assert bodies(store) == ["a", "b"]

    def test_a_stale_number_is_refused_and_nothing_is_written(self, store: Store) -> None:
        """Proves D10."""
        append(store, "a", after=0)
        append(store, "b", after=1)
        for after in (0, 1, 3, 99):
            with pytest.raises(HeadMoved):
                append(store, "late", after=after)
        assert bodies(store) == ["a", "b"]
        assert append(store, "c", after=2).line.number == 3

    def test_two_writers_with_one_number_are_one_too_many(self, store: Store, tmp_path: Path) -> None:
        """Proves D10: the second store object has what it last saw in its memory."""
        if not store.traits.many_processes:
            pytest.skip("this store serves one process")
        other = self.open_store(tmp_path)
        try:
            append(store, "a")
            append(other, "b", after=1)
            with pytest.raises(HeadMoved):
                append(store, "c", after=1)
            assert append(store, "c").records[0].number == 3
            assert bodies(other) == ["a", "b", "c"]
        finally:
            other.close()

    def test_going_back_leaves_records_readable_and_numbers_unused(self, store: Store) -> None:
        """Proves D3."""
        append(store, "1", "2", "3", "4")
        went = store.write(Commit(run="run", back_to=upto(line_of(store), 2), records=[draft("5"), draft("6")]))
        assert [record.number for record in went.records] == [6, 7]
        line = line_of(store)
        assert (line.ranges, line.number) == (((1, 2), (5, 7)), 7)
        records = store.journal.records(line)
        assert [record.body for record in records if record.kind != WENT_BACK] == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert [(one.number, msgspec.msgpack.decode(one.body)) for one in records if one.kind == WENT_BACK] == [
            (5, [[1, 2]])
        ]
        with pytest.raises(NotFound):
            upto(line, 3)
        store.write(Commit(run="run", back_to=upto(line, 6), records=[draft("7")]))
        assert line_of(store).ranges == ((1, 2), (5, 6), (8, 9))
        store.write(Commit(run="run", back_to=line_of(store).ranges, records=[draft("8")]))
        assert line_of(store).ranges == ((1, 2), (5, 6), (8, 10))  # nothing is left, so nothing begins
        assert broken_chain(store, line_of(store)) == []
        for never in (((1, 99),), ((3, 2),), ((2, 3), (1, 1))):
            with pytest.raises(NotFound):
                store.write(Commit(run="run", back_to=never))

    def test_the_newest_of_a_path_is_that_of_the_segments_one_stands_on(self, store: Store) -> None:
        for number in range(1, 7):
            store.write(Commit(run="run", records=[draft(str(number), path=f"path {number % 2}")]))
        line = line_of(store)
        assert [store.journal.newest(line, f"path {n}").number for n in (0, 1)] == [6, 5]  # type: ignore[union-attr]
        assert store.journal.newest(line, "path 1", upto=4).number == 3  # type: ignore[union-attr]
        assert store.journal.newest(line, "path 1", upto=0) is None
        assert store.journal.newest(line, "another") is None
        assert [record.number for record in store.journal.of_path(line, "path 0")] == [2, 4, 6]
        assert [record.number for record in store.journal.of_path(line, "path 0", reverse=True)] == [6, 4, 2]
        store.write(Commit(run="run", back_to=upto(line, 3), records=[draft("7", path="other")]))
        line = line_of(store)
        assert [store.journal.newest(line, f"path {n}").number for n in (0, 1)] == [2, 3]  # type: ignore[union-attr]

    def test_a_key_finds_its_newest_record_on_the_segments_one_stands_on(self, store: Store) -> None:
        for text, key in (("1", "a"), ("2", "b"), ("3", "a"), ("4", None)):
            store.write(Commit(run="run", records=[draft(text, key=key)]))
        line = line_of(store)
        assert store.journal.keyed(line, "a").body == b"3"  # type: ignore[union-attr]
        assert store.journal.keyed(line, "a", upto=2).body == b"1"  # type: ignore[union-attr]
        assert store.journal.keyed(line, "c") is None
        store.write(Commit(run="run", back_to=upto(line, 2), records=[draft("5")]))
        line = line_of(store)
        assert store.journal.keyed(line, "a").body == b"1"  # type: ignore[union-attr]
        assert store.journal.keyed(line, "b").body == b"2"  # type: ignore[union-attr]

    def test_a_path_with_a_thousand_records_is_read_in_order(self, store: Store) -> None:
        store.write(Commit(run="run", records=[draft(str(number), path=f"p{number % 2}") for number in range(1, 1001)]))
        line = line_of(store)
        assert [record.number for record in store.journal.of_path(line, "p0")] == list(range(2, 1001, 2))
        assert store.journal.newest(line, "p1").number == 999  # type: ignore[union-attr]

    def test_a_record_that_is_too_large_is_refused_and_the_next_is_stored(self, store: Store) -> None:
        """Proves D11."""
        append(store, "a")
        with pytest.raises(LimitExceeded):
            store.write(Commit(run="run", records=[draft("b"), Draft("kind", "path", 0.0, os.urandom(2_000_000))]))
        with pytest.raises(UsageError):
            store.write(Commit(run="run", records=[Draft("kind", "\ud800", 0.0)]))
        assert self.raw_records(store, "run") == [1]
        assert append(store, "c").line.number == 2
        assert verify(store).sound

    def test_a_clock_that_jumps_changes_no_order(self, store: Store) -> None:
        for days in (0, -4000, 300, -30):
            store.write(Commit(run="run", at=NOON + timedelta(days=days), records=[draft(str(days))]))
        assert bodies(store) == ["0", "-4000", "300", "-30"]
        assert store.run("run").created_at == NOON
        assert broken_chain(store, line_of(store)) == []

    # Compaction and damage

    def test_compacted_records_leave_gaps_and_the_chain_stays_checkable(self, store: Store) -> None:
        """Proves E2."""
        append(store, *"12345678")
        store.journal.compact("run", [2, 3, 6])
        line = line_of(store)
        assert self.raw_records(store, "run") == [1, 4, 5, 7, 8]
        assert bodies(store) == ["1", "4", "5", "7", "8"]
        assert [(gap.first, gap.last) for gap in store.journal.gaps(line)] == [(2, 3), (6, 6)]
        assert broken_chain(store, line) == []
        with pytest.raises(HeadMoved):
            store.journal.compact("run", [1, 2])
        assert append(store, "9").line.number == 9
        store.journal.compact("run", [4, 5])
        assert broken_chain(store, line_of(store)) == []
        assert verify(store).sound

    def test_a_flipped_bit_in_a_record_is_found_where_it_is(self, store: Store) -> None:
        """Proves X3."""
        append(store, *"12345")
        self.damage_record(store, "run", 3)
        self.check_broken(store, 3)

    def test_a_lost_record_is_found(self, store: Store) -> None:
        """Proves X3."""
        append(store, *"12345")
        self.lose_record(store, "run", 3)
        self.check_broken(store, 3)

    def test_a_journal_that_was_cut_is_found(self, store: Store) -> None:
        """Proves X3."""
        append(store, *"12345")
        for number in (5, 4):
            self.lose_record(store, "run", number)
        self.check_broken(store, 4)

    def test_records_that_changed_places_are_found(self, store: Store) -> None:
        """Proves X3, A7."""
        append(store, *"12345")
        self.swap_records(store, "run", 2, 4)
        self.check_broken(store, 2)

    def check_broken(self, store: Store, number: int) -> None:
        """Check that damage at a number is found by who reads and by who checks, and what came before is readable."""
        line = line_of(store)
        assert any(f"#{number}" in str(error) for error in broken_chain(store, line))
        assert any(f"#{number}" in fault.detail and fault.run == "run" for fault in verify(store).faults)
        with pytest.raises(IntegrityError):
            store.journal.records(line)
        assert [record.number for record in store.journal.records(line, high=number - 1)] == list(range(1, number))
        with pytest.raises((IntegrityError, HeadMoved)):
            store.journal.compact("run", [number])

    # One commit

    def test_records_checkpoint_budget_and_inbox_are_one_commit(self, store: Store) -> None:
        """Proves A10, E8."""
        store.post("run", "signal", b"go")
        writer = Line(store)
        budget = AccountRow(run="run", name="tokens", used="5")
        chunk = chunk_of("one")
        everything: dict[str, Any] = {
            "records": [draft("a"), draft("b")], "checkpoints": [CheckpointDraft(writer.envelope([chunk]))],
            "chunks": [chunk], "accounts": [(None, budget)], "consumed": 1,
            "run_changes": {"status": "running", "project": "p"},
        }  # fmt: skip
        with pytest.raises(HeadMoved):
            store.write(Commit(run="run", after=1, **everything))
        assert store.line("run") is None
        assert (store.accounts("run"), dict(store.fetch([chunk.id]))) == ({}, {})
        done = store.write(Commit(run="run", after=0, **everything))
        assert done.checkpoint is not None
        assert done.checkpoint.number == 2
        line = line_of(store)
        assert (line.number, line.last_seq, line.consumed) == (2, 1, 1)
        assert store.accounts("run") == {"tokens": budget}
        assert (store.row_of("run").status, store.row_of("run").project) == ("running", "p")
        assert store.checkpoint(done.checkpoint.envelope.id) == done.checkpoint

    def test_several_checkpoints_in_one_commit_are_each_there_at_their_place(self, store: Store) -> None:
        """Proves A10, C10, D2."""
        writer = Line(store)
        writer.commit(chunk_of("zero"))
        assert writer.head is not None
        chunks = [chunk_of("one"), chunk_of("two"), chunk_of("three")]
        one, two, three = writer.envelopes(*([chunk] for chunk in chunks))
        marks = Marks(label="middle", pinned=True)
        commit = Commit(
            run="run", records=[draft("a"), draft("b"), draft("c")], chunks=chunks, expected_head=one.parent,
            checkpoints=[
                CheckpointDraft(one, records=0), CheckpointDraft(two, marks, "k", {"a": 1}, records=2),
                CheckpointDraft(three),
            ],
        )  # fmt: skip
        with pytest.raises(HeadMoved):
            store.write(msgspec.structs.replace(commit, checkpoints=commit.checkpoints[1:]))
        with pytest.raises(HeadMoved):  # one that is not taken on the one before it
            store.write(msgspec.structs.replace(commit, checkpoints=[commit.checkpoints[0], commit.checkpoints[0]]))
        assert (line_of(store).last_seq, store.journal.records(line_of(store))) == (1, [])
        done = store.write(commit)
        assert [made.number for made in done.checkpoints] == [0, 2, 3]
        assert [made.ranges for made in done.checkpoints] == [(), ((1, 2),), ((1, 3),)]
        assert (done.line.head, done.line.last_seq, done.line.checkpoints) == (three.id, 4, 4)
        listed = store.checkpoints("run")
        assert [made.envelope.id for made in listed] == [three.id, two.id, one.id, writer.head.envelope.id]
        assert listed[1] == store.by_key("run", "k") == done.checkpoints[1]
        assert (listed[1].marks, listed[1].attributes) == (marks, {"a": 1})
        assert verify(store).sound
        store.write(Commit(run="run", back_to=done.checkpoints[1].ranges, records=[draft("d")]))
        assert line_of(store).ranges[0] == (1, 2)

    def test_a_budget_that_changed_meanwhile_refuses_the_whole_commit(self, store: Store) -> None:
        """Proves E8."""
        first, second, third = (AccountRow(run="run", name="tokens", used=used) for used in ("1", "2", "3"))
        append(store, "a", accounts=[(None, first)])
        append(store, "b", accounts=[(first, second)])
        for stale in (None, first, third):
            with pytest.raises(Conflict):
                append(store, "c", accounts=[(stale, third)])
        assert bodies(store) == ["a", "b"]
        assert store.accounts("run") == {"tokens": second}
        append(store, "c", accounts=[(second, third), (None, AccountRow(run="run", name="calls"))])
        assert set(store.accounts("run")) == {"tokens", "calls"}
        assert store.accounts("another") == {}

    def test_a_commit_that_breaks_off_leaves_nothing_of_the_line(self, store: Store) -> None:
        append(store, "a")
        before = line_of(store)

        class Torn(list[Chunk]):
            def __iter__(self) -> Iterator[Chunk]:
                yield self[0]
                raise ZeroDivisionError

        data = b"half"
        with pytest.raises(ZeroDivisionError):
            append(store, "b", chunks=Torn([Chunk(leaf_id(data), 0, len(data), data)] * 2))
        assert line_of(store) == before
        assert self.raw_records(store, "run") == [1]
        assert append(store, "b").line.number == 2

    # Inbox

    def test_an_inbox_keeps_the_order_and_a_key_is_left_once(self, store: Store) -> None:
        """Proves E6."""
        first = store.post("run", "signal", b"1", key="a")
        second = store.post("run", "approval", b"2")
        assert store.post("run", "signal", b"other", key="a") == first
        third = store.post("run", "signal", b"3", key="b")
        assert [entry.number for entry in (first, second, third)] == [1, 2, 3]
        assert store.inbox("run") == [first, second, third]
        assert store.inbox("run", after=2) == [third]
        assert store.inbox("run", after=3) == []
        assert store.inbox("another") == []

    def test_the_inbox_cursor_never_goes_back(self, store: Store) -> None:
        for _ in range(3):
            store.post("run", "signal", b"")
        append(store, "a", consumed=2)
        append(store, "b", consumed=1)
        assert line_of(store).consumed == 2
        append(store, "c", back_to=upto(line_of(store), 1))
        assert line_of(store).consumed == 2

    def test_threads_that_post_at_once_lose_and_double_nothing(self, store: Store) -> None:
        """Proves D10, E6."""

        def post(worker: int) -> None:
            for turn in range(5):
                store.post("run", "signal", f"{worker} {turn}".encode(), key=f"{worker} {turn}")
                store.post("run", "signal", b"shared", key=f"shared {turn}")

        threads = [threading.Thread(target=post, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        entries = store.inbox("run")
        assert [entry.number for entry in entries] == list(range(1, 26))
        assert len({entry.key for entry in entries}) == 25

    # Leases

    def test_an_append_under_a_lease_needs_its_token(self, store: Store) -> None:
        """Proves D10."""
        append(store, "a")
        lease = store.leases.take("run", owner="me", ttl_s=60)
        append(store, "b", fence=lease.token)
        with pytest.raises(LeaseHeld):
            append(store, "c")
        with pytest.raises(LeaseLost):
            append(store, "c", fence=lease.token + 7)
        store.leases.end(lease)
        append(store, "c")
        assert bodies(store) == ["a", "b", "c"]

    def test_a_lease_taken_over_between_two_appends_fences_the_old_owner_off(self, store: Store) -> None:
        """Proves D10."""
        old = store.leases.take("run", owner="slow", ttl_s=60)
        append(store, "a", fence=old.token)
        old = store.leases.renew(old, ttl_s=0.001)
        while store.leases.running("run") is not None:
            time.sleep(0.002)
        append(store, "b", fence=old.token)  # lapsed, and nobody took it
        new = store.leases.take("run", owner="quick", ttl_s=60)
        with pytest.raises(LeaseLost):
            append(store, "c", fence=old.token)
        append(store, "c", fence=new.token, after=2)
        with pytest.raises(LeaseLost):
            append(store, "d", fence=old.token, after=3)
        assert bodies(store) == ["a", "b", "c"]

    # Many processes

    def test_what_was_appended_is_there_after_opening_again(self, store: Store, tmp_path: Path) -> None:
        """Proves A10."""
        if not store.traits.durable:
            pytest.skip("this store is gone with its process")
        append(store, "a", "b", accounts=[(None, AccountRow(run="run", name="tokens"))])
        store.post("run", "signal", b"go")
        before = line_of(store), store.journal.records(line_of(store)), store.accounts("run"), store.inbox("run")
        store.close()
        again = self.open_store(tmp_path)
        try:
            assert (
                line_of(again),
                again.journal.records(before[0]),
                again.accounts("run"),
                again.inbox("run"),
            ) == before
            assert append(again, "c", after=2).line.number == 3
        finally:
            again.close()

    def test_processes_that_append_to_one_line_lose_and_double_nothing(self, store: Store, tmp_path: Path) -> None:
        """Proves D10: with compare-and-set and without."""
        if not store.traits.many_processes:
            pytest.skip("this store serves one process")
        store.close()
        context = multiprocessing.get_context("fork")
        writers = [context.Process(target=self._append_in_child, args=(tmp_path, n)) for n in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [writer.exitcode for writer in writers] == [0] * 3
        again = self.open_store(tmp_path)
        try:
            expected = sorted(f"{kind} {n} {turn}" for kind in ("any", "cas") for n in range(3) for turn in range(8))
            assert sorted(bodies(again)) == expected
            assert self.raw_records(again, "run") == list(range(1, 49))
            assert len(again.inbox("run")) == 32
            assert broken_chain(again, line_of(again)) == []
            assert verify(again).sound
        finally:
            again.close()

    def _append_in_child(self, folder: Path, number: int) -> None:
        store = self.open_store(folder)
        for turn in range(8):
            append(store, f"any {number} {turn}")
            while True:
                line = store.line("run")
                try:
                    append(store, f"cas {number} {turn}", after=line.number if line else 0)
                except HeadMoved:
                    continue
                break
            store.post("run", "signal", b"", key=f"{number} {turn}")
            store.post("run", "signal", b"", key=f"shared {turn}")
        store.close()
