"""PostgreSQL whose backends, and whose whole server, are killed under the writers: nothing lost, nothing doubled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

import psycopg
import pytest

import holdfast
from crash.children import TORTURE, Child
from holdfast.errors import HeadMoved, StoreBusy, StoreUnavailable
from holdfast.model.checkpoint import Marks
from holdfast.store.commit import Commit, Draft
from holdfast.store.inspection import Inspection
from holdfast.store.postgres import PostgresMedium, PostgresReader
from holdfast.store.store import Store
from holdfast.testing.contract import NOON, Line, chunk_of
from postgres_server import Server, shared_server

TIMEOUT_S = 30.0


def opened(url, **options):
    return Store(PostgresMedium(url, **options))


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


def write(url, tenant, number, stop):
    """Return a child's work until a file is there: commit to a run of its own and to a shared one, and report it."""

    def live(report):
        store = opened(url, tenant=tenant, timeout_s=TIMEOUT_S, pool_size=2)
        own, shared = Line(store, f"own-{number}"), Line(store, "shared")
        step = 0
        while not stop.exists():
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
    with closing(opened(url, tenant=tenant)) as store:
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
        assert list(Inspection(store).check()) == []
        assert holdfast.Holdfast(store).verify().sound
        return len(told)


def kill_backends(database, kills, stop):
    """Kill two of three backends of a database twice a second until so many were, and tell the writers to stop."""
    name, killed = psycopg.conninfo.conninfo_to_dict(database)["dbname"], 0
    query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'holdfast'"
    deadline = time.monotonic() + 60 + 3 * kills
    try:
        with shared_server().admin() as admin:
            while killed < kills:
                assert time.monotonic() < deadline, f"after {killed} kills no writer has a backend"
                time.sleep(0.5)
                for number, (pid,) in enumerate(admin.execute(query, (name,)).fetchall()):
                    if number % 3:
                        killed += admin.execute("SELECT pg_terminate_backend(%s)::int", (pid,)).fetchone()[0]
    finally:
        stop.touch()
    return killed


def test_eight_writers_of_two_tenants_lose_and_double_nothing_while_their_backends_are_killed(database, tmp_path):
    """Proves D10, E5, E7."""
    stop = tmp_path / "stop"
    with closing(opened(database, tenant="a")):
        children = [(tenant, Child(write(database, tenant, n, stop))) for tenant in "ab" for n in range(4)]
        killed = kill_backends(database, 500 if TORTURE else 20, stop)
        reports = {"a": [], "b": []}
        for tenant, child in children:
            ended = child.join()
            assert (ended.signal, ended.code) == (0, 0), ended.reports[-1]
            reports[tenant] += ended.reports
    told = [check_all(database, tenant, reports[tenant]) for tenant in "ab"]
    print(f"{killed} backends killed under 8 writers, {sum(told)} commits told, 0 lost, 0 doubled")
    assert min(told) > 10
    for tenant in "ab":
        assert max(report.get("slowest", 0) for report in reports[tenant]) < 3 * TIMEOUT_S


def test_the_whole_server_killed_again_and_again_loses_nothing_acknowledged(server):
    """Proves A10, E5."""
    url = server.database()
    stop = threading.Event()
    told, failed = [], []

    def live(number):
        try:
            with closing(opened(url, timeout_s=TIMEOUT_S, pool_size=2)) as store:
                line = Line(store, f"own-{number}")
                while not stop.is_set():
                    record = line.commit(chunk_of(f"{number} {line.seq}"))
                    told.append({"run": line.run, "seq": record.envelope.seq, "id": record.envelope.id})
        except Exception as error:  # noqa: BLE001 - handed to the test
            failed.append(error)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    moments, kills = random.Random(7), 60 if TORTURE else 20
    for _ in range(kills):
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
    print(f"{kills} server kills, {len(told)} commits told, 0 lost, 0 doubled")


def test_a_server_that_restarts_is_waited_for_and_the_pool_heals(server):
    """Proves E5."""
    with closing(opened(server.database(), timeout_s=TIMEOUT_S)) as store:
        line = Line(store)
        for _ in range(3):
            line.commit(chunk_of(f"{line.seq}"))
            server.restart()
        line.commit()
        assert store.run("run").last_seq == 4


