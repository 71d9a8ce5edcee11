"""Damage anywhere in a store file: every reading call gives what was written or a typed error, and verify tells."""

from __future__ import annotations

import os
import random
import resource
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import zstandard

from crash.children import TORTURE, Child, sampled, scratch, spread
from crash.truth import Examination, Truth, forge, sql, stored
from holdfast.encode.compress import Codec
from holdfast.encode.tree import LEAF, NODE, Ref, encode_node, leaf_id, node_id
from holdfast.engine import DamageWarning, Holdfast
from holdfast.errors import (
    CheckpointCorrupt,
    ChunkCorrupt,
    FormatTooNew,
    HoldfastError,
    RunCorrupt,
    StoreCorrupt,
    StoreUnavailable,
)
from holdfast.model.checkpoint import FORMAT_VERSION, Envelope, SectionRecord
from holdfast.store import envelopes
from holdfast.store.commit import Commit, Draft
from holdfast.store.repair import Repair
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.tables import CHECKPOINT, AccountRow
from holdfast.verify.rebuild import rebuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.store.store import Store

_PAGE = 512
_LENGTHS = {"a": 3, "b": 3}


@cache
def _sound_file() -> bytes:
    """Return a small store with small pages, so that every byte of it can be damaged once."""
    with scratch() as folder:
        path = folder / "holdfast.db"
        with Holdfast(SQLiteStore(path)) as hf:
            for name in ("a", "b"):
                run = hf.run(name)
                for number in range(_LENGTHS[name]):
                    text = random.Random(f"{name}{number}").randbytes(60).hex()
                    run.checkpoint(state={"n": number, "text": text}, sections={"own": {"x": name * 40}})
            hf.delete(hf.checkpoints("a")[1].id)
            _write_journal(hf.store)
        sql(path, "PRAGMA journal_mode = DELETE", f"PRAGMA page_size = {_PAGE}", "VACUUM", "PRAGMA journal_mode = WAL")
        return path.read_bytes()


def _write_journal(store: Store) -> None:
    """Give run a a row in every table that a run can have rows in."""
    drafts = [
        Draft("k", f"path {n % 3}", float(n), f"body {n}".encode(), f"key {n}" if n % 2 else None) for n in range(7)
    ]
    budget = AccountRow(run="a", name="tokens", used="7")
    store.write(Commit(run="a", records=drafts, accounts=[(None, budget)]))
    store.journal.compact("a", [2, 3])
    store.post("a", "signal", b"go", key="once")
    store.leases.end(store.leases.take("a", owner="me", ttl_s=60))
    store.put_meta("fact", b"about the store", expected=None)


@cache
def _truth() -> Truth:
    with scratch() as folder:
        path = folder / "holdfast.db"
        path.write_bytes(_sound_file())
        return Truth(path)


@pytest.fixture
def store() -> Iterator[Path]:
    with scratch() as folder:
        path = folder / "holdfast.db"
        path.write_bytes(_sound_file())
        path.chmod(0o600)
        yield path


def _examined(content: bytes) -> tuple[bool, int]:
    """Examine a store with this content; return whether it was refused and how many reads failed."""
    with scratch() as folder:
        path = folder / "holdfast.db"
        path.write_bytes(content)
        examination = Examination(path, _truth())
        assert not examination.complaints, examination.complaints
        return examination.refused, len(examination.failed)


def test_the_sound_store_passes_the_examination(store: Path) -> None:
    """The examination would prove nothing if it failed by itself, or never looked."""
    assert _examined(_sound_file()) == (False, 0)
    examination = Examination(store, _truth())
    assert len(examination.readable) == 5


def test_a_flipped_bit_in_any_byte_is_a_typed_error_or_changes_nothing() -> None:
    """Proves D11, X3, A7: 4,000 bytes of the file, each bit of all of them with HOLDFAST_TORTURE."""
    content = _sound_file()
    _truth()
    flips = sampled([(position, bit) for position in range(len(content)) for bit in range(8)], 4_000)

    def check(flip: tuple[int, int]) -> tuple[bool, int]:
        damaged = bytearray(content)
        damaged[flip[0]] ^= 1 << flip[1]
        return _examined(bytes(damaged))

    found = spread(flips, check)
    assert len(found) == len(flips)
    assert sum(failed > 0 for _, failed in found) > len(flips) / 4, "the flips hit something"


