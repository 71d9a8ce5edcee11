"""A store behind a key, on a real SQLite file that the tests read and damage behind its back."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from contextlib import closing

import apsw
import msgspec
import pytest

import holdfast
from holdfast import (
    CheckpointCorrupt,
    ChunkCorrupt,
    IntegrityError,
    KeyRefused,
    Settings,
    UsageError,
    generate_key,
)
from holdfast.encode.tree import leaf_id
from holdfast.errors import InvalidId
from holdfast.store.codec import RowCodec
from holdfast.store.commit import Commit, Draft
from holdfast.store.keys import KEYS, seal_store
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.tables import CHECKPOINT, META, MetaRow

KEY, NEW_KEY = generate_key(), generate_key()
CANARY = "canary-4711"


def opened(place, **options):
    return holdfast.open(place, settings=Settings(), **options)


def query(place, text, *values):
    with closing(apsw.Connection(str(place / "holdfast.db"))) as connection:
        return connection.execute(text, values).fetchall()


def filled(place, **options):
    hf = opened(place, key=KEY, **options)
    run = hf.run("r")
    for n in range(5):
        state = {"n": n, "log": [f"{CANARY} {i} {n if i > 900 else 0} " * 5 for i in range(1000)]}
        run.checkpoint(
            state=state, reason=f"{CANARY} reason", label=f"{CANARY} label", workflow={"current_state": CANARY}
        )
    return hf


def test_nothing_readable_is_left_in_the_file_and_all_of_it_comes_back(tmp_path):
    """Threat 13: a stolen disk."""
    with filled(tmp_path, compression="none") as hf:
        latest = hf.latest("r")
        assert (latest.section("state")["n"], latest.reason, latest.label) == (4, f"{CANARY} reason", f"{CANARY} label")
        assert latest.summary.state == CANARY
        names = set(hf.store.chunk_ids())
        data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert CANARY.encode() not in data
        assert not any(name in data for name in names), "a chunk's name confirms its content"
        assert hf.verify().sound
        assert "AES-256-GCM" in hf.stats().engine
        assert [run.id for run in hf.runs()] == ["r"]
    with opened(tmp_path, key=KEY) as hf:
        assert [cp.section("state")["n"] for cp in hf.checkpoints("r")] == [4, 3, 2, 1, 0]


def test_chunks_are_shared_and_swept_as_in_any_store(tmp_path):
    with filled(tmp_path) as hf:
        before = hf.stats().chunks
        again = hf.run("other")
        again.checkpoint(state=hf.latest("r").section("state"))
        assert hf.stats().chunks < 2 * before
        hf.prune("r", keep=1)
        assert hf.verify().sound
        hf.delete_run("r")
        assert hf.latest("other").section("state")["n"] == 4
        hf.delete_run("other")
        assert hf.stats().chunks == 0


@pytest.mark.parametrize("sign", [False, True])
def test_a_wrong_or_missing_key_is_a_clear_error(tmp_path, sign):
    filled(tmp_path, sign=sign).close()
    for key, told in ((None, "give its key with key_file="), (NEW_KEY, "does not open it; the keys [0-9a-f]{32} do")):
        with pytest.raises(KeyRefused, match=told):
            opened(tmp_path, key=key, sign=sign)
    with pytest.raises(UsageError, match="32 random bytes"):
        opened(tmp_path, key="not a key")


def test_a_store_without_a_key_is_not_taken_for_an_encrypted_one(tmp_path):
    with opened(tmp_path) as hf:
        hf.run("r").checkpoint(state=1)
        with pytest.raises(UsageError, match="has no key"):
            hf.keys.add(KEY)
    with pytest.raises(KeyRefused, match="stored without a key"):
        opened(tmp_path, key=KEY)


def test_keys_change_while_the_store_is_in_use(tmp_path):
    """Rotation without downtime: whoever has a key that stays continues, the removed one opens nothing newer."""
    hf = filled(tmp_path)
    hf.keys.add(NEW_KEY)
    with opened(tmp_path, key=NEW_KEY) as other, opened(tmp_path, key=NEW_KEY) as third:
        hf.run("r").checkpoint(state="after the new key")
        assert other.latest("r").section("state") == "after the new key"
        other.keys.remove(KEY)
        assert len(other.keys.ids()) == 1
        third.run("r").checkpoint(state="a handle with the new key continues")
        assert other.latest("r").section("state") == "a handle with the new key continues"
        for call in (lambda: hf.latest("r"), lambda: hf.run("new").checkpoint(state="never written")):
            with pytest.raises(KeyRefused, match="does not open it"):
                call()
        with pytest.raises(UsageError, match="the only key"):
            other.keys.remove(NEW_KEY)
        with pytest.raises(UsageError, match="does not open this store"):
            other.keys.remove(KEY)
        assert [run.id for run in other.runs()] == ["r"]
        assert other.verify().sound
        assert [cp.section("state") for cp in other.checkpoints("r")][-1]["n"] == 0
    with pytest.raises(KeyRefused):
        opened(tmp_path, key=KEY)
    hf.close()


@pytest.mark.parametrize("damage", [
    "UPDATE chunk SET data = (SELECT data FROM chunk WHERE n = 1) WHERE n > 1 AND length(data) > 20",
    "UPDATE chunk SET data = zeroblob(length(data))",
    "UPDATE chunk SET codec = 0 WHERE codec = 1",
])  # fmt: skip
def test_altered_or_swapped_chunks_are_refused(tmp_path, damage):
    """Threat 14: position and kind are bound."""
    filled(tmp_path).close()
    query(tmp_path, damage)
    with opened(tmp_path, key=KEY) as hf:
        with pytest.raises(ChunkCorrupt):
            hf.latest("r").section("state")
        assert not hf.verify().sound


def put_checkpoint(place, row):
    """Write a checkpoint's row as someone with write access could."""
    names = [column.name for column in CHECKPOINT.all_columns]
    sets = ", ".join(f"{name} = ?" for name in names[3:])
    query(place, f"UPDATE checkpoint SET {sets} WHERE run = ? AND line = ? AND seq = ?", *row[3:], *row[:3])


