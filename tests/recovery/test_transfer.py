"""Runs between stores: ids, links, marks, deleted numbers and files kept, nothing overwritten."""

from __future__ import annotations

import random
from contextlib import closing

import msgspec
import pytest

import holdfast
from holdfast.errors import (
    ChunkCorrupt,
    IntegrityError,
    InvalidId,
    LeaseHeld,
    NotFound,
    RunDiffers,
    StoreCorrupt,
    StoreUnavailable,
    UsageError,
)
from holdfast.model.checkpoint import Marks
from holdfast.store.commit import CheckpointDraft, Commit, Draft
from holdfast.store.import_rows import import_rows
from holdfast.store.memory import MemoryStore
from holdfast.store.ranges import upto
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.tables import CHECKPOINT, GAP, INBOX, LINE, RECORD, GapRow
from holdfast.testing.contract import Line, chunk_of
from holdfast.transfer.bundle import export_runs, import_runs
from holdfast.transfer.copy import copy_runs
from holdfast.verify.check import verify
from store_kit import STORES, drop_row, open_store_in, put_row, rows
from store_kit import fill as fill_all


@pytest.fixture(params=STORES)
def target(request, tmp_path):
    with open_store_in(request.param, tmp_path / "target") as store:
        yield store


@pytest.fixture(params=[kind for kind in STORES if kind != "encrypted"])
def source(request, tmp_path):
    with open_store_in(request.param, tmp_path / "source") as store:
        yield store


def fill(store):
    """Make a run with long lists, a change of mind, marks, and two deleted checkpoints, the newest among them."""
    hf = holdfast.Holdfast(store)
    run = hf.run("long")
    words = random.Random(5)
    messages = [f"{n} {words.randbytes(900).hex()}" for n in range(60)]
    made = [run.checkpoint(state={"messages": messages[: n * 10], "blob": b"\0\xff", "n": n}) for n in range(1, 7)]
    hf.mark(made[0].id, label="first", pinned=True)
    hf.delete(made[1].id, made[5].id)
    hf.run("short").checkpoint(state={"only": ("one", 1.5, None)})
    return hf


def everything(store):
    hf = holdfast.Holdfast(store)
    return {
        run.id: (
            run.last_seq,
            run.head,
            run.created_at,
            [(cp.record, cp.section("state")) for cp in hf.checkpoints(run.id)],
            store.tombstones(run.id),
        )
        for run in hf.runs()
    }


def test_a_copy_between_any_two_stores_is_equal_and_verifies(source, target):
    """Proves A15, E5."""
    hf = fill(source)
    told = []
    copied = hf.transfer.copy_to(target, progress=lambda run, done, total: told.append((run, done, total)))
    assert everything(target) == everything(source)
    assert [run.id for run in target.runs()] == [run.id for run in source.runs()]
    assert holdfast.Holdfast(target).verify().sound
    assert [(each.run, each.checkpoints) for each in copied] == [("long", 4), ("short", 1)]
    assert told == [("long", n, 6) for n in range(1, 7)] + [("short", 1, 1)]


def test_an_interrupted_copy_is_resumed_and_sends_nothing_twice(source, target):
    fill(source)
    stop = RuntimeError("the line broke")

    def break_off(_run, done, _total):
        if done == 3:
            raise stop

    with pytest.raises(RuntimeError):
        copy_runs(source, target, ["long"], progress=break_off)
    first = set(target.chunk_ids())
    assert holdfast.Holdfast(target).verify().sound
    (copied,) = copy_runs(source, target, ["long"])
    assert (copied.present, copied.checkpoints) == (2, 2)
    assert first <= set(target.chunk_ids())
    assert everything(target)["long"] == everything(source)["long"]
    (again,) = copy_runs(source, target, ["long"])
    assert (again.present, again.checkpoints, again.chunks) == (4, 0, 0)


def test_a_copy_goes_on_with_what_came_since(tmp_path):
    with closing(MemoryStore()) as source, closing(SQLiteStore(tmp_path / "t.db")) as target:
        run = holdfast.Holdfast(source).run("run")
        run.checkpoint(state={"n": 1})
        copy_runs(source, target)
        run.checkpoint(state={"n": 2})
        assert copy_runs(source, target)[0].checkpoints == 1
        assert everything(target) == everything(source)


