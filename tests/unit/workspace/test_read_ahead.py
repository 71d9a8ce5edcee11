"""Contents of a restore that are fetched ahead: the right bytes in any order, and damage found as without it."""

from __future__ import annotations

import threading

import pytest

from holdfast.encode.chunks import ChunkReader, ChunkWriter
from holdfast.encode.compress import Codec, Compressor
from holdfast.errors import ChunkCorrupt
from holdfast.workspace.directory import FILE, Entry
from holdfast.workspace.read_ahead import ReadAhead
from holdfast.workspace.state import State


class Contents:
    """Files in a store in memory that counts how often it is asked."""

    def __init__(self, codec="zstd"):
        self.writer = ChunkWriter(Compressor(codec))
        self.asked = 0
        self.reader = ChunkReader(self._fetch)

    def _fetch(self, names):
        self.asked += 1
        return {name: self.writer.chunks[name] for name in names if name in self.writer.chunks}

    def file(self, data):
        return State.of(Entry(b"f", FILE, 0o644, self.writer.leaf(data) if data else None))

    def cut(self, *parts):
        return State.of(Entry(b"f", FILE, 0o644, self.writer.node([self.writer.leaf(part) for part in parts])))

    def read(self, states):
        with ReadAhead(self.reader, iter(states)) as ahead:
            return [b"".join(ahead.content(state)) for state in states]


def words(number):
    return b"%d words of a file " % number * (1 + number % 90)


@pytest.mark.parametrize("codec", ["zstd", "none", "gzip"])
def test_many_files_come_back_in_order_and_are_asked_for_in_batches(codec):
    box = Contents(codec)
    data = [words(number) for number in range(1000)]
    states = [box.file(item) for item in data]
    assert box.read(states) == data
    assert box.asked == 4
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("holdfast-unpack")]


def test_empty_files_files_in_pieces_and_equal_files_stand_among_them():
    box = Contents()
    data, states = [], []
    for number in range(700):
        if number % 50 == 7:
            data.append(words(number) + words(1))
            states.append(box.cut(words(number), words(1)))
        else:
            data.append(b"" if number % 50 == 8 else words(number % 300))
            states.append(box.file(data[-1]))
    assert box.read(states) == data


def test_a_file_that_was_not_announced_is_read_all_the_same():
    box = Contents()
    states = [box.file(words(number)) for number in range(600)]
    with ReadAhead(box.reader, states[:300]) as ahead:
        assert b"".join(ahead.content(states[599])) == words(599)
        assert [b"".join(ahead.content(state)) for state in states] == [words(number) for number in range(600)]


@pytest.mark.parametrize(
    "harm",
    [
        lambda _: None,
        lambda chunk: chunk._replace(data=chunk.data + b"more"),
        lambda chunk: chunk._replace(data=chunk.data[:-1]),
        lambda chunk: chunk._replace(size=chunk.size + 1),
        lambda chunk: chunk._replace(codec=Codec.NONE, data=b"other", size=5),
        lambda chunk: chunk._replace(codec=Codec.NONE, data=b"x" * chunk.size),
        lambda chunk: chunk._replace(codec=7),
    ],
    ids=["missing", "longer", "shorter", "another size", "another file", "other bytes of its size", "unknown codec"],
)
@pytest.mark.parametrize("at", [0, 255, 256, 599])
def test_damage_is_refused_whatever_batch_it_is_in(harm, at):
    box = Contents()
    states = [box.file(words(number)) for number in range(600)]
    name = bytes.fromhex(states[at].hash)
    harmed = harm(box.writer.chunks.pop(name))
    if harmed is not None:
        box.writer.chunks[name] = harmed
    with pytest.raises(ChunkCorrupt, match=states[at].hash[:16]):
        box.read(states)