def test_a_truncated_file_is_a_typed_error_or_changes_nothing() -> None:
    """Proves D11, X3: at every page, beside every page, and in between."""
    content = _sound_file()
    sizes = sorted(
        {page + odd for page in range(0, len(content), _PAGE) for odd in (-1, 0, 1, 100, 200, 300)} - set(range(-1, 1))
    )
    sizes = [size for size in sizes if size < len(content)]
    found = spread(sizes, lambda size: _examined(content[:size]))
    assert all(refused or failed for refused, failed in found), "a shorter file never passes for whole"


def test_zeroed_and_swapped_pages_are_a_typed_error_or_change_nothing() -> None:
    """Proves D11, X3."""
    content = _sound_file()
    pages = [content[start : start + _PAGE] for start in range(0, len(content), _PAGE)]
    numbers = range(len(pages))
    zeroed = [[*pages[:number], bytes(_PAGE), *pages[number + 1 :]] for number in numbers]
    noise = [[*pages[:number], random.Random(number).randbytes(_PAGE), *pages[number + 1 :]] for number in numbers]
    swapped = []
    for first in numbers:
        for second in range(first + 1, len(pages)):
            changed = list(pages)
            changed[first], changed[second] = pages[second], pages[first]
            swapped.append(changed)
    images = [b"".join(image) for image in (*zeroed, *noise, *swapped)]
    found = spread(range(len(images)), lambda index: _examined(images[index]))
    assert sum(failed > 0 for _, failed in found) > len(images) / 2


@cache
def _live_files() -> dict[str, bytes]:
    """Return a store of two runs as it lies on the disk while it is open: its last commits are in the log."""
    with scratch() as folder, Holdfast(SQLiteStore(folder / "holdfast.db")) as hf:
        for number in range(4):
            hf.run("a").checkpoint(state={"n": number})
            hf.store.write(Commit(run="b", records=[Draft("k", "path", 0.0, bytes([number]))]))
        return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}


