"""What only the SQLite store has: a file with permissions, a schema, bookkeeping of holds, forks."""

import os
import shutil
import stat
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import holdfast
from crash.children import scratch
from holdfast.errors import FormatTooNew, NotFound, StoreCorrupt, StoreUnavailable
from holdfast.store.commit import Commit, Draft
from holdfast.store.heads import Heads
from holdfast.store.inspection import Inspection
from holdfast.store.repair import Repair
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.contract import NOON, Line, chunk_of


def behind(path, *statements):
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a" / "b" / "x.db"


@pytest.fixture
def store(path):
    store = SQLiteStore(path, durability="process")
    yield store
    store.close()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_file_log_and_folders_are_for_their_owner_only_whatever_the_umask(path, mask):
    before = os.umask(mask)
    try:
        store = SQLiteStore(path)
        Line(store).commit(chunk_of("x"))
        modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert modes == {"x.db": 0o600, "x.db-wal": 0o600, "x.db-shm": 0o600, "x.db-heads": 0o600}
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM chunk; END",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TABLE more (x)",
        "CREATE INDEX i ON chunk (size)",
        "DROP TABLE tombstone",
        "ALTER TABLE run ADD COLUMN more TEXT",
    ],
)
def test_a_file_whose_schema_was_altered_is_refused(store, path, statement):
    """Proves D11."""
    store.close()
    behind(path, statement)
    for read_only in (False, True):
        with pytest.raises(StoreCorrupt, match="altered or damaged"):
            SQLiteStore(path, read_only=read_only)


def test_a_file_of_a_newer_format_is_refused_as_newer(store, path):
    """Proves D11."""
    store.close()
    behind(path, "PRAGMA user_version = 99")
    with pytest.raises(FormatTooNew) as caught:
        SQLiteStore(path)
    assert caught.value.found == 99


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path):
    """Proves D11."""
    path = tmp_path / "theirs.db"
    behind(path, "CREATE TABLE notes (x)", "INSERT INTO notes VALUES (1)")
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="not a Holdfast store"):
        SQLiteStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_of_anything_else_is_refused_and_left_alone(tmp_path, content):
    """Proves D11."""
    path = tmp_path / "other.db"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt):
        SQLiteStore(path)
    assert path.read_bytes() == content


def test_a_store_is_never_opened_through_a_link_or_a_folder(store, path, tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(path)
    folder = tmp_path / "folder.db"
    folder.mkdir()
    for place in (link, folder):
        with pytest.raises(StoreUnavailable):
            SQLiteStore(place)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable, match="choose another place"):
        SQLiteStore(tmp_path / "file" / "x.db")


@pytest.mark.parametrize("damage", ["DELETE FROM hold WHERE run = {two}", "UPDATE chunk SET holders = 1"])
@pytest.mark.parametrize("sweep", ["delete_run", "release"])
def test_a_sweep_by_damaged_bookkeeping_takes_nothing_that_another_run_holds(store, path, damage, sweep):
    """Proves X3: a chunk that a live checkpoint uses is never taken."""
    shared = chunk_of("shared")
    Line(store, "one").commit(shared)
    Line(store, "two").commit(shared)
    behind(path, damage.format(two="(SELECT n FROM run WHERE id = 'two')"))
    assert list(Inspection(store).check())
    if sweep == "delete_run":
        store.delete_run("one")
    else:
        store.release("one", [shared.id], expected_seq=1, created_at=NOON)
    assert dict(store.fetch([shared.id])) == {shared.id: shared}


def test_deleted_bytes_are_gone_from_the_file_and_the_file_shrinks(store, path):
    """Proves E2: deleting a run erases it."""
    secret = "the-secret-of-run-one"
    Line(store, "one").commit(*(chunk_of(f"{secret} {n} " * 200) for n in range(200)))
    Line(store, "two").commit(chunk_of("kept"))
    store.reclaim()
    before = path.stat().st_size
    store.delete_run("one")
    store.close()
    assert path.stat().st_size < before / 4
    assert [found.name for found in path.parent.iterdir() if secret.encode() in found.read_bytes()] == []


def test_a_child_of_a_fork_gets_a_connection_of_its_own(store):
    line = Line(store)
    line.commit(chunk_of("parent"))
    child = os.fork()
    if child == 0:
        try:
            line.commit(chunk_of("child"))
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    line.follow()
    assert line.seq == 2
    line.commit(chunk_of("parent again"))
    assert list(Inspection(store).check()) == []


def test_statistics_say_which_sqlite_is_in_use(store):
    assert store.stats().engine == f"SQLite {apsw.sqlite_lib_version()}"
    assert store.stats().file_bytes > 0


