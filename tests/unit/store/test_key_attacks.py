"""Attacks on a store with a key by somebody who can write it, on SQLite, files and PostgreSQL."""

import os
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from cryptography.exceptions import InvalidTag

import holdfast
from holdfast import KeyRefused, LeaseLost, RunCorrupt, Settings, StoreCorrupt, UsageError, generate_key
from holdfast.encode import encrypt
from holdfast.encode.encrypt import KeySlots, Vault, key_id, lock_slots, open_slots, parse_key, slot_key, slot_keys_of
from holdfast.store import keys
from holdfast.store.codec import RowCodec
from holdfast.store.commit import Commit
from holdfast.store.epoch_memory import EpochMemory
from holdfast.store.keys import KEYS, WITNESS, keys_of, seal_store
from holdfast.store.open import open_store
from holdfast.store.postgres_url import PostgresPlace
from holdfast.store.tables import ACCOUNT, INBOX, LEASE, META, RUN, TABLES, AccountRow, InboxRow, MetaRow
from postgres_server import shared_server

OWNER, SECOND, LEAVER = generate_key(), generate_key(), generate_key()


@pytest.fixture(params=["sqlite", "files", "postgres"])
def place(request, tmp_path):
    if request.param != "postgres":
        yield str(tmp_path / "store.db") if request.param == "sqlite" else f"file://{tmp_path}/store"
        return
    url = shared_server().database()
    yield url
    shared_server().drop(url)


@pytest.fixture
def rotating(place):
    """A store in which a key can be retired."""
    if place.startswith("file:"):
        pytest.skip("a files store does not retire keys")
    return place


@pytest.fixture(params=[False, True], ids=["encrypted", "signed"])
def sign(request):
    return request.param


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Let each test be on a machine that has seen no store, and move to another."""

    def move_to(name):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name))

    move_to("first")
    return move_to


@contextmanager
def opened(place, key, sign):
    with holdfast.open(place, settings=Settings(), key=key, sign=sign) as hf:
        yield hf


@contextmanager
def raw(place):
    """Look at a store as somebody without a key can, and write to it."""
    with closing(open_store(place)) as store:
        yield store.medium


def rows_of(place):
    with raw(place) as medium, medium.read() as reader:
        return [(table, row) for table in TABLES for row in reader.scan(table)]


def put(place, rows, *, instead=False):
    """Write rows over those of a store; or instead of all that it has."""
    there = rows_of(place) if instead else []
    with raw(place) as medium:
        for table, row in reversed(there):  # one by one: a transaction of a files store is of one run
            with medium.write() as transaction:
                transaction.drop(table, row[: len(table.key)])
        for table, row in rows:
            with medium.write() as transaction:
                transaction.put(table, row)


def work(place, key, sign, run="run"):
    with opened(place, key, sign) as hf:
        return hf.run(run).checkpoint(state={"said": "words"}).id


def slots_in(place):
    (row,) = [row for table, row in rows_of(place) if table is META and row[0] == KEYS]
    return msgspec.json.decode(RowCodec().open(META, row).body, type=KeySlots)


def forged(place, slot_keys, mode):
    """Return slots for the store's keys with a data key of the attacker, a witness and a row under it."""
    there = slots_in(place)
    data_key = os.urandom(32)
    made = lock_slots([data_key], slot_keys(there), mode=mode, ring=there.ring, entropy=os.urandom)
    codec = RowCodec(Vault(data_key), mode)
    return codec, [
        (META, RowCodec().close(META, MetaRow(name=KEYS, body=msgspec.json.encode(made)))),
        (META, codec.close(META, MetaRow(name=WITNESS, body=b"0"))),
        (INBOX, codec.close(INBOX, InboxRow(run="a", number=1, kind="x", at=1.0))),
    ]


