"""The files medium against the memory medium: whatever is done to both, both hold the same, also after reopening."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from crash.children import TORTURE, scratch
from holdfast.encode.chunks import Chunk
from holdfast.store.files import FilesMedium
from holdfast.store.medium import Batch, StaleError
from holdfast.store.memory import MemoryMedium
from holdfast.store.tables import CHECKPOINT, INBOX, LEASE, LINE, META, RECORD, RUN, TABLES

RUNS = {"a": 1, "B:x": 2, "c": 3}


def chunk(number):
    return Chunk(bytes([number]) * 32, 0, 4, bytes([number]) * 4)


def break_off():
    raise KeyboardInterrupt


class Play:
    """Random transactions on both media, a few of them broken off or refused."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.chance = random.Random(seed)
        self.model = MemoryMedium()
        self.media = [FilesMedium(folder), FilesMedium(folder)]

    def row(self, table, run):
        line, blob = RUNS[run] * 10, self.chance.randbytes(self.chance.randrange(200))
        seq, some = self.chance.randrange(1, 9), self.chance.choice([None, "x", "y"])
        return {
            RUN.name: (run, RUNS[run], "p", some, some, self.chance.random(), None, blob, b"s"),
            LINE.name: (run, "main", line, blob, b"s"),
            RECORD.name: (line, seq, self.chance.randrange(3), None, blob, b"s"),
            CHECKPOINT.name: (run, "main", seq, f"cp_{RUNS[run]}{seq}", "t", some, "valid", 1.5, None, blob, b"s"),
            LEASE.name: (run, "main", blob, b"s"),
            INBOX.name: (run, seq, some, blob, b"s"),
        }[table.name]

    def transaction(self, transaction, choices):
        for name, *given in choices:
            getattr(transaction, name)(*given)

    def choices(self):
        run = self.chance.choice(list(RUNS))
        tables = (RUN, LINE, RECORD, CHECKPOINT, LEASE, INBOX)
        found = [("put", RUN, self.row(RUN, run)), ("put", LINE, self.row(LINE, run))]
        for _ in range(self.chance.randrange(6)):
            table = self.chance.choice(tables)
            row = self.row(table, run)
            kind = self.chance.choice(["put", "put", "insert", "drop", "hold", "hold_ids", "release"])
            ids = [chunk(self.chance.randrange(8)).id for _ in range(3)]
            if kind in ("put", "insert"):
                found.append((kind, table, row))
            elif kind == "drop" and table not in (RUN, LINE):  # these end with all that is theirs, below
                found.append((kind, table, row[: self.chance.randrange(1, len(table.key) + 1)]))
            elif kind == "hold":
                found.append((kind, RUNS[run], [chunk(self.chance.randrange(8)) for _ in range(2)]))
            elif kind in ("hold_ids", "release"):
                found.append((kind, RUNS[run], ids))
        if self.chance.random() < 0.1:  # the end of a run
            found += [("drop", RECORD, (RUNS[run] * 10,)), ("release", RUNS[run], None)]
            found += [("drop", table, (run,)) for table in tables if table not in (RECORD, LEASE)]
            found += [("drop", LEASE, (run,))] * self.chance.randrange(2)
        # A chunk that is let go may be taken up again only by who brings it: memory deletes it at once.
        return sorted(found, key=lambda change: change[0] == "hold_ids", reverse=True)

    def step(self):
        medium = self.chance.choice(self.media)
        if self.chance.random() < 0.1:
            self.media.remove(medium)
            medium.close()
            self.media.append(FilesMedium(self.folder))
            return
        if self.chance.random() < 0.1:
            batch = Batch(puts=[(META, (self.chance.choice("xy"), self.chance.randbytes(5), b"s"))])
            medium.apply(batch)
            self.model.apply(batch)
            return
        if self.chance.random() < 0.1:
            medium.reclaim()
            return
        choices, erase = self.choices(), self.chance.random() < 0.5
        breaks = self.chance.random() < 0.1
        ends = []
        for one in (self.model, medium):
            try:
                with one.write(erase=erase) as transaction:
                    self.transaction(transaction, choices)
                    if breaks:
                        break_off()
                ends.append("done")
            except (StaleError, KeyboardInterrupt) as error:
                ends.append(type(error))
        assert ends[0] == ends[1]

    def compare(self):
        for medium in self.media:
            with self.model.read() as expected, medium.read() as found:
                for table in TABLES:
                    assert found.scan(table) == expected.scan(table), table.name
                    for index in table.indexes:
                        assert found.scan(table, index=index.name, reverse=True, limit=5) == expected.scan(
                            table, index=index.name, reverse=True, limit=5
                        )
                for run, number in RUNS.items():
                    assert found.held(number) == expected.held(number)
                    assert found.scan(RECORD, (number * 10,), low=3) == expected.scan(RECORD, (number * 10,), low=3)
                    assert found.get(RUN, (run,)) == expected.get(RUN, (run,))
                held = set().union(*(expected.held(number) for number in RUNS.values()))
                assert found.fetch(list(held)) == expected.fetch(list(held))
            assert medium.in_order_begun() == self.model.in_order_begun()
            assert list(medium.check()) == []


@pytest.mark.parametrize("seed", range(200 if TORTURE else 12))
def test_both_media_hold_the_same_whatever_is_done(seed):
    with scratch() as folder:
        play = Play(folder, seed)
        for _ in range(60):
            play.step()
            play.compare()
        for medium in play.media:
            with closing(medium):
                medium.reclaim()
                assert set(medium.chunk_ids()) == set().union(*(play.model._tables.held(n) for n in RUNS.values()))
