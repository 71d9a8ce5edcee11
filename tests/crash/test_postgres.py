"""PostgreSQL whose backends, and whose whole server, are killed under the writers: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import closing

import psycopg
import pytest

import holdfast
from crash.children import TORTURE, Child
from holdfast.errors import HeadMoved, StoreBusy, StoreUnavailable
from holdfast.model.checkpoint import Marks
from holdfast.store.postgres import PostgresStore
from holdfast.testing.contract import NOON, Line, chunk_of
from postgres_server import Server, shared_server

TIMEOUT_S = 30.0


@pytest.fixture
def database():
    url = shared_server().database()
    yield url
    shared_server().drop(url)


@pytest.fixture
def server():
    """A server of the test's own, which may be killed."""
    server = Server()
    yield server
    server.stop()


def write(url, tenant, number, until):
    """Return a child's work: commit to a run of its own and to a shared one, and report what was acknowledged."""

    def live(report):
        store = PostgresStore(url, tenant=tenant, timeout_s=TIMEOUT_S, pool_size=2)
        own, shared = Line(store, f"own-{number}"), Line(store, "shared")
        step = 0
        while time.time() < until:
            begun = time.monotonic()
            text = f"{tenant} {number} {step}"
            record = own.commit(chunk_of(text), chunk_of(f"{tenant} common {step % 50}"))
            report({"run": own.run, "seq": record.envelope.seq, "id": record.envelope.id})
            try:
                record = shared.commit(chunk_of(text))
            except HeadMoved:
                shared.follow()
            else:
                report({"run": "shared", "seq": record.envelope.seq, "id": record.envelope.id})
            if step % 20 == 19:
                doomed = store.checkpoint_at(own.run, own.seq - 10).envelope.id
                store.delete(own.run, [doomed])
                report({"run": own.run, "gone": doomed})
            report({"slowest": time.monotonic() - begun})
            step += 1
        store.close()

    return live


def check_all(url, tenant, reports):
    """Check that a tenant has everything that was acknowledged to it, once, and nothing of anybody else."""
    with closing(PostgresStore(url, tenant=tenant)) as store:
        gone = {report["gone"] for report in reports if "gone" in report}
        told = [report for report in reports if "seq" in report]
        assert len({(report["run"], report["seq"]) for report in told}) == len(told), "a number acknowledged twice"
        for run in {report["run"] for report in told}:
            listing = store.checkpoints(run)
            assert listing.damaged == ()
            found = {record.envelope.seq: record.envelope.id for record in listing}
            wanted = {r["seq"]: r["id"] for r in told if r["run"] == run and r["id"] not in gone}
            assert wanted.items() <= found.items()
            assert gone.isdisjoint(found.values())
            assert len(found) + len(store.tombstones(run)) == store.run(run).last_seq
            unacknowledged = store.run(run).last_seq - len([r for r in told if r["run"] == run])
            assert unacknowledged <= 0 or run == "shared", "a commit that failed was stored"
        assert list(store.check()) == []
        assert holdfast.Holdfast(store).verify().sound
        return len(told)


def test_eight_writers_of_two_tenants_lose_and_double_nothing_while_their_backends_are_killed(database):
    """Proves D10, E5, E7."""
    until = time.time() + (60 if TORTURE else 8)
    with closing(PostgresStore(database, tenant="a")):
        children = [(tenant, Child(write(database, tenant, n, until))) for tenant in "ab" for n in range(4)]
        name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
        killed = 0
        with shared_server().admin() as admin:
            while time.time() < until:
                time.sleep(0.5)
                query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'holdfast'"
                for number, (pid,) in enumerate(admin.execute(query, (name,)).fetchall()):
                    if number % 3:
                        killed += admin.execute("SELECT pg_terminate_backend(%s)::int", (pid,)).fetchone()[0]
        reports = {"a": [], "b": []}
        for tenant, child in children:
            ended = child.join()
            assert (ended.signal, ended.code) == (0, 0), ended.reports[-1]
            reports[tenant] += ended.reports
    assert killed > 20
    for tenant in "ab":
        assert check_all(database, tenant, reports[tenant]) > 100
        assert max(report.get("slowest", 0) for report in reports[tenant]) < 3 * TIMEOUT_S


def test_the_whole_server_killed_again_and_again_loses_nothing_acknowledged(server):
    """Proves A10, E5."""
    url = server.database()
    stop = threading.Event()
    told, failed = [], []

    def live(number):
        try:
            with closing(PostgresStore(url, timeout_s=TIMEOUT_S, pool_size=2)) as store:
                line = Line(store, f"own-{number}")
                while not stop.is_set():
                    record = line.commit(chunk_of(f"{number} {line.seq}"))
                    told.append({"run": line.run, "seq": record.envelope.seq, "id": record.envelope.id})
        except Exception as error:  # noqa: BLE001 - handed to the test
            failed.append(error)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    moments = random.Random(7)
    for _ in range(20):
        time.sleep(moments.uniform(0.02, 0.25))
        server.kill()
        server.start()
    seen = len(told)
    while len(told) == seen and not failed:
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert check_all(url, "default", told) > 60


