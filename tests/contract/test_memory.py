from holdfast.encode.chunks import Chunk
from holdfast.store.memory import MemoryStore
from holdfast.testing.contract import StoreContract


class TestMemoryStore(StoreContract):
    def open_store(self, folder):
        return MemoryStore()

    def raw_chunk(self, store, chunk):
        return store._chunks.get(chunk)

    def raw_chunk_ids(self, store):
        return set(store._chunks)

    def raw_holds(self, store, run):
        return set(store._holds.get(run, ()))

    def raw_numbers(self, store, run):
        return sorted(store._checkpoints.get(run, ()))

    def raw_tombstones(self, store, run):
        return set(store._tombstones.get(run, ()))

    def damage_chunk(self, store, chunk):
        was = store._chunks[chunk]
        store._chunks[chunk] = Chunk(was.id, was.codec, was.size, bytes([was.data[0] ^ 1]) + was.data[1:])

    def lose_chunk(self, store, chunk):
        del store._chunks[chunk]
