from holdfast.encode.chunks import Chunk
from holdfast.store.memory import MemoryMedium
from holdfast.store.store import Store
from holdfast.testing.contract import StoreContract


class TestMemoryStore(StoreContract):
    def open_store(self, folder):
        return Store(MemoryMedium())

    def tables(self, store):
        return store.medium._tables

    def raw_chunk(self, store, chunk):
        return self.tables(store).chunks.get(chunk)

    def raw_chunk_ids(self, store):
        return set(self.tables(store).chunks)

    def raw_holds(self, store, run):
        rows = self.tables(store).tables["run"].rows
        return set(self.tables(store).holds.get(rows[(run,)][1], ())) if (run,) in rows else set()

    def raw_numbers(self, store, run):
        return sorted(key[2] for key in self.tables(store).tables["checkpoint"].rows if key[0] == run)

    def raw_tombstones(self, store, run):
        return {row[3] for key, row in self.tables(store).tables["tombstone"].rows.items() if key[0] == run}

    def damage_chunk(self, store, chunk):
        was = self.tables(store).chunks[chunk]
        damaged = Chunk(was.id, was.codec, was.size, bytes([was.data[0] ^ 1]) + was.data[1:])
        self.tables(store).chunks[chunk] = damaged

    def lose_chunk(self, store, chunk):
        del self.tables(store).chunks[chunk]

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