def test_a_server_that_restarts_is_waited_for_and_the_pool_heals(server):
    """Proves E5."""
    with closing(PostgresStore(server.database(), timeout_s=TIMEOUT_S)) as store:
        line = Line(store)
        for _ in range(3):
            line.commit(chunk_of(f"{line.seq}"))
            server.restart()
        line.commit()
        assert store.run("run").last_seq == 4


def test_a_server_that_no_longer_answers_ends_in_a_typed_error_and_not_in_waiting(server):
    """Proves D11: the server is stopped in the middle of everything, its sockets still open."""
    with closing(PostgresStore(server.database(), timeout_s=1.0)) as store:
        line = Line(store)
        line.commit(chunk_of("one"))
        with server.frozen(), pytest.raises((StoreUnavailable, StoreBusy), match=r"may or may not|in time"):
            line.commit(chunk_of("two"))
        while True:  # the refused commit may still land when the server goes on: the head tells
            line.follow()
            try:
                line.commit(chunk_of("three"))
            except HeadMoved:
                continue
            break
        assert store.run("run").last_seq in (2, 3)


def test_a_server_that_is_gone_for_good_is_named(server):
    """Proves D11."""
    with closing(PostgresStore(server.database(), timeout_s=1.0)) as store:
        server.kill()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            store.runs()
        server.start()
        assert store.runs() == []


def test_a_commit_whose_answer_was_lost_is_found_and_not_made_twice(database):
    """Proves D10: the connection breaks after the server committed and before it said so."""
    with closing(PostgresStore(database)) as store:
        line = Line(store)
        line.commit(chunk_of("one"))
        real = store._chunks.commit
        lost = []

        def lose_the_answer(connection, values, brought):
            outcome = real(connection, values, brought)
            if not lost:
                lost.append(outcome)
                os.kill(connection.info.backend_pid, signal.SIGTERM)
                connection.pgconn.finish()
                raise psycopg.OperationalError("the answer was lost")
            return outcome

        store._chunks.commit = lose_the_answer
        record = line.commit(chunk_of("two"), chunk_of("one"))
        assert lost == ["done"]
        store._chunks.commit = real
        assert store.checkpoint_at("run", 2) == record
        line.commit(chunk_of("three"))
        assert store.run("run").last_seq == 3
        assert list(store.check()) == []


def test_a_commit_repeated_by_its_caller_is_the_same_commit(database):
    """Proves D10."""
    with closing(PostgresStore(database)) as store, closing(PostgresStore(database)) as elsewhere:
        line = Line(store)
        head = line.commit(chunk_of("one"))
        envelope = line.envelope([chunk_of("two")])
        for each in (store, elsewhere, store):
            kept = each.commit(envelope, Marks(), [chunk_of("two")], expected_head=head.envelope.id)
            assert kept.envelope == envelope
        assert store.run("run").last_seq == 2
        assert store.stats().chunks == 2


def test_a_sweep_beside_writers_elsewhere_takes_nothing_that_they_bring_again(database):
    """Proves E5: the same chunks come and go in many runs at once."""
    until = time.time() + (30 if TORTURE else 4)

    def live_of(number):
        def live(report):
            chance = random.Random(number)
            store = PostgresStore(database, pool_size=2)
            turns = 0
            while time.time() < until:
                line = Line(store, f"{number}-{turns}")
                some = [chunk_of(f"shared {chance.randrange(12)}") for _ in range(6)]
                line.commit(*some)
                line.commit(chunk_of(f"mine {number} {turns}"))
                wanted = {chunk.id for chunk in some}
                assert store.fetch(list(wanted)).keys() == wanted
                if chance.random() < 0.5:
                    store.delete_run(line.run)
                else:
                    store.delete(line.run, [store.checkpoint_at(line.run, 1).envelope.id])
                    store.release(line.run, sorted(wanted), expected_seq=2, created_at=NOON)
                turns += 1
            report(turns)
            store.close()

        return live

    ended = [child.join() for child in [Child(live_of(number)) for number in range(4)]]
    assert [end.code for end in ended] == [0] * 4, [end.reports[-1] for end in ended]
    assert all(end.reports[-1] > 5 for end in ended)
    with closing(PostgresStore(database)) as store:
        assert list(store.check()) == []
        assert holdfast.Holdfast(store).verify().sound