@pytest.mark.parametrize("sign", [False, True])
def test_tampering_with_write_access_shows(tmp_path, sign):
    """Threat 14: an altered row with a recomputed checksum is refused, and verify names it."""
    with filled(tmp_path, sign=sign) as hf:
        with hf.store.medium.read() as reader:
            value = hf.store.codec.open(CHECKPOINT, reader.get(CHECKPOINT, ("r", "main", 5)))
        forged = msgspec.structs.replace(hf.store.checkpoint_at("r", 5).envelope, reason="all is well")
    value = msgspec.structs.replace(value, envelope=msgspec.msgpack.encode(forged))
    put_checkpoint(tmp_path, RowCodec().close(CHECKPOINT, value))
    with opened(tmp_path, key=KEY, sign=sign) as hf:
        with pytest.raises(CheckpointCorrupt):
            hf.latest("r")
        assert hf.latest("r", sound=True).seq == 4
        assert any(fault.kind == "checkpoint" for fault in hf.verify().faults)


@pytest.mark.parametrize("sign", [False, True])
def test_a_row_in_anothers_place_is_refused(tmp_path, sign):
    """Threat 14: swapped rows."""
    filled(tmp_path, sign=sign).close()
    query(
        tmp_path,
        "UPDATE checkpoint SET (value, seal) = (SELECT value, seal FROM checkpoint WHERE run = 'r' AND seq = 2) "
        "WHERE run = 'r' AND seq = 4",
    )
    with opened(tmp_path, key=KEY, sign=sign) as hf, pytest.raises(CheckpointCorrupt):
        hf.store.checkpoint_at("r", 4)