@contextmanager
def relayed(url, *, cuts):
    """Give a URL that leads to the same server over a relay, which cuts the first connections short."""
    there = str(Path(parse_qs(urlsplit(url).query)["host"][0]) / ".s.PGSQL.5432")
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{folder}/.s.PGSQL.5432")
        door.listen()
        taken, servers = [], []

        def pump(source, target):
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = door.accept()
                    taken.append(client)
                    if len(taken) <= cuts:
                        client.recv(1)  # its first word is not answered
                        client.close()
                        continue
                    server = socket.socket(socket.AF_UNIX)
                    servers.append(server)
                    server.connect(there)
                    for ends in ((client, server), (server, client)):
                        threads.append(threading.Thread(target=pump, args=ends))
                        threads[-1].start()

        threads = [threading.Thread(target=serve)]
        threads[0].start()
        yield urlunsplit(urlsplit(url)._replace(query=f"host={quote(folder, safe='')}")), taken
        door.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for end in (*taken, *servers):
            end.close()


def test_a_store_whose_first_connections_are_cut_is_opened_all_the_same(database):
    """Proves D11: a server that is there and restarts, or a proxy that does, is not one that cannot be reached."""
    with relayed(database, cuts=3) as (url, taken), closing(opened(url, timeout_s=TIMEOUT_S)) as store:
        Line(store).commit(chunk_of("one"))
        assert store.run("run").last_seq == 1
        assert len(taken) >= 4


class Relay:
    """Carries connections to a server, and cuts each, or stalls it for a while, after so many bytes drawn by lot."""

    def __init__(self, there, chance, after_bytes, stall_s):
        self._there, self._chance, self._after_bytes, self._stall_s = there, chance, after_bytes, stall_s
        self.struck = 0
        self.ends, self.threads = [], []

    def serve(self, door):
        with contextlib.suppress(OSError):
            while True:
                client, _ = door.accept()
                server = socket.socket(socket.AF_UNIX)
                self.ends += [client, server]
                server.connect(self._there)
                for pair in ((client, server, None), (server, client, self._chance.randrange(*self._after_bytes))):
                    self.threads.append(threading.Thread(target=self._pump, args=pair))
                    self.threads[-1].start()

    def _pump(self, source, target, left):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                left = left if left is None else left - len(data)
                if left is not None and left < 0:
                    self.struck += 1
                    if not self._stall_s:
                        break
                    time.sleep(self._stall_s)
                    left = None
                target.sendall(data)
            for end in (source, target):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def cutting(url, *, seed, after_bytes, stall_s=0.0):
    """Give a URL over a relay that strikes, and the relay."""
    there = str(Path(parse_qs(urlsplit(url).query)["host"][0]) / ".s.PGSQL.5432")
    relay = Relay(there, random.Random(seed), after_bytes, stall_s)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{folder}/.s.PGSQL.5432")
        door.listen(64)
        serving = threading.Thread(target=relay.serve, args=(door,))
        serving.start()
        try:
            yield urlunsplit(urlsplit(url)._replace(query=f"host={quote(folder, safe='')}")), relay
        finally:
            door.shutdown(socket.SHUT_RDWR)
            serving.join()
            for end in relay.ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            for thread in relay.threads:
                thread.join()
            for end in relay.ends:
                end.close()


def test_connections_that_are_cut_anywhere_lose_and_double_nothing(database):
    """Proves D10, D11: the answer of the server ends at any byte, in a commit or in a look, over and over."""
    cuts = 1_000 if TORTURE else 40
    told = []
    opened(database).close()  # its tables are more than a connection is left
    with (
        cutting(database, seed=11, after_bytes=(12_000, 20_000)) as (url, relay),
        closing(opened(url, timeout_s=TIMEOUT_S, pool_size=2)) as store,
    ):
        line = Line(store, "own")
        while relay.struck < cuts:
            try:
                record = line.commit(chunk_of(f"step {line.seq}"))
            except (StoreUnavailable, HeadMoved):
                with contextlib.suppress(StoreUnavailable):
                    line.follow()
                continue
            told.append({"run": "own", "seq": record.envelope.seq, "id": record.envelope.id})
    assert check_all(database, "default", told) > cuts // 10
    print(f"{relay.struck} cuts, {len(told)} commits told, 0 lost, 0 doubled")


