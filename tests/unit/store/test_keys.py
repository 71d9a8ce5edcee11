"""Keys of a store on a memory medium: attacks with write access to it, rotation, and two processes at once."""

import threading

import msgspec
import pytest

from holdfast import Holdfast, generate_key
from holdfast.encode.encrypt import key_id, parse_key
from holdfast.errors import ChunkCorrupt, IntegrityError, KeyRefused, NotFound, RunCorrupt, StoreCorrupt, UsageError
from holdfast.model.checkpoint import Marks
from holdfast.store.codec import RowCodec
from holdfast.store.commit import Commit, Draft
from holdfast.store.keys import KEYS, WITNESS, keys_of, seal_store
from holdfast.store.memory import MemoryMedium
from holdfast.store.repair import Repair
from holdfast.store.store import Store
from holdfast.store.tables import (
    CHECKPOINT,
    INBOX,
    LEASE,
    LINE,
    META,
    RECORD,
    RUN,
    TABLES,
    TOMBSTONE,
    InboxRow,
    LeaseRow,
    MetaRow,
    TombstoneRow,
)
from holdfast.testing.contract import NOON, Line, chunk_of
from holdfast.verify.check import verify
from store_kit import drop_row, fill, put_back, put_row, rows, snapshot

KEY, NEW_KEY, OTHER_KEY = generate_key(), generate_key(), generate_key()
CANARY = "canary-4711"


@pytest.fixture
def medium():
    return MemoryMedium()


@pytest.fixture(params=[False, True], ids=["encrypted", "signed"])
def sign(request):
    return request.param


def slots(medium):
    return msgspec.json.decode(RowCodec().open(META, rows(medium, META)[(KEYS,)]).body)


def put_slots(medium, body):
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    put_row(medium, META, RowCodec().close(META, MetaRow(name=KEYS, body=data)))


def every_byte(medium):
    tables = [row for table in TABLES for row in rows(medium, table).values()]
    return repr(tables).encode() + b"".join(chunk.data for chunk in medium._tables.chunks.values())


# What the settings say, and what is there


@pytest.mark.parametrize("mode", ["x", "plain", "", "sign", "encrypt "])
@pytest.mark.parametrize("asked", [False, None])
def test_an_encrypted_store_is_not_switched_to_plain_by_editing_a_word(medium, mode, asked):
    """Issue 18.1: the mode is bound to every slot."""
    fill(seal_store(medium, KEY))
    put_slots(medium, {**slots(medium), "mode": mode})
    with pytest.raises(KeyRefused):
        seal_store(medium, KEY, sign=asked)
    with pytest.raises(KeyRefused):
        seal_store(medium, None)


def test_a_signed_store_is_not_taken_for_an_encrypted_one(medium):
    fill(seal_store(medium, KEY, sign=True))
    with pytest.raises(KeyRefused, match="set sign to true"):
        seal_store(medium, KEY)
    put_slots(medium, {**slots(medium), "mode": "encrypt"})
    with pytest.raises(KeyRefused, match="altered"):
        seal_store(medium, KEY)


@pytest.mark.parametrize("version", [0, 3, 5, 1 << 60])
def test_key_slots_of_a_version_that_is_not_known_are_refused(medium, version):
    seal_store(medium, KEY)
    put_slots(medium, {**slots(medium), "version": version})
    with pytest.raises(KeyRefused):
        seal_store(medium, KEY)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"version":3,"mode":"encrypt","slots":[{"id":1}]}',
     b'{"version":3,"mode":"encrypt","slots":[],"more":1}', b"{}{}"],
)  # fmt: skip
def test_damaged_key_slots_are_told_apart_from_a_wrong_key(medium, body):
    seal_store(medium, KEY)
    put_slots(medium, body)
    with pytest.raises(IntegrityError, match="key slots"):
        seal_store(medium, KEY)


def test_a_wrong_or_missing_key_is_a_clear_error(medium, sign):
    fill(seal_store(medium, KEY, sign=sign))
    for key, told in ((None, "give its key with key_file="), (NEW_KEY, "does not open it; the keys [0-9a-f]{32} do")):
        with pytest.raises(KeyRefused, match=told):
            seal_store(medium, key, sign=sign)
    with pytest.raises(UsageError, match="32 random bytes"):
        seal_store(medium, "not a key")