def test_history_that_was_cut_off_shows_against_a_remembered_head(tmp_path):
    """Threat 14: replay of an older store."""
    import shutil  # noqa: PLC0415

    hf = filled(tmp_path / "now")
    hf.close()
    shutil.copytree(tmp_path / "now", tmp_path / "old")
    with opened(tmp_path / "now", key=KEY) as hf:
        newest = hf.run("r").checkpoint(state="newer").id
        assert hf.verify(remembered={"r": newest}).sound
    with opened(tmp_path / "old", key=KEY) as hf:
        assert hf.verify().sound
        report = hf.verify(remembered={"r": newest})
        assert [fault.kind for fault in report.faults] == ["head"]
        assert "rolled back" in report.faults[0].detail


def test_damaged_key_slots_are_told_apart_from_a_wrong_key(tmp_path):
    filled(tmp_path).close()
    row = RowCodec().close(META, MetaRow(name=KEYS, body=b"{"))
    query(tmp_path, "UPDATE meta SET value = ?, seal = ? WHERE name = ?", *row[1:], KEYS)
    with pytest.raises(IntegrityError, match=r"key slots are damaged"):
        opened(tmp_path, key=KEY)


@pytest.mark.parametrize("sign", [False, True])
def test_a_store_opens_only_as_what_it_is(tmp_path, sign):
    """Issue 18.1: a difference between the settings and the store is refused."""
    filled(tmp_path, sign=sign).close()
    with pytest.raises(KeyRefused, match="the settings ask for"):
        opened(tmp_path, key=KEY, sign=not sign)
    opened(tmp_path, key=KEY, sign=sign).close()


def test_the_keys_are_no_run_of_the_users(tmp_path):
    with filled(tmp_path) as hf:
        assert [run.id for run in hf.store.runs()] == ["r"]
        assert (hf.stats().runs, hf.stats().checkpoints) == (1, 5)
        for call in (hf.latest, hf.delete_run):
            with pytest.raises(InvalidId):
                call("_holdfast.keys")


def test_two_processes_that_begin_a_store_at_once_share_one_key(tmp_path):
    opened_stores, start = [], threading.Barrier(4)

    def begin():
        start.wait()
        opened_stores.append(opened(tmp_path, key=KEY))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened_stores[0].run("r").checkpoint(state="from one")
    assert [hf.latest("r").section("state") for hf in opened_stores] == ["from one"] * 4
    for hf in opened_stores:
        hf.close()


def test_a_store_that_another_process_begins_between_two_looks_is_opened_with_its_key(tmp_path, monkeypatch):
    store = SQLiteStore(tmp_path / "holdfast.db")
    apply = store.medium.apply

    def slow(batch):
        monkeypatch.setattr(store.medium, "apply", apply)
        with opened(tmp_path, key=KEY) as hf:
            hf.run("r").checkpoint(state=1)
        apply(batch)

    monkeypatch.setattr(store.medium, "apply", slow)
    with closing(seal_store(store, KEY)) as sealed:
        assert sealed.run("r").last_seq == 1


def a_project(folder):
    """Make a directory whose names and contents nobody shall read; return what must not be found."""
    inside = folder / f"{CANARY}-folder"
    inside.mkdir(parents=True)
    told = [CANARY.encode(), b"outline", b"secret-plan", os.fsencode(folder)]
    for n in range(40):
        data = f"{CANARY} content {n} ".encode() * 300
        (inside / f"{CANARY}-{n}-secret-plan.txt").write_bytes(data)
        (folder / f"outline-{n}.md").write_bytes(data[::-1])
        for written in (data, data[::-1]):
            told += [leaf_id(written), leaf_id(written).hex().encode()]
    return told


def every_byte(folder):
    found = b""
    for path in folder.rglob("*"):
        found += os.fsencode(path.relative_to(folder)) + (path.read_bytes() if path.is_file() else b"")
    return found


