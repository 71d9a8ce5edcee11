"""Runs between stores: ids, links, marks, deleted numbers and files kept, nothing overwritten."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

import holdfast
from holdfast.errors import ChunkCorrupt, IntegrityError, InvalidId, NotFound, RunDiffers, StoreCorrupt, UsageError
from holdfast.model.checkpoint import Marks
from holdfast.store.files import FilesStore
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.contract import Line, chunk_of
from holdfast.transfer.bundle import export_runs, import_runs
from holdfast.transfer.copy import copy_runs
from holdfast.verify.check import verify
from postgres_server import shared_server


@pytest.fixture
def database():
    url = shared_server().database()
    yield url
    shared_server().drop(url)


@pytest.fixture(params=["memory", "sqlite", "files", "postgres"])
def target(request, tmp_path, database):
    makers = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "target.db"),
        "files": lambda: FilesStore(tmp_path / "target"),
        "postgres": lambda: PostgresStore(database),
    }
    with closing(makers[request.param]()) as store:
        yield store


@pytest.fixture(params=["memory", "sqlite", "files", "postgres"])
def source(request, tmp_path, database):
    makers = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "source.db"),
        "files": lambda: FilesStore(tmp_path / "source"),
        "postgres": lambda: PostgresStore(database, tenant="source"),
    }
    with closing(makers[request.param]()) as store:
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
    copied = hf.copy_to(target, progress=lambda run, done, total: told.append((run, done, total)))
    assert everything(target) == everything(source)
    assert [run.id for run in target.runs()] == [run.id for run in source.runs()]
    assert holdfast.Holdfast(target).verify().sound
    assert [(each.run, each.checkpoints) for each in copied] == [("long", 4), ("short", 1)]
    assert told == [("long", n, 6) for n in range(1, 7)] + [("short", 1, 1)]


def test_a_copy_that_broke_off_is_carried_on_and_sends_nothing_twice(source, target):
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
    """Proves X5: what is missing is said, and is no damage."""
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
        chunk = source._chunks[chunk_of("bad").id]
        source._chunks[chunk.id] = chunk._replace(data=b"BAD")
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


def test_a_bundle_is_private_and_leaves_nothing_beside_it(tmp_path):
    with closing(MemoryStore()) as source:
        fill(source)
        export_runs(source, ["long"], tmp_path / "x.holdfast")
    assert [path.name for path in tmp_path.iterdir()] == ["x.holdfast"]
    assert (tmp_path / "x.holdfast").stat().st_mode & 0o777 == 0o600


def test_an_export_that_broke_off_is_carried_on(tmp_path):
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
            hf.export(tmp_path / "run.holdfast", "private", progress=break_off)
        hf.export(tmp_path / "run.holdfast", "public")
    with holdfast.open(tmp_path / "other") as other:
        other.import_from(tmp_path / "run.holdfast")
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