def as_nobody(work):
    """Do work in a process that the permissions of files bind: root is bound by none."""
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_who_may_only_read_sees_what_a_writer_that_is_there_commits_later(store):
    Line(store).commit(chunk_of("loads all that nobody may not be able to read"))
    folder = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)

    def work():
        path = folder / "x.db"
        line = Line(SQLiteStore(path, durability="process"))
        line.commit(chunk_of("1"))
        line.store.close()
        line.store = SQLiteStore(path, durability="process")
        line.store.run("run")
        if Path(f"{path}-wal").stat().st_size:
            return False
        folder.chmod(0o500)
        reader = SQLiteStore(path, read_only=True)
        line.commit(chunk_of("2"))
        return reader.run("run").last_seq == 2

    try:
        assert as_nobody(work)
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_a_store_without_a_writer_is_read_where_nothing_may_be_written(store):
    Line(store).commit(chunk_of("loads all that nobody may not be able to read"))
    folder = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)

    def work():
        line = Line(SQLiteStore(folder / "x.db", durability="process"))
        line.commit(chunk_of("1"))
        line.store.close()
        (folder / "x.db-shm").touch()  # left behind
        folder.chmod(0o500)
        return SQLiteStore(folder / "x.db", read_only=True).run("run").last_seq == 1

    try:
        assert as_nobody(work)
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_what_others_write_meanwhile_is_no_damage():
    """Nor is it a lost tail: a reader's moment may be older than what the heads beside the file tell."""
    with scratch() as folder:
        check_beside_writers(folder / "x.db")


def check_beside_writers(path):
    store = SQLiteStore(path)
    lines = [Line(SQLiteStore(path), name) for name in ("a", "b")]
    for line in lines:
        line.commit(chunk_of("first"))
    times = 0

    def write_between(_cursor, _statement, _bindings):
        nonlocal times
        times += 1
        if times > 150:
            return True  # whoever lists as long as there is more would never end
        for line in [*lines, Line(lines[0].store, f"new {times}")]:
            line.commit(chunk_of(f"{line.run} {times}"))
        return True

    store.run("a")
    store.medium._reads.connection.exec_trace = write_between
    assert Repair(store).damaged_runs() == []
    assert list(Inspection(store).check()) == []
    assert not store.runs().damaged
    assert not store.checkpoints("a").damaged
    store.medium._reads.connection.exec_trace = None
    assert times > 10
    for one in (store, lines[0].store, lines[1].store):
        one.close()


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_git_neither_commits_nor_deletes_nor_stashes_a_store_in_its_folder(tmp_path):
    """Proves F8."""
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "code")
    with holdfast.open(tmp_path / ".holdfast") as hf:
        run = hf.run("r")
        run.checkpoint(state=1)
        (tmp_path / "code.py").write_text("2\n")
        (tmp_path / "rubbish").write_text("x")
        git(tmp_path, "stash", "-u")
        run.checkpoint(state=2)
        git(tmp_path, "stash", "pop")
        git(tmp_path, "clean", "-fd")
        run.checkpoint(state=3)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", "all")
        assert git(tmp_path, "ls-files").split() == ["code.py"]
        assert hf.verify().sound
    assert not (tmp_path / "rubbish").exists()
    with holdfast.open(tmp_path / ".holdfast") as hf:
        assert hf.latest("r").section("state") == 3


def test_a_folder_of_another_name_gets_no_file_that_hides_it(tmp_path):
    holdfast.open(tmp_path / "store").close()
    assert {found.name for found in (tmp_path / "store").iterdir()} == {"holdfast.db"}


def test_a_gitignore_of_the_users_own_is_left_alone(tmp_path):
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / ".holdfast" / ".gitignore").write_text("mine\n")
    holdfast.open(tmp_path / ".holdfast").close()
    assert (tmp_path / ".holdfast" / ".gitignore").read_text() == "mine\n"


def append(store, run="run", **given):
    return store.write(Commit(run=run, records=[Draft("k", "path", 0.0, b"body")], **given))


@pytest.mark.parametrize(
    "command", ["mv {db} {db}.away", "cp {db} {db}.copy && mv {db}.copy {db}", "rm {db}; touch {db}"]
)
@pytest.mark.parametrize("write", [append, lambda store: store.leases.take("run", owner="me", ttl_s=1)])
def test_a_file_that_was_deleted_or_replaced_is_noticed_by_the_next_commit(path, command, write):
    """Proves D11: what is written into a file that has no name any more would be lost."""
    store = SQLiteStore(path)
    append(store)
    subprocess.run(command.format(db=path), shell=True, check=True)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="deleted or replaced while it was open"):
            write(store)
    store.close()


