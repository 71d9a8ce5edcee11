import msgspec
import pytest

from holdfast import Holdfast, generate_key
from holdfast.encode.chunks import Chunk
from holdfast.encode.tree import LEAF, Ref, encode_node, node_id
from holdfast.errors import IntegrityError
from holdfast.model.checkpoint import Marks
from holdfast.store.commit import Commit, Draft
from holdfast.store.keys import seal_store
from holdfast.store.memory import MemoryMedium, MemoryStore
from holdfast.store.repair import Repair
from holdfast.store.store import Store
from holdfast.store.tables import (
    ACCOUNT,
    CHECKPOINT,
    GAP,
    INBOX,
    LEASE,
    LINE,
    META,
    RECORD,
    RUN,
    TABLES,
    TOMBSTONE,
    GapRow,
    TombstoneRow,
)
from holdfast.testing.contract import Line, chunk_of
from holdfast.verify.check import faults_in, verify
from holdfast.verify.rebuild import rebuild
from store_kit import drop_row, fill, put_row, rows

MODES = ["plain", "sign", "encrypt"]


def made(mode):
    medium = MemoryMedium()
    return Store(medium) if mode == "plain" else seal_store(medium, generate_key(), sign=mode == "sign")


@pytest.fixture(params=MODES)
def store(request):
    return made(request.param)


@pytest.fixture
def plain():
    return MemoryStore()


def kinds(store):
    return [fault.kind for fault in verify(store).faults]


def chunks(store):
    return store.medium._tables.chunks


def alter(store, table, key, **changes):
    """Replace a row's value by another one that is sealed as this store seals: what a key holder could do."""
    value = store.codec.open(table, rows(store.medium, table)[key])
    put_row(store.medium, table, store.codec.close(table, msgspec.structs.replace(value, **changes)))


def damage(store, table, key):
    row = rows(store.medium, table)[key]
    put_row(store.medium, table, (*row[:-2], row[-2][:-1] + bytes([row[-2][-1] ^ 1]), row[-1]))


def test_a_sound_store_has_no_faults_and_everything_is_counted(plain):
    """Proves A10."""
    hf = Holdfast(plain)
    for run in ("a", "b"):
        for step in range(3):
            hf.run(run).checkpoint(state={"run": run, "log": [f"{n}" * 40 for n in range(step * 2000)]})
    report = hf.verify()
    assert report.sound
    assert (report.runs, report.checkpoints, report.chunks) == (2, 6, plain.stats().chunks)


def test_a_store_with_rows_in_every_table_is_sound(store):
    fill(store)
    store.journal.compact("run", [3, 4, 9])
    store.write(Commit(run="run", line="side", records=[Draft("step", "x", 1.0)]))
    assert all(rows(store.medium, table) for table in TABLES if table is not META)
    assert verify(store).faults == ()


def test_progress_is_told_as_it_goes(store):
    told = []
    line = Line(store)
    for n in range(3):
        line.commit(chunk_of(f"{n}"))
    verify(store, progress=lambda what, count: told.append((what, count)))
    assert [count for what, count in told if what == "checkpoints"] == [1, 2, 3]
    assert max(count for what, count in told if what == "chunks") == 3


def test_a_deleted_parent_is_no_fault(store):
    line = Line(store)
    first = line.commit()
    line.commit()
    store.delete("run", [first.envelope.id])
    assert kinds(store) == []


def test_a_parent_that_is_not_the_one_it_was_is_a_broken_link(store):
    """Proves X3."""
    line = Line(store)
    first = line.commit()
    line.commit()
    forged = msgspec.structs.replace(first.envelope, reason="history rewritten")
    alter(store, CHECKPOINT, ("run", "main", 1), envelope=msgspec.msgpack.encode(forged))
    assert kinds(store) == ["link"]


def test_a_parent_that_is_missing_is_a_broken_link(store):
    """Proves X3."""
    line = Line(store)
    line.commit()
    line.commit()
    drop_row(store.medium, CHECKPOINT, ("run", "main", 1))
    assert set(kinds(store)) == {"checkpoint", "link"}


