from contextlib import closing

import apsw

from holdfast.encode.chunks import Chunk
from holdfast.store.sqlite import SQLiteMedium
from holdfast.store.store import Store
from holdfast.testing.contract import StoreContract


class TestSQLiteStore(StoreContract):
    """The file is looked at and damaged through a connection of the test's own."""

    def open_store(self, folder):
        return Store(SQLiteMedium(folder / "holdfast.db", durability="process"))

    def query(self, store, text, *values):
        with closing(apsw.Connection(str(store.medium.path))) as connection:
            connection.set_busy_timeout(10_000)
            return connection.execute(text, values).fetchall()

    def raw_chunk(self, store, chunk):
        rows = self.query(store, "SELECT id, codec, size, data FROM chunk WHERE id = ?", chunk)
        return Chunk(*rows[0]) if rows else None

    def raw_chunk_ids(self, store):
        return {row[0] for row in self.query(store, "SELECT id FROM chunk")}

    def raw_holds(self, store, run):
        query = (
            "SELECT chunk.id FROM hold JOIN chunk ON hold.chunk = chunk.n JOIN run ON hold.run = run.n WHERE run.id = ?"
        )
        return {row[0] for row in self.query(store, query, run)}

    def raw_numbers(self, store, run):
        return [row[0] for row in self.query(store, "SELECT seq FROM checkpoint WHERE run = ? ORDER BY seq", run)]

    def raw_tombstones(self, store, run):
        return {row[0] for row in self.query(store, "SELECT id FROM tombstone WHERE run = ?", run)}

    def damage_chunk(self, store, chunk):
        data = self.raw_chunk(store, chunk).data
        flipped = bytes([data[0] ^ 1]) + data[1:]
        self.query(store, "UPDATE chunk SET data = ? WHERE id = ?", flipped, chunk)

    def lose_chunk(self, store, chunk):
        self.query(store, "DELETE FROM chunk WHERE id = ?", chunk)

    def damage_checkpoint(self, store, checkpoint):
        value = self.query(store, "SELECT value FROM checkpoint WHERE id = ?", checkpoint)[0][0]
        flipped = value[:-1] + bytes([value[-1] ^ 1])
        self.query(store, "UPDATE checkpoint SET value = ? WHERE id = ?", flipped, checkpoint)

    def lose_checkpoint(self, store, checkpoint):
        self.query(store, "DELETE FROM checkpoint WHERE id = ?", checkpoint)

    def n(self, store, run):
        return self.query(store, "SELECT n FROM line WHERE run = ? AND name = 'main'", run)[0][0]

    def place(self, store, run, number):
        return self.n(store, run) << 32 | number

    def raw_records(self, store, run):
        query = "SELECT n & 4294967295 FROM record WHERE n >> 32 = (SELECT n FROM line WHERE run = ? AND name = 'main')"
        return [row[0] for row in self.query(store, f"{query} ORDER BY n", run)]

    def damage_record(self, store, run, number):
        place = self.place(store, run, number)
        value = self.query(store, "SELECT value FROM record WHERE n = ?", place)[0][0]
        flipped = value[:-1] + bytes([value[-1] ^ 1])
        self.query(store, "UPDATE record SET value = ? WHERE n = ?", flipped, place)

    def lose_record(self, store, run, number):
        self.query(store, "DELETE FROM record WHERE n = ?", self.place(store, run, number))

    def swap_records(self, store, run, one, other):
        places = [self.place(store, run, number) for number in (one, other)]
        rows = [self.query(store, "SELECT value, seal FROM record WHERE n = ?", place)[0] for place in places]
        for place, row in zip(places, reversed(rows), strict=True):
            self.query(store, "UPDATE record SET value = ?, seal = ? WHERE n = ?", *row, place)