@pytest.mark.parametrize(
    "command",
    [
        "rm {db}",
        "rm -rf {folder}",
        "rm {db} {db}-wal {db}-shm {db}-heads",
        "rm {db}-wal {db}-shm",
        "cp {db}-wal {db}-old && mv {db}-old {db}-wal",
    ],
)
@pytest.mark.parametrize("write", [append, lambda store: store.leases.take("third", owner="me", ttl_s=1)])
def test_a_store_deleted_while_it_is_open_is_put_back_whole(path, command, write, caplog):
    """Proves F8."""
    store = SQLiteStore(path)
    append(store, "other")
    append(store)
    subprocess.run(command.format(db=path, folder=path.parent), shell=True, check=True)
    write(store)
    assert "deleted or rolled back while it was open" in caplog.text
    append(store)
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(SQLiteStore(path)) as again:  # beside the first
        assert again.line("run").number == store.line("run").number == (3 if write is append else 2)
        assert again.line("other").number == 1
        append(again, "other")
        assert list(Inspection(again).check()) == []
    assert store.line("other").number == 2
    store.close()
    assert sorted(one.name for one in path.parent.iterdir()) == ["x.db", "x.db-heads"]


def test_a_store_is_put_back_through_no_link(path, tmp_path):
    """A link of the name that the copy has for a moment led the whole store into the file behind it."""
    outside = tmp_path / "outside.db"
    with closing(SQLiteStore(outside)) as theirs:
        append(theirs, "theirs")
    before = outside.read_bytes()
    store = SQLiteStore(path)
    append(store)
    path.with_suffix(f".{os.getpid()}").symlink_to(outside)
    path.unlink()
    append(store)
    store.close()
    assert outside.read_bytes() == before
    with closing(SQLiteStore(path)) as again:
        assert again.line("run").number == 2


def test_of_two_processes_whose_store_was_deleted_one_puts_it_back(path):
    """Proves F8."""
    first, second = SQLiteStore(path), SQLiteStore(path)
    append(first, "one")
    append(second, "two")
    path.unlink()
    append(first, "one")
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        append(second, "two")
    second.close()
    append(first, "one")
    with closing(SQLiteStore(path)) as again:
        assert (again.line("one").number, again.line("two").number) == (3, 1)
    first.close()


def test_closing_a_store_that_was_replaced_leaves_the_new_ones_log_alone(path):
    """Proves D11: the last to close would remove the log by its name, which is the new store's."""
    old = SQLiteStore(path)
    append(old)
    for end in ("", "-wal", "-shm", "-heads"):
        path.with_name(path.name + end).unlink()
    new = SQLiteStore(path)
    append(new, "new")
    old.close()
    append(new, "new")
    with closing(SQLiteStore(path)) as again:
        assert again.line("new").number == 2
    new.close()


def test_a_file_that_is_brought_back_is_written_again(path):
    store = SQLiteStore(path)
    append(store)
    path.rename(path.with_name("away"))
    with pytest.raises(StoreUnavailable):
        append(store)
    path.with_name("away").rename(path)
    assert append(store).line.number == 2
    assert list(Inspection(store).check()) == []
    store.close()


def test_the_folder_moved_away_is_noticed_by_the_next_commit(path):
    store = SQLiteStore(path)
    append(store)
    path.parent.rename(path.parent.with_name("away"))
    with pytest.raises(StoreUnavailable):
        append(store)
    store.close()


def test_heads_lag_where_they_cannot_be_written_and_the_commit_stands(path):
    store = SQLiteStore(path)
    path.with_name("x.db-heads").mkdir()
    assert append(store).line.number == 1
    assert store.line("run").number == 1
    assert list(Inspection(store).check()) == []
    store.close()


def test_a_store_that_another_begins_between_two_looks_at_it_is_not_lost(path, monkeypatch):
    """One process saw no file, and saw what was witnessed after another had made the file and committed to it."""
    entries = Heads.all

    def all_after_another_began(heads):
        monkeypatch.undo()
        with closing(SQLiteStore(path)) as other:
            append(other)
        return entries(heads)

    monkeypatch.setattr(Heads, "all", all_after_another_began)
    with closing(SQLiteStore(path)) as store:
        assert store.line("run").number == 1


def test_heads_of_two_runs_that_share_a_place_witness_the_last_one(path):
    store = SQLiteStore(path)
    places = {}
    for number in range(200):
        name = f"run-{number}"
        place = store.medium.heads._place(name, "main")[0]
        if place in places:
            break
        places[place] = name
    for one in (places[place], name, places[place]):
        append(store, one)
        assert store.medium.heads.of(one, "main").number == store.line(one).number
    assert list(Inspection(store).check()) == []
    assert not store.runs().damaged
    store.close()


def test_a_deleted_run_is_not_missed(path):
    store = SQLiteStore(path)
    for _ in range(2):
        for _ in range(3):
            append(store)
        store.delete_run("run")
        with pytest.raises(NotFound):
            store.run("run")
        assert not store.runs().damaged
        assert list(Inspection(store).check()) == []
    assert append(store).line.number == 1
    store.close()
