"""The contract over stores behind a key: the medium is looked at without it, and translated here."""

import os

import pytest

from holdfast import generate_key
from holdfast.encode.chunks import Chunk
from holdfast.store.memory import MemoryStore
from holdfast.store.sealed import KEYS_RUN, seal_store
from holdfast.testing.contract import Line, StoreContract, chunk_of


class SealedContract(StoreContract):
    sign = False

    def open_store(self, folder):
        return seal_store(MemoryStore(), generate_key(), sign=self.sign)

    def hidden(self, store, chunk):
        return chunk if self.sign else store._vault.hide(chunk)

    def shown(self, store, chunks):
        return set(chunks) if self.sign else set(map(store._vault.show, chunks))

    def raw_chunk(self, store, chunk):
        stored = store.inner._chunks.get(self.hidden(store, chunk))
        return stored if stored is None or self.sign else store._unlocked_chunk(chunk, stored)

    def raw_chunk_ids(self, store):
        return self.shown(store, store.inner._chunks)

    def raw_holds(self, store, run):
        return self.shown(store, store.inner._holds.get(run, ()))

    def raw_numbers(self, store, run):
        return sorted(store.inner._checkpoints.get(run, ()))

    def raw_tombstones(self, store, run):
        return set(store.inner._tombstones.get(run, ()))

    def damage_chunk(self, store, chunk):
        name = self.hidden(store, chunk)
        was = store.inner._chunks[name]
        store.inner._chunks[name] = Chunk(was.id, was.codec, was.size, was.data[:-1] + bytes([was.data[-1] ^ 1]))

    def lose_chunk(self, store, chunk):
        del store.inner._chunks[self.hidden(store, chunk)]


class TestEncryptedStore(SealedContract):
    def test_the_medium_sees_neither_names_nor_contents(self, store):
        data = os.urandom(100)
        name = os.urandom(32)
        locked = store._locked_chunk(Chunk(name, 0, len(data), data))
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


def test_the_keys_stand_in_a_run_of_their_own():
    inner = MemoryStore()
    assert [run.id for run in seal_store(inner, generate_key()).runs()] == []
    assert [run.id for run in inner.runs()] == [KEYS_RUN]
    with pytest.raises(Exception, match="encrypted or signed"):
        seal_store(inner, None)
