"""Migrations of the SQLite file: a migrated store equals a new one, whatever interrupts it."""

import signal
from contextlib import closing

import apsw
import pytest

from crash.children import Child, scratch
from holdfast.errors import FormatTooNew, StoreCorrupt, StoreUnavailable
from holdfast.store import sqlite_file
from holdfast.store.commit import Commit, Draft
from holdfast.store.inspection import Inspection
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.contract import Line, chunk_of
from holdfast.testing.faults import Fault, FaultyDisk

STEPS = sqlite_file._steps()


@pytest.fixture
def first_version(monkeypatch):
    """Return a function that makes a store as the program of the first version made it."""

    def make(path):
        with monkeypatch.context() as patch:
            patch.setattr(sqlite_file, "_steps", lambda: STEPS[:1])
            sqlite_file._expected.cache_clear()
            with closing(SQLiteStore(path)) as store:
                fill(store)
        sqlite_file._expected.cache_clear()
        assert version_of(path) == 1

    return make


def fill(store):
    line = Line(store)
    line.commit(chunk_of("one"))
    line.commit(chunk_of("two"))
    store.write(Commit(run="run", records=[Draft("k", "path", 0.0, b"body")]))


def shape_of(path):
    with closing(apsw.Connection(str(path))) as connection:
        return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall())


def version_of(path):
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute("PRAGMA user_version").fetchall()[0][0]


def content_of(store):
    line = store.line("run")
    chunks = {name: chunk.data for name, chunk in store.fetch(list(store.chunk_ids())).items()}
    return [record.envelope.seq for record in store.checkpoints("run")], store.journal.records(line)[0].body, chunks


def test_a_migrated_file_equals_a_new_one(tmp_path, first_version):
    first_version(tmp_path / "old.db")
    with closing(SQLiteStore(tmp_path / "new.db")) as new:
        fill(new)
        expected = content_of(new)
        assert new.migrate() == []
    with closing(SQLiteStore(tmp_path / "old.db")) as old:
        assert old.migrate() == [2]
        assert content_of(old) == expected
        assert list(Inspection(old).check()) == []
        Line(old, "another").commit(chunk_of("after"))
    with closing(SQLiteStore(tmp_path / "old.db")) as again:
        assert again.migrate() == []
    assert shape_of(tmp_path / "old.db") == shape_of(tmp_path / "new.db")
    assert version_of(tmp_path / "old.db") == version_of(tmp_path / "new.db") == len(STEPS) == 2


def test_a_migration_that_is_killed_leaves_one_version_whole(tmp_path, first_version):
    """Proves D11."""
    first_version(tmp_path / "old.db")
    image = (tmp_path / "old.db").read_bytes()
    shapes = {1: shape_of(tmp_path / "old.db")}
    SQLiteStore(tmp_path / "old.db").close()
    shapes[2] = shape_of(tmp_path / "old.db")
    ended_at = set()
    for at in range(1000):
        with scratch() as folder:
            path = folder / "holdfast.db"
            path.write_bytes(image)
            path.chmod(0o600)

            def work(report, folder=folder, path=path, at=at):
                disk = FaultyDisk(folder)
                disk.arm(Fault(at=at, kind="kill"))
                with disk:
                    report(SQLiteStore(path, vfs=disk.vfs).migrate())

            ended = Child(work).join()
            if ended.signal != signal.SIGKILL:
                assert ended.reports == [[2]]
                break
            found = version_of(path)
            assert shape_of(path) == shapes[found]
            ended_at.add(found)
            with closing(SQLiteStore(path)) as store:
                assert content_of(store)[0] == [2, 1]
                assert list(Inspection(store).check()) == []
            assert shape_of(path) == shapes[2]
    assert at > 5
    assert ended_at == {1, 2}


def test_processes_that_migrate_at_once_do_it_once(tmp_path, first_version):
    first_version(tmp_path / "old.db")

    def work(report):
        with closing(SQLiteStore(tmp_path / "old.db")) as store:
            report(store.migrate())

    ended = [child.join() for child in [Child(work) for _ in range(4)]]
    assert [end.code for end in ended] == [0] * 4
    assert sorted(end.reports[0] for end in ended) == [[], [], [], [2]]
    assert version_of(tmp_path / "old.db") == 2


def test_a_reader_says_that_an_older_file_has_to_be_opened_for_writing_once(tmp_path, first_version):
    first_version(tmp_path / "old.db")
    with pytest.raises(StoreUnavailable, match="without read_only"):
        SQLiteStore(tmp_path / "old.db", read_only=True)
    assert version_of(tmp_path / "old.db") == 1


@pytest.mark.parametrize("statement", ["CREATE TABLE more (x)", "DROP INDEX run_key", "DROP TABLE wake"])
def test_an_older_file_that_was_altered_is_refused_and_not_migrated(tmp_path, first_version, statement):
    """Proves D11."""
    path = tmp_path / "old.db"
    first_version(path)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement)
    before = shape_of(path)
    with pytest.raises(StoreCorrupt, match="altered or damaged"):
        SQLiteStore(path)
    assert (shape_of(path), version_of(path)) == (before, 1)


@pytest.mark.parametrize("version", [3, 99, 2**31 - 1])
def test_a_newer_file_is_refused_by_its_version_and_left_alone(tmp_path, version):
    """Proves D11."""
    path = tmp_path / "new.db"
    SQLiteStore(path).close()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    for read_only in (False, True):
        with pytest.raises(FormatTooNew) as caught:
            SQLiteStore(path, read_only=read_only)
        assert (caught.value.found, caught.value.known) == (version, 2)
    assert version_of(path) == version


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_was_never_given_is_refused(tmp_path, version):
    """Proves D11."""
    path = tmp_path / "odd.db"
    SQLiteStore(path).close()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreCorrupt):
        SQLiteStore(path)
