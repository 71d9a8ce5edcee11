"""Rows and envelopes as sealed bytes: every field is under the seal, and is checked before it is believed."""

import msgspec
import pytest

import holdfast
from holdfast.errors import CheckpointCorrupt, FormatTooNew, IntegrityError, LimitExceeded, RunCorrupt, UsageError
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, Marks
from holdfast.store import envelopes
from holdfast.store.codec import RowCodec
from holdfast.store.tables import (
    ACCOUNT,
    CHECKPOINT,
    GAP,
    INBOX,
    LEASE,
    LINE,
    META,
    RECORD,
    RUN,
    TOMBSTONE,
    AccountRow,
    CheckpointRow,
    GapRow,
    InboxRow,
    LeaseRow,
    LineRow,
    MetaRow,
    Record,
    RunRow,
    TombstoneRow,
)
from holdfast.testing.contract import NOON, Line, chunk_of

ENVELOPE = Line(None).envelope([chunk_of("one"), chunk_of("two")])
MARKS = Marks(status="archived", pinned=True, label="here")
DATA, CHECKSUM = envelopes.seal(ENVELOPE)
CHECKPOINT_ROW = CheckpointRow(
    run="run", line="main", seq=1, id=ENVELOPE.id, envelope=DATA, trigger="manual", phase="build",
    created_at=NOON.timestamp(), marks=MARKS, number=4, key="k", attributes={"a": 1, "b": None},
)  # fmt: skip
VALUES = {
    META: MetaRow(name="fact", body=b"x"),
    RUN: RunRow(
        id="run", n=7, created_at=NOON, updated_at=NOON, project="p", key="k", status="running",
        attributes={"a": True}, forked_from="cp",
    ),
    LINE: LineRow(
        run="run", name="main", n=5, created_at=NOON, updated_at=NOON, number=9, chain=b"seal", ranges=((1, 2), (5, 9)),
        head="cp", last_seq=3, checkpoints=2, fence=8, consumed=1,
    ),
    RECORD: Record(
        line=5, number=9, prev=b"p", kind="k", path="a/b", at=1.5, key="key", body=b"body" * 100, chunks=(b"c",)
    ),
    GAP: GapRow(line=5, first=2, last=4, prev=b"p", seal=b"s"),
    CHECKPOINT: CHECKPOINT_ROW,
    TOMBSTONE: TombstoneRow(run="run", line="main", seq=2, id="cp", checksum=b"c" * 32),
    LEASE: LeaseRow(run="run", line="main", owner="me", token=3, expires_at=9.5),
    INBOX: InboxRow(run="run", number=1, kind="signal", at=2.5, key="k", body=b"b"),
    ACCOUNT: AccountRow(run="run", name="tokens", used="5", limit="9"),
}  # fmt: skip
TABLES = pytest.mark.parametrize("table", VALUES, ids=lambda table: table.name)
codec = RowCodec()


@TABLES
def test_a_sealed_row_opens_as_it_was(table):
    """Proves A7."""
    row = codec.close(table, VALUES[table])
    assert codec.open(table, row) == VALUES[table]
    assert len(row) == len(table.all_columns)


@TABLES
def test_every_changed_bit_of_a_value_or_a_seal_is_found(table):
    """Proves X3."""
    row = codec.close(table, VALUES[table])
    for part in (-2, -1):
        for at in range(len(row[part])):
            torn = list(row)
            torn[part] = row[part][:at] + bytes([row[part][at] ^ 1 << at % 8]) + row[part][at + 1 :]
            with pytest.raises(IntegrityError):
                codec.open(table, tuple(torn))


@TABLES
def test_a_row_under_another_key_or_listed_under_another_value_is_found(table):
    """Proves X3: a row is bound to its place, and its columns to what it holds."""
    row = codec.close(table, VALUES[table])
    for place in range(len(row) - 2):
        for other in (row[place] * 2 + 1 if isinstance(row[place], int | float) else f"{row[place]}x", None):
            with pytest.raises(IntegrityError):
                codec.open(table, (*row[:place], other, *row[place + 1 :]))


@TABLES
def test_a_value_of_another_table_is_found(table):
    """Proves X3."""
    row = codec.close(table, VALUES[table])
    for other in VALUES:
        if other is not table:
            with pytest.raises(IntegrityError):
                codec.open(table, (*row[:-2], *codec.close(other, VALUES[other])[-2:]))


