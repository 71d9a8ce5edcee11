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

from crash.children import TORTURE, Child, scratch, spread
from crash.truth import Examination, Truth, sql
from holdfast.encode import records
from holdfast.encode.compress import Codec
from holdfast.encode.tree import LEAF, NODE, Ref, encode_node, leaf_id, node_id
from holdfast.engine import DamageWarning, Holdfast
from holdfast.errors import (
    CheckpointCorrupt,
    ChunkCorrupt,
    FormatTooNew,
    HoldfastError,
    IntegrityError,
    RunCorrupt,
    StoreCorrupt,
    StoreUnavailable,
)
from holdfast.model.checkpoint import FORMAT_VERSION, Envelope, RunRecord, SectionRecord
from holdfast.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
        sql(path, "PRAGMA journal_mode = DELETE", f"PRAGMA page_size = {_PAGE}", "VACUUM", "PRAGMA journal_mode = WAL")
        return path.read_bytes()


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
    """Proves D11, X3, A7: each byte of the file once, each bit of it with HOLDFAST_TORTURE."""
    content = _sound_file()
    _truth()
    flips = [
        (position, bit)
        for position in range(len(content))
        for bit in (range(8) if TORTURE else [random.Random(position).randrange(8)])
    ]

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


def test_a_flipped_bit_in_the_log_goes_back_to_an_earlier_moment_and_does_no_damage() -> None:
    """Proves D11: SQLite takes a damaged log for one that ends there; what a remembered head would show."""
    with scratch() as folder:
        path = folder / "holdfast.db"
        with Holdfast(SQLiteStore(path)) as hf:
            for number in range(4):
                hf.run("a").checkpoint(state={"n": number})
            main, log = path.read_bytes(), path.with_name("holdfast.db-wal").read_bytes()
    positions = random.Random(1).sample(range(len(log)), len(log) if TORTURE else 500)

    def check(position: int) -> int:
        damaged = bytearray(log)
        damaged[position] ^= 1 << position % 8
        with scratch() as folder:
            path = folder / "holdfast.db"
            path.write_bytes(main)
            path.with_name("holdfast.db-wal").write_bytes(damaged)
            with Holdfast(SQLiteStore(path)) as hf:
                assert hf.verify().sound
                numbers = [cp.section("state")["n"] for cp in hf.checkpoints("a")] if hf.has("a") else []
                assert numbers == list(reversed(range(len(numbers))))
                return len(numbers)

    assert set(spread(positions, check)) == {0, 1, 2, 3}


def _ids(path: Path, run: str) -> list[str]:
    """Return a run's checkpoints, newest first, behind the store's back."""
    return [row[0] for row in sql(path, ("SELECT id FROM checkpoint WHERE run = ? ORDER BY seq DESC", (run,)))]