def test_no_data_key_of_a_strangers_choice_is_accepted(place, sign):
    """Issue 18.1: what is stored was enough to lock a data key for the owner, who then wrote under it."""
    work(place, OWNER, sign)
    mode = "sign" if sign else "encrypt"
    stranger = parse_key(generate_key())

    def public(there):  # of the owner; not even that is stored readably, and it would not be enough
        return slot_key(parse_key(OWNER), there.ring)[32:]

    guesses = (
        lambda there: {slot.id: slot_key(stranger, there.ring) for slot in there.slots},
        lambda there: {slot.id: slot_key(stranger, there.ring)[:32] + public(there) for slot in there.slots},
        lambda there: {slot.id: slot.slot_key[-32:] + public(there) for slot in there.slots},
        lambda there: {slot.id: slot.locked[-32:] + public(there) for slot in there.slots},
        lambda there: {slot.id: there.ring * 2 + public(there) for slot in there.slots},
        lambda there: {slot.id: bytes(32) + public(there) for slot in there.slots},
        lambda there: {key_id(stranger): slot_key(stranger, there.ring)},
    )
    before = rows_of(place)
    for guess in guesses:
        put(place, forged(place, guess, mode)[1])
        with pytest.raises(KeyRefused):
            work(place, OWNER, sign)
        put(place, before, instead=True)
    work(place, OWNER, sign)


def test_no_store_can_be_begun_for_somebody_whose_key_one_has_not(place, sign):
    """What another store of the same key shows does not help."""
    with raw(place):
        pass
    stranger = parse_key(generate_key())
    mode = "sign" if sign else "encrypt"
    made = lock_slots(
        [os.urandom(32)], {key_id(parse_key(OWNER)): slot_key(stranger, bytes(16))}, mode=mode, ring=bytes(16),
        entropy=os.urandom,
    )  # fmt: skip
    put(place, [(META, RowCodec().close(META, MetaRow(name=KEYS, body=msgspec.json.encode(made))))])
    with pytest.raises(KeyRefused):
        work(place, OWNER, sign)


def test_a_former_member_opens_no_slot_with_what_was_known_before(rotating, sign):
    """Who had a key could note what locks the slots of the others, and opened with it whatever was locked later."""
    work(rotating, OWNER, sign)
    with opened(rotating, OWNER, sign) as hf:
        hf.keys.add(LEAVER)
    leaver = parse_key(LEAVER)
    then = slots_in(rotating)
    known = open_slots(then, leaver)
    noted = slot_keys_of(then, known[-1])
    with opened(rotating, OWNER, sign) as hf:
        hf.keys.remove(LEAVER)
        hf.run("after").checkpoint(state=1)
        fresh = keys_of(hf.store)._data_keys[-1]
    now = slots_in(rotating)
    (slot,) = now.slots
    own = noted[slot.id]
    assert own == slot_key(parse_key(OWNER), now.ring), "what was noted still locks the slot"
    about = encrypt._about_slot(now.version, now.mode, now.ring, slot.id)
    passing = slot.locked[:32]
    x25519 = encrypt._x25519()
    halves = [leaver, own[:32], own[32:], *known, *(encrypt._own_half(key) for key in (leaver, own[:32]))]
    halves = [
        half if isinstance(half, x25519.X25519PrivateKey) else x25519.X25519PrivateKey.from_private_bytes(half)
        for half in halves
    ]
    shared = [half.exchange(x25519.X25519PublicKey.from_public_bytes(passing)) for half in halves]
    ciphers = [
        *(encrypt._aes(key) for key in (own[:32], own[32:], leaver, *known)),
        *(encrypt._slot_cipher(own, passing, one) for one in (*shared, b"", own[:32], own[32:])),
    ]
    for cipher in ciphers:
        for start in (0, 32):
            with pytest.raises(InvalidTag):
                cipher.decrypt(slot.locked[start : start + 12], slot.locked[start + 12 :], about)
    for key in known:
        with pytest.raises(ValueError, match="altered"):
            slot_keys_of(now, key)
    assert open_slots(now, leaver) is None
    assert open_slots(now, parse_key(OWNER))[-1] == fresh


def test_a_member_who_puts_a_pair_of_his_own_in_anothers_place_is_noticed_before_anything_is_locked(rotating, sign):
    """After the removal he would open the other's slot, which was locked for his pair."""
    work(rotating, OWNER, sign)
    with opened(rotating, OWNER, sign) as hf:
        hf.keys.add(SECOND)
        hf.keys.add(LEAVER)
    then = slots_in(rotating)
    vault = Vault(open_slots(then, parse_key(LEAVER))[-1])
    planted = slot_key(parse_key(SECOND), then.ring)[:32] + slot_key(parse_key(LEAVER), then.ring)[32:]
    second = key_id(parse_key(SECOND))
    locked = vault.encrypt(planted, encrypt._about_slot_key(second))
    replace = msgspec.structs.replace
    forged = replace(then, slots=tuple(replace(s, slot_key=locked) if s.id == second else s for s in then.slots))
    forged = replace(forged, signature=vault.sign(encrypt._signed_slots(forged)))
    put(rotating, [(META, RowCodec().close(META, MetaRow(name=KEYS, body=msgspec.json.encode(forged))))])
    with opened(rotating, OWNER, sign) as hf:
        with pytest.raises(StoreCorrupt, match="is not its own"):
            hf.keys.remove(LEAVER)
        with pytest.raises(StoreCorrupt, match="is not its own"):
            hf.keys.add(generate_key())
    assert slots_in(rotating) == forged


