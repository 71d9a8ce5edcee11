from contextlib import closing

import apsw

from holdfast.encode.chunks import Chunk
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.contract import StoreContract


class TestSQLiteStore(StoreContract):
    """The file is looked at and damaged through a connection of the test's own."""

    def open_store(self, folder):
        return SQLiteStore(folder / "holdfast.db", durability="process")

    def query(self, store, text, *values):
        with closing(apsw.Connection(str(store.path))) as connection:
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
        envelope = self.query(store, "SELECT envelope FROM checkpoint WHERE id = ?", checkpoint)[0][0]
        flipped = envelope[:-1] + bytes([envelope[-1] ^ 1])
        self.query(store, "UPDATE checkpoint SET envelope = ? WHERE id = ?", flipped, checkpoint)

    def lose_checkpoint(self, store, checkpoint):
        self.query(store, "DELETE FROM checkpoint WHERE id = ?", checkpoint)