@pytest.mark.parametrize("value", [b"", b"\0", b"\1", b"\2x", b"\0\xc1", b"\0\x90", b"\1not zstd", None, "text", 7])
@TABLES
def test_a_value_of_nonsense_is_damage_even_if_it_is_sealed(table, value):
    """Proves D11."""
    row = codec.close(table, VALUES[table])
    seal = codec._seal(_place(table, row), value) if isinstance(value, bytes) else row[-1]
    with pytest.raises(IntegrityError):
        codec.open(table, (*row[:-2], value, seal))


def _place(table, row):
    names = [table.name, *map(str, row[: len(table.key)]), ""]
    return "\0".join(names).encode()


def test_damage_is_named_by_what_it_hit():
    for table, kind in ((CHECKPOINT, CheckpointCorrupt), (RUN, RunCorrupt), (LINE, RunCorrupt), (LEASE, RunCorrupt)):
        row = codec.close(table, VALUES[table])
        with pytest.raises(kind, match="run"):
            codec.open(table, (*row[:-1], b""))


def test_a_sealed_checkpoint_opens_as_it_was():
    """Proves A7."""
    found = envelopes.open_checkpoint(CHECKPOINT_ROW)
    assert (found.envelope, found.checksum, found.marks, found.number) == (ENVELOPE, CHECKSUM, MARKS, 4)
    assert isinstance(found, CheckpointRecord)


@pytest.mark.parametrize("changes", [{"id": "cp_" + "0" * 32}, {"run": "walk"}, {"seq": 2}])
def test_an_envelope_in_anothers_place_is_found(changes):
    """Proves X3."""
    with pytest.raises(CheckpointCorrupt, match="belongs to"):
        envelopes.open_checkpoint(msgspec.structs.replace(CHECKPOINT_ROW, **changes))


@pytest.mark.parametrize("is_short", [False, True])
def test_a_newer_envelope_is_told_from_a_damaged_one_and_names_itself(is_short):
    """Proves A7."""
    fields = msgspec.msgpack.decode(DATA)
    fields[0] = FORMAT_VERSION + 1
    data = msgspec.msgpack.encode(fields[:2] if is_short else fields)
    with pytest.raises(FormatTooNew) as caught:
        envelopes.open_checkpoint(msgspec.structs.replace(CHECKPOINT_ROW, envelope=data))
    assert (caught.value.found, caught.value.known) == (FORMAT_VERSION + 1, FORMAT_VERSION)
    assert ENVELOPE.id in str(caught.value)
    assert "upgrade" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\xc0", b"\x90", b"\x91\x01", msgspec.msgpack.encode({"id": "x"})])
def test_an_envelope_of_nonsense_is_corrupt(content):
    """Proves D11."""
    with pytest.raises(CheckpointCorrupt):
        envelopes.open_checkpoint(msgspec.structs.replace(CHECKPOINT_ROW, envelope=content))


def test_what_a_row_cannot_hold_is_a_usage_error():
    with pytest.raises(UsageError):
        envelopes.seal(msgspec.structs.replace(ENVELOPE, reason="\ud800"))
    with pytest.raises(UsageError):
        codec.close(CHECKPOINT, msgspec.structs.replace(CHECKPOINT_ROW, marks=Marks(label="\ud800")))
    with pytest.raises(UsageError):
        codec.close(LINE, msgspec.structs.replace(VALUES[LINE], number=1 << 70))
    with pytest.raises(LimitExceeded):
        codec.close(RECORD, msgspec.structs.replace(VALUES[RECORD], body=bytes(2_000_000)))
    with pytest.raises(LimitExceeded):
        envelopes.seal(msgspec.structs.replace(ENVELOPE, reason="x" * 2_000_000))


def test_the_size_of_a_checkpoint_is_that_of_its_sections():
    assert ENVELOPE.size_bytes == 6


def test_a_row_of_another_versions_form_says_so_and_not_that_it_is_damaged(tmp_path):
    """Budgets of a run were once only named in its row."""
    with holdfast.open(tmp_path / "a.db") as hf:
        hf.run("run").checkpoint(state=1)
        store = hf.store
        with store.medium.write() as transaction:
            (value,) = [store.codec.open(RUN, row) for row in transaction.scan(RUN)]
            old = msgspec.structs.replace(value, accounts=("tokens",))
            transaction.put(RUN, store.codec.close(RUN, old))
        with pytest.raises(RunCorrupt, match="open it with the one that wrote it"):
            store.run("run")