def test_connections_that_stall_end_in_time_and_nothing_is_lost(database):
    """Proves D11: no call takes longer than its timeout, which is what the network may take, and a little work."""
    stalls = 100 if TORTURE else 4
    told, slowest, timeout_s = [], 0.0, 1.0
    opened(database).close()
    with (
        cutting(database, seed=12, after_bytes=(12_000, 24_000), stall_s=4 * timeout_s) as (url, relay),
        closing(opened(url, timeout_s=timeout_s, pool_size=2)) as store,
    ):
        line = Line(store, "own")
        while relay.struck < stalls:
            began = time.monotonic()
            try:
                record = line.commit(chunk_of(f"step {line.seq}"))
            except (StoreUnavailable, StoreBusy, HeadMoved):
                slowest = max(slowest, time.monotonic() - began)
                with contextlib.suppress(StoreUnavailable, StoreBusy):
                    line.follow()
                continue
            told.append({"run": "own", "seq": record.envelope.seq, "id": record.envelope.id})
    # Not the speed of anything: a call that waits for the stalled answer would take four timeouts.
    assert slowest < 3 * timeout_s + 1
    with closing(opened(database)) as store:
        found = {record.envelope.seq: record.envelope.id for record in store.checkpoints("own")}
        assert {one["seq"]: one["id"] for one in told}.items() <= found.items()
        assert list(Inspection(store).check()) == []


def test_a_standby_that_is_promoted_has_all_that_was_told_and_continues(server):
    """Proves E5, X8: its primary is killed with commits under way, and waits for its standby before it tells them."""
    url = server.database()
    standby = Server(standby_of=server)
    try:
        with server.admin() as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
            while not admin.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone():
                time.sleep(0.02)
        told, stop = [], threading.Event()

        def live():
            with contextlib.suppress(StoreUnavailable, StoreBusy), closing(opened(url, timeout_s=2.0)) as store:
                line = Line(store, "own")
                while not stop.is_set():
                    record = line.commit(chunk_of(f"step {line.seq}"))
                    told.append({"run": "own", "seq": record.envelope.seq, "id": record.envelope.id})

        writer = threading.Thread(target=live)
        writer.start()
        while len(told) < (500 if TORTURE else 40):
            time.sleep(0.01)
        server.kill()
        stop.set()
        writer.join()
        with standby.admin() as admin:
            admin.execute("SELECT pg_promote(true, 30)")
        moved = standby.url(urlsplit(url).path[1:], "app")
        with closing(opened(moved)) as store:
            found = {record.envelope.seq: record.envelope.id for record in store.checkpoints("own")}
            assert {one["seq"]: one["id"] for one in told}.items() <= found.items()
            assert len(found) <= len(told) + 1  # one that was stored and not told
            line = Line(store, "own")
            line.follow()
            assert line.commit(chunk_of("after")).envelope.seq == len(found) + 1
            assert list(Inspection(store).check()) == []
    finally:
        standby.stop()


def test_a_server_that_no_longer_answers_ends_in_a_typed_error_and_not_in_waiting(server):
    """Proves D11: the server is stopped in the middle of everything, its sockets still open."""
    with closing(opened(server.database(), timeout_s=1.0)) as store:
        line = Line(store)
        line.commit(chunk_of("one"))
        with server.frozen(), pytest.raises((StoreUnavailable, StoreBusy), match=r"may or may not|in time"):
            line.commit(chunk_of("two"))
        while True:  # the refused commit may still land when the server continues: the head tells
            line.follow()
            try:
                line.commit(chunk_of("three"))
            except HeadMoved:
                continue
            break
        assert store.run("run").last_seq in (2, 3)


def test_a_server_that_is_gone_for_good_is_named(server):
    """Proves D11."""
    with closing(opened(server.database(), timeout_s=1.0)) as store:
        server.kill()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            store.runs()
        server.start()
        assert store.runs() == []