def _laid_out(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return folder / "holdfast.db"


def _found(path: Path) -> tuple[int, int]:
    """Return how many checkpoints of a and records of b there are, -1 for a run that says that it lost some."""
    with Holdfast(SQLiteStore(path)) as hf:
        sound = hf.verify().sound
        counts = []
        for run, count in (("a", lambda line: line.last_seq), ("b", lambda line: line.number)):
            try:
                line = hf.store.line(run)
                counts.append(count(line) if line else 0)
            except RunCorrupt:
                counts.append(-1)
        assert sound == (-1 not in counts)
        if not sound:
            listing = hf.store.runs()
            assert {run.id for run in listing} | {error.run for error in listing.damaged} == {"a", "b"}
        return counts[0], counts[1]


def test_a_flipped_bit_in_the_log_is_missed_as_the_commits_that_it_erased() -> None:
    """Proves D11: SQLite takes a damaged log for one that ends there; the heads beside it know better."""
    files = _live_files()
    log = files["holdfast.db-wal"]
    positions = random.Random(1).sample(range(len(log)), len(log) if TORTURE else 500)

    def check(position: int) -> tuple[int, int]:
        damaged = bytearray(log)
        damaged[position] ^= 1 << position % 8
        with scratch() as folder:
            return _found(_laid_out(folder, {**files, "holdfast.db-wal": bytes(damaged)}))

    found = {tuple(one) for one in spread(positions, check)}
    assert found == {(4, -1), (-1, -1)}, "it says which run lost its tail"


@cache
def _live_files_that_end_with(last: str) -> tuple[dict[str, bytes], int]:
    """Return a store that is open, with a message or a pin at the end of its log, and how long that was before."""
    with scratch() as folder, Holdfast(SQLiteStore(folder / "holdfast.db")) as hf:
        made = [hf.run("a").checkpoint(state={"n": number}) for number in range(3)]
        before = (folder / "holdfast.db-wal").stat().st_size
        if last == "message":
            hf.control.signal("a", "go")
        elif last == "message to a run to come":
            hf.store.post("later", "signal", b"go")
        elif last == "label":
            hf.mark(made[0].id, label="here")
        else:
            hf.mark(made[1].id, pinned=True)
        files = {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}
        return files, before


@pytest.mark.parametrize("last", ["message", "message to a run to come", "label", "pin"])
def test_a_message_or_a_mark_that_a_flipped_bit_erased_is_missed(last: str) -> None:
    """Proves D11: the last thing in a log that was not merged yet, where no commit of a line follows."""
    files, before = _live_files_that_end_with(last)
    log = files["holdfast.db-wal"]
    run = "later" if last == "message to a run to come" else "a"
    with scratch() as folder, Holdfast(SQLiteStore(_laid_out(folder, files))) as hf:
        assert hf.verify().sound, "as long as nothing is damaged"
    positions = random.Random(2).sample(range(before, len(log)), (len(log) - before) if TORTURE else 60)

    def check(position: int) -> bool:
        """Return whether it is said to be missing; where it is not, it is there."""
        damaged = bytearray(log)
        damaged[position] ^= 1 << position % 8
        with scratch() as folder:
            path = _laid_out(folder, {**files, "holdfast.db-wal": bytes(damaged)})
            with Holdfast(SQLiteStore(path)) as hf:
                faults = [str(fault) for fault in hf.verify().faults]
                try:
                    held = [1 for _ in hf.store.inbox(run)] if last.startswith("message") else _marked(hf)
                except RunCorrupt:
                    assert any("were stored and are missing" in fault for fault in faults)
                    assert Repair(hf.store).damaged_runs() == [run]
                    rebuild(hf.store, run)
                    assert hf.verify().sound
                    return True
                assert (held, faults) == ([1], [])
                return False

    missed = list(spread(positions, check))
    assert sum(missed) > len(missed) // 3, "where it is not the last thing, it is kept"


def _marked(hf: Holdfast) -> list[int]:
    hf.store.line("a")  # a list of checkpoints only warns
    return [1 for one in hf.checkpoints("a") if one.pinned or one.label]


def test_a_log_that_is_cut_or_deleted_is_missed() -> None:
    """Proves D11."""
    files = _live_files()
    log = files["holdfast.db-wal"]
    for kept in (log[: len(log) // 2], log[:100], b"", None):
        with scratch() as folder:
            path = _laid_out(folder, {**files, "holdfast.db-wal": kept or b""})
            if kept is None:
                (folder / "holdfast.db-wal").unlink()
            assert -1 in _found(path)


def test_a_missing_tail_is_named_with_its_size_and_repair_accepts_it() -> None:
    """Proves D11."""
    with scratch() as folder:
        path = folder / "holdfast.db"
        with Holdfast(SQLiteStore(path)) as hf:
            hf.run("a").checkpoint(state={"n": 0})
        older = path.read_bytes()
        with Holdfast(SQLiteStore(path)) as hf:
            for number in (1, 2):
                hf.run("a").checkpoint(state={"n": number})
            hf.store.write(Commit(run="a", records=[Draft("k", "path", 0.0)] * 5))
            hf.run("new").checkpoint(state={})
        path.write_bytes(older)
        with Holdfast(SQLiteStore(path)) as hf:
            with pytest.raises(RunCorrupt, match="last 5 records and 2 checkpoints"):
                hf.run("a")
            with pytest.raises(RunCorrupt, match="last 0 records and 1 checkpoints"):
                hf.run("new")
            assert {fault.run for fault in hf.verify().faults} == {"a", "new"}
            assert set(Repair(hf.store).damaged_runs()) == {"a", "new"}
            for run in Repair(hf.store).damaged_runs():
                rebuild(hf.store, run)
            assert hf.verify().sound
            assert [cp.section("state")["n"] for cp in hf.checkpoints("a")] == [0]
            hf.run("a").checkpoint(state={"n": 1})
            hf.run("new").checkpoint(state={})
            assert hf.verify().sound


@pytest.mark.parametrize("loss", ["deleted", "cut to nothing"])
def test_a_database_that_is_gone_is_not_taken_for_a_new_one(loss: str) -> None:
    """Proves D11."""
    with scratch() as folder:
        path = folder / "holdfast.db"
        with Holdfast(SQLiteStore(path)) as hf:
            hf.run("a").checkpoint(state={})
        if loss == "deleted":
            path.unlink()
        else:
            path.write_bytes(b"")
        for read_only in (False, True):
            with pytest.raises(StoreCorrupt, match="deleted or cut to nothing"):
                SQLiteStore(path, read_only=read_only)
        path.with_name("holdfast.db-heads").unlink()
        with Holdfast(SQLiteStore(path)) as hf:
            assert hf.runs() == []


def test_a_flipped_bit_in_the_heads_is_named_and_takes_nothing_away() -> None:
    """Proves D11."""
    files = _live_files()
    heads = files["holdfast.db-heads"]
    written = [place for place, byte in enumerate(heads) if byte]

    def check(position: int) -> bool:
        damaged = bytearray(heads)
        damaged[position] ^= 1 << position % 8
        with scratch() as folder:
            path = _laid_out(folder, {**files, "holdfast.db-heads": bytes(damaged)})
            with Holdfast(SQLiteStore(path)) as hf:
                assert (hf.latest("a").seq, hf.store.run("b").last_seq) == (4, 0)
                return hf.verify().sound

    assert set(spread(written, check)) == {False}


def _ids(path: Path, run: str) -> list[str]:
    """Return a run's checkpoints, newest first, behind the store's back."""
    return [row[0] for row in sql(path, ("SELECT id FROM checkpoint WHERE run = ? ORDER BY seq DESC", (run,)))]


_A1, _B1, _B3 = "run = 'a' AND seq = 1", "run = 'b' AND seq = 1", "run = 'b' AND seq = 3"
_SEALED = "value, seal"
_BEHIND_ITS_BACK: dict[str, tuple[list[str], int]] = {
    "checkpoint edited": ([f"UPDATE checkpoint SET value = zeroblob(length(value)) WHERE {_A1}"], 1),
    "checkpoint cut short": ([f"UPDATE checkpoint SET value = substr(value, 1, 50) WHERE {_A1}"], 1),
    "checkpoint without a byte": ([f"UPDATE checkpoint SET value = x'' WHERE {_A1}"], 1),
    "checkpoint of a form that is not known": ([f"UPDATE checkpoint SET value = x'07' WHERE {_A1}"], 1),
    "seal edited": ([f"UPDATE checkpoint SET seal = zeroblob(16) WHERE {_A1}"], 1),
    "status edited": ([f"UPDATE checkpoint SET status = 'archived' WHERE {_A1}"], 1),
    "trigger edited": ([f"UPDATE checkpoint SET trigger = 'phase' WHERE {_A1}"], 1),
    "phase edited": ([f"UPDATE checkpoint SET phase = 'build' WHERE {_A1}"], 1),
    "key edited": ([f"UPDATE checkpoint SET key = 'x' WHERE {_A1}"], 1),
    "time edited": ([f"UPDATE checkpoint SET created_at = created_at + 1 WHERE {_A1}"], 1),
    "record of another checkpoint": (
        [f"UPDATE checkpoint SET ({_SEALED}) = (SELECT {_SEALED} FROM checkpoint WHERE {_B1}) WHERE {_A1}"], 1,
    ),
    "two checkpoints of a run swapped": (
        ["UPDATE checkpoint SET seq = 90 WHERE run = 'b' AND seq = 1",
         "UPDATE checkpoint SET seq = 1 WHERE run = 'b' AND seq = 2",
         "UPDATE checkpoint SET seq = 2 WHERE run = 'b' AND seq = 90"], 2,
    ),
    "checkpoint moved to another run": ([f"UPDATE checkpoint SET run = 'a', seq = 2 WHERE {_B3}"], 1),
    "checkpoint deleted": ([f"DELETE FROM checkpoint WHERE {_A1}"], 1),
    "head deleted": ([f"DELETE FROM checkpoint WHERE {_B3}"], 1),
    "tombstone edited": (["UPDATE tombstone SET value = zeroblob(length(value))"], 0),
    "tombstone deleted": (["DELETE FROM tombstone"], 0),
    "run deleted": (["DELETE FROM run WHERE id = 'a'"], 2),
    "run edited": (["UPDATE run SET value = zeroblob(length(value)) WHERE id = 'a'"], 2),
    "run listed as another status": (["UPDATE run SET status = 'done' WHERE id = 'a'"], 2),
    "line deleted": (["DELETE FROM line WHERE run = 'a'"], 2),
    "line edited": (["UPDATE line SET value = zeroblob(length(value)) WHERE run = 'a'"], 2),
    "line with another number": (["UPDATE line SET n = n + 1 WHERE run = 'a'"], 2),
    "line of another run": (
        [f"UPDATE line SET ({_SEALED}) = (SELECT {_SEALED} FROM line WHERE run = 'b') WHERE run = 'a'"], 2,
    ),
    "lines swapped": (
        ["UPDATE line SET run = 'x' WHERE run = 'a'", "UPDATE line SET run = 'a' WHERE run = 'b'",
         "UPDATE line SET run = 'b' WHERE run = 'x'"], 5,
    ),
    "record edited": (["UPDATE record SET value = zeroblob(length(value)) WHERE n & 15 = 5"], 0),
    "record deleted": (["DELETE FROM record WHERE n & 15 = 5"], 0),
    "newest record deleted": (["DELETE FROM record WHERE n & 15 = 7"], 0),
    "records swapped": (
        [f"UPDATE record SET ({_SEALED}) = (SELECT {_SEALED} FROM record WHERE n & 15 = 6) WHERE n & 15 = 5"], 0,
    ),
    "record listed under another path": (["UPDATE record SET path = path + 1 WHERE n & 15 = 5"], 0),
    "gap deleted": (["DELETE FROM gap"], 0),
    "gap edited": (["UPDATE gap SET value = zeroblob(length(value))"], 0),
    "account edited": (["UPDATE account SET value = zeroblob(length(value))"], 0),
    "inbox edited": (["UPDATE inbox SET value = zeroblob(length(value))"], 0),
    "lease edited": (["UPDATE lease SET value = zeroblob(length(value))"], 0),
    "fact edited": (["UPDATE meta SET value = zeroblob(length(value))"], 0),
    "runs swapped": (
        ["UPDATE run SET id = 'x' WHERE id = 'a'", "UPDATE run SET id = 'a' WHERE id = 'b'",
         "UPDATE run SET id = 'b' WHERE id = 'x'"], 5,
    ),
    "chunk deleted": ([f"DELETE FROM chunk WHERE id = {{state of {_B3}}}"], 1),
    "chunk edited": ([f"UPDATE chunk SET data = zeroblob(length(data)) WHERE id = {{state of {_B3}}}"], 1),
    "chunk with another codec": ([f"UPDATE chunk SET codec = 1 - codec WHERE id = {{state of {_B3}}}"], 1),
    "chunk with another size": ([f"UPDATE chunk SET size = size + 1 WHERE id = {{state of {_B3}}}"], 1),
    "chunk with a size below zero": ([f"UPDATE chunk SET codec = 2, size = -1 WHERE id = {{state of {_B3}}}"], 1),
    "holds deleted": (["DELETE FROM hold"], 0),
}  # fmt: skip


@pytest.mark.parametrize("edit", _BEHIND_ITS_BACK)
def test_an_edit_behind_its_back_is_found_and_leaves_the_other_checkpoints_readable(store: Path, edit: str) -> None:
    """Proves D11, X3, A7: swapped, replayed, edited and deleted rows."""
    statements, touched = _BEHIND_ITS_BACK[edit]
    for statement in statements:
        sql(store, _with_chunk_name(store, statement))
    examination = Examination(store, _truth())
    assert not examination.complaints
    assert len(examination.readable) >= 5 - touched, examination.failed
    if touched:
        assert examination.failed
    with Holdfast(SQLiteStore(store)) as hf:
        assert not hf.verify().sound


def _with_chunk_name(path: Path, statement: str) -> str:
    if "{" not in statement:
        return statement
    start, _, rest = statement.partition("{state of ")
    where, _, end = rest.partition("}")
    envelope = msgspec.msgpack.decode(stored(path, CHECKPOINT, where).envelope, type=Envelope)
    root = next(section.root for section in envelope.sections)
    return f"{start}x'{root.hex()}'{end}"


def test_two_chunk_rows_swapped_are_found(store: Path) -> None:
    """Proves D11, A7."""
    (first, one), (second, two) = sql(store, "SELECT n, id FROM chunk LIMIT 2")
    sql(store, ("UPDATE chunk SET id = zeroblob(32) WHERE n = ?", (first,)))
    sql(
        store,
        ("UPDATE chunk SET id = ? WHERE n = ?", (one, second)),
        ("UPDATE chunk SET id = ? WHERE n = ?", (two, first)),
    )
    examination = Examination(store, _truth())
    assert not examination.complaints
    assert examination.failed
    assert {fault.chunk for fault in examination.faults} >= {one.hex(), two.hex()}


@pytest.mark.parametrize("newer", ["checkpoint", "record"])
def test_an_older_line_put_back_is_found(store: Path, newer: str) -> None:
    """Proves D11: a replayed head does not pass for the newest one."""
    row = sql(store, "SELECT value, seal FROM line WHERE run = 'b'")[0]
    with Holdfast(SQLiteStore(store)) as hf:
        if newer == "checkpoint":
            hf.run("b").checkpoint(reason="newer", sections={"own": {"x": "b" * 40}})
        else:
            hf.store.write(Commit(run="b", records=[Draft("k", "path", 0.0)]))
    sql(store, ("UPDATE line SET value = ?, seal = ? WHERE run = 'b'", row))
    with Holdfast(SQLiteStore(store)) as hf:
        for read in (hf.latest, hf.run):
            with pytest.raises(RunCorrupt):
                read("b")
        with pytest.warns(DamageWarning, match="stale"):
            listing = hf.checkpoints("b")
        assert [cp.seq for cp in listing] == ([4, 3, 2, 1] if newer == "checkpoint" else [3, 2, 1])
        found = hf.latest("b", sound=True)
        assert (found.seq, [type(error) for error in found.skipped]) == (listing[0].seq, [RunCorrupt])
        assert not hf.verify().sound
        assert hf.latest("a").seq == 3


def test_a_deleted_checkpoint_put_back_is_found(store: Path) -> None:
    """Proves D11."""
    row = sql(store, f"SELECT * FROM checkpoint WHERE {_A1}")[0]
    with Holdfast(SQLiteStore(store)) as hf:
        hf.delete(_ids(store, "a")[1])
        assert hf.verify().sound
    sql(
        store,
        (f"INSERT INTO checkpoint VALUES ({','.join('?' * len(row))})", row),
        f"DELETE FROM tombstone WHERE {_A1}",
    )
    with Holdfast(SQLiteStore(store)) as hf:
        assert not hf.verify().sound


def test_damage_in_the_newest_is_walked_back_over_and_named(store: Path) -> None:
    """Proves X3."""
    newest, second, oldest = _ids(store, "b")
    sql(store, _with_chunk_name(store, f"DELETE FROM chunk WHERE id = {{state of {_B3}}}"))
    sql(store, "UPDATE checkpoint SET value = x'00' WHERE run = 'b' AND seq = 2")
    with Holdfast(SQLiteStore(store)) as hf:
        found = hf.latest("b", sound=True)
        assert found.id == oldest
        assert [error.checkpoint for error in found.skipped if isinstance(error, ChunkCorrupt | CheckpointCorrupt)] == [
            newest,
            second,
        ]
        with pytest.raises(ChunkCorrupt) as caught:
            hf.get(newest).section("state")
        assert (caught.value.checkpoint, caught.value.section) == (newest, "state")
        with pytest.warns(DamageWarning):
            assert [cp.id for cp in hf.checkpoints("b")] == [newest, oldest]
        faults = hf.verify().faults
        assert {fault.checkpoint for fault in faults if fault.run == "b"} >= {newest, second}


def test_saving_what_is_damaged_mends_it(store: Path) -> None:
    """Proves X3: a chunk that is there already is believed only if its bytes are right."""
    value = _truth().values[_ids(store, "b")[0], "state"]
    for damage in ("data = zeroblob(length(data))", "codec = 2", "size = size + 1", "data = x''"):
        sql(store, _with_chunk_name(store, f"UPDATE chunk SET {damage} WHERE id = {{state of {_B3}}}"))
        with Holdfast(SQLiteStore(store)) as hf:
            assert not hf.verify().sound
            taken = hf.run("c").checkpoint(state=value)
            assert taken.section("state") == value
            assert hf.get(_ids(store, "b")[0]).section("state") == value
            assert hf.verify().sound


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM hold WHERE run = (SELECT n FROM run WHERE id = 'b')",
        "DELETE FROM hold",
        "UPDATE hold SET run = 7 WHERE run = (SELECT n FROM run WHERE id = 'b')",
        "UPDATE chunk SET holders = 0",
        "UPDATE chunk SET holders = -5",
    ],
)
def test_a_sweep_takes_nothing_that_is_needed_when_its_bookkeeping_is_damaged(store: Path, damage: str) -> None:
    """Proves D11: a chunk goes if the count of its holders and the list of them both say so."""
    sql(store, damage)
    with Holdfast(SQLiteStore(store)) as hf:
        assert not hf.verify().sound
        hf.delete(_ids(store, "a")[1])
        hf.delete_run("a")
    with Holdfast(SQLiteStore(store)) as hf:
        for cp in hf.checkpoints("b"):
            assert {name: cp.section(name) for name in cp.sections} == {
                name: value for (of, name), value in _truth().values.items() if of == cp.id
            }


_HOSTILE = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON checkpoint BEGIN DELETE FROM run; END",
    "view": "CREATE VIEW v AS SELECT * FROM run",
    "extra table": "CREATE TABLE extra (x)",
    "extra index": "CREATE INDEX extra ON run (seal)",
    "virtual table": "CREATE VIRTUAL TABLE extra USING fts5(x)",
    "generated column": "ALTER TABLE run ADD COLUMN g TEXT AS (upper(id)) VIRTUAL",
    "missing table": "DROP TABLE tombstone",
    "other application id": "PRAGMA application_id = 1",
    "no application id": "PRAGMA application_id = 0",
}


