"""A store behind a key, on a real SQLite file that the tests read and damage behind its back."""

import os
import threading
from contextlib import closing

import apsw
import pytest

import holdfast
from holdfast import (
    CheckpointCorrupt,
    ChunkCorrupt,
    IntegrityError,
    KeyRefused,
    NotFound,
    Settings,
    UsageError,
    generate_key,
)
from holdfast.encode.tree import leaf_id
from holdfast.errors import InvalidId
from holdfast.store.sealed import KEYS_RUN, seal_store
from holdfast.store.sqlite import SQLiteStore

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
    for key, told in ((None, "give its key with key_file="), (NEW_KEY, "does not open it; the keys [0-9a-f]{16} do")):
        with pytest.raises(KeyRefused, match=told):
            opened(tmp_path, key=key)
    with pytest.raises(UsageError, match="32 random bytes"):
        opened(tmp_path, key="not a key")


def test_a_store_without_a_key_is_not_taken_for_an_encrypted_one(tmp_path):
    with opened(tmp_path) as hf:
        hf.run("r").checkpoint(state=1)
        with pytest.raises(UsageError, match="has no key"):
            hf.add_key(KEY)
    with pytest.raises(KeyRefused, match="stored without a key"):
        opened(tmp_path, key=KEY)


def test_keys_change_while_the_store_is_in_use(tmp_path):
    """Rotation without downtime: the old handle goes on, the new key opens, the old one no longer does."""
    hf = filled(tmp_path)
    hf.add_key(NEW_KEY)
    with opened(tmp_path, key=NEW_KEY) as other:
        hf.run("r").checkpoint(state="after the new key")
        assert other.latest("r").section("state") == "after the new key"
        other.remove_key(KEY)
        assert len(other.key_ids()) == 1
        hf.run("r").checkpoint(state="old handle goes on")
        assert other.latest("r").section("state") == "old handle goes on"
        with pytest.raises(UsageError, match="the only key"):
            other.remove_key(NEW_KEY)
        with pytest.raises(UsageError, match="does not open this store"):
            other.remove_key(KEY)
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


def reseal(place, number, change):
    """Alter a stored envelope as someone with write access could, with a checksum that fits."""
    from holdfast.encode import records  # noqa: PLC0415

    rows = query(
        place,
        "SELECT id, envelope, checksum, marks, marks_checksum FROM checkpoint WHERE run = 'r' AND seq = ?",
        number,
    )
    envelope = change(records.open_checkpoint(*rows[0]).envelope)
    data, checksum = records.seal(envelope)
    query(place, "UPDATE checkpoint SET envelope = ?, checksum = ? WHERE run = 'r' AND seq = ?", data, checksum, number)


@pytest.mark.parametrize("sign", [False, True])
def test_tampering_with_write_access_shows(tmp_path, sign):
    """Threat 14: an altered record with a recomputed checksum is refused, and verify names it."""
    import msgspec  # noqa: PLC0415

    filled(tmp_path, sign=sign).close()
    field = {"reason": "all is well"} if sign else {"sealed": b"\x01" + bytes(60)}
    reseal(tmp_path, 5, lambda envelope: msgspec.structs.replace(envelope, **field))
    with opened(tmp_path, key=KEY) as hf:
        with pytest.raises(CheckpointCorrupt, match="altered"):
            hf.latest("r")
        assert hf.latest("r", sound=True).seq == 4
        assert any(fault.kind == "checkpoint" for fault in hf.verify().faults)


def test_an_envelope_in_anothers_place_is_refused(tmp_path):
    """Threat 14: swapped rows."""
    import msgspec  # noqa: PLC0415

    filled(tmp_path).close()
    other = query(tmp_path, "SELECT envelope FROM checkpoint WHERE run = 'r' AND seq = 2")[0][0]
    stolen = msgspec.msgpack.decode(other)
    reseal(tmp_path, 4, lambda envelope: msgspec.structs.replace(envelope, sealed=stolen[15]))
    with opened(tmp_path, key=KEY) as hf, pytest.raises(CheckpointCorrupt, match="another's place"):
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
    import msgspec  # noqa: PLC0415

    from holdfast.encode import records  # noqa: PLC0415

    filled(tmp_path).close()
    rows = query(
        tmp_path, "SELECT id, envelope, checksum, marks, marks_checksum FROM checkpoint WHERE run = ?", KEYS_RUN
    )
    data, checksum = records.seal(msgspec.structs.replace(records.open_checkpoint(*rows[0]).envelope, reason="{"))
    query(tmp_path, "UPDATE checkpoint SET envelope = ?, checksum = ? WHERE run = ?", data, checksum, KEYS_RUN)
    with pytest.raises(IntegrityError, match=r"key slots .* are damaged"):
        opened(tmp_path, key=KEY)


def test_the_keys_are_no_run_of_the_users(tmp_path):
    with filled(tmp_path) as hf:
        for call in (hf.latest, hf.delete_run):
            with pytest.raises(InvalidId):
                call(KEYS_RUN)
        for call in (hf.store.run, hf.store.delete_run, lambda run: hf.store.delete(run, [])):
            with pytest.raises(NotFound):
                call(KEYS_RUN)


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
    listed = store.runs

    def runs(**options):
        monkeypatch.setattr(store, "runs", listed)
        opened(tmp_path, key=KEY).close()
        return listed(**options)

    monkeypatch.setattr(store, "runs", runs)
    seal_store(store, KEY).close()


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
        assert capture._previous(run.head_record) is not None
    cache.write_bytes(cache.read_bytes()[:-1] + b"\0")
    with opened(place, key=KEY) as hf:
        run = hf.run("r", workspace=project)
        assert run.workspace._capture._previous(run.head_record) is None
        assert run.checkpoint(state=2).changes(hf.get(hf.checkpoints("r")[-1].id)) == []
