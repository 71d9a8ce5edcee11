"""Leases and wake-ups, the same on every store."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from holdfast.errors import LeaseHeld, LeaseLost, UsageError
from holdfast.model.checkpoint import Marks
from holdfast.store.memory import MemoryStore
from holdfast.store.open import open_store
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.contract import Line, chunk_of
from postgres_server import shared_server


@pytest.fixture(params=["memory", "sqlite", "files", "postgres"])
def store(request, tmp_path):
    if request.param == "postgres":
        url = shared_server().database()
        with closing(open_store(url)) as store:
            yield store
        shared_server().drop(url)
        return
    makers = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "store.db"),
        "files": lambda: open_store((tmp_path / "store").as_uri()),
    }
    with closing(makers[request.param]()) as store:
        yield store


def commit(line, fence):
    envelope = line.envelope([chunk_of(f"{line.seq}")])
    head = line.head.envelope.id if line.head else None
    line.head = line.store.commit(envelope, Marks(), [chunk_of(f"{line.seq}")], expected_head=head, fence=fence)
    line.seq = envelope.seq


def lapse(store, lease):
    """Renew a lease for so short that it is over when the call returns, or soon after."""
    store.leases.renew(lease, ttl_s=0.001)
    while store.leases.running(lease.run) is not None:
        time.sleep(0.002)


def test_one_owner_has_a_run_and_others_are_told_who(store):
    lease = store.leases.take("run", owner="host-a", ttl_s=60)
    assert store.leases.running("run") == lease
    with pytest.raises(LeaseHeld, match="host-a"):
        store.leases.take("run", owner="host-b", ttl_s=60)
    store.leases.take("other", owner="host-b", ttl_s=60)


def test_a_lease_may_be_taken_before_the_run_began_and_after_it_was_given_back(store):
    lease = store.leases.take("new", owner="a", ttl_s=60)
    store.leases.end(lease)
    assert store.leases.running("new") is None
    assert store.leases.take("new", owner="b", ttl_s=60).token > lease.token
    assert store.runs() == []


def test_a_commit_under_a_lease_needs_its_token(store):
    """Proves D10."""
    lease = store.leases.take("run", owner="a", ttl_s=60)
    line = Line(store)
    commit(line, lease.token)
    with pytest.raises(LeaseHeld):
        line.commit()
    with pytest.raises(LeaseLost):
        commit(line, lease.token + 1000)
    commit(line, lease.token)
    assert store.run("run").last_seq == 2


def test_a_worker_that_slept_through_its_lease_is_fenced_off(store):
    """Proves D10."""
    old = store.leases.take("run", owner="slow", ttl_s=60)
    line = Line(store)
    commit(line, old.token)
    lapse(store, old)
    new = store.leases.take("run", owner="quick", ttl_s=60)
    assert new.token > old.token
    with pytest.raises(LeaseLost, match="quick"):
        commit(line, old.token)
    with pytest.raises(LeaseLost):
        store.leases.renew(old, ttl_s=60)
    store.leases.end(old)
    assert store.leases.running("run") == new
    commit(line, new.token)
    assert store.run("run").last_seq == 2


def test_a_lapsed_lease_that_nobody_took_still_counts_for_its_owner(store):
    lease = store.leases.take("run", owner="a", ttl_s=60)
    lapse(store, lease)
    commit(Line(store), lease.token)
    assert store.leases.renew(lease, ttl_s=60).token == lease.token


def test_tokens_never_go_back_when_a_run_is_deleted(store):
    first = store.leases.take("run", owner="a", ttl_s=60)
    commit(Line(store), first.token)
    store.delete_run("run")
    assert store.leases.running("run") is None
    assert store.leases.take("run", owner="b", ttl_s=60).token > first.token


def test_of_many_who_want_a_run_one_gets_it(store):
    """Proves D10."""
    outcomes = []
    start = threading.Barrier(6)

    def want(number):
        start.wait()
        try:
            outcomes.append(store.leases.take("run", owner=f"worker {number}", ttl_s=60).owner)
        except LeaseHeld as error:
            outcomes.append(error)

    threads = [threading.Thread(target=want, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert won == [store.leases.running("run").owner]
    assert len(outcomes) == 6


@pytest.mark.parametrize(
    ("owner", "ttl_s"), [("", 1), ("x" * 500, 1), ("a\nb", 1), ("a", 0), ("a", -1), ("a", float("inf"))]
)
def test_terms_that_make_no_sense_are_refused(store, owner, ttl_s):
    with pytest.raises(UsageError):
        store.leases.take("run", owner=owner, ttl_s=ttl_s)


def test_a_ring_after_listening_is_heard_even_before_waiting(store):
    """Proves E6."""
    with store.listen("run") as wakeup, store.listen("other") as other:
        store.wake("run")
        assert wakeup.wait(10)
        assert not wakeup.wait(0.01)
        assert not other.wait(0.01)


def test_a_waiting_thread_is_woken(store):
    """Proves E6."""
    woken = []
    listening = threading.Event()

    def wait():
        with store.listen("run") as wakeup:
            listening.set()
            woken.append(wakeup.wait(30))

    thread = threading.Thread(target=wait)
    thread.start()
    listening.wait()
    store.wake("run")
    thread.join()
    assert woken == [True]


def test_a_bell_whose_server_restarts_rings_once_for_what_it_may_have_missed():
    """Proves E6."""
    url = shared_server().database()
    with closing(open_store(url)) as store, store.listen("run") as wakeup:
        shared_server().restart()
        assert wakeup.wait(10)
        store.wake("run")
        assert wakeup.wait(10)
    shared_server().drop(url)


def test_another_tenants_ring_is_not_heard():
    """Proves E7."""
    url = shared_server().database()
    ours, theirs = open_store(url, tenant="a"), open_store(url, tenant="b")
    with closing(ours), closing(theirs), ours.listen("run") as wakeup:
        theirs.wake("run")
        assert not wakeup.wait(0.2)
    shared_server().drop(url)