@pytest.mark.parametrize("kind", _HOSTILE)
def test_a_file_that_is_not_just_our_tables_is_refused_and_not_touched(store: Path, kind: str) -> None:
    """Proves D11."""
    sql(store, _HOSTILE[kind])
    before = store.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreCorrupt):
            SQLiteStore(store, read_only=read_only)
    assert store.read_bytes() == before


def test_a_schema_that_was_rewritten_is_refused(store: Path) -> None:
    """Proves D11: the text of a table is compared, whatever SQLite makes of it."""
    sql(
        store,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'value BLOB', 'value BLOB DEFAULT (load_extension(1))')",
    )
    with pytest.raises(StoreCorrupt):
        SQLiteStore(store)


def test_a_newer_store_is_refused_by_its_version(store: Path) -> None:
    """Proves D11."""
    sql(store, "PRAGMA user_version = 99")
    with pytest.raises(FormatTooNew):
        SQLiteStore(store)


@pytest.mark.parametrize("content", [b"\0" * 4096, b"SQLite format 3\0", b"hello", bytes(range(256)) * 64])
def test_garbage_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    """Proves D11."""
    path = tmp_path / "holdfast.db"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt):
        SQLiteStore(path)
    assert path.read_bytes() == content


def test_what_is_no_regular_file_is_refused(tmp_path: Path, store: Path) -> None:
    """Proves D11."""
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "link.db").symlink_to(store)
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nowhere.db")
    os.mkfifo(tmp_path / "pipe.db")
    for name in ("folder.db", "link.db", "dangling.db", "pipe.db"):
        for read_only in (False, True):
            with pytest.raises(StoreUnavailable):
                SQLiteStore(tmp_path / name, read_only=read_only)
    assert not (tmp_path / "nowhere.db").exists()