def test_older_keys_put_back_are_noticed_by_a_machine_that_saw_newer_ones(rotating, sign, machine, tmp_path):
    """Issue 18.1: the slots, the witness and one row of before were enough for a removed key to open it again."""
    work(rotating, OWNER, sign)
    with opened(rotating, OWNER, sign) as hf:
        hf.keys.add(LEAVER)
        hf.keys.add(SECOND)
    before = rows_of(rotating)
    with opened(rotating, LEAVER, sign) as hf:
        codec = RowCodec(hf.store.codec.vault, hf.store.codec.mode)
    with opened(rotating, OWNER, sign) as hf:
        hf.keys.remove(LEAVER)
        hf.run("after").checkpoint(state=1)
    after = rows_of(rotating)
    old_slots = [(table, row) for table, row in before if table is META and row[0] in (KEYS, WITNESS)]
    old_row = (INBOX, codec.close(INBOX, InboxRow(run="a", number=1, kind="x", at=1.0)))
    for attack in ([*old_slots, old_row], before):
        put(rotating, attack, instead=attack is before)
        for key in (OWNER, SECOND):
            with pytest.raises(StoreCorrupt, match="older version"):
                work(rotating, key, sign)
        put(rotating, after, instead=True)
    assert work(rotating, OWNER, sign)
    put(rotating, before, instead=True)
    machine("another")  # which knows nothing: a whole older copy is sound there, and docs/SECURITY.md says so
    for heads in tmp_path.glob("*-heads"):
        heads.unlink()
    assert work(rotating, OWNER, sign)


def test_a_later_epoch_by_a_removed_key_is_noticed_where_the_removal_was_seen(rotating, sign):
    """Who had a key knows the slot keys of the others: only the data keys since then show who may begin an epoch."""
    work(rotating, OWNER, sign)
    with opened(rotating, OWNER, sign) as hf:
        hf.keys.add(LEAVER)
    before = rows_of(rotating)
    with opened(rotating, OWNER, sign) as hf:
        hf.keys.remove(LEAVER)
    put(rotating, before, instead=True)
    with closing(seal_store(open_store(rotating), LEAVER, sign=sign)) as store:
        for _ in range(2):  # further than the owner's epochs
            passing = generate_key()
            keys_of(store).add(passing)
            keys_of(store).remove(passing)
    with pytest.raises(StoreCorrupt, match="older version"):
        work(rotating, OWNER, sign)


def test_another_store_of_the_same_key_is_not_taken_for_this_one(place, sign, tmp_path):
    """Who shares one store with its owner could put it in the place of another, and read what is written there."""
    shared = tmp_path / "shared.db"
    work(shared, OWNER, sign)
    work(place, OWNER, sign)
    put(place, rows_of(str(shared)), instead=True)
    with pytest.raises(StoreCorrupt, match="another store"):
        work(place, OWNER, sign)


def forgotten(refused):
    """Do what the message says to do if one deleted the store oneself."""
    Path(str(refused.value).partition("delete ")[2].partition(")")[0]).unlink()


def test_a_store_that_its_owner_moves_is_no_fault(sign, tmp_path):
    with opened(tmp_path / "a.db", OWNER, sign) as hf:
        hf.run("run").checkpoint(state=1)
        hf.transfer.copy_to(tmp_path / "copy.db")
    for name in ("a.db", "a.db-heads"):
        (tmp_path / name).rename(tmp_path / name.replace("a", "b", 1))
    assert work(tmp_path / "b.db", OWNER, sign)
    assert work(tmp_path / "copy.db", OWNER, sign, "more")
    with pytest.raises(StoreCorrupt, match="is empty") as refused:
        work(tmp_path / "a.db", OWNER, sign)
    forgotten(refused)
    assert work(tmp_path / "a.db", OWNER, sign), "a new one, where another was before"
    for name in ("b.db", "b.db-heads"):
        (tmp_path / name).replace(tmp_path / name.replace("b", "a", 1))
    with pytest.raises(StoreCorrupt, match="another store") as refused:
        work(tmp_path / "a.db", OWNER, sign)
    forgotten(refused)
    assert work(tmp_path / "a.db", OWNER, sign, "again")


