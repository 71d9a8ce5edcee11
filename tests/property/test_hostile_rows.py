"""Rows that somebody altered on the medium: never a value that was not written there, always a typed error."""

from __future__ import annotations

import copy
import random
import struct

import msgspec
import pytest
import zstandard

from holdfast import HoldfastError, generate_key
from holdfast.encode.chunks import verified
from holdfast.encode.tree import LEAF
from holdfast.errors import ChunkCorrupt, IntegrityError, UsageError
from holdfast.store import tables as t
from holdfast.store.codec import LARGEST_VALUE, RowCodec, _place
from holdfast.store.commit import Commit, Draft
from holdfast.store.inspection import Inspection
from holdfast.store.keys import seal_store
from holdfast.store.medium import StaleError
from holdfast.store.memory import MemoryMedium
from holdfast.store.repair import Repair
from holdfast.store.store import Store
from holdfast.testing.contract import Line, chunk_of
from holdfast.verify.check import verify
from holdfast.verify.rebuild import rebuild
from store_kit import fill, rows

KEY = generate_key()
CORRUPTIONS = 550
SHAPES = ("flip", "swap", "move", "truncate", "older", "chunk")


class World:
    """A store, and every row that was ever written into it."""

    def __init__(self, mode):
        self.mode = mode
        self.medium = MemoryMedium()
        self.written = {}
        self.values = {}
        store = self.open(self.medium)
        tables = self.medium._tables
        put = tables.put

        def noted(table, row):
            put(table, row)
            key = row[: len(table.key)]
            self.written.setdefault((table.name, key), []).append(row)
            codec = RowCodec() if key == ("keys",) else store.codec
            self.values.setdefault((table.name, key), []).append(codec.open(table, row))

        tables.put = noted
        for run in ("run", "other"):
            fill(store, run, checkpoints=2, records=4)
        store.put_meta("fact", b"so", expected=None)
        store.put_meta("fact", b"so it is", expected=b"so")
        for name in ("run", "other"):
            line = Line(store, name)
            line.follow()
            line.commit(chunk_of("the last"))
            store.mark(line.head.envelope.id, msgspec.structs.replace(line.head.marks, label="l"))
            store.journal.compact(name, [2, 3])
        del tables.put
        for table in t.TABLES:
            for key, row in rows(self.medium, table).items():
                self.written.setdefault((table.name, key), [row])
                self.values.setdefault((table.name, key), [])
        self.store = store

    def open(self, medium):
        return Store(medium) if self.mode == "plain" else seal_store(medium, KEY, sign=self.mode == "sign")

    def copy(self):
        """Return another medium with the same rows and chunks."""
        other = MemoryMedium()
        other._tables = copy.deepcopy(self.medium._tables)
        return other


@pytest.fixture(scope="module", params=["plain", "sign", "encrypt"])
def world(request):
    return World(request.param)


def put(medium, table, row):
    with medium.write() as transaction:
        transaction.put(table, tuple(row))


def flipped(cell, chance):
    """Return a cell with one thing about it changed, of the same type: a medium knows types."""
    if isinstance(cell, bytes) and cell:
        at = chance.randrange(len(cell))
        return cell[:at] + bytes([cell[at] ^ 1 << chance.randrange(8)]) + cell[at + 1 :]
    if isinstance(cell, str) and cell:
        at = chance.randrange(len(cell))
        return cell[:at] + chr((ord(cell[at]) ^ 1 << chance.randrange(7)) or 1) + cell[at + 1 :]
    if isinstance(cell, int):
        return chance.choice([cell + 1, cell ^ 1 << chance.randrange(40), -1, (1 << 63) - 1, 0])
    if isinstance(cell, float):
        return chance.choice([cell + 1, 1e300, -1e300, float("inf")])
    return cell