def test_an_empty_file_begins_a_store_and_is_none_for_a_reader(tmp_path: Path) -> None:
    """An empty file is what a crash at the very beginning leaves, so it cannot be told from a truncated store."""
    path = tmp_path / "holdfast.db"
    path.touch(mode=0o600)
    with pytest.raises(StoreCorrupt):
        SQLiteStore(path, read_only=True)
    with Holdfast(SQLiteStore(path)) as hf:
        assert hf.runs() == []


def _plant(path: Path, root: Ref, chunks: list[tuple[bytes, int, int, bytes]]) -> str:
    """Make the head of run b a checkpoint with this state, sealed as if we had written it."""
    head = _ids(path, "b")[0]
    row = stored(path, CHECKPOINT, f"id = '{head}'")
    envelope = msgspec.structs.replace(
        msgspec.msgpack.decode(row.envelope, type=Envelope),
        sections=(SectionRecord("state", root.kind, root.id, root.size),),
    )
    statements: list[Any] = [
        ("INSERT OR REPLACE INTO chunk (id, codec, size, holders, data) VALUES (?, ?, ?, 1, ?)", chunk)
        for chunk in chunks
    ]
    sql(path, "BEGIN", *statements, "COMMIT")
    forge(path, CHECKPOINT, msgspec.structs.replace(row, envelope=envelopes.seal(envelope)[0]))
    return head


