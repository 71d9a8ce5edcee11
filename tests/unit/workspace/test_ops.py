"""The file operations of a restore."""

from __future__ import annotations

import os

import pytest

from holdfast.workspace.ops import FileOps


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_all_bytes_are_written_when_the_system_takes_only_some_at_once(tmp_path, monkeypatch, at_once):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, bytes(data)[:at_once]))
    place = os.open(tmp_path, os.O_RDONLY)
    for name, data in ((b"some", bytes(range(50))), (b"none", b"")):
        handle = FileOps().create(place, name)
        FileOps().write(handle, data)
        os.close(handle)
        assert (tmp_path / os.fsdecode(name)).read_bytes() == data
    os.close(place)