def lose_answers(store, *, of, meanwhile=lambda: None):
    """Break the connection after the server did what it was asked and before it said so; return what was lost."""
    medium = store.medium
    lost = []
    if of == "apply":
        real = medium._apply

        def lose(connection, statement):
            real(connection, statement)
            if not lost:
                lost.append(statement)
                meanwhile()
                _break(connection)

        medium._apply = lose
    else:
        real_run = PostgresReader.run

        def lose_run(reader, *statements):
            rows = real_run(reader, *statements)
            if statements[-1][0] == b"COMMIT" and not lost:
                lost.append(statements)
                meanwhile()
                _break(reader._connection)
            return rows

        PostgresReader.run = lose_run
    return lost


def _break(connection):
    os.kill(connection.info.backend_pid, signal.SIGTERM)
    connection.pgconn.finish()
    raise psycopg.OperationalError("the answer was lost")


@pytest.fixture
def _whole_readers():
    real = PostgresReader.run
    yield
    PostgresReader.run = real


def test_a_commit_whose_answer_was_lost_is_found_and_not_made_twice(database):
    """Proves D10: the connection breaks after the server committed and before it said so."""
    with closing(opened(database)) as store:
        line = Line(store)
        line.commit(chunk_of("one"))
        lost = lose_answers(store, of="apply")
        record = line.commit(chunk_of("two"), chunk_of("one"))
        assert len(lost) == 1
        assert store.checkpoint_at("run", 2) == record
        line.commit(chunk_of("three"))
        assert store.run("run").last_seq == 3
        assert list(Inspection(store).check()) == []


def test_records_whose_answer_was_lost_are_there_once_though_another_writer_came_between(database):
    """Proves D10."""
    with closing(opened(database)) as store, closing(opened(database)) as other:
        store.write(Commit(run="run", records=[Draft("noted", "a", 1.0, b"first")]))
        lost = lose_answers(
            store, of="apply", meanwhile=lambda: other.write(Commit(run="run", records=[Draft("noted", "b", 1.0)]))
        )
        done = store.write(Commit(run="run", records=[Draft("noted", "a", 2.0, b"second")]))
        assert (len(lost), [record.number for record in done.records]) == (1, [2])
        store.write(Commit(run="run", records=[Draft("noted", "a", 3.0, b"third")]))
        line = store.line("run")
        assert [record.path for record in store.journal.records(line)] == ["a", "a", "b", "a"]
        assert [step.fault for step in store.journal.walk(line) if step.fault] == []


@pytest.mark.usefixtures("_whole_readers")
@pytest.mark.parametrize("key", [None, "key"])
def test_an_inbox_entry_whose_answer_was_lost_is_left_once(database, key):
    """Proves D10."""
    with closing(opened(database)) as store:
        store.post("run", "signal", b"first")
        lost = lose_answers(store, of="commit")
        entry = store.post("run", "signal", b"second", key=key)
        assert (len(lost), entry.number) == (1, 2)
        assert [one.body for one in store.inbox("run")] == [b"first", b"second"]


@pytest.mark.usefixtures("_whole_readers")
def test_a_transaction_whose_answer_was_lost_is_not_carried_out_twice(database):
    """Proves D10: a repeated delete would find nothing, a repeated lease would have another token."""
    with closing(opened(database)) as store:
        line = Line(store)
        first, second = line.commit(chunk_of("one")), line.commit(chunk_of("two"))
        lost = lose_answers(store, of="commit")
        store.delete("run", [first.envelope.id])
        assert (len(lost), [one.id for one in store.tombstones("run")]) == (1, [first.envelope.id])
        lost.clear()
        lease = store.leases.take("run", owner="me", ttl_s=30)
        assert (len(lost), lease.token) == (1, 1)
        lost.clear()
        store.release("run", [chunk_of("one").id], expected_seq=2, created_at=NOON)
        assert (len(lost), store.held("run")) == (1, {chunk_of("two").id})
        assert list(store.checkpoints("run")) == [second]
        assert list(Inspection(store).check()) == []


