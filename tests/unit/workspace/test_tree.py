"""One path of a captured tree: found by the directories above it; only a mistake has the whole tree read."""

from __future__ import annotations

import pytest

from holdfast.encode.chunks import ChunkReader
from holdfast.errors import NotFound
from holdfast.workspace.tree import check_named
from unit.workspace.kit import Box, write


class Counting(ChunkReader):
    """Counts what is read."""

    count = 0

    def plain(self, refs):
        self.count += len(refs)
        return super().plain(refs)


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path / "w")


def test_a_path_that_is_only_on_disk_costs_the_directories_above_it(box):
    write(box.root, {f"pkg{number}": {"module": {"a.py": str(number)}} for number in range(50)})
    taken = box.capture()
    write(box.root, {"pkg1": {"module": {"new.py": "x"}}})
    reader = Counting(lambda ids: {name: box.store[name] for name in ids if name in box.store})
    check_named(reader, taken.root, ["pkg1/module/new.py"], str(box.root))
    assert reader.count == 3
    check_named(reader, box.capture().root, ["pkg1/module/new.py"], "/nowhere")
    with pytest.raises(NotFound, match=r"did you mean 'pkg\d+/module/a\.py'"):
        check_named(reader, taken.root, ["pkg1/module/b.py"], str(box.root))


def test_a_path_that_was_known_last_and_is_gone_is_no_mistake(box):
    write(box.root, {"a": "1"})
    first = box.capture()
    write(box.root, {"b": "2"})
    second = box.capture()
    (box.root / "b").unlink()
    check_named(box.reader, first.root, ["b"], str(box.root), last=second.root)
    with pytest.raises(NotFound):
        check_named(box.reader, first.root, ["b"], str(box.root), last=first.root)