def corrupt(world, medium, shape, chance):
    """Corrupt one thing; return what was done, None if nothing could be."""
    if shape == "chunk":
        return corrupt_chunk(medium, chance)
    table = chance.choice([one for one in t.TABLES if rows(medium, one)])
    found = rows(medium, table)
    key = chance.choice(list(found))
    row, width = found[key], len(table.key)
    if shape == "flip":
        at = chance.randrange(len(row))
        new = (*row[:at], flipped(row[at], chance), *row[at + 1 :])
        if at < width:
            with medium.write() as transaction:
                transaction.drop(table, key)
    elif shape in ("swap", "move"):
        other = chance.choice(list(found))
        if shape == "swap":
            put(medium, table, (*key, *found[other][width:]))
        elif chance.random() < 0.5:
            other = tuple(flipped(cell, chance) for cell in key)
        new = (*other, *row[width:])
    elif shape == "truncate":
        value = row[-2][: chance.randrange(len(row[-2]))]
        new = (*row[:-2], value, chance.choice([row[-1], row[-1][:8], b""]))
    else:
        new = chance.choice(world.written[table.name, key])
    if new == row:
        return None
    put(medium, table, new)
    return table.name, key, new


def corrupt_chunk(medium, chance):
    chunks = medium._tables.chunks
    name = chance.choice(list(chunks))
    was = chunks[name]
    what = chance.choice(["data", "swap", "size", "codec", "truncate", "name"])
    if what == "swap":
        other = chance.choice(list(chunks))
        chunks[name] = chunks[other]._replace(id=name)
    elif what == "data":
        chunks[name] = was._replace(data=flipped(was.data, chance))
    elif what == "truncate":
        chunks[name] = was._replace(data=was.data[: chance.randrange(len(was.data))])
    elif what == "name":
        chunks[bytes(chance.randrange(70))] = was
    else:
        chunks[name] = was._replace(**{what: chance.choice([-1, 0, 1, 3, 255, 256, 1 << 40, (1 << 63) - 1])})
    return None if chunks[name] == was and what != "name" else ("chunk", name, chunks[name])


def looked_at(store, world):  # noqa: C901 - a list of calls
    """Call everything that reads; yield what was returned as (table, key, value); no error but a typed one gets out."""

    def calls():
        yield lambda: [
            (t.META, ("fact",), t.MetaRow(name="fact", body=body)) for body in [store.meta("fact")] if body is not None
        ]
        for run in ("run", "other"):
            yield lambda run=run: none_of(store.run(run))
            yield lambda run=run: [(t.RUN, (run,), store.row_of(run))]
            yield lambda run=run: [(t.LINE, (run, "main"), store.line(run))]
            yield lambda run=run: [(t.LINE, (run, one.name), one) for one in store.lines(run)]
            yield lambda run=run: [(t.INBOX, (run, one.number), one) for one in store.inbox(run)]
            yield lambda run=run: [(t.ACCOUNT, (run, one.name), one) for one in store.accounts(run).values()]
            yield lambda run=run: none_of(store.leases.running(run))
            yield lambda run=run: [
                (t.CHECKPOINT if isinstance(one, t.CheckpointRow) else t.TOMBSTONE, (run, "main", one.seq), one)
                for one in store.history(store.line(run))
            ]
            for seq in range(1, 7):
                yield lambda run=run, seq=seq: [(t.CHECKPOINT, (run, "main", seq), store.checkpoint_at(run, seq))]
            yield lambda run=run: [
                (t.CHECKPOINT, (run, "main", one.envelope.seq), one) for one in store.checkpoints(run)
            ]
            yield lambda run=run: none_of(store.tombstones(run))
            for low in range(1, 9):
                yield lambda run=run, low=low: records(store.journal.records(store.line(run), low=low, limit=1))
            yield lambda run=run: records([store.journal.newest(store.line(run), "path/1")])
            yield lambda run=run: records(store.journal.with_key(store.line(run), "k0"))
            yield lambda run=run: records(store.journal.of_path(store.line(run), "path/0"))
            yield lambda run=run: [(t.GAP, (one.line, one.first), one) for one in store.journal.gaps(store.line(run))]
            yield lambda run=run: records(step.item for step in store.journal.walk(store.line(run)) if step.item)
            yield lambda run=run: none_of(store.held(run))
        yield lambda: none_of(store.runs())
        yield lambda: none_of(store.stats())
        yield lambda: none_of(Repair(store).damaged_runs())
        yield lambda: none_of(list(Inspection(store).check()))
        yield lambda: none_of(list(store.chunk_ids()))

    def records(found):
        return [
            (t.GAP if isinstance(one, t.GapRow) else t.RECORD,
             (one.line, one.first if isinstance(one, t.GapRow) else one.number), one)
            for one in found if one is not None
        ]  # fmt: skip

    for call in calls():
        try:
            yield from call()
        except HoldfastError:
            continue
    for name in list(world.store.chunk_ids()):
        for found, chunk in store.fetch([name]).items():
            try:
                assert found == name
                assert verified(LEAF, name, chunk)
            except ChunkCorrupt:
                continue