def test_marks_that_were_set_since_travel_with_the_next_copy(source, target):
    """Proves A2: what only the target was marked with stays."""
    line = Line(source)
    names = [line.commit().envelope.id for _ in range(4)]
    copy_runs(source, target)
    source.mark(names[0], Marks(pinned=True, label="good"))
    source.mark(names[1], Marks(status="archived"))
    target.mark(names[1], Marks(pinned=True))
    target.mark(names[2], Marks(label="mine"))
    (copied,) = copy_runs(source, target)
    assert (copied.checkpoints, copied.marked) == (0, 2)
    assert [target.checkpoint(name).marks for name in names] == [
        Marks(pinned=True, label="good"),
        Marks(status="archived", pinned=True),
        Marks(label="mine"),
        Marks(),
    ]
    assert copy_runs(source, target)[0].marked == 0


def test_a_fork_is_copied_and_verified_with_or_without_the_run_it_came_from(source, target):
    """Proves X5: what is missing is said, and is not damage."""
    trunk, branch = Line(source, "trunk"), Line(source, "branch")
    for text in ("one", "two"):
        trunk.commit(chunk_of(text))
    point = trunk.head
    trunk.commit(chunk_of("three"))
    first = branch.envelope([chunk_of("two")], parent=point.envelope.id, parent_checksum=point.checksum)
    branch.head = source.commit(first, Marks(), [chunk_of("two")], expected_head=None)
    branch.seq = 1
    branch.commit(chunk_of("other"))
    assert verify(source).sound
    (copied,) = copy_runs(source, target, ["branch"])
    assert (copied.checkpoints, copied.missing_parent) == (2, point.envelope.id)
    report = verify(target)
    assert report.sound
    assert [point.envelope.id in note for note in report.notes] == [True]
    copied = {each.run: each for each in copy_runs(source, target)}
    assert copied["branch"].missing_parent is None
    report = verify(target)
    assert (report.sound, report.notes) == (True, ())
    target.delete("trunk", [point.envelope.id])
    report = verify(target)
    assert (report.sound, report.notes) == (True, ())


def test_a_run_that_went_another_way_in_the_target_is_refused_and_stays(source, target):
    """Two stores with the same run id."""
    fill(source)
    Line(target, "long").commit(chunk_of("mine"))
    before = list(target.checkpoints("long"))
    with pytest.raises(RunDiffers, match="another run of this id"):
        copy_runs(source, target, ["long"])
    assert list(target.checkpoints("long")) == before


def test_a_target_that_is_ahead_is_refused(tmp_path):
    with closing(MemoryStore()) as source, closing(MemoryStore()) as target:
        holdfast.Holdfast(source).run("run").checkpoint(state=1)
        copy_runs(source, target)
        holdfast.Holdfast(target).run("run").checkpoint(state=2)
        with pytest.raises(RunDiffers):
            copy_runs(source, target)


def test_damage_in_the_source_stops_the_copy_and_is_named():
    """Proves X3."""
    with closing(MemoryStore()) as source, closing(MemoryStore()) as target:
        line = Line(source)
        line.commit(chunk_of("good"))
        line.commit(chunk_of("bad"))
        chunks = source.medium._tables.chunks
        chunks[chunk_of("bad").id] = chunks[chunk_of("bad").id]._replace(data=b"BAD")
        with pytest.raises(ChunkCorrupt, match="section 's0' of checkpoint"):
            copy_runs(source, target)
        assert target.run("run").last_seq == 1


def test_an_unknown_run_is_not_found_and_nothing_is_written(tmp_path):
    with closing(MemoryStore()) as source:
        with pytest.raises(NotFound):
            export_runs(source, ["no"], tmp_path / "x.holdfast")
        assert list(tmp_path.iterdir()) == []


def test_a_bundle_never_overwrites_a_file(tmp_path):
    with closing(MemoryStore()) as source:
        Line(source).commit()
        (tmp_path / "x.holdfast").write_text("mine")
        with pytest.raises(UsageError, match="there already"):
            export_runs(source, ["run"], tmp_path / "x.holdfast")
        assert (tmp_path / "x.holdfast").read_text() == "mine"


