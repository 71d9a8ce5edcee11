"""Encrypted runs travel locked: no plain byte on the way, and the same checksums at the end, whatever the key."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.errors import CheckpointCorrupt, KeyRefused, RunDiffers
from holdfast.model.checkpoint import Marks
from holdfast.store.commit import Commit, Draft
from holdfast.store.keys import keys_of, seal_store
from holdfast.store.memory import MemoryMedium
from holdfast.store.store import Store
from holdfast.store.tables import TABLES
from holdfast.testing.contract import Line, chunk_of
from holdfast.transfer.copy import copy_runs
from holdfast.verify.check import verify
from store_kit import fill, rows

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
    locked.transfer.export(tmp_path / "out" / "run.holdfast", "run")
    assert SECRET.encode() not in bytes_below(tmp_path / "out")
    with holdfast.open(tmp_path / "new" / "store.db") as target:
        with pytest.raises(KeyRefused):
            target.transfer.import_from(tmp_path / "out" / "run.holdfast")
        target.transfer.import_from(tmp_path / "out" / "run.holdfast", key=KEY)
    assert SECRET.encode() not in bytes_below(tmp_path / "new")
    with holdfast.open(tmp_path / "new" / "store.db", key=KEY) as target:
        assert target.verify().sound
        assert target.latest("run").checksum == locked.latest("run").checksum
        assert target.latest("run").section("state") == {"text": SECRET * 30}
    with pytest.raises(KeyRefused):
        holdfast.open(tmp_path / "new" / "store.db")


def contents(hf, run="run"):
    """Return all that a run says about itself."""
    found = hf.checkpoints(run, archived=True)
    return [(cp.record, cp.section("state")) for cp in found], hf.store.tombstones(run)


@pytest.mark.parametrize("sign", [False, True])
def test_a_copy_under_another_key_is_sealed_again_and_verifies(tmp_path, sign):
    """Proves E7, A15: ids, numbers, marks and contents are the same, what is stored is not."""
    with (
        holdfast.open(tmp_path / "source.db", key=KEY, sign=sign) as source,
        holdfast.open(tmp_path / "target" / "t.db", key=holdfast.generate_key(), sign=sign) as target,
    ):
        run = source.run("run")
        made = [run.checkpoint(state={"text": [SECRET, n]}, label=f"{SECRET} {n}") for n in range(5)]
        source.delete(made[1].id, made[4].id)
        told = []
        (copied,) = source.transfer.copy_to(target, progress=lambda *step: told.append(step))
        assert (copied.checkpoints, copied.present, len(told)) == (3, 0, 5)
        assert contents(target) == contents(source)
        assert target.verify().sound
        assert target.latest("run").checksum == source.latest("run").checksum
        if not sign:
            assert SECRET.encode() not in bytes_below(tmp_path / "target")
        source.mark(made[2].id, pinned=True)
        source.delete(made[3].id)
        run.checkpoint(state="one more")
        (again,) = source.transfer.copy_to(target)
        assert (again.checkpoints, again.present, again.marked) == (1, 2, 1)
        assert target.get(made[2].id).pinned
        assert target.verify().sound
        assert target.run("run").checkpoint(state="continues").seq == 7
        assert target.verify().sound


def test_an_interrupted_copy_under_another_key_is_resumed(locked, tmp_path):
    for n in range(4):
        locked.run("run").checkpoint(state=n)

    def break_off(_run, done, _total):
        if done == 3:
            raise KeyboardInterrupt

    with holdfast.open(tmp_path / "other.db", key=holdfast.generate_key()) as other:
        with pytest.raises(KeyboardInterrupt):
            locked.transfer.copy_to(other, progress=break_off)
        assert other.verify().sound
        assert locked.transfer.copy_to(other)[0].present == 2
        assert contents(other) == contents(locked)
        assert other.verify().sound


def test_a_broken_chain_is_not_hidden_by_a_copy(tmp_path):
    """Proves X3: a link is checked on the way."""
    store = seal_store(MemoryMedium(), KEY, sign=True)
    line = Line(store)
    line.commit(chunk_of("one"))
    forged = line.envelope([chunk_of("two")], parent_checksum=b"\1" * 32)
    store.commit(forged, Marks(), [chunk_of("two")], expected_head=line.head.envelope.id)
    target = seal_store(MemoryMedium(), holdfast.generate_key(), sign=True)
    with pytest.raises(CheckpointCorrupt, match="not the one it had"):
        copy_runs(store, target)
    assert target.runs() == []


def test_a_bundle_is_imported_into_a_store_with_another_key(locked, tmp_path):
    """Proves E7, A15."""
    locked.transfer.export(tmp_path / "run.holdfast", "run")
    with holdfast.open(tmp_path / "other" / "o.db", key=holdfast.generate_key()) as other:
        other.run("mine").checkpoint(state=1)
        other.transfer.import_from(tmp_path / "run.holdfast", key=KEY)
        assert contents(other) == contents(locked)
        assert other.verify().sound
    assert SECRET.encode() not in bytes_below(tmp_path / "other")


def test_another_run_of_the_same_id_under_another_key_is_refused(locked, tmp_path):
    with holdfast.open(tmp_path / "other.db", key=holdfast.generate_key()) as other:
        other.run("run").checkpoint(state="mine")
        with pytest.raises(RunDiffers):
            locked.transfer.copy_to(other)
        assert other.latest("run").section("state") == "mine"


def test_plain_runs_can_be_copied_into_an_encrypted_store(locked, tmp_path):
    """Proves E7."""
    with holdfast.open(tmp_path / "plain.db") as plain:
        plain.run("mine").checkpoint(state=SECRET)
        plain.run("mine").checkpoint(state=[SECRET])
        plain.transfer.copy_to(locked)
        assert contents(locked, "mine") == contents(plain, "mine")
    assert locked.verify().sound
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("locked.db*"))


def test_what_is_encrypted_is_never_copied_to_where_it_could_be_read(locked, tmp_path):
    """Proves E7: refused before anything is written."""
    with holdfast.open(tmp_path / "plain.db") as plain:
        plain.run("mine").checkpoint(state=1)
        with pytest.raises(KeyRefused, match="without a key"):
            locked.transfer.copy_to(plain)
        assert [run.id for run in plain.runs()] == ["mine"]
    with holdfast.open(tmp_path / "signed.db", key=KEY, sign=True) as signed:
        with pytest.raises(KeyRefused, match="could be read"):
            locked.transfer.copy_to(signed)
        assert signed.runs() == []


def test_a_target_with_a_key_is_opened_with_it(locked, tmp_path):
    with holdfast.open(tmp_path / "other.db", key=holdfast.generate_key()):
        pass
    with pytest.raises(KeyRefused, match="key_file"):
        locked.transfer.copy_to(tmp_path / "other.db")


def test_a_second_copy_to_a_path_goes_on_under_the_key_that_went_along(locked, tmp_path):
    """Proves A15."""
    locked.transfer.copy_to(tmp_path / "copy.db")
    locked.run("run").checkpoint(state="later")
    assert locked.transfer.copy_to(tmp_path / "copy.db")[0].checkpoints == 1
    with holdfast.open(tmp_path / "copy.db", key=KEY) as copy:
        assert copy.latest("run").checksum == locked.latest("run").checksum


def test_a_fork_under_another_key_travels_with_or_without_the_run_it_was_forked_from():
    """Proves X5: what is missing is said, and is not damage."""
    source = seal_store(MemoryMedium(), KEY)
    trunk, branch = Line(source, "trunk"), Line(source, "branch")
    trunk.commit(chunk_of("one"))
    first = branch.envelope([], parent=trunk.head.envelope.id, parent_checksum=trunk.head.checksum)
    source.commit(first, Marks(), (), expected_head=None)
    alone, both = (seal_store(MemoryMedium(), holdfast.generate_key()) for _ in range(2))
    assert copy_runs(source, alone, ["branch"])[0].missing_parent == trunk.head.envelope.id
    assert verify(alone).sound
    assert len(verify(alone).notes) == 1
    copy_runs(source, both, ["branch", "trunk"])
    assert (verify(both).sound, verify(both).notes) == (True, ())


@pytest.mark.parametrize("sign", [False, True])
def test_journals_inbox_and_accounts_travel_between_stores_of_different_keys(sign):
    """The same numbers and texts, and not one row that the source's key could open or forge in the target."""
    source, medium = seal_store(MemoryMedium(), KEY, sign=sign), MemoryMedium()
    target = seal_store(medium, holdfast.generate_key(), sign=sign)
    for store in (source, target):
        other = holdfast.generate_key()
        keys_of(store).add(other)
        keys_of(store).remove(other)
    fill(source)
    source.write(Commit(run="run", records=[Draft("step", SECRET, 1.0, SECRET.encode(), key=SECRET)]))
    source.journal.compact("run", [4, 5])
    copy_runs(source, target)
    assert verify(target).faults == ()
    texts = [
        [(record.number, record.kind, record.path, record.key, record.body) for record in store.journal.records(line)]
        for store in (source, target)
        for line in [store.line("run")]
    ]
    assert texts[0] == texts[1]
    assert target.inbox("run") == source.inbox("run")
    assert target.accounts("run") == source.accounts("run")
    assert next(target.journal.with_key(target.line("run"), SECRET)).number == 37
    for table in TABLES:
        for key, row in rows(medium, table).items():
            if key != ("keys",):
                with pytest.raises(holdfast.IntegrityError):
                    source.codec.open(table, row)
    if not sign:
        assert SECRET not in repr([rows(medium, table) for table in TABLES])


def test_an_empty_target_gets_the_sources_keys_and_a_data_key_of_its_own():
    """A row of one store put into the other does not open, though the same keys open both."""
    source, medium = seal_store(MemoryMedium(), KEY), MemoryMedium()
    second = holdfast.generate_key()
    keys_of(source).add(second)
    fill(source)
    copy_runs(source, Store(medium))
    for key in (KEY, second):
        target = seal_store(medium, key)
        assert verify(target).sound
        assert target.run("run").head == source.run("run").head
    assert keys_of(target).ids() == keys_of(source).ids()
    for row in rows(medium, TABLES[1]).values():
        with pytest.raises(holdfast.IntegrityError):
            source.codec.open(TABLES[1], row)