_BOMB_BYTES = 300_000_000


def _bombs() -> dict[str, tuple[int, int, bytes]]:
    """Return codec, claimed size and data of chunks that would unpack to 300 MB."""
    zeros = bytes(1_000_000)
    sized = zstandard.ZstdCompressor().compressobj(size=_BOMB_BYTES)
    unsized = zstandard.ZstdCompressor().compressobj()
    gzip = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts: list[list[bytes]] = [[], [], []]
    for _ in range(_BOMB_BYTES // len(zeros)):
        for part, stream in zip(parts, (sized, unsized, gzip), strict=True):
            part.append(stream.compress(zeros))
    with_size, without_size, zipped = (
        b"".join([*part, stream.flush()]) for part, stream in zip(parts, (sized, unsized, gzip), strict=True)
    )
    return {
        "zstd, honest size": (Codec.ZSTD, _BOMB_BYTES, with_size),
        "zstd, small size": (Codec.ZSTD, 1_000, with_size),
        "zstd, no size in its header": (Codec.ZSTD, 1_000, without_size),
        "zstd, size -1": (Codec.ZSTD, -1, without_size),
        "gzip, honest size": (Codec.GZIP, _BOMB_BYTES, zipped),
        "gzip, small size": (Codec.GZIP, 1_000, zipped),
        "gzip, size -1": (Codec.GZIP, -1, zipped),
        "lz4, size -1": (Codec.LZ4, -1, _BOMB_BYTES.to_bytes(4, "little") + bytes(300_000)),
        "unknown codec": (77, 1_000, bytes(1_000)),
    }


def _refused_in_little_memory(path: Path, checkpoint: str) -> None:
    """Read, verify and walk back in a child that may take 150 MB and no more."""

    def read(report: Callable[[Any], None]) -> None:
        with open("/proc/self/statm") as memory:  # noqa: PTH123 - no file of ours
            used = int(memory.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 150_000_000,) * 2)
        with Holdfast(SQLiteStore(path)) as hf:
            with pytest.raises(ChunkCorrupt) as caught:
                hf.get(checkpoint).section("state")
            assert (caught.value.checkpoint, caught.value.section) == (checkpoint, "state")
            report(hf.verify().sound)

    ended = Child(read).join()
    assert (ended.signal, ended.code) == (0, 0), ended.reports