@pytest.mark.parametrize("attack", ["key rows", "all rows", "another's rows"])
def test_keys_that_were_deleted_are_missed_by_a_machine_that_saw_them(place, sign, tmp_path, attack):
    """It was said to be stored without a key, or begun again without a word; and without a key it was written plain."""
    work(place, OWNER, sign)
    with holdfast.open(tmp_path / "plain.db", settings=Settings()) as hf:
        hf.run("run").checkpoint(state="forged")
    left = {
        "key rows": [(table, row) for table, row in rows_of(place) if row[0] not in (KEYS, WITNESS)],
        "all rows": [],
        "another's rows": rows_of(str(tmp_path / "plain.db")),
    }[attack]
    put(place, left, instead=True)
    before = rows_of(place)
    for key in (OWNER, None):
        with pytest.raises(StoreCorrupt, match="forget"):
            work(place, key, sign=sign if key else None)
    with holdfast.open(tmp_path / "source.db", settings=Settings(), key=OWNER, sign=sign) as hf:
        hf.run("more").checkpoint(state=1)
        with pytest.raises(StoreCorrupt, match="forget"):
            hf.transfer.copy_to(place)
    assert rows_of(place) == before


def test_a_copy_is_not_written_under_keys_that_are_older_than_those_seen(rotating, sign, tmp_path):
    """The holder of the removed key would read what is copied."""
    with opened(tmp_path / "source.db", OWNER, sign) as hf:
        hf.run("more").checkpoint(state=1)
    work(rotating, OWNER, sign)
    with opened(rotating, OWNER, sign) as hf:
        hf.keys.add(LEAVER)
    before = rows_of(rotating)
    with opened(rotating, OWNER, sign) as hf:
        hf.keys.remove(LEAVER)
    put(rotating, before, instead=True)
    with opened(tmp_path / "source.db", OWNER, sign) as hf, pytest.raises(StoreCorrupt, match="older version"):
        hf.transfer.copy_to(rotating)


def test_who_loses_the_race_to_begin_a_store_looks_into_the_memory_too(place, sign, tmp_path, monkeypatch):
    """It took whatever was there by then for new."""
    shared = tmp_path / "shared.db"
    work(shared, OWNER, sign)
    theirs = rows_of(str(shared))
    begun = keys._begun

    def begun_by_another(medium, *given):
        """Another process began the store meanwhile, and somebody exchanged it."""
        EpochMemory(tmp_path / "first" / "holdfast" / "stores").remember(medium.url, bytes(16), ["its key"])
        put(place, theirs)
        return begun(medium, *given)

    monkeypatch.setattr(keys, "_begun", begun_by_another)
    with pytest.raises(StoreCorrupt, match="another store"):
        work(place, OWNER, sign)


def test_tenants_and_schemas_that_are_given_beside_the_url_are_places_of_their_own(place, sign):
    """Each was taken for the other exchanged, so that two of them locked each other out."""
    if not place.startswith("postgres"):
        pytest.skip("only PostgreSQL has tenants and schemas")
    options = [{}, {"tenant": "one"}, {"tenant": "two"}, {"schema": "other"}, {"tenant": "one", "schema": "other"}]
    urls = set()
    for _ in range(2):
        for given in options:
            with holdfast.open(place, settings=Settings(), key=OWNER, sign=sign, **given) as hf:
                hf.run("run").checkpoint(state=1)
                urls.add(hf.store.url)
                same = PostgresPlace.parse(hf.store.medium.conninfo)
                assert (same.tenant, same.schema) == (given.get("tenant", "default"), given.get("schema", "holdfast"))
    assert len(urls) == len(options)
    by_url = f"{place}{'&' if '?' in place else '?'}tenant=one"
    with opened(by_url, OWNER, sign) as hf:
        assert hf.store.url in urls


def test_what_a_machine_remembers_tells_no_key_and_lies_where_only_its_user_reads(rotating, sign, tmp_path):
    work(rotating, OWNER, sign)
    with opened(rotating, OWNER, sign) as hf:
        data_keys = keys_of(hf.store)._data_keys
        hf.keys.add(SECOND)
        hf.keys.remove(SECOND)
        data_keys += keys_of(hf.store)._data_keys
    (file,) = (tmp_path / "first" / "holdfast" / "stores").iterdir()
    text = file.read_text()
    assert len(text.splitlines()) == 2
    assert not any(key.hex() in text for key in (*data_keys, parse_key(OWNER)))
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with file.open("a") as torn:
        torn.write("half a li")
    assert work(rotating, OWNER, sign)