def none_of(_read):
    return []


def is_authentic(world, table, key, value):
    if value is None:
        return True
    known = world.values[table.name, key]
    if table is t.CHECKPOINT and not isinstance(value, t.CheckpointRow):
        return any(one.marks == value.marks and msgspec.msgpack.encode(value.envelope) == one.envelope for one in known)
    return value in known


def test_a_corruption_of_any_row_gives_no_wrong_value_and_a_typed_error(world):
    """At least 500 of each way that a store is protected; what only stands where another was is found by verify."""
    chance = random.Random(f"hostile rows {world.mode}")
    done = dict.fromkeys(SHAPES, 0)
    while sum(done.values()) < CORRUPTIONS:
        shape = SHAPES[sum(done.values()) % len(SHAPES)]
        medium = world.copy()
        try:
            what = corrupt(world, medium, shape, chance)
        except StaleError:
            continue  # the medium itself refuses two rows of one unique number
        if what is None:
            continue
        done[shape] += 1
        try:
            store = world.open(medium)
        except (IntegrityError, UsageError):
            assert what[1] in (("keys",), ("epoch",)) or what[0] == "meta"
            continue
        for table, key, value in looked_at(store, world):
            assert is_authentic(world, table, key, value), (what, table.name, key, value)
        if shape not in ("older", "chunk"):
            assert not verify(store).sound, what
        else:
            verify(store)
        write_somehow(store)
    assert min(done.values()) >= CORRUPTIONS // len(SHAPES) - 1


def write_somehow(store):
    """Write, repair, and write again: refused with a type, or done."""
    for run in ("run", "other", "new"):
        for step in ("write", "repair", "write"):
            try:
                if step == "repair":
                    rebuild(store, run)
                    continue
                store.write(Commit(run=run, records=[Draft("step", "p", 1.0, b"new")]))
                store.post(run, "signal", b"new")
                store.leases.end(store.leases.take(run, owner="new", ttl_s=5))
            except HoldfastError:
                continue
    store.post("new", "signal", b"new")


# Rows that are sound in themselves: what anybody can write into a store without a key


def sealed_as_plain(table, key, columns, packed):
    codec = RowCodec()
    return (*key, *columns, packed, codec._seal(_place(table, key), packed))


def hostile_values():
    deep = b"\x91" * 200_000
    yield "deep", b"\0" + deep
    yield "deep and packed", b"\1" + zstandard.ZstdCompressor().compress(deep)
    yield "empty", b""
    yield "no value", b"\0"
    yield "bad text", b"\0" + b"\x9c" + b"\xa2\xff\xfe" * 12
    yield "a bomb", b"\1" + zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50_000_000))
    yield "a bomb that lies", b"\1" + lying_frame()
    yield "a frame and more", b"\1" + zstandard.ZstdCompressor().compress(b"\x90") + b"more"
    yield "unknown form", b"\7abc"
    yield "too large", b"\1" + zstandard.ZstdCompressor().compress(bytes(LARGEST_VALUE + 1))
    yield "an extension", b"\0\xc7\x05\x01abcde"
    yield "a large number", b"\0\x9c" + b"\xcf" + b"\xff" * 8 + b"\xc0" * 11
    yield "a long list", b"\0\xdd\xff\xff\xff\xff"


def lying_frame():
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(5_000_000)))
    return bytes(frame[:6]) + struct.pack("<I", 10)[: len(frame[6:10])] + bytes(frame[10:])