_A1, _B1, _B3 = "run = 'a' AND seq = 1", "run = 'b' AND seq = 1", "run = 'b' AND seq = 3"
_MARKS = "marks, marks_checksum"
_RECORD = f"envelope, checksum, {_MARKS}"
_BEHIND_ITS_BACK: dict[str, tuple[list[str], int]] = {
    "envelope edited": ([f"UPDATE checkpoint SET envelope = zeroblob(length(envelope)) WHERE {_A1}"], 1),
    "envelope cut short": ([f"UPDATE checkpoint SET envelope = substr(envelope, 1, 50) WHERE {_A1}"], 1),
    "checksum edited": ([f"UPDATE checkpoint SET checksum = zeroblob(32) WHERE {_A1}"], 1),
    "marks edited": ([f"UPDATE checkpoint SET marks = x'93a576616c6964c3c0' WHERE {_A1}"], 1),
    "marks of another checkpoint": (
        [f"UPDATE checkpoint SET ({_MARKS}) = (SELECT {_MARKS} FROM checkpoint WHERE {_B1}) WHERE {_A1}"], 1,
    ),
    "record of another checkpoint": (
        [f"UPDATE checkpoint SET ({_RECORD}) = (SELECT {_RECORD} FROM checkpoint WHERE {_B1}) WHERE {_A1}"], 1,
    ),
    "two checkpoints of a run swapped": (
        ["UPDATE checkpoint SET seq = 90 WHERE run = 'b' AND seq = 1",
         "UPDATE checkpoint SET seq = 1 WHERE run = 'b' AND seq = 2",
         "UPDATE checkpoint SET seq = 2 WHERE run = 'b' AND seq = 90"], 2,
    ),
    "checkpoint moved to another run": ([f"UPDATE checkpoint SET run = 'a', seq = 2 WHERE {_B3}"], 1),
    "checkpoint deleted": ([f"DELETE FROM checkpoint WHERE {_A1}"], 1),
    "head deleted": ([f"DELETE FROM checkpoint WHERE {_B3}"], 1),
    "tombstone edited": (["UPDATE tombstone SET checksum = zeroblob(32)"], 0),
    "tombstone deleted": (["DELETE FROM tombstone"], 0),
    "run deleted": (["DELETE FROM run WHERE id = 'a'"], 2),
    "run edited": (["UPDATE run SET record = zeroblob(length(record)) WHERE id = 'a'"], 2),
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
    envelope = sql(path, f"SELECT envelope FROM checkpoint WHERE {where}")[0][0]
    root = next(section.root for section in msgspec.msgpack.decode(envelope, type=Envelope).sections)
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


def test_an_older_run_row_put_back_is_found(store: Path) -> None:
    """Proves D11: a replayed head does not pass for the newest one."""
    row = sql(store, "SELECT record, checksum FROM run WHERE id = 'b'")[0]
    with Holdfast(SQLiteStore(store)) as hf:
        hf.run("b").checkpoint(reason="newer", sections={"own": {"x": "b" * 40}})
    sql(store, ("UPDATE run SET record = ?, checksum = ? WHERE id = 'b'", row))
    with Holdfast(SQLiteStore(store)) as hf:
        for read in (hf.latest, hf.checkpoints, hf.run):
            with pytest.raises(RunCorrupt):
                read("b")
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
    sql(store, "UPDATE checkpoint SET envelope = x'00' WHERE run = 'b' AND seq = 2")
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


def test_a_sweep_takes_nothing_when_its_bookkeeping_is_damaged(store: Path) -> None:
    """Proves D11: better to keep too much."""
    sql(store, "DELETE FROM hold WHERE run = (SELECT n FROM run WHERE id = 'b')")
    with Holdfast(SQLiteStore(store)) as hf:
        with pytest.raises(IntegrityError):
            hf.delete_run("a")
        with pytest.warns(DamageWarning, match="no space"):
            hf.delete(_ids(store, "a")[1])
    examination = Examination(store, _truth())
    assert set(_truth().lines["b"]) <= examination.readable


_HOSTILE = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON checkpoint BEGIN DELETE FROM run; END",
    "view": "CREATE VIEW v AS SELECT * FROM run",
    "extra table": "CREATE TABLE extra (x)",
    "extra index": "CREATE INDEX extra ON run (checksum)",
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
        "UPDATE sqlite_schema SET sql = replace(sql, 'record BLOB', 'record BLOB DEFAULT (load_extension(1))')",
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
    envelope = sql(path, ("SELECT envelope FROM checkpoint WHERE id = ?", (head,)))[0][0]
    forged = msgspec.structs.replace(
        msgspec.msgpack.decode(envelope, type=Envelope),
        sections=(SectionRecord("state", root.kind, root.id, root.size),),
    )
    statements: list[Any] = [
        ("INSERT OR REPLACE INTO chunk (id, codec, size, data) VALUES (?, ?, ?, ?)", chunk) for chunk in chunks
    ]
    seal = ("UPDATE checkpoint SET envelope = ?, checksum = ? WHERE id = ?", (*records.seal(forged), head))
    sql(path, "BEGIN", *statements, seal, "COMMIT")
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
    """Proves D11: in a checkpoint and in a run, decodable or not."""
    head = _ids(store, "b")[0]
    envelope = sql(store, ("SELECT envelope FROM checkpoint WHERE id = ?", (head,)))[0][0]
    fields = msgspec.msgpack.decode(envelope)
    for newer in ([FORMAT_VERSION + 1, *fields[1:]], [FORMAT_VERSION + 1, {"all": "new"}]):
        data = msgspec.msgpack.encode(newer)
        forged = (data, records.blake3(data).digest(), head)
        sql(store, ("UPDATE checkpoint SET envelope = ?, checksum = ? WHERE id = ?", forged))
        with Holdfast(SQLiteStore(store)) as hf:
            with pytest.raises(FormatTooNew):
                hf.get(head)
            assert not hf.verify().sound
            assert hf.latest("b", sound=True).seq == 2
            assert hf.latest("a").section("state")["n"] == 2
    run = msgspec.msgpack.decode(sql(store, "SELECT record FROM run WHERE id = 'b'")[0][0], type=RunRecord)
    sealed = records.seal(msgspec.structs.replace(run, format_version=FORMAT_VERSION + 1))
    sql(store, ("UPDATE run SET record = ?, checksum = ? WHERE id = 'b'", sealed))
    with Holdfast(SQLiteStore(store)) as hf:
        with pytest.raises(FormatTooNew):
            hf.run("b")
        assert hf.latest("a").section("state")["n"] == 2
