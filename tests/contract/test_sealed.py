"""The contract over stores behind a key: the medium is looked at without it, and translated here."""

import os

import pytest

from holdfast import generate_key
from holdfast.encode.chunks import Chunk
from holdfast.errors import KeyRefused
from holdfast.store.keys import KEYS, keys_of, seal_store
from holdfast.store.memory import MemoryMedium
from holdfast.store.tables import META
from holdfast.testing.contract import Line, StoreContract, chunk_of


class SealedContract(StoreContract):
    sign = False
    rotations = 0

    def open_store(self, folder):
        store = seal_store(MemoryMedium(), generate_key(), sign=self.sign)
        for _ in range(self.rotations):
            key = generate_key()
            keys_of(store).add(key)
            keys_of(store).remove(key)
        return store

    def tables(self, store):
        return store.medium._tables

    def hidden(self, store, chunk):
        return store.codec.stored_names(chunk)[0]

    def shown(self, store, chunks):
        return set(map(store.codec.true_name, chunks))

    def raw_chunk(self, store, chunk):
        stored = self.tables(store).chunks.get(self.hidden(store, chunk))
        return None if stored is None else store.codec.open_chunk(chunk, stored)

    def raw_chunk_ids(self, store):
        return self.shown(store, self.tables(store).chunks)

    def raw_holds(self, store, run):
        rows = self.tables(store).tables["run"].rows
        held = self.tables(store).holds.get(rows[(run,)][1], ()) if (run,) in rows else ()
        return self.shown(store, held)

    def raw_numbers(self, store, run):
        return sorted(key[2] for key in self.tables(store).tables["checkpoint"].rows if key[0] == run)

    def raw_tombstones(self, store, run):
        return {row[3] for key, row in self.tables(store).tables["tombstone"].rows.items() if key[0] == run}

    def damage_chunk(self, store, chunk):
        name = self.hidden(store, chunk)
        was = self.tables(store).chunks[name]
        self.tables(store).chunks[name] = was._replace(data=was.data[:-1] + bytes([was.data[-1] ^ 1]))

    def lose_chunk(self, store, chunk):
        del self.tables(store).chunks[self.hidden(store, chunk)]

    def records(self, store, run):
        tables = self.tables(store).tables
        line = tables["line"].rows.get((run, "main"))
        return tables["record"].rows, None if line is None else line[2]

    def raw_records(self, store, run):
        rows, n = self.records(store, run)
        return sorted(key[1] for key in rows if key[0] == n)

    def damage_record(self, store, run, number):
        rows, n = self.records(store, run)
        *cells, value, seal = rows[n, number]
        rows[n, number] = (*cells, value[:-1] + bytes([value[-1] ^ 1]), seal)

    def lose_record(self, store, run, number):
        _, n = self.records(store, run)
        self.tables(store).tables["record"].drop((n, number))

    def swap_records(self, store, run, one, other):
        rows, n = self.records(store, run)
        first, second = rows[n, one], rows[n, other]
        rows[n, one], rows[n, other] = (*first[:-2], *second[-2:]), (*second[:-2], *first[-2:])


class TestEncryptedStore(SealedContract):
    def test_the_medium_sees_neither_names_nor_contents(self, store):
        data = os.urandom(100)
        name = os.urandom(32)
        locked = store.codec.close_chunk(Chunk(name, 0, len(data), data))
        assert name not in (locked.id, locked.data)
        assert data not in locked.data

    def test_statistics_count_what_is_there(self, store):
        """Locking adds 29 bytes to each chunk, and the statistics say so."""
        Line(store).commit(chunk_of("one"), chunk_of("two"))
        stats = store.stats()
        assert (stats.runs, stats.checkpoints, stats.chunks) == (1, 1, 2)
        assert stats.stored_bytes == stats.chunk_bytes + 2 * 29


class TestSignedStore(SealedContract):
    sign = True


class TestRotatedEncryptedStore(TestEncryptedStore):
    rotations = 2


class TestRotatedSignedStore(SealedContract):
    sign = True
    rotations = 2


def test_the_keys_stand_in_a_row_of_their_own():
    medium = MemoryMedium()
    store = seal_store(medium, generate_key())
    assert store.runs() == []
    assert (KEYS,) in medium._tables.tables[META.name].rows
    with pytest.raises(KeyRefused, match="encrypted or signed"):
        seal_store(medium, None)
