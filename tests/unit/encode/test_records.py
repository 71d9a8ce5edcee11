from datetime import UTC, datetime

import msgspec
import pytest
from blake3 import blake3

from holdfast.encode import records
from holdfast.errors import CheckpointCorrupt, FormatTooNew, RunCorrupt, UsageError
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, Marks, RunRecord
from holdfast.testing.contract import Line, chunk_of

ENVELOPE = Line(None).envelope([chunk_of("one"), chunk_of("two")])
MARKS = Marks(status="archived", pinned=True, label="here")
RUN = RunRecord(
    format_version=FORMAT_VERSION,
    id="run",
    head=ENVELOPE.id,
    last_seq=3,
    checkpoints=2,
    created_at=datetime(2030, 1, 1, tzinfo=UTC),
    updated_at=datetime(2030, 1, 2, tzinfo=UTC),
    holds=5,
    holds_sum=9,
)


def sealed(data):
    return data, blake3(data).digest()


def stored(envelope=ENVELOPE, marks=MARKS, name=ENVELOPE.id):
    return *records.seal(envelope), *records.seal_marks(name, marks)


def test_a_sealed_checkpoint_opens_as_it_was():
    """Proves A7."""
    data, checksum, marks, marks_checksum = stored()
    opened = records.open_checkpoint(ENVELOPE.id, data, checksum, marks, marks_checksum)
    assert opened == CheckpointRecord(ENVELOPE, checksum, MARKS)


def test_a_sealed_run_opens_as_it_was():
    assert records.open_run("run", *records.seal(RUN)) == RUN


@pytest.mark.parametrize("part", range(4))
def test_every_changed_bit_of_a_checkpoints_row_is_found(part):
    """Proves X3."""
    row = stored()
    for at in range(len(row[part])):
        for bit in range(8):
            torn = list(row)
            torn[part] = torn[part][:at] + bytes([torn[part][at] ^ 1 << bit]) + torn[part][at + 1 :]
            with pytest.raises(CheckpointCorrupt) as caught:
                records.open_checkpoint(ENVELOPE.id, *torn)
            assert caught.value.checkpoint == ENVELOPE.id


@pytest.mark.parametrize("part", range(2))
def test_every_changed_bit_of_a_runs_row_is_found(part):
    """Proves X3."""
    row = records.seal(RUN)
    for at in range(len(row[part])):
        torn = list(row)
        torn[part] = torn[part][:at] + bytes([torn[part][at] ^ 0x10]) + torn[part][at + 1 :]
        with pytest.raises(RunCorrupt) as caught:
            records.open_run("run", *torn)
        assert caught.value.run == "run"


def test_a_record_or_marks_put_in_anothers_place_are_found():
    """Proves X3."""
    other = "cp_" + "0" * 32
    data, checksum, marks, marks_checksum = stored()
    with pytest.raises(CheckpointCorrupt, match="marks"):
        records.open_checkpoint(other, data, checksum, marks, marks_checksum)
    with pytest.raises(CheckpointCorrupt, match="belongs to"):
        records.open_checkpoint(other, data, checksum, *records.seal_marks(other, MARKS))
    with pytest.raises(RunCorrupt, match="belongs to"):
        records.open_run("walk", *records.seal(RUN))


def test_a_tombstone_seals_everything_it_says():
    seals = {
        records.seal_tombstone("run", 1, "cp", b"a"),
        records.seal_tombstone("nur", 1, "cp", b"a"),
        records.seal_tombstone("run", 2, "cp", b"a"),
        records.seal_tombstone("run", 1, "pc", b"a"),
        records.seal_tombstone("run", 1, "cp", b"b"),
    }
    assert len(seals) == 5


@pytest.mark.parametrize("grown", [False, True])
def test_a_newer_record_is_told_from_a_damaged_one_and_names_itself(grown):
    """Proves A7."""
    for record, name, opens in (
        (ENVELOPE, ENVELOPE.id, lambda row: records.open_checkpoint(ENVELOPE.id, *row, *stored()[2:])),
        (RUN, "run", lambda row: records.open_run("run", *row)),
    ):
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
        fields[0] = FORMAT_VERSION + 1
        row = sealed(msgspec.msgpack.encode(fields[:2] if grown else fields))
        with pytest.raises(FormatTooNew) as caught:
            opens(row)
        assert (caught.value.found, caught.value.known) == (FORMAT_VERSION + 1, FORMAT_VERSION)
        assert name in str(caught.value)
        assert "upgrade" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\xc0", b"\x90", b"\x91\x01", msgspec.msgpack.encode({"id": "x"})])
def test_a_sealed_record_of_nonsense_is_corrupt(content):
    """Proves D11."""
    with pytest.raises(CheckpointCorrupt):
        records.open_checkpoint(ENVELOPE.id, *sealed(content), *stored()[2:])
    with pytest.raises(RunCorrupt):
        records.open_run("run", *sealed(content))


@pytest.mark.parametrize("marks", [[7, False, None], ["no such", False, None], ["valid", "yes", None], [2, 3, 4]])
def test_sealed_marks_of_nonsense_are_corrupt(marks):
    content = msgspec.msgpack.encode(marks)
    seal = blake3(ENVELOPE.id.encode() + b"\0" + content).digest()
    with pytest.raises(CheckpointCorrupt):
        records.open_checkpoint(ENVELOPE.id, *stored()[:2], content, seal)


def test_what_a_record_cannot_hold_is_a_usage_error():
    with pytest.raises(UsageError):
        records.seal(msgspec.structs.replace(ENVELOPE, reason="\ud800"))
    with pytest.raises(UsageError):
        records.seal_marks(ENVELOPE.id, Marks(label="\ud800"))
    with pytest.raises(UsageError):
        records.seal(msgspec.structs.replace(RUN, holds=1 << 70))


def test_the_size_of_a_checkpoint_is_that_of_its_sections():
    assert ENVELOPE.size_bytes == 6