def test_a_workspace_leaves_no_name_content_or_hash_in_an_encrypted_stores_folder(tmp_path):
    """Proves E7; threat 13: the cache of what is known of the files is locked, too."""
    project, place = tmp_path / "project", tmp_path / "store"
    told = a_project(project)
    for _ in range(2):
        with opened(place, key=KEY, compression="none") as hf:
            hf.run("r", workspace=project).checkpoint(state=1)
        (project / "outline-0.md").write_text("changed")
    assert [path.name for path in place.rglob("*.cache")] != []
    data = every_byte(place)
    assert [text for text in told if text in data] == []
    signed = tmp_path / "signed"
    with opened(signed, key=KEY, sign=True, compression="none") as hf:
        hf.run("r", workspace=project).checkpoint(state=1)
    assert CANARY.encode() in every_byte(signed), "what is only signed is readable, and this test finds it"


def test_a_locked_cache_serves_the_next_process_and_no_other_store(tmp_path):
    """Whoever has the key captures without reading a file again; a cache of another store is only missed."""
    project, place = tmp_path / "project", tmp_path / "store"
    a_project(project)
    with opened(place, key=KEY) as hf:
        hf.run("r", workspace=project).checkpoint(state=1)
    (cache,) = place.rglob("*.cache")
    with opened(place, key=KEY) as hf:
        run = hf.run("r", workspace=project)
        capture = run.workspace._capture
        assert capture._previous(run.recorder.head_record) is not None
    cache.write_bytes(cache.read_bytes()[:-1] + b"\0")
    with opened(place, key=KEY) as hf:
        run = hf.run("r", workspace=project)
        assert run.workspace._capture._previous(run.recorder.head_record) is None
        assert run.checkpoint(state=2).changes(hf.get(hf.checkpoints("r")[-1].id)) == []


def write_while_keys_change(place, key, name, count):
    """Write records, entries and checkpoints in a process of its own; a rotation in between is not even noticed."""
    with opened(place, key=key) as hf:
        for number in range(count):
            hf.store.write(Commit(run=name, records=[Draft("step", f"p{number}", 1.0)]))
            hf.store.post(name, "signal", b"")
            hf.store.leases.end(hf.store.leases.take(name, owner=name, ttl_s=9))


def test_processes_that_write_while_keys_are_removed_lose_nothing(tmp_path):
    opened(tmp_path, key=KEY).close()
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_while_keys_change, args=(tmp_path, KEY, f"w{n}", 20)) for n in range(2)]
    for writer in writers:
        writer.start()
    rotations = 0
    with opened(tmp_path, key=KEY) as hf:
        while any(writer.is_alive() for writer in writers):
            hf.keys.add(NEW_KEY)
            hf.keys.remove(NEW_KEY)
            rotations += 1
        for writer in writers:
            writer.join()
            assert writer.exitcode == 0
        assert rotations > 3
        assert hf.verify().faults == ()
        for name in ("w0", "w1"):
            assert [one.path for one in hf.store.journal.records(hf.store.line(name))] == [f"p{n}" for n in range(20)]
            assert [one.number for one in hf.store.inbox(name)] == list(range(1, 21))


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.02, 0.05, 0.1])
def test_a_process_killed_while_it_removes_a_key_leaves_a_store_that_opens(tmp_path, after_s):
    with opened(tmp_path, key=KEY) as hf:
        for _ in range(10):
            hf.store.write(Commit(run="r", records=[Draft("step", "p", 1.0, b"x" * 500)] * 200))
    script = (
        "import pathlib, holdfast\n"
        f"hf = holdfast.open(pathlib.Path({str(tmp_path)!r}), settings=holdfast.Settings(), key={KEY!r})\n"
        f"hf.keys.add({NEW_KEY!r})\n"
        "print('ready', flush=True)\n"
        f"hf.keys.remove({NEW_KEY!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"ready\n"
        time.sleep(after_s)
        child.kill()
    with opened(tmp_path, key=KEY) as hf:
        assert hf.verify().faults == ()
        is_removed = len(hf.keys.ids()) == 1
        assert len(hf.store.journal.records(hf.store.line("r"))) == 2000
    if is_removed:
        with pytest.raises(KeyRefused):
            opened(tmp_path, key=NEW_KEY)
    else:
        opened(tmp_path, key=NEW_KEY).close()