@pytest.mark.parametrize("what", ["run", "chunk", "inbox", "lease", "fact"])
def test_a_store_that_holds_anything_without_a_key_is_refused_with_one(medium, what):
    store = Store(medium)
    if what == "run":
        Line(store).commit()
    elif what == "chunk":
        with medium.write() as transaction:
            transaction.hold(1, [chunk_of("left over")])
    elif what == "inbox":
        store.post("run", "signal", b"")
    elif what == "lease":
        store.leases.take("run", owner="me", ttl_s=5)
    else:
        store.put_meta("fact", b"x", expected=None)
    with pytest.raises(KeyRefused, match="without a key"):
        seal_store(medium, KEY)


def test_key_slots_that_were_deleted_are_missed(medium, sign):
    fill(seal_store(medium, KEY, sign=sign))
    drop_row(medium, META, (KEYS,))
    for key in (KEY, None):
        with pytest.raises(StoreCorrupt, match="key slots are gone"):
            seal_store(medium, key, sign=sign)
    drop_row(medium, META, (WITNESS,))
    with pytest.raises(KeyRefused, match="without a key"):
        seal_store(medium, KEY, sign=sign)


def test_an_open_store_whose_key_slots_are_deleted_writes_nothing(medium, sign):
    store = seal_store(medium, KEY, sign=sign)
    line = fill(store)
    drop_row(medium, META, (KEYS,))
    line.follow()
    with pytest.raises(StoreCorrupt):
        line.commit()
    with pytest.raises(StoreCorrupt):
        store.leases.take("run", owner="me", ttl_s=5)


