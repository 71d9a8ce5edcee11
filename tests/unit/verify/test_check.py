import msgspec
import pytest

from holdfast import Holdfast
from holdfast.model.checkpoint import Marks
from holdfast.store.memory import MemoryStore
from holdfast.testing.contract import Line, chunk_of
from holdfast.verify.check import faults_in, verify


@pytest.fixture
def store():
    return MemoryStore()


def kinds(store):
    return [fault.kind for fault in verify(store).faults]


def test_a_sound_store_has_no_faults_and_everything_is_counted(store):
    """Proves A10."""
    hf = Holdfast(store)
    for run in ("a", "b"):
        for step in range(3):
            hf.run(run).checkpoint(state={"run": run, "log": [f"{n}" * 40 for n in range(step * 2000)]})
    report = hf.verify()
    assert report.sound
    assert (report.runs, report.checkpoints, report.chunks) == (2, 6, store.stats().chunks)


def test_progress_is_told_as_it_goes(store):
    told = []
    line = Line(store)
    for n in range(3):
        line.commit(chunk_of(f"{n}"))
    verify(store, progress=lambda what, count: told.append((what, count)))
    assert [count for what, count in told if what == "checkpoints"] == [1, 2, 3]
    assert max(count for what, count in told if what == "chunks") == 3


def test_a_deleted_parent_is_no_fault(store):
    line = Line(store)
    first = line.commit()
    line.commit()
    store.delete("run", [first.envelope.id])
    assert kinds(store) == []


def test_a_parent_that_is_not_the_one_it_was_is_a_broken_link(store):
    """Proves X3."""
    line = Line(store)
    first = line.commit()
    line.commit()
    forged = msgspec.structs.replace(first.envelope, reason="history rewritten")
    store._checkpoints["run"][1] = msgspec.structs.replace(first, envelope=forged, checksum=b"\1" * 32)
    assert kinds(store) == ["link"]


def test_a_parent_that_is_missing_is_a_broken_link(store):
    """Proves X3."""
    line = Line(store)
    line.commit()
    line.commit()
    del store._checkpoints["run"][1]
    assert set(kinds(store)) == {"run", "link"}


def test_a_head_that_is_not_there_is_a_fault(store):
    """Proves X3."""
    line = Line(store)
    line.commit()
    line.commit()
    store.mark(line.head.envelope.id, Marks())
    store._runs["run"] = msgspec.structs.replace(store._runs["run"], head="cp_" + "0" * 32)
    assert kinds(store) == ["head"]


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_bad_chunk_is_a_fault_of_every_section_that_needs_it(store, damage):
    """Proves X3."""
    line, shared = Line(store), chunk_of("shared")
    first, second = line.commit(shared), line.commit(shared, chunk_of("own"))
    if damage == "lost":
        del store._chunks[shared.id]
    else:
        store._chunks[shared.id] = shared._replace(data=b"shaped")
    faults = verify(store).faults
    assert {(fault.kind, fault.checkpoint, fault.section) for fault in faults} >= {
        ("chunk", first.envelope.id, "s0"),
        ("chunk", second.envelope.id, "s0"),
    }
    assert [fault.section for fault in faults_in(store, second)] == ["s0"]
    assert faults_in(store, first)


def test_a_bad_chunk_deep_in_a_tree_is_a_fault_of_its_section(store):
    """Proves X3."""
    hf = Holdfast(store)
    cp = hf.run("r").checkpoint(state={"log": [f"{n} " * 50 for n in range(3000)]})
    leaf = max(store._chunks.values(), key=lambda chunk: chunk.size)
    assert leaf.id != cp.record.envelope.sections[0].root
    store._chunks[leaf.id] = leaf._replace(data=leaf.data[:-1] + bytes([leaf.data[-1] ^ 1]))
    (fault,) = hf.verify().faults
    assert (fault.checkpoint, fault.section) == (cp.id, "state")
    assert leaf.id.hex()[:16] in fault.detail


def test_a_bad_chunk_that_nothing_needs_is_a_fault_as_well(store):
    """Proves X3."""
    line, stray = Line(store), chunk_of("stray")
    doomed = line.commit(stray)
    line.commit()
    store.delete("run", [doomed.envelope.id])
    assert kinds(store) == []
    store._chunks[stray.id] = stray._replace(data=b"strap")
    (fault,) = verify(store).faults
    assert (fault.kind, fault.chunk) == ("chunk", stray.id.hex())


@pytest.mark.parametrize("what", ["commit", "delete the head", "delete the run"])
def test_what_others_do_between_two_looks_is_no_damage(what):
    class Busy(MemoryStore):
        """A store in which somebody else is quick once, just before the checkpoints are listed."""

        line: Line | None = None

        def checkpoints(self, run, **options):
            line, self.line = self.line, None
            if line and what == "commit":
                line.commit(chunk_of("more"))
            elif line and what == "delete the head":
                self.delete(run, [line.head.envelope.id])
            elif line:
                self.delete_run(run)
            return super().checkpoints(run, **options)

    store = Busy()
    line = Line(store)
    for n in range(3):
        line.commit(chunk_of(f"{n}"))
    store.line = line
    assert verify(store).faults == ()
    assert store.line is None
