"""Encrypted runs travel locked: no plain byte on the way, the same checksums at the end."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.errors import KeyRefused

SECRET = "a word that nobody shall read"
KEY = holdfast.generate_key()


@pytest.fixture
def locked(tmp_path):
    with holdfast.open(tmp_path / "locked.db", key=KEY) as hf:
        run = hf.run("run")
        first = run.checkpoint(state={"text": SECRET * 20}, label=SECRET)
        run.checkpoint(state={"text": SECRET * 30})
        hf.delete(first.id)
        yield hf


def bytes_below(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_bundle_of_an_encrypted_run_has_no_plain_byte_and_comes_back_the_same(locked, tmp_path):
    """Proves E7, X6."""
    (tmp_path / "out").mkdir()
    locked.export(tmp_path / "out" / "run.holdfast", "run")
    assert SECRET.encode() not in bytes_below(tmp_path / "out")
    with holdfast.open(tmp_path / "new" / "store.db") as target:
        with pytest.raises(KeyRefused):
            target.import_from(tmp_path / "out" / "run.holdfast")
        target.import_from(tmp_path / "out" / "run.holdfast", key=KEY)
    assert SECRET.encode() not in bytes_below(tmp_path / "new")
    with holdfast.open(tmp_path / "new" / "store.db", key=KEY) as target:
        assert target.verify().sound
        assert target.latest("run").checksum == locked.latest("run").checksum
        assert target.latest("run").section("state") == {"text": SECRET * 30}
    with pytest.raises(KeyRefused):
        holdfast.open(tmp_path / "new" / "store.db")


def test_a_copy_into_a_store_with_another_key_or_with_plain_runs_is_refused_before_anything_is_written(
    locked, tmp_path
):
    """Proves E7."""
    with holdfast.open(tmp_path / "other.db", key=holdfast.generate_key()) as other:
        with pytest.raises(KeyRefused, match="another key"):
            locked.copy_to(other)
        assert other.runs() == []
    with holdfast.open(tmp_path / "plain.db") as plain:
        plain.run("mine").checkpoint(state=1)
        with pytest.raises(KeyRefused, match="without a key"):
            locked.copy_to(plain)
        with pytest.raises(KeyRefused, match="checksums"):
            plain.copy_to(locked)
        assert [run.id for run in plain.runs()] == ["mine"]