@pytest.mark.usefixtures("_whole_readers")
def test_a_transaction_that_broke_before_its_commit_is_carried_out_by_its_repetition(database):
    """Proves D10."""
    with closing(opened(database)) as store:
        line = Line(store)
        doomed = line.commit(chunk_of("one"))
        line.commit()
        real, broken = PostgresReader.run, []

        def break_first(reader, *statements):
            if statements[-1][0] == b"COMMIT" and not broken:
                broken.append(statements)
                _break(reader._connection)
            return real(reader, *statements)

        PostgresReader.run = break_first
        store.delete("run", [doomed.envelope.id])
        assert len(broken) == 1
        assert [one.id for one in store.tombstones("run")] == [doomed.envelope.id]


def test_a_backend_killed_in_the_middle_of_a_commit_loses_and_doubles_nothing(database):
    """Proves D10: the commit waits for a lock when its backend is killed."""
    with closing(opened(database)) as store, closing(opened(database)) as other:
        store.write(Commit(run="run", records=[Draft("noted", "a", 1.0)]))
        failed = []

        def append():
            try:
                store.write(Commit(run="run", records=[Draft("noted", "a", 2.0, b"mine")]))
            except Exception as error:  # noqa: BLE001 - handed to the test
                failed.append(error)

        thread = threading.Thread(target=append)
        with other.medium.write() as transaction:
            transaction.lock("run")
            thread.start()
            with shared_server().admin() as admin:
                name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
                for _ in range(3):
                    until = time.monotonic() + 10
                    while not (waiting := blocked(admin, name)):
                        assert time.monotonic() < until
                        time.sleep(0.01)
                    admin.execute("SELECT pg_terminate_backend(%s)", (waiting[0],))
                    while waiting[0] in blocked(admin, name):
                        time.sleep(0.01)
        thread.join()
        assert failed == []
        line = store.line("run")
        assert [record.body for record in store.journal.records(line)] == [b"", b"mine"]
        assert [step.fault for step in store.journal.walk(line) if step.fault] == []


def blocked(admin, name):
    """Return the backends of a database that wait for a run's lock."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock' AND state = 'active'"
    return [pid for (pid,) in admin.execute(query, (name,)).fetchall()]


def append_to(url, number, stop):
    """Return a child's work until a file is there: append to a line that others append to, and report it."""

    def live(report):
        store = opened(url, timeout_s=TIMEOUT_S, pool_size=2)
        step = 0
        while not stop.exists():
            drafts = [
                Draft("noted", f"{number}", float(step), f"{number} {step} {n}".encode()) for n in range(1 + step % 3)
            ]
            done = store.write(Commit(run="shared", records=drafts))
            report([(record.number, record.body.decode()) for record in done.records])
            store.post("shared", "signal", f"{number} {step}".encode())
            step += 1
        store.close()

    return live


def test_writers_on_one_line_keep_every_acknowledged_record_once_while_their_backends_are_killed(database, tmp_path):
    """Proves D10: compare-and-set of several processes, without a lease; and posts to one inbox."""
    stop = tmp_path / "stop"
    with closing(opened(database)):
        children = [Child(append_to(database, number, stop)) for number in range(4)]
        kill_backends(database, 200 if TORTURE else 12, stop)
        ended = [child.join() for child in children]
    for end in ended:
        assert (end.signal, end.code) == (0, 0), end.reports[-1]
    told = [(number, body) for end in ended for report in end.reports for number, body in report]
    with closing(opened(database)) as store:
        line = store.line("shared")
        found = [(record.number, record.body.decode()) for record in store.journal.records(line)]
        assert sorted(told) == found, "every acknowledged record is there once, and no other"
        assert [step.fault for step in store.journal.walk(line) if step.fault] == []
        bodies = [entry.body for entry in store.inbox("shared")]
        assert len(bodies) == len(set(bodies)) == sum(len(end.reports) for end in ended)
        assert list(Inspection(store).check()) == []
    assert len(told) > 10


def test_a_commit_repeated_by_its_caller_is_the_same_commit(database):
    """Proves D10."""
    with closing(opened(database)) as store, closing(opened(database)) as elsewhere:
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
            store = opened(database, pool_size=2)
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
    with closing(opened(database)) as store:
        assert list(Inspection(store).check()) == []
        assert holdfast.Holdfast(store).verify().sound
