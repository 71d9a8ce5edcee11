"""Sections whose bytes are sound by their hash, but are not what this program writes: a hostile or a later store."""

import msgspec
import ormsgpack
import pytest

from holdfast import CheckpointCorrupt, Holdfast, HoldfastError, UnknownType
from holdfast.encode.chunks import Chunk
from holdfast.encode.tree import LEAF, leaf_id
from holdfast.model.checkpoint import Marks, SectionRecord
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.contract import Line


def stored(folder, name, data, **changes):
    """Commit bytes as a section behind the encoder's back, and return the checkpoint."""
    store = SQLiteStore(folder / "x.db", durability="process")
    line = Line(store)
    chunk = Chunk(leaf_id(data), 0, len(data), data)
    section = msgspec.structs.replace(SectionRecord(name, LEAF, chunk.id, len(data)), **changes)
    envelope = line.envelope((), sections=(section,))
    store.commit(envelope, Marks(), [chunk], expected_head=None)
    return Holdfast(store).latest("run")


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01", b"\xdd\xff\xff\xff\xff", b"\xd4\x63\0"])
def test_bytes_that_are_no_value_are_corruption_that_names_checkpoint_and_section(data, tmp_path):
    """Proves D11, X3."""
    cp = stored(tmp_path, "state", data)
    with pytest.raises(CheckpointCorrupt) as caught:
        cp.section("state")
    assert caught.value.checkpoint == cp.id
    assert "section state" in str(caught.value)


def test_a_typed_section_of_another_shape_is_corruption_never_a_wrong_value(tmp_path):
    """Proves D11."""
    cp = stored(tmp_path, "workflow", ormsgpack.packb({"current_state": 5}))
    with pytest.raises(CheckpointCorrupt, match=r"\$.current_state"):
        cp.section("workflow")


def test_a_type_that_nobody_registered_is_named(tmp_path):
    """Proves D11."""
    data = ormsgpack.packb(ormsgpack.Ext(14, ormsgpack.packb(["os.system", "true"])))
    with pytest.raises(UnknownType, match=r"os\.system"):
        stored(tmp_path, "state", data).section("state")


@pytest.mark.parametrize(
    "changes", [{"size": -1}, {"size": 1 << 40}, {"size": 0}, {"kind": 2}, {"kind": 9}, {"root": b""}]
)
def test_a_section_record_that_lies_is_refused(changes, tmp_path):
    """Proves D11, X3."""
    with pytest.raises(HoldfastError):
        stored(tmp_path, "state", b"\x01", **changes).section("state")