def test_a_bomb_is_refused_before_it_is_unpacked(store: Path) -> None:
    """Proves D11: 300 MB behind a few kilobytes, for each codec and each lie about the size."""
    content = store.read_bytes()
    for name, (codec, size, data) in _bombs().items():
        store.write_bytes(content)
        chunk = leaf_id(name.encode())
        _refused_in_little_memory(store, _plant(store, Ref(LEAF, 1_000, chunk), [(chunk, codec, size, data)]))


def _stored_node(entries: list[bytes | Ref]) -> tuple[Ref, tuple[bytes, int, int, bytes]]:
    data, size = encode_node(entries)
    return Ref(NODE, size, node_id(data)), (node_id(data), Codec.NONE, len(data), data)


def test_a_tree_that_names_its_nodes_again_and_again_is_refused(store: Path) -> None:
    """Proves D11: 10 chunks that stand for ten million parts."""
    ref = Ref(LEAF, 1, leaf_id(b"x"))
    chunks = [(ref.id, int(Codec.NONE), 1, b"x")]
    for _ in range(7):
        ref, chunk = _stored_node([ref] * 10)
        chunks.append(chunk)
    _refused_in_little_memory(store, _plant(store, ref, chunks))


def test_a_tree_deeper_than_any_of_ours_is_refused(store: Path) -> None:
    """Proves D11: each level would cost a pass over all parts."""
    ref = Ref(LEAF, 1, leaf_id(b"x"))
    chunks = [(ref.id, int(Codec.NONE), 1, b"x")]
    for _ in range(2_000):
        ref, chunk = _stored_node([ref])
        chunks.append(chunk)
    _refused_in_little_memory(store, _plant(store, ref, chunks))