@pytest.mark.parametrize("name", dict(hostile_values()))
def test_a_value_that_cannot_be_decoded_is_typed_in_every_table(name):
    world = World("plain")
    packed = dict(hostile_values())[name]
    for table in t.TABLES:
        medium = world.copy()
        for key, row in list(rows(medium, table).items())[:2]:
            put(medium, table, sealed_as_plain(table, key, row[len(table.key) : -2], packed))
        store = world.open(medium)
        assert not verify(store).sound, table.name
        for _ in looked_at(store, world):
            pass
        write_somehow(store)


HUGE = (1 << 63) - 1
OUT_OF_REACH = [
    (t.RUN, ("run",), {"n": HUGE}),
    (t.LINE, ("run", "main"), {"n": HUGE}),
    (t.LINE, ("run", "main"), {"number": HUGE}),
    (t.LINE, ("run", "main"), {"last_seq": HUGE}),
    (t.LINE, ("run", "main"), {"checkpoints": HUGE}),
    (t.LINE, ("run", "main"), {"fence": HUGE}),
    (t.LINE, ("run", "main"), {"consumed": HUGE}),
    (t.LINE, ("run", "main"), {"ranges": ((1, HUGE),)}),
    (t.CHECKPOINT, ("run", "main", 1), {"number": HUGE}),
    (t.CHECKPOINT, ("run", "main", 1), {"created_at": 1e300}),
    (t.CHECKPOINT, ("run", "main", 1), {"created_at": float("nan")}),
    (t.LEASE, ("run", "main"), {"expires_at": 1e300}),
    (t.LEASE, ("run", "main"), {"expires_at": float("inf")}),
    (t.LEASE, ("run", "main"), {"expires_at": float("nan")}),
    (t.LEASE, ("run", "main"), {"expires_at": -1e300}),
    (t.LEASE, ("run", "main"), {"expires_at": 1e11}),
    (t.LEASE, ("run", "main"), {"token": HUGE}),
    (t.LEASE, ("run", "main"), {"token": (1 << 48) - 1}),
    (t.INBOX, ("run", 1), {"at": 1e300}),
    (t.ACCOUNT, ("run", "tokens"), {"used": "9" * 1_000}),
]


@pytest.mark.parametrize(("table", "key", "changes"), OUT_OF_REACH, ids=lambda one: str(one)[:40])
def test_a_number_or_time_out_of_reach_is_typed_and_blocks_nobody_else(table, key, changes):
    """Issue 18.7: a lease at 1e300 or a number of 2^63-1."""
    world = World("plain")
    medium = world.copy()
    store = world.open(medium)
    value = store.codec.open(table, rows(medium, table)[key])
    forged = msgspec.structs.replace(value, **changes)
    put(medium, table, RowCodec().close(table, forged))
    for _ in looked_at(store, world):
        pass
    verify(store)
    store.write(Commit(run="other", records=[Draft("step", "p", 1.0)]))
    if table is t.LEASE:
        lease = store.leases.take("run", owner="somebody", ttl_s=60)
        store.write(Commit(run="run", fence=lease.token, records=[Draft("step", "p", 1.0)]))
        assert store.leases.running("run") == lease
        store.leases.end(store.leases.renew(lease, ttl_s=60))
        assert verify(store).sound
    for run in Repair(store).damaged_runs():
        rebuild(store, run)
    assert Repair(store).damaged_runs() == []
    if table is not t.ACCOUNT:
        store.write(Commit(run="run", records=[Draft("step", "p", 1.0)]))


@pytest.mark.parametrize("mode", ["plain", "encrypt"])
@pytest.mark.parametrize(("table", "place"), [(t.INBOX, 1), (t.RECORD, 1), (t.GAP, 1), (t.CHECKPOINT, 2)])
def test_a_row_under_a_number_out_of_reach_blocks_nobody_else(mode, table, place):
    world = World(mode)
    medium = world.copy()
    key, row = next(iter(rows(medium, table).items()))
    moved = [*row[:place], HUGE, *row[place + 1 :]]
    if table is t.CHECKPOINT:
        moved[3] = "cp_" + "f" * 32  # its id is there once
    put(medium, table, moved)
    store = world.open(medium)
    assert not verify(store).sound
    store.write(Commit(run="other", records=[Draft("step", "p", 1.0)]))
    store.post("run", "signal", b"still heard")
    assert key in rows(medium, table)