@pytest.mark.parametrize("place", ["dangling", "loop", "n" * 300, "a\0b", "file/below", "folder"])
def test_a_place_that_cannot_hold_a_bundle_is_a_typed_error(tmp_path, place):
    with holdfast.open(tmp_path / "s.db") as hf:
        hf.run("r").checkpoint(state=1)
        (tmp_path / "dangling").symlink_to("nowhere")
        (tmp_path / "loop").symlink_to("loop")
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        with pytest.raises((UsageError, StoreUnavailable)):
            hf.transfer.export(tmp_path / place, "r")
        with pytest.raises((NotFound, StoreUnavailable)):
            hf.transfer.import_from(tmp_path / place)
    assert not (tmp_path / "nowhere").exists()


def test_a_bundle_is_private_and_leaves_nothing_beside_it(tmp_path):
    with closing(MemoryStore()) as source:
        fill(source)
        export_runs(source, ["long"], tmp_path / "x.holdfast")
    assert [path.name for path in tmp_path.iterdir()] == ["x.holdfast"]
    assert (tmp_path / "x.holdfast").stat().st_mode & 0o777 == 0o600


def test_an_interrupted_export_is_resumed(tmp_path):
    with closing(MemoryStore()) as source, closing(MemoryStore()) as target:
        fill(source)

        def break_off(_run, done, _total):
            if done == 3:
                raise RuntimeError

        with pytest.raises(RuntimeError):
            export_runs(source, ["long"], tmp_path / "x.holdfast", progress=break_off)
        assert not (tmp_path / "x.holdfast").exists()
        assert export_runs(source, ["long"], tmp_path / "x.holdfast")[0].present == 2
        import_runs(tmp_path / "x.holdfast", target)
        assert everything(target)["long"] == everything(source)["long"]