def test_a_head_that_is_not_there_is_a_fault(store):
    """Proves X3."""
    line = Line(store)
    line.commit()
    line.commit()
    store.mark(line.head.envelope.id, Marks())
    alter(store, LINE, ("run", "main"), head="cp_" + "0" * 32)
    assert kinds(store) == ["head"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_line_that_counts_wrong_is_a_fault(store, count):
    line = Line(store)
    line.commit()
    line.commit()
    alter(store, LINE, ("run", "main"), checkpoints=count)
    assert kinds(store) == ["run"]


@pytest.mark.parametrize("how", ["lost", "changed"])
def test_a_bad_chunk_is_a_fault_of_every_section_that_needs_it(store, how):
    """Proves X3."""
    line, shared = Line(store), chunk_of("shared")
    first, second = line.commit(shared), line.commit(shared, chunk_of("own"))
    name = store.codec.stored_names(shared.id)[0]
    if how == "lost":
        del chunks(store)[name]
    else:
        chunks(store)[name] = chunks(store)[name]._replace(data=b"shaped")
    faults = verify(store).faults
    assert {(fault.kind, fault.checkpoint, fault.section) for fault in faults} >= {
        ("chunk", first.envelope.id, "s0"),
        ("chunk", second.envelope.id, "s0"),
    }
    assert [fault.section for fault in faults_in(store, second)] == ["s0"]
    assert faults_in(store, first)


def test_a_bad_chunk_deep_in_a_tree_is_a_fault_of_its_section(plain):
    """Proves X3."""
    hf = Holdfast(plain)
    cp = hf.run("r").checkpoint(state={"log": [f"{n} " * 50 for n in range(3000)]})
    leaf = max(chunks(plain).values(), key=lambda chunk: chunk.size)
    assert leaf.id != cp.record.envelope.sections[0].root
    chunks(plain)[leaf.id] = leaf._replace(data=leaf.data[:-1] + bytes([leaf.data[-1] ^ 1]))
    (fault,) = hf.verify().faults
    assert (fault.checkpoint, fault.section) == (cp.id, "state")
    assert leaf.id.hex()[:16] in fault.detail


def test_a_bad_chunk_that_nothing_needs_is_a_fault_as_well(store):
    """Proves X3."""
    line, stray = Line(store), chunk_of("stray")
    doomed = line.commit(stray)
    line.commit()
    store.delete("run", [doomed.envelope.id])
    assert kinds(store) == []
    name = store.codec.stored_names(stray.id)[0]
    chunks(store)[name] = chunks(store)[name]._replace(data=b"strap")
    (fault,) = verify(store).faults
    assert (fault.kind, fault.chunk) == ("chunk", stray.id.hex())


@pytest.mark.parametrize("what", ["commit", "delete the head", "delete the run", "compact"])
def test_what_others_do_between_two_looks_is_no_damage(what):  # noqa: C901 - one store that does each of them
    class Busy(MemoryStore):
        """A store in which somebody else is quick once, just before the checkpoints or the journal are read."""

        writer: Line | None = None

        def checkpoints(self, run, **options):
            if what != "compact":
                self.interfere(run)
            return super().checkpoints(run, **options)

        def interfere(self, run):
            line, self.writer = self.writer, None
            if line and what == "commit":
                line.commit(chunk_of("more"))
                self.write(Commit(run=run, records=[Draft("step", "x", 1.0)]))
            elif line and what == "delete the head":
                self.delete(run, [line.head.envelope.id])
            elif line and what == "compact":
                self.journal.compact(run, [1, 2, 5])
            elif line:
                self.delete_run(run)

    store = Busy()
    walk = store.journal.walk

    def walk_later(line):
        if what == "compact":
            store.interfere(line.run)
        return walk(line)

    store.journal.walk = walk_later
    line = Line(store)
    for n in range(3):
        line.commit(chunk_of(f"{n}"))
    store.write(Commit(run="run", records=[Draft("step", "x", 1.0)] * 5))
    store.writer = line
    assert verify(store).faults == ()
    assert store.writer is None


# The journal


def test_damage_in_a_journal_is_named_with_run_and_number_and_hides_nothing(store):
    """Every bad record of a run is found, and the runs beside it are checked."""
    for run in ("run", "other"):
        fill(store, run)
    n = store.line("run").n
    for number in (2, 3, 30):
        damage(store, RECORD, (n, number))
    drop_row(store.medium, RECORD, (n, 10))
    for number in (20, 21):
        drop_row(store.medium, RECORD, (n, number))
    damage(store, RECORD, (store.line("other").n, 7))
    found = [(fault.kind, fault.run, fault.number) for fault in verify(store).faults]
    assert sorted(found) == [("journal", "other", 7), *(("journal", "run", at) for at in (2, 3, 10, 20, 30))]
    with pytest.raises(IntegrityError, match=r"'run'.*#2"):
        store.journal.records(store.line("run"))
    assert [record.number for record in store.journal.records(store.line("run"), low=4, high=9)] == [4, 5, 6, 7, 8, 9]


def test_records_that_changed_places_or_follow_another_are_found(store):
    fill(store)
    line = store.line("run")
    one, two = (rows(store.medium, RECORD)[(line.n, number)] for number in (5, 6))
    put_row(store.medium, RECORD, (*one[:2], *two[2:]))
    put_row(store.medium, RECORD, (*two[:2], *one[2:]))
    assert [(fault.kind, fault.number) for fault in verify(store).faults] == [("journal", 5), ("journal", 6)]
    put_row(store.medium, RECORD, one)
    put_row(store.medium, RECORD, two)
    alter(store, RECORD, (line.n, 5), body=b"rewritten by a key holder")
    assert [(fault.kind, fault.number) for fault in verify(store).faults] == [("journal", 6)]


def test_a_journal_that_is_cut_or_ends_otherwise_is_found(store):
    fill(store)
    line = store.line("run")
    drop_row(store.medium, RECORD, (line.n, line.number))
    assert [(fault.kind, fault.number) for fault in verify(store).faults] == [("journal", line.number)]
    alter(store, LINE, ("run", "main"), number=line.number - 1)
    assert [fault.kind for fault in verify(store).faults] == ["journal"]
    alter(store, LINE, ("run", "main"), number=line.number - 2)
    assert [fault.kind for fault in verify(store).faults] == ["run"]


@pytest.mark.parametrize("first", [2, 5, 6, 40])
def test_gaps_that_were_forged_are_found(store, first):
    fill(store)
    store.journal.compact("run", [5, 6, 7])
    assert verify(store).sound
    n = store.line("run").n
    gap = GapRow(line=n, first=first, last=first + 1, prev=b"?" * 16, seal=b"!" * 16)
    put_row(store.medium, GAP, store.codec.close(GAP, gap))
    assert set(kinds(store)) == {"journal"}


def test_a_journal_of_many_pages_with_gaps_between_is_walked_once(store):
    store.write(Commit(run="run", records=[Draft("step", f"{n}", 1.0) for n in range(2600)]))
    store.journal.compact("run", [*range(1, 4), *range(499, 503), *range(1000, 2000, 2), 2600])
    assert verify(store).sound
    steps = list(store.journal.walk(store.line("run")))
    assert [step.first for step in steps[1:]] == [step.last + 1 for step in steps[:-1]]
    assert (steps[0].first, steps[-1].last) == (1, 2600)
    damage(store, RECORD, (store.line("run").n, 2500))
    assert [(fault.kind, fault.number) for fault in verify(store).faults] == [("journal", 2500)]


def test_records_of_a_line_that_is_not_there_are_found(store):
    fill(store)
    drop_row(store.medium, LINE, ("run", "main"))
    assert {"journal", "run"} <= set(kinds(store))


def test_a_claimed_length_of_four_billion_records_costs_nothing(plain):
    fill(plain)
    alter(plain, LINE, ("run", "main"), number=(1 << 32) - 1)
    assert [(fault.kind, fault.number) for fault in verify(plain).faults] == [("journal", 37)]


def tree_of(*leaves):
    data, size = encode_node([Ref(LEAF, chunk.size, chunk.id) for chunk in leaves])
    return Chunk(node_id(data), 0, len(data), data), size


def test_chunks_of_records_are_checked_and_held(store):
    leaf, other = chunk_of("large result"), chunk_of("more")
    node, _ = tree_of(leaf, other)
    single = chunk_of("single")
    store.write(
        Commit(
            run="run",
            records=[Draft("step", "x", 1.0, chunks=(node.id,)), Draft("step", "y", 1.0, chunks=(single.id,))],
            chunks=[leaf, other, node, single],
        )
    )
    assert verify(store).sound
    for chunk, number in ((single, 2), (other, 1), (node, 1)):
        name = store.codec.stored_names(chunk.id)[0]
        was = chunks(store).pop(name)
        assert [(fault.kind, fault.run, fault.number) for fault in verify(store).faults] == [("chunk", "run", number)]
        chunks(store)[name] = was
    assert verify(store).sound


# Rows of every other table


@pytest.mark.parametrize("table", [LEASE, TOMBSTONE, INBOX, ACCOUNT], ids=lambda table: table.name)
def test_a_damaged_row_is_named_with_its_run_and_hides_nothing(store, table):
    for run in ("run", "other"):
        fill(store, run)
    for key in rows(store.medium, table):
        damage(store, table, key)
    found = {(fault.kind, fault.run) for fault in verify(store).faults}
    assert {(table.name, "run"), (table.name, "other")} <= found


@pytest.mark.parametrize("table", [RUN, LINE, CHECKPOINT], ids=lambda table: table.name)
def test_a_damaged_row_of_a_run_does_not_hide_its_checkpoints(store, table):
    fill(store)
    damage(store, table, next(iter(rows(store.medium, table))))
    lost = chunk_of("run 1")
    del chunks(store)[store.codec.stored_names(lost.id)[0]]
    faults = verify(store).faults
    assert {"chunk"} < {fault.kind for fault in faults}
    assert {fault.run for fault in faults} <= {"run", None}


def test_a_tombstone_beside_its_checkpoint_or_after_the_last_is_a_fault(store):
    line = fill(store)
    head = store.run("run").head
    for seq, name in ((2, "cp_" + "0" * 32), (99, head)):
        left = TombstoneRow(run="run", line="main", seq=seq, id=name, checksum=b"")
        put_row(store.medium, TOMBSTONE, store.codec.close(TOMBSTONE, left))
        assert kinds(store) == ["tombstone"]
        drop_row(store.medium, TOMBSTONE, ("run", "main", seq))
    assert line.head is not None


def test_a_chunk_that_is_needed_and_not_held_is_found_and_held_again(store):
    line = Line(store)
    line.commit(chunk_of("one"), chunk_of("two"))
    n = rows(store.medium, RUN)[("run",)][1]
    store.medium._tables.end_hold(n, store.codec.stored_names(chunk_of("one").id)[0])
    (fault,) = verify(store).faults
    assert (fault.kind, fault.run, fault.chunk) == ("hold", "run", chunk_of("one").id.hex())
    rebuild(store, "run")
    assert verify(store).sound


def test_a_fact_that_was_altered_is_found(store):
    store.put_meta("fact", b"so", expected=None)
    damage(store, META, ("fact",))
    assert kinds(store) == ["store"]


# Repair


@pytest.mark.parametrize("table", [RUN, LINE, LEASE], ids=lambda table: table.name)
@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_what_a_store_keeps_about_a_run_is_rebuilt_from_what_it_wrote(store, table, how):
    line = fill(store)
    before, head = store.line("run"), store.run("run")
    key = next(iter(rows(store.medium, table)))
    if how == "damaged":
        damage(store, table, key)
    else:
        drop_row(store.medium, table, key)
    assert Repair(store).damaged_runs() == ["run"]
    rebuild(store, "run")
    assert Repair(store).damaged_runs() == []
    assert (store.run("run").head, store.run("run").last_seq) == (head.head, head.last_seq)
    if not (table is LINE and how == "lost"):  # its records cannot be told from another line's any more
        assert verify(store).sound
        assert [one.number for one in store.journal.records(store.line("run"))] == list(range(1, before.number + 1))
    line.follow()
    line.commit()
    store.write(Commit(run="run", records=[Draft("step", "x", 1.0)]))


def test_a_journal_with_damage_and_a_damaged_line_goes_on_after_its_last_record(store):
    """What follows a damaged record is neither lost nor in the way."""
    fill(store)
    line = store.line("run")
    damage(store, RECORD, (line.n, 5))
    damage(store, LINE, ("run", "main"))
    rebuild(store, "run")
    assert store.line("run").number == line.number
    assert [(fault.kind, fault.number) for fault in verify(store).faults] == [("journal", 5)]
    store.write(Commit(run="run", records=[Draft("step", "x", 1.0)], after=line.number))
    assert [(fault.kind, fault.number) for fault in verify(store).faults] == [("journal", 5)]


def test_every_line_of_a_run_is_rebuilt(store):
    fill(store)
    store.write(Commit(run="run", line="side", records=[Draft("step", "x", 1.0)] * 3))
    for key in rows(store.medium, LINE):
        damage(store, LINE, key)
    rebuild(store, "run")
    assert [line.number for line in store.lines("run")] == [36, 3]
    assert verify(store).sound


def test_a_damaged_number_of_another_run_is_not_taken_over(store):
    """The number in a damaged row may be forged: another run's chunks must not become this one's."""
    for run in ("run", "other"):
        fill(store, run)
    mine, other = (rows(store.medium, RUN)[(run,)] for run in ("run", "other"))
    with store.medium.write() as transaction:
        transaction.drop(RUN, ("other",))
        transaction.put(RUN, (*mine[:1], other[1], *mine[2:]))
        transaction.put(RUN, (*other[:1], mine[1], *other[2:]))
    for run in Repair(store).damaged_runs():
        rebuild(store, run)
    assert Repair(store).damaged_runs() == []
    assert verify(store).sound
