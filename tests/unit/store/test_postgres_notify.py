"""Waking runs over PostgreSQL: one connection for all who wait, and few notifications."""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.store.postgres import PostgresMedium
from holdfast.store.postgres_notify import channel_of
from postgres_server import shared_server


@pytest.fixture
def database():
    url = shared_server().database()
    yield url
    shared_server().drop(url)


@pytest.fixture
def medium(database):
    medium = PostgresMedium(database)
    yield medium
    medium.close()


def connections(url):
    with shared_server().admin() as admin:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'holdfast'"
        return admin.execute(query, (urlsplit(url).path[1:],)).fetchone()[0]


def test_any_number_of_waiting_runs_share_one_connection(database, medium):
    """Proves A10: 150 runs wait in one process, on a server that takes 200 connections."""
    before = connections(database)
    waiting = [medium.listen(f"run-{n}") for n in range(150)]
    assert connections(database) == before + 1
    woken = []
    threads = [
        threading.Thread(target=lambda n=n, one=one: woken.append(n) if one.wait(20) else None)
        for n, one in enumerate(waiting)
    ]
    for thread in threads:
        thread.start()
    with closing(PostgresMedium(database)) as elsewhere:
        for n in range(0, 150, 3):
            elsewhere.wake(f"run-{n}")
        for n in range(0, 150, 3):
            threads[n].join(10)
        assert sorted(woken) == list(range(0, 150, 3))
        for n in range(150):
            elsewhere.wake(f"run-{n}")
    for thread in threads:
        thread.join(10)
    assert sorted(woken) == list(range(150))
    for one in waiting:
        one.close()
        one.close()
    assert connections(database) == before + 1
    assert medium._listener._by_name == {}


def test_a_wake_between_listening_and_waiting_is_not_missed(database, medium):
    with closing(PostgresMedium(database)) as elsewhere:
        for turn in range(20):
            with medium.listen("run") as waiting, medium.listen("other") as other:
                elsewhere.wake("run")
                if turn % 2:
                    time.sleep(0.06)
                assert waiting.wait(5)
                assert not other.wait(0)


def test_wakes_are_sent_at_most_every_50_ms_and_none_is_lost(database, medium):
    """NOTIFY makes all writers of a database wait for each other."""
    with psycopg.connect(database, autocommit=True) as raw:
        raw.execute(f"LISTEN {channel_of('holdfast', 'default')}")
        waiting = [medium.listen(f"run-{n}") for n in range(500)]
        begun = time.monotonic()
        for n in range(500):
            medium.wake(f"run-{n}")
            time.sleep(0.0005)
        took = time.monotonic() - begun
        assert all(one.wait(5) for one in waiting)
        notices = list(raw.notifies(timeout=0.3))
    assert 1 <= len(notices) <= took / 0.05 + 2


def test_a_wake_that_is_still_to_be_sent_is_sent_when_the_store_is_closed(database, medium):
    with medium.listen("second") as waiting:
        with closing(PostgresMedium(database)) as elsewhere:
            elsewhere.wake("first")
            elsewhere.wake("second")
        assert waiting.wait(5)


def test_tenants_do_not_wake_each_other(database, medium):
    with closing(PostgresMedium(database, tenant="theirs")) as theirs, medium.listen("run") as waiting:
        theirs.wake("run")
        assert not waiting.wait(0.2)


def test_a_listening_connection_that_is_killed_is_replaced_and_all_are_woken_once(database, medium):
    """Proves A10: a wake may have been missed meanwhile."""
    with medium.listen("run") as waiting, medium.listen("other") as other:
        kill_listeners(database)
        assert waiting.wait(10)
        assert other.wait(10)
        assert not waiting.wait(0.2)
        with closing(PostgresMedium(database)) as elsewhere:
            elsewhere.wake("run")
        assert waiting.wait(5)


def test_no_connection_is_left_after_closing(database):
    medium = PostgresMedium(database)
    waiting = medium.listen("run")
    medium.wake("run")
    medium.close()
    waiting.close()
    until = time.monotonic() + 5
    while connections(database) and time.monotonic() < until:
        time.sleep(0.01)
    assert connections(database) == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-listen"]


def kill_listeners(url):
    with shared_server().admin() as admin, suppress(psycopg.Error):
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'",
            (urlsplit(url).path[1:],),
        )