@pytest.mark.parametrize("where", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_bundle_that_was_damaged_on_the_way_is_refused_or_harmless(tmp_path, where):
    """Proves D11, X3."""
    with closing(MemoryStore()) as source, closing(MemoryStore()) as target:
        fill(source)
        path = tmp_path / "x.holdfast"
        export_runs(source, ["long"], path)
        data = bytearray(path.read_bytes())
        at = int(len(data) * where)
        for index in range(at, at + 64):
            data[index] ^= 0xFF
        path.write_bytes(data)
        try:
            import_runs(path, target)
        except (IntegrityError, StoreCorrupt):
            pass
        else:
            assert everything(target)["long"] == everything(source)["long"]


def test_what_is_no_bundle_is_refused(tmp_path):
    (tmp_path / "x.holdfast").write_bytes(b"PK\3\4" + bytes(5000))
    with closing(MemoryStore()) as target, pytest.raises(StoreCorrupt):
        import_runs(tmp_path / "x.holdfast", target)
    with closing(MemoryStore()) as target, pytest.raises(NotFound):
        import_runs(tmp_path / "absent.holdfast", target)


def test_a_bundle_never_holds_a_run_that_was_not_asked_for(tmp_path):
    """A broken-off export of one run must not travel in the next export of another."""
    with holdfast.open(tmp_path / "store") as hf:
        for name in ("private", "public"):
            hf.run(name).checkpoint(state=name)

        def break_off(*_progress):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            hf.transfer.export(tmp_path / "run.holdfast", "private", progress=break_off)
        hf.transfer.export(tmp_path / "run.holdfast", "public")
    with holdfast.open(tmp_path / "other") as other:
        other.transfer.import_from(tmp_path / "run.holdfast")
        assert [run.id for run in other.runs()] == ["public"]


def test_the_engines_own_runs_never_come_from_another_store(source, target):
    """Another store's keys would lock the target, another store's inbox would answer for its people."""
    fill(source)
    holdfast.Holdfast(target).run("deploy").checkpoint(state=1)
    for name in ("_holdfast.inbox.deploy", "_holdfast.other"):
        Line(source, name).commit()
    copied = copy_runs(source, target)
    assert {one.run for one in copied} == {"long", "short"}
    assert {run.id for run in target.runs()} == {"deploy", "long", "short"}
    with pytest.raises(InvalidId):
        copy_runs(source, target, ["_holdfast.inbox.deploy"])


# Journals and what else belongs to a run


def said(line):
    """Return what a line says, without what is its store's own."""
    return msgspec.structs.replace(line, n=0, chain=b"", fence=0, run_version=0)


def journal(store, run="run"):
    return [
        (
            said(line),
            [msgspec.structs.replace(record, line=0, prev=b"") for record in store.journal.records(line)],
            [msgspec.structs.replace(gap, line=0, prev=b"", seal=b"") for gap in store.journal.gaps(line)],
        )
        for line in store.lines(run)
    ]


def all_of(store, run="run"):
    row = msgspec.structs.replace(store.row_of(run), n=0, version=0)
    history = [list(store.history(line)) for line in store.lines(run)]
    return row, journal(store, run), history, store.inbox(run), store.accounts(run)


def fill_journal(store, run="run"):
    """Make a run with all that format 2 knows: lines, gaps, segments that were left, keys, attributes, chunks."""
    line = fill_all(store, run)
    large = chunk_of("a large result")
    store.write(Commit(run=run, records=[Draft("end", "big", 5.0, chunks=(large.id,))], chunks=[large]))
    store.write(Commit(run=run, back_to=upto(store.line(run), 20), records=[Draft("went_back", "", 6.0)]))
    store.journal.compact(run, [2, 3, 4, 30])
    store.write(Commit(run=run, line="side", records=[Draft("step", f"side/{n}", 1.0) for n in range(600)]))
    line.follow()
    store.write(
        Commit(
            run=run, expected_head=line.head.envelope.id, consumed=1,
            checkpoints=[
                CheckpointDraft(
                    line.envelope([]), Marks(label="kept", pinned=True), "caller's", {"a": 1.5, "b": None},
                )
            ],
        )
    )  # fmt: skip
    return line


def test_a_copy_takes_everything_along_that_a_run_has(source, target):
    """Proves A15: records with their numbers, gaps, ranges, keys, attributes, inbox, accounts; rechained."""
    fill_journal(source)
    assert verify(source).sound
    (copied,) = copy_runs(source, target)
    assert all_of(target) == all_of(source)
    assert copied.records == sum(len(records) for _, records, _ in journal(source))
    assert verify(target).faults == ()
    assert copy_runs(source, target)[0] == msgspec.structs.replace(
        copied, checkpoints=0, chunks=0, chunk_bytes=0, records=0, present=copied.checkpoints
    )
    assert (
        target.journal.newest(target.line("run"), "path/1").number
        == source.journal.newest(source.line("run"), "path/1").number
    )
    target.write(Commit(run="run", records=[Draft("step", "continues", 9.0)], after=source.line("run").number))
    assert verify(target).sound


def test_a_copy_of_a_journal_that_stops_anywhere_leaves_a_sound_run_and_is_resumed(source, target, monkeypatch):
    fill_journal(source)
    for stop in range(1, 40):
        calls = iter(range(stop))

        def failing(store, given, calls=calls):
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return import_rows(store, given)

        monkeypatch.setattr("holdfast.transfer.copy.import_rows", failing)
        try:
            copy_runs(source, target)
        except KeyboardInterrupt:
            assert verify(target).faults == ()
            if stop % 3:
                target.delete_run("run") if target.runs() else None
        else:
            break
    assert stop > 3
    assert all_of(target) == all_of(source)
    assert verify(target).faults == ()


def test_what_came_since_travels_with_the_next_copy(source, target):
    line = fill_journal(source)
    copy_runs(source, target)
    source.write(Commit(run="run", records=[Draft("step", "later", 7.0)], run_changes={"status": "done"}, consumed=1))
    source.write(Commit(run="run", back_to=upto(source.line("run"), 5), records=[Draft("went_back", "", 8.0)]))
    source.post("run", "signal", b"later")
    line.follow()
    line.commit(chunk_of("later"))
    (copied,) = copy_runs(source, target)
    assert (copied.checkpoints, copied.records) == (1, 3)  # the store says itself that it went back
    assert all_of(target) == all_of(source)
    source.write(Commit(run="run", run_changes={"attributes": {"changed": True}}))
    source.post("run", "signal", b"later still")
    copy_runs(source, target)
    assert all_of(target) == all_of(source)
    assert verify(target).sound


def test_compaction_since_is_neither_undone_nor_in_the_way(source, target):
    fill_journal(source)
    copy_runs(source, target)
    before = journal(target)
    source.journal.compact("run", [10, 11, 12, 36])
    source.write(Commit(run="run", records=[Draft("step", "later", 7.0)] * 3))
    assert copy_runs(source, target)[0].records == 3
    assert [len(records) for _, records, _ in journal(target)] == [len(before[0][1]) + 3, 600]
    target.journal.compact("run", [14, 15])
    source.write(Commit(run="run", records=[Draft("step", "later", 7.0)]))
    assert copy_runs(source, target)[0].records == 1
    assert verify(target).sound


def test_a_copy_that_stood_where_the_source_was_compacted_since_goes_on(tmp_path):
    source, target = MemoryStore(), MemoryStore()
    source.write(Commit(run="run", records=[Draft("step", f"{n}", 1.0) for n in range(10)]))
    copy_runs(source, target)
    source.write(Commit(run="run", records=[Draft("step", f"{n}", 1.0) for n in range(10)]))
    source.journal.compact("run", range(6, 16))
    copy_runs(source, target)
    assert (target.line("run").number, target.journal.gaps(target.line("run"))[0].first) == (20, 11)
    assert verify(target).sound


@pytest.mark.parametrize("what", ["record", "inbox", "line", "account"])
def test_a_run_that_went_on_in_the_target_is_refused_and_stays(source, target, what):
    fill_journal(source)
    copy_runs(source, target)
    if what == "record":
        for store, path in ((source, "mine"), (target, "theirs")):
            store.write(Commit(run="run", records=[Draft("step", path, 7.0)]))
    elif what == "inbox":
        for store, body in ((source, b"mine"), (target, b"theirs")):
            store.post("run", "signal", body)
    elif what == "line":
        target.write(Commit(run="run", line="side", records=[Draft("step", "theirs", 7.0)]))
    else:
        target.post("run", "signal", b"only there")
    before = all_of(target)
    with pytest.raises(RunDiffers):
        copy_runs(source, target)
    assert all_of(target) == before


def test_a_run_that_somebody_writes_in_the_target_is_refused(source, target):
    fill_journal(source)
    lease = target.leases.take("run", owner="somebody", ttl_s=60)
    with pytest.raises(LeaseHeld):
        copy_runs(source, target)
    target.leases.end(lease)
    copy_runs(source, target)
    assert all_of(target) == all_of(source)
    with pytest.raises(holdfast.HoldfastError):
        target.write(Commit(run="run", fence=lease.token + 5, records=[Draft("step", "x", 1.0)]))
    lease = target.leases.take("run", owner="somebody", ttl_s=60)
    target.write(Commit(run="run", fence=lease.token, records=[Draft("step", "x", 1.0)]))


# Damage and hostile rows in the source


def forge(store, table, key, **changes):
    """Write what anybody can write into a store without a key: a row that is sound in itself."""
    value = store.codec.open(table, rows(store.medium, table)[key])
    forged = msgspec.structs.replace(value, **changes)
    drop_row(store.medium, table, key)
    put_row(store.medium, table, store.codec.close(table, forged))


def hostile_sources():
    """Yield a name and what it does to a source with a line `n` of 37 records and a gap at 2..4."""
    yield "a record lost", lambda s, n: drop_row(s.medium, RECORD, (n, 9))
    yield "a record moved", lambda s, n: forge(s, RECORD, (n, 9), number=10)
    yield "a record rewritten", lambda s, n: forge(s, RECORD, (n, 9), body=b"evil")
    yield "a record in a gap", lambda s, n: forge(s, RECORD, (n, 9), number=3)
    yield "a gap that ends before it begins", lambda s, n: forge(s, GAP, (n, 2), last=1)
    yield "a gap over records", lambda s, n: forge(s, GAP, (n, 2), last=9)
    yield "a gap beyond the end", lambda s, n: forge(s, GAP, (n, 2), last=1 << 31)
    yield (
        "a gap that was added",
        lambda s, n: put_row(s.medium, GAP, s.codec.close(GAP, GapRow(line=n, first=9, last=9, prev=b"", seal=b""))),
    )
    yield "a chain that ends elsewhere", lambda s, n: forge(s, LINE, ("run", "main"), chain=b"x" * 16)  # noqa: ARG005
    yield "a line of four billion records", lambda s, n: forge(s, LINE, ("run", "main"), number=(1 << 32) - 1)  # noqa: ARG005
    yield "ranges out of order", lambda s, n: forge(s, LINE, ("run", "main"), ranges=((9, 12), (1, 8)))  # noqa: ARG005
    yield "ranges that overlap", lambda s, n: forge(s, LINE, ("run", "main"), ranges=((1, 9), (9, 37)))  # noqa: ARG005
    yield "ranges beyond the end", lambda s, n: forge(s, LINE, ("run", "main"), ranges=((1, 1 << 31),))  # noqa: ARG005
    yield "a checkpoint lost", lambda s, n: drop_row(s.medium, CHECKPOINT, ("run", "main", 2))  # noqa: ARG005
    yield "a checkpoint renumbered", lambda s, n: forge(s, CHECKPOINT, ("run", "main", 2), seq=4)  # noqa: ARG005
    yield (
        "a checkpoint of another run",
        lambda s, n: forge(  # noqa: ARG005
            s, CHECKPOINT, ("run", "main", 2), envelope=rows(s.medium, CHECKPOINT)[("run", "main", 2)][-2]
        ),
    )
    yield "a checkpoint after the end", lambda s, n: forge(s, CHECKPOINT, ("run", "main", 2), number=1 << 31)  # noqa: ARG005
    yield (
        "a checkpoint whose journal is out of order",
        lambda s, n: forge(  # noqa: ARG005
            s, CHECKPOINT, ("run", "main", 2), ranges=((9, 10), (1, 2))
        ),
    )
    yield "a checkpoint id that is none", lambda s, n: forge(s, CHECKPOINT, ("run", "main", 2), id="../evil")  # noqa: ARG005
    yield "bytes after an envelope", lambda s, n: forge(  # noqa: ARG005
        s, CHECKPOINT, ("run", "main", 2),
        envelope=s.codec.open(CHECKPOINT, rows(s.medium, CHECKPOINT)[("run", "main", 2)]).envelope + b"\0",
    )  # fmt: skip
    yield "a deep envelope", lambda s, n: forge(s, CHECKPOINT, ("run", "main", 2), envelope=b"\x91" * 200_000)  # noqa: ARG005
    yield (
        "an inbox number out of reach",
        lambda s, n: put_row(  # noqa: ARG005
            s.medium, INBOX, ("run", (1 << 63) - 1, *rows(s.medium, INBOX)[("run", 1)][2:])
        ),
    )


@pytest.mark.parametrize("name", dict(hostile_sources()))
@pytest.mark.parametrize("kind", ["memory", "encrypted"])
def test_a_hostile_source_is_refused_with_a_type_and_leaves_a_sound_target(tmp_path, name, kind):
    source = MemoryStore()
    fill_all(source)
    source.journal.compact("run", [2, 3, 4])
    dict(hostile_sources())[name](source, rows(source.medium, LINE)[("run", "main")][2])
    with open_store_in(kind, tmp_path) as target:
        with pytest.raises((IntegrityError, RunDiffers, InvalidId)):
            copy_runs(source, target)
        assert verify(target).faults == ()
        for run in target.runs():
            assert run.last_seq <= 6


def test_a_bundle_with_bytes_after_its_end_is_refused(tmp_path):
    with closing(MemoryStore()) as source, closing(MemoryStore()) as target:
        fill_journal(source)
        export_runs(source, ["run"], tmp_path / "x.holdfast")
        import_runs(tmp_path / "x.holdfast", target)
        assert all_of(target) == all_of(source)
        with (tmp_path / "x.holdfast").open("ab") as file:
            file.write(b"more")
        with pytest.raises(StoreCorrupt, match="after its end"):
            import_runs(tmp_path / "x.holdfast", target)


def test_a_checkpoint_that_another_run_of_the_target_has_is_refused(tmp_path):
    """Ids are unique in a store: a hostile bundle cannot take another run's."""
    source, target = MemoryStore(), MemoryStore()
    mine = Line(target, "mine").commit()
    line = Line(source, "theirs")
    source.commit(line.envelope([], id=mine.envelope.id), Marks(), [], expected_head=None)
    with pytest.raises(RunDiffers):
        copy_runs(source, target)
    assert [run.id for run in target.runs()] == ["mine"]
    assert target.checkpoint(mine.envelope.id) == mine
