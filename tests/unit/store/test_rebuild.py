"""A run whose record, holds or lease are damaged gets them rebuilt from its checkpoints."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise

import apsw
import pytest

from holdfast import Holdfast, generate_key
from holdfast.errors import LeaseLost
from holdfast.retain.sweep import sweep
from holdfast.store.commit import Commit, Draft
from holdfast.store.keys import seal_store
from holdfast.store.memory import MemoryStore
from holdfast.store.open import open_store
from holdfast.store.repair import Repair
from holdfast.store.sqlite import SQLiteMedium, SQLiteStore
from holdfast.verify.check import verify
from holdfast.verify.rebuild import rebuild
from postgres_server import shared_server


class Kept:
    """A store, and a way round it."""

    def __init__(self, medium, tmp_path):
        self.place = tmp_path / "x.db"
        self.url = shared_server().database() if medium == "postgres" else None
        if medium == "sealed":
            self.store = seal_store(SQLiteMedium(self.place), generate_key())
        else:
            self.store = open_store(self.url) if self.url else SQLiteStore(self.place)

    def query(self, statement):
        if self.url:
            with shared_server().admin(self.url.split("@/")[1].split("?")[0]) as connection:
                connection.execute("SET search_path = holdfast")
                connection.execute(statement)
        else:
            with closing(apsw.Connection(str(self.place))) as connection:
                connection.execute(statement)

    def close(self):
        self.store.close()
        if self.url:
            shared_server().drop(self.url)


@pytest.fixture(params=["sqlite", "sealed", "postgres"])
def kept(request, tmp_path):
    made = Kept(request.param, tmp_path)
    yield made
    made.close()


def fill(store):
    """Make two runs that share chunks, with deleted numbers and a list that is a tree."""
    hf = Holdfast(store)
    for name in ("a", "b"):
        run = hf.run(name)
        for n in range(1, 6):
            run.checkpoint(state={"n": n, "log": [f"{i} {name if i % 7 else ''}" * 20 for i in range(n * 400)]})
    hf.delete(hf.find("a@2").id)
    return hf


def picture(hf):
    return {
        name: (hf.store.run(name), [cp.section("state")["n"] for cp in hf.checkpoints(name)], hf.store.held(name))
        for name in ("a", "b")
    }


DAMAGE = {
    "the record": "UPDATE run SET value = 'x' WHERE id = 'a'",
    "every record": "UPDATE run SET value = 'x' WHERE id IN ('a', 'b')",
    "the row": "DELETE FROM run WHERE id = 'a'",
    "every row": "DELETE FROM run WHERE id IN ('a', 'b')",
    "the line": "UPDATE line SET value = 'x' WHERE run = 'a'",
    "the line's row": "DELETE FROM line WHERE run = 'a'",
    "every line": "DELETE FROM line",
    "record and line": "UPDATE run SET value = 'x' WHERE id = 'a'; UPDATE line SET value = 'x' WHERE run = 'a'",
    "every row and line": "DELETE FROM run; DELETE FROM line",
    "the holds": "DELETE FROM hold",
    "some holds": "DELETE FROM hold WHERE chunk > (SELECT min(chunk) FROM hold)",
    "row and holds": "DELETE FROM hold; DELETE FROM run WHERE id IN ('a', 'b')",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_run_is_again_what_it_was(kept, damage):
    hf = fill(kept.store)
    before = picture(hf)
    for statement in DAMAGE[damage].split(";"):
        if kept.url is None:
            kept.query(statement.replace("'x'", "x'00'"))
        else:
            kept.query(statement.replace("chunk %", "get_byte(chunk, 0) %"))
    assert not verify(kept.store).sound
    runs = Repair(kept.store).damaged_runs()
    assert "a" in runs
    for run in runs:
        rebuild(kept.store, run)
    assert verify(kept.store).sound
    assert Repair(kept.store).damaged_runs() == []
    after = picture(hf)
    for name in ("a", "b"):
        was, now = before[name][0], after[name][0]
        told = ("head", "last_seq", "checkpoints", "created_at", "updated_at")
        assert [getattr(now, field) for field in told] == [getattr(was, field) for field in told]
        assert after[name][1:] == before[name][1:]
    assert sweep(kept.store, "a") == 0
    hf.delete_run("a")
    assert verify(kept.store).sound
    assert hf.latest("b").section("state")["n"] == 5
    hf.run("b").checkpoint(state={"n": 6})
    assert hf.latest("b").seq == 6


def test_a_head_that_is_damaged_with_its_record_is_the_newest_sound_one_afterwards(tmp_path):
    kept = Kept("sqlite", tmp_path)
    hf = fill(kept.store)
    kept.query("UPDATE line SET value = x'00' WHERE run = 'a'")
    kept.query("UPDATE checkpoint SET value = x'00' WHERE run = 'a' AND seq = 5")
    made = rebuild(kept.store, "a")
    assert made is not None
    assert (made.head, made.last_seq, made.checkpoints) == (hf.find("a@4").id, 5, 4)
    kept.query("UPDATE line SET value = x'00' WHERE run = 'a'")
    kept.query("UPDATE checkpoint SET value = x'00' WHERE run = 'a'")
    made = rebuild(kept.store, "a")
    assert made is not None
    assert (made.head, made.last_seq, made.checkpoints) == (None, 5, 4)
    hf.delete_run("a")
    kept.close()


@pytest.mark.parametrize("damage", ["value = x'00'", "seal = x'00'", "value = zeroblob(2000)"])
@pytest.mark.parametrize("line", ["", "value = x'00'"])
def test_a_damaged_lease_is_nobodys_and_tokens_go_on_growing(tmp_path, damage, line):
    kept = Kept("sqlite", tmp_path)
    hf = fill(kept.store)
    tokens = []
    for _ in range(8):
        lease = kept.store.leases.take("a", owner="me", ttl_s=1000)
        tokens.append(lease.token)
    kept.query(f"UPDATE lease SET {damage}")
    kept.query("INSERT INTO lease VALUES ('nowhere', 'main', x'00', x'00')")
    if line:
        kept.query(f"UPDATE line SET {line} WHERE run = 'a'")
    assert kept.store.leases.running("a") is None
    assert sum("lease" in fault.detail for fault in verify(kept.store).faults) == 2
    for run in Repair(kept.store).damaged_runs():
        rebuild(kept.store, run)
    assert verify(kept.store).sound
    assert kept.store.leases.running("a") is None
    with pytest.raises(LeaseLost):
        kept.store.leases.renew(lease, ttl_s=10)
    with pytest.raises(LeaseLost):
        kept.store.write(Commit(run="a", fence=lease.token, records=[Draft("k", "path", 0.0)]))
    tokens.append(kept.store.leases.take("a", owner="you", ttl_s=10).token)
    assert all(one < another for one, another in pairwise(tokens))
    hf.close()
    kept.close()


def test_a_sound_store_has_nothing_to_rebuild(tmp_path):
    for store in (MemoryStore(), SQLiteStore(tmp_path / "x.db")):
        fill(store)
        assert Repair(store).damaged_runs() == []
        assert rebuild(store, "a") == store.run("a")
        assert rebuild(store, "nowhere") is None
        store.close()


NO_TEXT = "CAST(x'ff41' AS TEXT)"
ASTRAY = {
    "a run's name": "UPDATE run SET id = 'q' WHERE id = 'a'",
    "a run's name, no text": f"UPDATE run SET id = {NO_TEXT} WHERE id = 'a'",
    "name and record": "UPDATE run SET id = 'q', value = x'00' WHERE id = 'a'",
    "name and record, no text": f"UPDATE run SET id = {NO_TEXT}, value = x'00' WHERE id = 'a'",
    "a line's run": "UPDATE line SET run = 'q' WHERE run = 'a'",
    "a line's run, no text": f"UPDATE line SET run = {NO_TEXT} WHERE run = 'a'",
    "a checkpoint's run": "UPDATE checkpoint SET run = 'q' WHERE run = 'a' AND seq = 5",
    "a checkpoint's run, no text": f"UPDATE checkpoint SET run = {NO_TEXT} WHERE run = 'a' AND seq = 3",
    "a checkpoint's number": "UPDATE checkpoint SET seq = 9223372036854775807 WHERE run = 'a' AND seq = 5",
    "a checkpoint's number, below all": "UPDATE checkpoint SET seq = -7 WHERE run = 'a' AND seq = 3",
    "a lease's run": "UPDATE lease SET run = 'q'",
    "a lease's run, no text": f"UPDATE lease SET run = {NO_TEXT}",
}


@pytest.mark.parametrize("damage", ASTRAY)
def test_what_stands_under_a_wrong_name_comes_back_and_no_run_is_invented(tmp_path, damage):
    kept = Kept("sqlite", tmp_path)
    hf = fill(kept.store)
    before = picture(hf)
    kept.store.leases.end(kept.store.leases.take("a", owner="me", ttl_s=10))
    kept.query(ASTRAY[damage])
    for run in Repair(kept.store).damaged_runs():
        rebuild(kept.store, run)
    assert Repair(kept.store).damaged_runs() == []
    assert verify(kept.store).sound
    assert {run.id for run in kept.store.runs()} == {"a", "b"}
    after = picture(hf)
    for name in ("a", "b"):
        assert after[name][1:] == before[name][1:]
        assert (after[name][0].head, after[name][0].last_seq) == (before[name][0].head, 5)
    hf.run("a").checkpoint(state={"n": 6})
    kept.close()


def test_a_number_that_is_never_given_is_not_a_runs_last_one(tmp_path):
    kept = Kept("sqlite", tmp_path)
    hf = fill(kept.store)
    kept.query("UPDATE checkpoint SET seq = 9223372036854775807, value = x'00' WHERE run = 'a' AND seq = 5")
    kept.query("UPDATE line SET value = x'00' WHERE run = 'a'")
    made = rebuild(kept.store, "a")
    assert made is not None
    assert (made.head, made.last_seq) == (hf.find("a@4").id, 4)
    assert "9223372036854775807 is never given" in str(kept.store.checkpoints("a").damaged)
    hf.run("a").checkpoint(state={"n": 5})
    assert kept.store.run("a").last_seq == 5
    kept.close()


def test_a_damaged_tombstone_does_not_number_a_run(kept):
    fill(kept.store)
    kept.query("UPDATE tombstone SET seq = 9223372036854775807 WHERE run = 'a'")
    kept.query(f"UPDATE line SET value = {'' if kept.url else 'x'}'00' WHERE run = 'a'")
    made = rebuild(kept.store, "a")
    assert made is not None
    assert made.last_seq == 5


def test_a_run_of_which_nothing_is_left_is_not_rebuilt(kept):
    fill(kept.store)
    kept.query(f"UPDATE run SET value = {'' if kept.url else 'x'}'00' WHERE id = 'a'")
    kept.query("DELETE FROM line WHERE run = 'a'")
    kept.query("DELETE FROM checkpoint WHERE run = 'a'")
    kept.query("DELETE FROM tombstone WHERE run = 'a'")
    assert rebuild(kept.store, "a") is None
    assert "a" not in {run.id for run in kept.store.runs()}


def test_a_damaged_token_does_not_hinder_other_runs(tmp_path):
    kept = Kept("sqlite", tmp_path)
    fill(kept.store)
    kept.store.leases.take("a", owner="me", ttl_s=10)
    kept.query("UPDATE lease SET value = x'00'")
    assert kept.store.leases.take("b", owner="me", ttl_s=10).token == 1
    kept.close()