def test_a_machine_that_cannot_remember_works_all_the_same(place, sign, tmp_path, machine):
    (tmp_path / "file").write_text("not a folder")
    machine("file")
    assert work(place, OWNER, sign)
    assert work(place, OWNER, sign, "more")


def test_a_files_store_says_how_a_key_is_retired_there(tmp_path, sign):
    place = f"file://{tmp_path}/store"
    work(place, OWNER, sign)
    with opened(place, OWNER, sign) as hf:
        hf.keys.add(SECOND)
        with pytest.raises(UsageError, match="holdfast copy"):
            hf.keys.remove(SECOND)
        assert len(hf.keys.ids()) == 2
        assert hf.verify().sound


# Single rows put back as they once were, or deleted


@pytest.fixture
def filled(place, sign):
    """Return the rows of a store, and change each of them once more."""
    budget = AccountRow(run="run", name="tokens", used="7")
    with opened(place, OWNER, sign) as hf:
        hf.run("run").checkpoint(state=1)
        hf.control.signal("run", "go", "one")
        hf.store.leases.end(hf.store.leases.take("run", owner="me", ttl_s=60))
        hf.store.write(Commit(run="run", accounts=[(None, budget)], consumed=1, run_changes={"status": "running"}))
    before = rows_of(place)
    with opened(place, OWNER, sign) as hf:
        more = msgspec.structs.replace(budget, used="99")
        hf.store.write(Commit(run="run", accounts=[(budget, more)], run_changes={"status": "done"}))
        hf.store.leases.take("run", owner="other", ttl_s=60)
        assert hf.store.accounts("run") == {"tokens": more}
        assert hf.verify().faults == ()
    return before


def drop(place, table, key):
    with raw(place) as medium, medium.write() as transaction:
        transaction.drop(table, key)


@pytest.mark.parametrize("table", [ACCOUNT, RUN, LEASE], ids=lambda table: table.name)
def test_a_row_put_back_as_it_once_was_is_noticed(place, sign, filled, table):
    """Issue 18.2: each was sealed with the key, so it was believed."""
    put(place, [(one, row) for one, row in filled if one is table])
    with opened(place, OWNER, sign) as hf:
        assert {"account": "account", "run": "run", "lease": "lease"}[table.name] in {
            fault.kind for fault in hf.verify().faults
        }
        if table is ACCOUNT:
            with pytest.raises(RunCorrupt, match="put back"):
                hf.store.accounts("run")
        if table is RUN:
            with pytest.raises(RunCorrupt, match="stale"):
                hf.store.run("run")
        assert hf.store.leases.running("run") is None or table is not LEASE


@pytest.mark.parametrize("table", [ACCOUNT, INBOX, LEASE], ids=lambda table: table.name)
def test_a_row_that_was_deleted_is_noticed(place, sign, filled, table):
    assert any(one is table for one, _ in filled)
    for one, row in rows_of(place):
        if one is table:
            drop(place, table, row[: len(table.key)])
    with opened(place, OWNER, sign) as hf:
        kinds = {fault.kind for fault in hf.verify().faults}
    assert kinds - {"store"} == {table.name}  # what keeps numbers outside the log misses it, too


def test_a_lease_put_back_lets_nobody_write_beside_its_owner(place, sign):
    """Its number is that of its line, which only grows."""
    work(place, OWNER, sign)
    with opened(place, OWNER, sign) as hf:
        hf.store.leases.take("run", owner="first", ttl_s=3600)
    before = [(table, row) for table, row in rows_of(place) if table is LEASE]
    with opened(place, OWNER, sign) as hf:
        first = hf.store.leases.running("run")
        hf.store.leases.end(first)
        second = hf.store.leases.take("run", owner="second", ttl_s=3600)
    put(place, before)
    with opened(place, OWNER, sign) as hf:
        with pytest.raises(LeaseLost):
            hf.store.write(Commit(run="run", fence=first.token, run_changes={"status": "x"}))
        hf.store.write(Commit(run="run", fence=second.token, run_changes={"status": "y"}))
        assert [fault.kind for fault in hf.verify().faults] == ["lease"]