def test_a_store_that_two_processes_begin_at_once_has_one_key(sign):
    for _ in range(10):
        medium, stores, start = MemoryMedium(), [], threading.Barrier(4)

        def begin(medium=medium, stores=stores, start=start):
            start.wait()
            stores.append(seal_store(medium, KEY, sign=sign))

        threads = [threading.Thread(target=begin) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        written = Line(stores[0]).commit(chunk_of("from one"))
        assert [store.checkpoint(written.envelope.id) for store in stores] == [written] * 4
        assert [dict(store.fetch([chunk_of("from one").id])) for store in stores] == [
            {chunk_of("from one").id: chunk_of("from one")}
        ] * 4


def test_a_store_that_another_key_begins_between_two_looks_is_refused(medium, monkeypatch):
    apply = medium.apply

    def slow(batch):
        monkeypatch.setattr(medium, "apply", apply)
        seal_store(medium, OTHER_KEY)
        apply(batch)

    monkeypatch.setattr(medium, "apply", slow)
    with pytest.raises(KeyRefused, match="does not open it"):
        seal_store(medium, KEY)


# What the medium sees


def test_the_medium_of_an_encrypted_store_sees_no_content_key_attribute_or_name(medium):
    """Issue 14.1, threat 13."""
    store = seal_store(medium, KEY)
    line = Line(store)
    record = store.commit(
        line.envelope([chunk_of(CANARY)], reason=CANARY, trigger=f"{CANARY} trigger"),
        Marks(label=f"{CANARY} label"), [chunk_of(CANARY)], expected_head=None,
    )  # fmt: skip
    store.write(
        Commit(
            run="run", records=[Draft(f"{CANARY} kind", f"{CANARY}/path", 1.0, CANARY.encode(), key=f"{CANARY} key")],
            run_changes={"status": CANARY, "project": CANARY, "key": CANARY, "attributes": {CANARY: CANARY}},
        )
    )  # fmt: skip
    store.post("run", CANARY, CANARY.encode(), key=CANARY)
    store.put_meta("fact", CANARY.encode(), expected=None)
    seen = every_byte(medium)
    assert CANARY.encode() not in seen
    assert repr(chunk_of(CANARY).id).encode() not in seen
    assert chunk_of(CANARY).id not in medium._tables.chunks
    assert store.checkpoint(record.envelope.id).envelope.reason == CANARY
    assert next(store.journal.with_key(store.line("run"), f"{CANARY} key")).body == CANARY.encode()
    assert store.journal.newest(store.line("run"), f"{CANARY}/path").kind == f"{CANARY} kind"
    assert store.post("run", "again", b"", key=CANARY).body == CANARY.encode()
    assert store.meta("fact") == CANARY.encode()


# Forgery with write access


FORGERIES = {
    "tombstone": (TOMBSTONE, TombstoneRow(run="run", line="main", seq=5, id="cp_" + "0" * 32, checksum=b"")),
    "lease": (LEASE, LeaseRow(run="run", line="main", owner="evil", token=99, expires_at=4e9)),
    "inbox": (INBOX, InboxRow(run="run", number=99, kind="approve", at=1.0, body=b"yes")),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_row_is_not_believed_and_verify_names_it(medium, sign, name):
    """Issue 18.2: everything a decision rests on is under the key."""
    store = seal_store(medium, KEY, sign=sign)
    line = fill(store)
    table, value = FORGERIES[name]
    put_row(medium, table, RowCodec().close(table, value))
    assert {fault.kind for fault in verify(store).faults} == {name}
    line.follow()
    line.commit()
    if name == "tombstone":
        assert store.tombstone("run", value.id) is None
    if name == "inbox":
        with pytest.raises(IntegrityError):
            store.inbox("run")


@pytest.mark.parametrize("table", [RUN, LINE, CHECKPOINT, RECORD], ids=lambda table: table.name)
def test_a_row_sealed_without_the_key_is_damage(medium, sign, table):
    store = seal_store(medium, KEY, sign=sign)
    fill(store)
    key, row = next(iter(rows(medium, table).items()))
    value = store.codec.open(table, row)
    cells = RowCodec().close(table, value)
    put_row(medium, table, (*row[:-2], *cells[-2:]))
    assert not verify(store).sound
    assert rows(medium, table)[key][-1] == cells[-1]


def test_a_mark_that_was_forged_is_damage(medium):
    """Issue 18.2: a label 'known-good' with a pin was believed in a signed store."""
    store = seal_store(medium, KEY, sign=True)
    line = fill(store)
    row = rows(medium, CHECKPOINT)[("run", "main", 1)]
    value = store.codec.open(CHECKPOINT, row)
    put_row(
        medium, CHECKPOINT,
        RowCodec().close(CHECKPOINT, msgspec.structs.replace(value, marks=Marks(pinned=True, label="known-good"))),
    )  # fmt: skip
    with pytest.raises(IntegrityError):
        store.checkpoint_at("run", 1)
    assert [fault.kind for fault in verify(store).faults if fault.kind != "link"] == ["checkpoint"]
    assert line.head is not None


def test_a_head_moved_back_is_found_while_what_it_hides_is_there(medium, sign):
    store = seal_store(medium, KEY, sign=sign)
    line = fill(store)
    was = rows(medium, LINE)[("run", "main")]
    line.follow()
    line.commit()
    put_row(medium, LINE, was)
    with pytest.raises(RunCorrupt, match="stale"):
        store.run("run")
    assert not verify(store).sound


def test_history_that_was_cut_off_shows_against_a_remembered_head(medium, sign):
    """Issue 18.2: number and ancestry are compared."""
    store = seal_store(medium, KEY, sign=sign)
    line = fill(store)
    fill(store, "other")
    was = snapshot(medium)
    before = store.run("run")
    line.follow()
    newer = [line.commit().envelope.id for _ in range(2)]
    hf = Holdfast(store)
    for head in (newer[0], newer[1], (before.last_seq + 1, newer[0]), before.head):
        assert hf.verify(remembered={"run": head}).sound
    assert not hf.verify(remembered={"run": (before.last_seq, newer[0])}).sound
    assert not hf.verify(remembered={"other": newer[0]}).sound
    put_back(medium, was)
    rolled = Holdfast(seal_store(medium, KEY, sign=sign))
    assert rolled.verify().sound, "a store that was put back as a whole is sound in itself"
    for head in (newer[0], newer[1], (before.last_seq + 2, newer[1])):
        report = rolled.verify(remembered={"run": head})
        assert [fault.kind for fault in report.faults] == ["head"]
    assert rolled.verify(remembered={"run": before.head}).sound
    line = Line(rolled.store)
    line.follow()
    for _ in range(3):
        line.commit()
    assert not rolled.verify(remembered={"run": newer[1]}).sound, "as many numbers, and another history"


def test_a_remembered_head_that_was_deleted_is_no_fault_but_a_run_begun_again_is(medium, sign):
    store = seal_store(medium, KEY, sign=sign)
    line = Line(store)
    first, second, third = line.commit(), line.commit(), line.commit()
    store.delete("run", [third.envelope.id])
    line.follow()
    line.commit()
    for record in (first, second, third):
        assert verify(store, remembered={"run": record.envelope.id}).sound
        assert verify(store, remembered={"run": (record.envelope.seq, record.envelope.id)}).sound
    store.delete_run("run")
    assert not verify(store, remembered={"run": first.envelope.id}).sound
    again = Line(store)
    for _ in range(5):
        again.commit()
    assert verify(store).sound
    assert not verify(store, remembered={"run": first.envelope.id}).sound


def test_history_that_leads_past_a_remembered_head_shows_after_its_deletion_too(medium, sign):
    """Rows of two pasts of one store, each written with the key."""
    store = seal_store(medium, KEY, sign=sign)
    line = Line(store)
    for _ in range(2):
        line.commit()
    fork = snapshot(medium)
    head = line.commit()
    line.commit()
    store.delete("run", [head.envelope.id])
    assert verify(store, remembered={"run": head.envelope.id}).sound
    tombstone = rows(medium, TOMBSTONE)[("run", "main", 3)]
    put_back(medium, fork)
    store = seal_store(medium, KEY, sign=sign)
    line = Line(store)
    line.follow()
    for _ in range(3):
        line.commit()
    drop_row(medium, CHECKPOINT, ("run", "main", 3))
    put_row(medium, TOMBSTONE, tombstone)
    assert "head" in {fault.kind for fault in verify(store, remembered={"run": head.envelope.id}).faults}


def test_a_forged_deletion_of_a_remembered_head_shows(medium):
    """Issue 18.2: a tombstone and a head moved back, sealed without the key, passed for a deletion."""
    store = seal_store(medium, KEY, sign=True)
    line = Line(store)
    before, head = line.commit(), line.commit()
    at = store.line("run")
    drop_row(medium, CHECKPOINT, ("run", "main", 2))
    plain = RowCodec()
    left = TombstoneRow(run="run", line="main", seq=2, id=head.envelope.id, checksum=head.checksum)
    put_row(medium, TOMBSTONE, plain.close(TOMBSTONE, left))
    put_row(medium, LINE, plain.close(LINE, msgspec.structs.replace(at, head=before.envelope.id, checkpoints=1)))
    assert not verify(store).sound
    report = verify(store, remembered={"run": head.envelope.id})
    assert "head" in {fault.kind for fault in report.faults}


# Rotation


def test_keys_change_while_the_store_is_in_use(medium, sign):
    store = seal_store(medium, KEY, sign=sign)
    fill(store)
    keys_of(store).add(NEW_KEY)
    other = seal_store(medium, NEW_KEY, sign=sign)
    line = Line(store)
    line.follow()
    line.commit(chunk_of("after the new key"))
    assert other.run("run").head == line.head.envelope.id
    keys_of(other).remove(KEY)
    assert keys_of(other).ids() == [key_id(parse_key(NEW_KEY))]
    with pytest.raises(UsageError, match="the only key"):
        keys_of(other).remove(NEW_KEY)
    with pytest.raises(UsageError, match="does not open this store"):
        keys_of(other).remove(KEY)
    with pytest.raises(KeyRefused):
        seal_store(medium, KEY, sign=sign)
    assert verify(other).sound


def test_whoever_removes_the_own_key_sees_what_is_left_and_nothing_else(medium, sign):
    store = seal_store(medium, KEY, sign=sign)
    fill(store)
    keys_of(store).add(NEW_KEY)
    keys_of(store).remove(KEY)
    assert keys_of(store).ids() == [key_id(parse_key(NEW_KEY))]
    for call in (lambda: store.run("run"), lambda: store.post("run", "signal", b""), lambda: keys_of(store).add(KEY)):
        with pytest.raises(KeyRefused):
            call()


def test_an_open_store_follows_a_rotation_that_keeps_its_key_and_ends_at_one_that_does_not(medium, sign):
    remover, stays = seal_store(medium, KEY, sign=sign), None
    line = fill(remover)
    for key in (NEW_KEY, OTHER_KEY):
        keys_of(remover).add(key)
    stays, goes = seal_store(medium, NEW_KEY, sign=sign), seal_store(medium, OTHER_KEY, sign=sign)
    lines = [Line(store) for store in (stays, goes)]
    for one in lines:
        one.follow()
    keys_of(remover).remove(OTHER_KEY)
    lines[0].commit(chunk_of("written by who stays"))
    stays.post("run", "signal", b"more")
    stays.leases.end(stays.leases.take("run", owner="stays", ttl_s=9))
    for call in (
        lambda: goes.run("run"),
        lambda: goes.post("run", "signal", b"forged"),
        lambda: goes.post("new", "signal", b"forged"),
        lambda: Line(goes, "new").commit(),
        lambda: goes.leases.take("run", owner="goes", ttl_s=9),
        lambda: Repair(goes).rebuild("run", lambda _: set()),
        lambda: keys_of(goes).add(OTHER_KEY),
        lambda: keys_of(goes).remove(KEY),
    ):
        with pytest.raises(KeyRefused):
            call()
    line.follow()
    line.commit()
    assert verify(remover).sound
    assert [entry.body for entry in stays.inbox("run")] == [b"hello", b"more"]


def test_a_process_whose_write_was_prepared_before_a_rotation_writes_it_after(medium, sign, monkeypatch):
    """Nothing that was sealed with a key of the past is written: it is sealed again, once."""
    store = seal_store(medium, KEY, sign=sign)
    keys_of(store).add(NEW_KEY)
    line = fill(store)
    other = seal_store(medium, NEW_KEY, sign=sign)
    for call in (
        lambda: store.post("run", "signal", b"now"),
        lambda: store.write(Commit(run="run", records=[Draft("step", "p", 1.0)])),
        lambda: Line(store, "fresh").commit(),
        lambda: store.put_meta("fact", b"x", expected=store.meta("fact")),
    ):
        apply = medium.apply

        def rotate(batch, apply=apply):
            monkeypatch.setattr(medium, "apply", apply)
            keys_of(other).add(OTHER_KEY)
            keys_of(other).remove(OTHER_KEY)
            apply(batch)

        monkeypatch.setattr(medium, "apply", rotate)
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a fact is for its writer to try again
            assert getattr(error, "retryable", False)  # noqa: PT017
    line.follow()
    line.commit()
    assert verify(other).sound
    assert [entry.body for entry in other.inbox("run")] == [b"hello", b"now"]


@pytest.mark.parametrize("closed", [1, 2, 3])
def test_a_batch_that_was_sealed_with_two_keys_is_sealed_again(medium, sign, monkeypatch, closed):
    """Another thread takes over new keys while this one seals its rows."""
    store = seal_store(medium, KEY, sign=sign)
    keys_of(store).add(NEW_KEY)
    Line(store).commit()
    other = seal_store(medium, NEW_KEY, sign=sign)
    close, left = store.codec.close, iter(range(closed))

    def rotated(table, value):
        row = close(table, value)
        if next(left, None) is None and store.codec.close is not close:
            monkeypatch.setattr(store.codec, "close", close)
            keys_of(other).add(OTHER_KEY)
            keys_of(other).remove(OTHER_KEY)
            store.run("run")
        return row

    monkeypatch.setattr(store.codec, "close", rotated)
    store.write(Commit(run="fresh", records=[Draft("step", "p", 1.0)] * 2))
    store.post("fresh", "signal", b"")
    assert verify(other).faults == ()
    assert store.line("fresh").number == 2
    assert store.codec.close == close


def test_the_removed_key_neither_reads_nor_forges_what_was_written_since(medium, sign):
    """Issue 18.1: rotation really retires a key; its old slot row put back opens nothing newer."""
    store = seal_store(medium, KEY, sign=sign)
    keys_of(store).add(NEW_KEY)
    line = fill(store)
    old = snapshot(medium)
    thief = seal_store(medium, KEY, sign=sign).codec
    stolen = RowCodec(thief.vault, thief.mode)
    keeper = seal_store(medium, NEW_KEY, sign=sign)
    keys_of(keeper).remove(KEY)
    line = Line(keeper)
    line.follow()
    secret = chunk_of(f"{CANARY} since")
    head = line.commit(secret)
    keeper.write(Commit(run="run", records=[Draft("step", "path", 9.0, b"since")]))

    for table in TABLES:
        for key, row in rows(medium, table).items():
            if key != (KEYS,):
                with pytest.raises(IntegrityError):
                    stolen.open(table, row)
    names = set(medium._tables.chunks)
    if not sign:
        assert stolen.vault.hide(secret.id) not in names
        for chunk in medium._tables.chunks.values():
            if len(chunk.id) != 32:
                assert CANARY.encode() not in stolen.open_chunk(secret.id, chunk).data

    # Forged with the old data key, in the place of something newer and in a place of its own.
    for table, key in ((LINE, ("run", "main")), (CHECKPOINT, ("run", "main", head.envelope.seq)), (INBOX, ("run", 1))):
        good = rows(medium, table)[key]
        put_row(medium, table, stolen.close(table, keeper.codec.open(table, good)))
        assert not verify(keeper).sound
        put_row(medium, table, good)
    last = keeper.line("run")
    put_row(
        medium, TOMBSTONE,
        stolen.close(TOMBSTONE, TombstoneRow(run="run", line="main", seq=2, id=head.envelope.id, checksum=b"")),
    )  # fmt: skip
    assert keeper.tombstone("run", head.envelope.id) is None
    drop_row(medium, TOMBSTONE, ("run", "main", 2))
    assert verify(keeper).sound
    assert keeper.line("run") == last

    # The old slots put back.
    now = snapshot(medium)
    put_row(medium, META, old["meta"][(KEYS,)])
    for key in (KEY, NEW_KEY):
        with pytest.raises(StoreCorrupt, match="put an older version"):
            seal_store(medium, key, sign=sign)
    with pytest.raises(StoreCorrupt):
        line.commit()
    put_row(medium, META, old["meta"][(WITNESS,)])
    for key in (KEY, NEW_KEY):  # not for the owner either, who would write for the removed key
        with pytest.raises(StoreCorrupt, match="put an older version"):
            seal_store(medium, key, sign=sign)
    put_back(medium, now, META)
    line.commit()
    assert verify(keeper).sound


def test_chunks_of_earlier_epochs_stay_readable_shared_and_swept(medium):
    store = seal_store(medium, KEY)
    line = Line(store)
    line.commit(chunk_of("old"), chunk_of("both"))
    for _ in range(3):
        keys_of(store).add(OTHER_KEY)
        keys_of(store).remove(OTHER_KEY)
    line.follow()
    line.commit(chunk_of("new"), chunk_of("both"))
    wanted = {chunk_of(text).id: chunk_of(text) for text in ("old", "new", "both")}
    assert dict(store.fetch(list(wanted))) == wanted
    assert store.held("run") == set(wanted) == set(store.chunk_ids())
    assert len(medium._tables.chunks) == 4
    assert verify(store).sound
    again = seal_store(medium, KEY)
    assert dict(again.fetch(list(wanted))) == wanted
    run = store.run("run")
    store.release("run", [chunk_of("both").id], expected_seq=run.last_seq, created_at=run.created_at)
    assert store.held("run") == {chunk_of("old").id, chunk_of("new").id}
    assert len(medium._tables.chunks) == 2
    store.delete_run("run")
    assert medium._tables.chunks == {}


def test_a_rotation_keeps_every_row_journal_gap_and_list(medium, sign):
    store = seal_store(medium, KEY, sign=sign)
    for run in ("run", "other"):
        fill(store, run)
    line = store.line("run")
    store.journal.compact("run", [1, 2, 5, 6, 7, 36])
    store.write(Commit(run="run", line="side", records=[Draft("step", "x", 1.0)] * 3, at=NOON))

    def content():
        lines = [msgspec.structs.replace(one, chain=b"") for run in ("run", "other") for one in store.lines(run)]
        records = [
            [msgspec.structs.replace(record, prev=b"") for record in store.journal.records(line)]
            for line in store.lines("run")
        ]
        return (
            list(store.runs()), lines, records, list(store.checkpoints("run")), store.tombstones("run"),
            store.inbox("run"), store.accounts("run"), store.row_of("run"), store.journal.newest(line, "path/1").number,
        )  # fmt: skip

    before = content()
    assert verify(store).sound
    for _ in range(2):
        keys_of(store).add(OTHER_KEY)
        keys_of(store).remove(OTHER_KEY)
        assert content() == before
        assert verify(store).sound
    assert seal_store(medium, KEY, sign=sign).run("run").last_seq == store.run("run").last_seq


def test_a_rotation_that_is_interrupted_leaves_the_store_as_it_was(medium, sign, monkeypatch):
    store = seal_store(medium, KEY, sign=sign)
    fill(store)
    keys_of(store).add(OTHER_KEY)
    was = snapshot(medium)
    for number in (1, 5, 20, 45):
        puts = iter(range(number))
        put = medium._tables.put

        def failing(table, row, puts=puts, put=put):
            if next(puts, None) is None:
                raise OSError("the disk is full")
            put(table, row)

        monkeypatch.setattr(medium._tables, "put", failing)
        with pytest.raises(OSError, match="full"):
            keys_of(store).remove(OTHER_KEY)
        monkeypatch.undo()
        assert snapshot(medium) == was
        assert verify(store).sound
    keys_of(store).remove(OTHER_KEY)
    assert verify(store).sound


def test_a_damaged_row_stays_damaged_after_a_rotation_and_hides_nothing(medium, sign):
    store = seal_store(medium, KEY, sign=sign)
    fill(store)
    n = store.line("run").n
    row = rows(medium, RECORD)[(n, 4)]
    put_row(medium, RECORD, (*row[:-2], row[-2][:-1] + b"\0\1", row[-1]))
    before = [(fault.kind, fault.run, fault.number) for fault in verify(store).faults]
    assert before == [("journal", "run", 4)]
    keys_of(store).add(OTHER_KEY)
    keys_of(store).remove(OTHER_KEY)
    assert [(fault.kind, fault.run, fault.number) for fault in verify(store).faults] == before


def test_another_users_slot_cannot_be_exchanged_to_get_the_next_data_key(medium):
    """What the next epoch is locked with stands under the data key, and is signed, too."""
    store = seal_store(medium, KEY)
    for key in (NEW_KEY, OTHER_KEY):
        keys_of(store).add(key)
    body = slots(medium)
    body["slots"][1]["slot_key"] = slots_of_thief()["slots"][0]["slot_key"]
    put_slots(medium, body)
    with pytest.raises(KeyRefused, match="altered"):
        keys_of(store).remove(OTHER_KEY)
    with pytest.raises(KeyRefused, match="altered"):
        seal_store(medium, KEY)


def slots_of_thief():
    medium = MemoryMedium()
    seal_store(medium, generate_key())
    return slots(medium)


def test_the_facade_adds_removes_and_lists_keys(medium):
    hf = Holdfast(seal_store(medium, KEY))
    hf.keys.add(NEW_KEY)
    assert hf.keys.ids() == [key_id(parse_key(KEY)), key_id(parse_key(NEW_KEY))]
    hf.keys.remove(key_id(parse_key(NEW_KEY)))
    assert hf.keys.ids() == [key_id(parse_key(KEY))]
    assert Holdfast(Store(MemoryMedium())).keys.ids() == []
    with pytest.raises(UsageError, match="has no key"):
        Holdfast(Store(MemoryMedium())).keys.add(KEY)


def test_a_chunk_put_in_anothers_place_is_refused(medium, sign):
    store = seal_store(medium, KEY, sign=sign)
    line = Line(store)
    line.commit(chunk_of("one"), chunk_of("two"))
    chunks = medium._tables.chunks
    (one, first), (two, second) = chunks.items()
    chunks[one], chunks[two] = second._replace(id=one), first._replace(id=two)
    assert {fault.kind for fault in verify(store).faults} == {"chunk"}
    chunks[one] = first._replace(size=-1)
    chunks[two] = second._replace(codec=1 << 40)
    assert {fault.kind for fault in verify(store).faults} == {"chunk"}
    with pytest.raises((ChunkCorrupt, NotFound)):
        Holdfast(store).get(line.head.envelope.id).section("s0")


def test_a_chunk_under_a_name_that_the_store_does_not_give_is_named(medium, sign):
    store = seal_store(medium, KEY, sign=sign)
    Line(store).commit(chunk_of("one"))
    for name in (b"", b"short", bytes(33), bytes(400)):
        with medium.write() as transaction:
            transaction.hold(rows(medium, RUN)[("run",)][1], [chunk_of("one")._replace(id=name)])
    assert len(store.held("run")) == 1
    assert [fault.kind for fault in verify(store).faults] == ["store"] * 4
