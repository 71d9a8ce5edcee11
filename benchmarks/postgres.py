"""`python -m benchmarks.postgres`: the conversation on PostgreSQL, beside the floor and its peers, on one server.

Each subject has a database of its own on the same server, on a real disk with fsync on. Subjects take turns, so that
what else the machine does hits all of them; the figures that count are ratios of one run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

import holdfast
from benchmarks.conversation import Conversation, encode
from benchmarks.laps import Laps
from holdfast.settings.values import RedactionSettings, Settings
from holdfast.store.commit import Commit, Draft
from holdfast.store.postgres import PostgresMedium
from holdfast.store.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from postgres_server import Server

if TYPE_CHECKING:
    from collections.abc import Callable

RUN = "conversation"


def floor(url: str, conversation: Conversation, laps: Laps) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE message (run text, step integer, body bytea, PRIMARY KEY (run, step))")
        for step in conversation.advance():
            with laps.lap():
                row = (RUN, step.number, encode(step.message))
                connection.execute("INSERT INTO message VALUES (%s, %s, %s)", row, prepare=True)


def ours(url: str, conversation: Conversation, laps: Laps) -> None:
    _save(url, conversation, laps)


def without_redaction(url: str, conversation: Conversation, laps: Laps) -> None:
    """Save as the peers do: the state as it is, nothing searched for secrets."""
    _save(url, conversation, laps, settings=Settings(redaction=RedactionSettings(enabled=False)))


def _save(url: str, conversation: Conversation, laps: Laps, **options: Any) -> None:
    with holdfast.open(url, **options) as hf:
        run = hf.run(RUN)
        for _ in conversation.advance():
            with laps.lap():
                run.checkpoint(state=conversation.state)


def langgraph(url: str, conversation: Conversation, laps: Laps) -> None:
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415

    from benchmarks.subjects.langgraph_sqlite import new_checkpoint, thread_config  # noqa: PLC0415

    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        config = thread_config()
        versions: dict[str, Any] = {"messages": 0, "context": 0}
        for step in conversation.advance():
            with laps.lap():
                versions = dict.fromkeys(versions, f"{step.number + 1:032}")
                checkpoint = new_checkpoint(step.number, conversation.state, versions)
                metadata: Any = {"source": "loop", "step": step.number, "parents": {}}
                config = saver.put(config, checkpoint, metadata, versions)


def langgraph_delta(url: str, conversation: Conversation, laps: Laps) -> None:
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415

    from benchmarks.subjects.langgraph_delta import LangGraphDelta  # noqa: PLC0415

    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        subject = LangGraphDelta.__new__(LangGraphDelta)
        subject._saver = saver
        subject.save(conversation, laps)


def dbos(url: str, conversation: Conversation, laps: Laps) -> None:
    from dbos import DBOS, SetWorkflowID  # noqa: PLC0415

    DBOS(config={"name": RUN, "system_database_url": url, "application_version": "1", "log_level": "ERROR"})
    DBOS.launch()

    def say(message: dict[str, Any]) -> dict[str, Any]:
        return message

    @DBOS.workflow()
    def converse() -> None:
        for step in conversation.advance():
            with laps.lap():
                DBOS.run_step({"name": "say"}, say, step.message)

    with SetWorkflowID(RUN):
        converse()
    DBOS.destroy()


SUBJECTS: dict[str, Callable[[str, Conversation, Laps], None]] = {
    "floor": floor,
    "holdfast": ours,
    "holdfast-without-redaction": without_redaction,
    "langgraph-postgres": langgraph,
    "langgraph-delta": langgraph_delta,
    "dbos": dbos,
}


def measure(server: Server, name: str, steps: int) -> dict[str, Any]:
    """Save one conversation, and return its figures."""
    url = server.database()
    before = _size(url)
    conversation = Conversation(steps)
    laps = Laps(steps)
    try:
        SUBJECTS[name](url, conversation, laps)
    except ImportError as error:
        return {"subject": name, "missing": str(error)}
    figures = {
        "subject": name,
        "p50_ms": laps.wall_ms(50),
        "p99_ms": laps.wall_ms(99),
        "stored_bytes": _size(url) - before,
        "unique_bytes": conversation.unique_bytes(),
    }
    server.drop(url)
    return figures


def writers(server: Server, count: int, seconds: float) -> float:
    """Return commits a second of so many processes, each on a run of its own."""
    url = server.database()
    holdfast.open(url).close()
    context = multiprocessing.get_context("fork")
    done = context.Queue()
    begin = context.Barrier(count)
    processes = [context.Process(target=_write, args=(url, n, seconds, begin, done)) for n in range(count)]
    for process in processes:
        process.start()
    total = sum(done.get() for _ in processes)
    for process in processes:
        process.join()
    server.drop(url)
    return total / seconds


def _write(url: str, number: int, seconds: float, begin: Any, done: Any) -> None:
    conversations = [Conversation(200, seed=turn) for turn in range(30)]
    count = 0
    with holdfast.open(url, settings=Settings(redaction=RedactionSettings(enabled=False))) as hf:
        hf.run(f"warm-up-{number}").checkpoint(state={})
        begin.wait()
        until = time.monotonic() + seconds
        for turn, conversation in enumerate(conversations):
            run = hf.run(f"run-{number}-{turn}")
            for _ in conversation.advance():
                if time.monotonic() >= until:
                    done.put(count)
                    return
                run.checkpoint(state=conversation.state)
                count += 1
    raise AssertionError("the writer ran out of steps: give it more conversations")


def append(server: Server, steps: int) -> dict[str, float]:
    """Return the median times of a bare INSERT and of an append of the same 2 KB, which take turns, and their ratio."""
    url = server.database()
    store = Store(PostgresMedium(url))
    times: dict[str, list[float]] = {"insert": [], "append": []}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE message (run text, step integer, body bytea, PRIMARY KEY (run, step))")
        for step in range(steps + 50):
            body = os.urandom(2_000)
            begun = time.perf_counter()
            connection.execute("INSERT INTO message VALUES (%s, %s, %s)", (RUN, step, body), prepare=True)
            between = time.perf_counter()
            store.write(Commit(run=RUN, records=[Draft("noted", "log/messages", 1.0, body)]))
            ended = time.perf_counter()
            if step >= 50:  # the first ones prepare their statements
                times["insert"].append(between - begun)
                times["append"].append(ended - between)
    store.close()
    server.drop(url)
    figures = {f"{name}_p50_ms": 1_000 * statistics.median(taken) for name, taken in times.items()}
    return {**figures, "append / insert (≤ 1.5)": figures["append_p50_ms"] / figures["insert_p50_ms"]}


def appenders(server: Server, count: int, seconds: float, *, bare: bool) -> float:
    """Return appends (or bare INSERTs) a second of so many processes, each on a run of its own."""
    url = server.database()
    PostgresMedium(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE message (run text, step integer, body bytea, PRIMARY KEY (run, step))")
    context = multiprocessing.get_context("fork")
    done = context.Queue()
    begin = context.Barrier(count)
    work = _insert if bare else _append
    processes = [context.Process(target=work, args=(url, f"run-{n}", seconds, begin, done)) for n in range(count)]
    for process in processes:
        process.start()
    total = sum(done.get() for _ in processes)
    for process in processes:
        process.join()
    server.drop(url)
    return total / seconds


def _insert(url: str, run: str, seconds: float, begin: Any, done: Any) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        begin.wait()
        until, step = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            row = (run, step, os.urandom(2_000))
            connection.execute("INSERT INTO message VALUES (%s, %s, %s)", row, prepare=True)
            step += 1
    done.put(step)


def _append(url: str, run: str, seconds: float, begin: Any, done: Any) -> None:
    store = Store(PostgresMedium(url))
    store.write(Commit(run=run, records=[Draft("noted", "log/messages", 1.0)]))
    begin.wait()
    until, step = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        store.write(Commit(run=run, records=[Draft("noted", "log/messages", 1.0, os.urandom(2_000))]))
        step += 1
    store.close()
    done.put(step)


def latest(server: Server, others: int) -> float:
    """Return the median time of `latest` in a store that holds so many checkpoints of other runs."""
    url = server.database()
    with holdfast.open(url) as hf:
        run = hf.run(RUN)
        for number in range(20):
            run.checkpoint(state={"number": number})
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET search_path = holdfast")
            connection.execute("SELECT set_config('holdfast.tenant', 'default', false)")
            connection.execute(
                "INSERT INTO checkpoint SELECT 'default', 'run-' || (n / 1000), 'main', n %% 1000 + 1, "
                "'cp_' || md5(n::text), trigger, phase, status, created_at, key, value, seal "
                "FROM generate_series(1, %s) n, (SELECT * FROM checkpoint WHERE run = 'conversation' AND seq = 1) one",
                (others,),
            )
            connection.execute("VACUUM ANALYZE checkpoint")
        times = []
        for _ in range(300):
            start = time.perf_counter()
            hf.latest(RUN)
            times.append(time.perf_counter() - start)
    server.drop(url)
    return 1_000 * statistics.median(times)


def _appends(server: Server, steps: int, seconds: float) -> dict[str, float]:
    figures = append(server, steps)
    for name, bare in (("INSERT", True), ("append", False)):
        one, eight = (appenders(server, count, seconds, bare=bare) for count in (1, 8))
        figures |= {f"{name}, 1 writer, per s": one, f"{name}, 8 writers / 1": eight / one}
    return figures


def _size(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--others", type=int, default=1_000_000, help="checkpoints beside which `latest` is timed")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long writers write")
    parser.add_argument("--workdir", default="/tmp")
    parser.add_argument("--appends", action="store_true", help="only appends beside bare INSERTs")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "postgres.json")
    options = parser.parse_args()
    server = Server(options.workdir)
    if options.appends:
        print(json.dumps(_appends(server, options.steps, options.seconds), indent=2, ensure_ascii=False))
        return
    rounds = [{name: measure(server, name, options.steps) for name in SUBJECTS} for _ in range(options.repeats)]
    rows = {
        name: {
            key: statistics.median(each[name][key] for each in rounds)
            for key in ("p50_ms", "p99_ms", "stored_bytes", "unique_bytes")
        }
        if "missing" not in rounds[0][name]
        else rounds[0][name]
        for name in SUBJECTS
    }
    one, eight = writers(server, 1, options.seconds), writers(server, 8, options.seconds)
    few, many = latest(server, 1_000), latest(server, options.others)
    appends = _appends(server, options.steps, options.seconds)
    server.stop()
    us, them = rows["holdfast-without-redaction"], rows["langgraph-postgres"]
    ratios = {
        "p50 / floor (≤ 3)": us["p50_ms"] / rows["floor"]["p50_ms"],
        "p50 with redaction / floor": rows["holdfast"]["p50_ms"] / rows["floor"]["p50_ms"],
        "p50 / PostgresSaver (≤ 0.2)": us["p50_ms"] / them["p50_ms"] if "p50_ms" in them else None,
        "bytes / unique payload (≤ 3)": us["stored_bytes"] / us["unique_bytes"],
        "8 writers / 1 writer (≥ 3)": eight / one,
        "latest among many / among 1,000 (≤ 2)": many / few,
    }
    rates = {"one_writer_per_s": one, "eight_writers_per_s": eight, "latest_few_ms": few, "latest_many_ms": many}
    result = {
        "steps": options.steps,
        "others": options.others,
        "rows": rows,
        **rates,
        "ratios": ratios,
        "appends": appends,
    }
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(result, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
