from contextlib import contextmanager

import pytest

from holdfast.encode.chunks import Chunk
from holdfast.store.postgres import PostgresMedium
from holdfast.store.store import Store
from holdfast.testing.contract import StoreContract
from postgres_server import shared_server


class TestPostgresStore(StoreContract):
    """The tables are looked at and damaged through a superuser's connection of the test's own."""

    @pytest.fixture(autouse=True)
    def _database(self):
        self.database = shared_server().database()
        yield
        shared_server().drop(self.database)

    def open_store(self, folder):
        return Store(PostgresMedium(self.database, pool_size=4))

    @contextmanager
    def admin(self):
        with shared_server().admin(self.database.split("@/")[1].split("?")[0]) as connection:
            connection.execute("SET search_path = holdfast")
            yield connection

    def query(self, text, *values):
        with self.admin() as connection:
            cursor = connection.execute(text, values, binary=True)
            return cursor.fetchall() if cursor.description else []

    def raw_chunk(self, store, chunk):
        rows = self.query("SELECT id, codec, size, data FROM chunk WHERE id = %s", chunk)
        return Chunk(*rows[0]) if rows else None

    def raw_chunk_ids(self, store):
        return {row[0] for row in self.query("SELECT id FROM chunk")}

    def raw_holds(self, store, run):
        query = (
            "SELECT hold.chunk FROM hold JOIN run ON hold.tenant = run.tenant AND hold.run = run.n "
            "WHERE run.id = %s AND run.tenant = 'default'"
        )
        return {row[0] for row in self.query(query, run)}

    def raw_numbers(self, store, run):
        return [row[0] for row in self.query("SELECT seq FROM checkpoint WHERE run = %s ORDER BY seq", run)]

    def raw_tombstones(self, store, run):
        return {row[0] for row in self.query("SELECT id FROM tombstone WHERE run = %s", run)}

    def damage_chunk(self, store, chunk):
        data = self.raw_chunk(store, chunk).data
        flipped = bytes([data[0] ^ 1]) + data[1:]
        self.query("UPDATE chunk SET data = %s WHERE id = %s", flipped, chunk)

    def lose_chunk(self, store, chunk):
        self.query("DELETE FROM chunk WHERE id = %s", chunk)

    def damage_checkpoint(self, store, checkpoint):
        value = self.query("SELECT value FROM checkpoint WHERE id = %s", checkpoint)[0][0]
        flipped = value[:-1] + bytes([value[-1] ^ 1])
        self.query("UPDATE checkpoint SET value = %s WHERE id = %s", flipped, checkpoint)

    def lose_checkpoint(self, store, checkpoint):
        self.query("DELETE FROM checkpoint WHERE id = %s", checkpoint)

    def raw_records(self, store, run):
        query = (
            "SELECT number FROM record JOIN line ON record.tenant = line.tenant AND record.line = line.n "
            "WHERE line.run = %s AND line.name = 'main' ORDER BY number"
        )
        return [row[0] for row in self.query(query, run)]

    def where(self, run):
        return self.query("SELECT n FROM line WHERE run = %s AND name = 'main'", run)[0][0]

    def damage_record(self, store, run, number):
        place = self.where(run), number
        value = self.query("SELECT value FROM record WHERE line = %s AND number = %s", *place)[0][0]
        flipped = value[:-1] + bytes([value[-1] ^ 1])
        self.query("UPDATE record SET value = %s WHERE line = %s AND number = %s", flipped, *place)

    def lose_record(self, store, run, number):
        self.query("DELETE FROM record WHERE line = %s AND number = %s", self.where(run), number)

    def swap_records(self, store, run, one, other):
        places = [(self.where(run), number) for number in (one, other)]
        query = "SELECT value, seal FROM record WHERE line = %s AND number = %s"
        rows = [self.query(query, *place)[0] for place in places]
        for place, row in zip(places, reversed(rows), strict=True):
            self.query("UPDATE record SET value = %s, seal = %s WHERE line = %s AND number = %s", *row, *place)