def test_a_node_that_lies_about_its_sizes_is_refused(store: Path) -> None:
    """Proves D11: the size is what the limit is checked against."""
    leaf = (leaf_id(b"x" * 1_000), int(Codec.NONE), 1_000, b"x" * 1_000)
    ref, chunk = _stored_node([Ref(LEAF, 1, leaf[0])])
    _refused_in_little_memory(store, _plant(store, ref, [leaf, chunk]))
    empty, chunk = _stored_node([b"", b"y"])
    _refused_in_little_memory(store, _plant(store, empty, [chunk]))


def test_a_section_over_the_limit_is_refused_before_anything_is_read(store: Path) -> None:
    """Proves D11."""
    head = _plant(store, Ref(NODE, 1 << 40, leaf_id(b"nowhere")), [])
    with Holdfast(SQLiteStore(store)) as hf, pytest.raises(HoldfastError, match="limit"):
        hf.get(head).section("state")


def test_a_newer_format_in_a_record_is_named_and_the_others_stay_readable(store: Path) -> None:
    """Proves D11: decodable or not; rows of other tables change with the version of the whole store."""
    head = _ids(store, "b")[0]
    row = stored(store, CHECKPOINT, f"id = '{head}'")
    fields = msgspec.msgpack.decode(row.envelope)
    for newer in ([FORMAT_VERSION + 1, *fields[1:]], [FORMAT_VERSION + 1, {"all": "new"}]):
        forge(store, CHECKPOINT, msgspec.structs.replace(row, envelope=msgspec.msgpack.encode(newer)))
        with Holdfast(SQLiteStore(store)) as hf:
            with pytest.raises(FormatTooNew):
                hf.get(head)
            assert not hf.verify().sound
            assert hf.latest("b", sound=True).seq == 2
            assert hf.latest("a").section("state")["n"] == 2
