"""Many runs that wait in one process of asyncio: no thread each, no poll each, one connection that listens."""

import asyncio
import threading
from contextlib import closing

import psycopg
import pytest

import holdfast
from holdfast.aio import AsyncHoldfast
from postgres_server import shared_server

FEW = 12  # threads: those of the store and of leases, timers and wakes, and a few that end when they are idle


async def until(is_so):
    while not is_so():  # noqa: ASYNC110 - what is looked at tells nobody
        await asyncio.sleep(0.02)


async def waiting_runs(hf, count, at_once=8):
    """Enter runs that each wait for a signal; return their tasks when all of them wait and nothing else is done."""
    turns, entered = asyncio.Semaphore(at_once), []

    async def one(number):
        async with turns:
            run = await hf.run(f"run-{number}")
            await run.__aenter__()
        entered.append(run)
        reply = await run.wait_signal("go")
        async with turns:
            await run.__aexit__(None, None, None)
        return reply.value

    tasks = [asyncio.create_task(one(number)) for number in range(count)]

    def all_wait():
        failed = [task for task in tasks if task.done()]
        for task in failed:
            task.result()
        return len(entered) == count and all(
            run.sync.host.has_part("waits") and run.sync.host.waits.open for run in entered
        )

    await until(all_wait)
    await until(lambda: threading.active_count() <= FEW)
    return tasks


def counted(owner, name, counts):
    plain = getattr(owner, name)

    def call(*args, **named):
        counts[name] = counts.get(name, 0) + 1
        return plain(*args, **named)

    setattr(owner, name, call)


def test_a_hundred_runs_wait_on_sqlite_without_a_thread_or_a_poll_each(tmp_path):
    """Proves E6."""

    async def main():
        async with await AsyncHoldfast.open(tmp_path) as hf:
            tasks = await waiting_runs(hf, 100)
            counts = {}
            counted(hf.sync.store, "unread", counts)
            counted(hf.sync.store.medium._wakeups, "_read", counts)
            await hf.control.signal("run-7", "go", "seven")
            assert await tasks[7] == "seven"
            assert counts["unread"] <= 20, "the inbox of one run was looked at, not of a hundred"
            assert counts["_read"] <= 20, "one look serves all who wait"
            assert sum(task.done() for task in tasks) == 1
            assert threading.active_count() <= FEW
            for number in range(100):
                if number != 7:
                    await hf.control.signal(f"run-{number}", "go", number)
            assert [await task for task in tasks] == ["seven" if number == 7 else number for number in range(100)]

    asyncio.run(main())


def test_three_hundred_runs_wait_on_postgresql_with_one_connection_that_listens():
    """Proves E6: hundreds of waiting runs in one process share one connection."""
    url = shared_server().database()

    async def main():
        async with await AsyncHoldfast.open(url) as hf:
            tasks = await waiting_runs(hf, 300)
            with closing(psycopg.connect(url)) as admin:
                listening = admin.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
                )
                assert listening.fetchone() == (1,)
            with holdfast.open(url) as other:  # as another process does it
                for number in range(300):
                    other.control.signal(f"run-{number}", "go", number)
            assert [await task for task in tasks] == list(range(300))

    try:
        asyncio.run(main())
    finally:
        shared_server().drop(url)


@pytest.mark.parametrize("place", ["memory:", "sqlite", "files"])
def test_a_signal_that_comes_while_a_run_begins_to_wait_is_not_missed(place, tmp_path):
    """Proves E6: over and over, the signal and the wait at the same moment."""
    places = {"memory:": place, "sqlite": f"sqlite://{tmp_path}/s.db", "files": f"file://{tmp_path}/f"}

    async def main():
        async with await AsyncHoldfast.open(places[place]) as hf, await hf.run("r") as run:
            for number in range(15):
                wait = asyncio.create_task(run.wait_signal(f"s{number}"))
                await hf.control.signal("r", f"s{number}", number)
                assert (await wait).value == number

    asyncio.run(main())
