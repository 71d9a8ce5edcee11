"""What may go wrong between machines: kills at every place, frozen machines, a database that leaves (proves X8)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import psutil
import psycopg
import pytest
import yaml

import holdfast
from holdfast.flow.load import flow_from
from holdfast.worker.wake import engine_of
from postgres_server import shared_server
from worker.conftest import ENGINES, free_port, machines, temporal_server, until

HERE = Path(__file__).parent
TORTURE = bool(os.environ.get("HOLDFAST_TORTURE"))
SEEDS = range(200) if TORTURE else (3, 17)
RUNS = 1000 if TORTURE else 24
TASKS = ("a", "b", "c", "d")


def ledger_flow(name, ledger, tasks=TASKS):
    """A flow whose tasks each write a file, and a line into a ledger outside."""
    lines = "\n".join(
        f"  {task}: 'seq 200 > {task}.txt; rm -f gone-*; touch gone-{task}; echo {name} {task} >> {ledger}'"
        for task in tasks
    )
    return f"flow: {name}\nphases:\n{lines}\n"


def stored(url):
    return holdfast.open(url, settings=holdfast.Settings())


def done_of(url, run):
    """Return the phases that the store has as complete."""
    with stored(url) as hf:
        phases = hf.latest(run).section("workflow")["phases"] if "workflow" in hf.latest(run).sections else {}
    return {name for name, one in phases.items() if one["status"] == "completed"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_worker_killed_anywhere_leaves_a_run_that_ends_as_if_unbroken(fleet, seed):
    """Proves X8: no finished call again, the tree equal byte for byte; kills at the n-th talk with the database."""
    chance = random.Random(seed)
    for number in range(40):
        (fleet.project / f"file-{number}").write_text(f"{number}\n" * 50)
    run = f"seed-{seed}"
    fleet.submit(ledger_flow(run, fleet.log))
    finished = {}
    for kill in range(2):
        worker = fleet.start(
            f"victim-{kill}", "--drain", lease=1, program=[HERE / "armed.py"], KILL_AT=str(chance.randrange(1, 160))
        )
        worker.wait(120)
        for phase in done_of(fleet.url, run):
            finished.setdefault(phase, fleet.said().count(f"{run} {phase}"))
    fleet.start("rescuer", lease=1)
    fleet.until_status(run, "completed")
    said = Counter(fleet.said())
    assert {phase: said[f"{run} {phase}"] for phase in finished} == finished
    assert set(said) == {f"{run} {task}" for task in TASKS}
    with stored(fleet.url) as hf:
        head = hf.latest(run)
        files = {file.path for file in head.files()}
        assert {path for path in files if path.startswith("gone-")} == {"gone-d"}
        assert all(head.read(f"{task}.txt") == b"".join(b"%d\n" % n for n in range(1, 201)) for task in TASKS)
        assert all(head.read(f"file-{number}") == f"{number}\n".encode() * 50 for number in range(40))


def test_a_machine_that_is_cut_off_stops_before_another_one_begins(fleet):
    """A frozen proxy: no tick of the old machine after the new one's first (gap G3)."""
    if fleet.engine == "temporal":
        pytest.skip("its claim is held by Temporal, which the proxy does not cut off: see docs/SCALE.md")
    real = parse_qs(urlsplit(fleet.url).query)["host"][0]
    between = tempfile.mkdtemp(prefix="hf-px-", dir="/tmp")
    proxy = subprocess.Popen(
        [sys.executable, HERE / "proxy.py", between, real], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert proxy.stdout.readline() == b"ready\n"
        tick = f'"for i in $(seq 400); do hostname >> {fleet.log}; test -e {fleet.folder}/go && exit; sleep 0.05; done"'
        fleet.submit(f"flow: cut\nphases:\n  one: {tick}\n")
        fleet.start("old", store=fleet.url.replace(quote(real, safe=""), quote(between, safe="")))
        fleet.until_said("old")
        proxy.send_signal(signal.SIGSTOP)
        fleet.start("new")
        fleet.until_said("new")
        time.sleep(1)  # time for the old one to tick, if it did
        (fleet.folder / "go").touch()
        fleet.until_status("cut", "completed")
        said = fleet.said()
        assert "old" not in said[said.index("new") :]
    finally:
        os.killpg(proxy.pid, signal.SIGKILL)
        proxy.communicate()
        shutil.rmtree(between, ignore_errors=True)


def test_a_machine_that_stood_still_past_its_lease_changes_nothing_when_it_wakes(fleet):
    """SIGSTOP of all its processes: another one finishes the run, and the woken one's work is refused and ended."""
    first = (
        f'"{{ hostname >> {fleet.log}; hostname > where.txt; }}; while [ ! -e {fleet.folder}/go ]; do sleep 0.1; done"'
    )
    fleet.submit(f"flow: still\nphases:\n  one: {first}\n  two: 'hostname >> {fleet.log}'\n")
    old = fleet.start("old")
    fleet.until_said("old")
    family = [psutil.Process(old.pid), *psutil.Process(old.pid).children(recursive=True)]
    for process in family:
        with suppress(psutil.NoSuchProcess):  # its command sleeps a little, again and again
            process.suspend()
    (fleet.folder / "go").touch()
    fleet.start("new")
    fleet.until_status("still", "completed")
    before = fleet.said()
    for process in reversed(family):
        with suppress(psutil.NoSuchProcess):
            process.resume()
    fleet.submit(f"flow: next\nphases:\n  one: 'echo next >> {fleet.log}'\n", name="next.yaml")  # it still serves
    fleet.until_status("next", "completed")
    assert before == ["old", "new", "new"]
    assert fleet.said() == [*before, "next"]
    with stored(fleet.url) as hf:
        assert hf.latest("still").read("where.txt") == b"new\n"


def test_runs_over_four_workers_are_each_done_once(fleet):
    """Each call exactly once in a ledger outside."""
    names = [f"many-{number}" for number in range(RUNS)]
    submit(fleet, *(ledger_flow(name, fleet.log, ("a", "b")) for name in names))
    workers = [fleet.start(f"host-{number}", "--drain", "--slots", "3") for number in range(4)]
    for worker in workers:
        assert worker.wait(60 * RUNS) == 0
    assert Counter(fleet.said()) == Counter(f"{name} {task}" for name in names for task in ("a", "b"))


def submit(fleet, *work, **order):
    """Submit flows, or a program, from this process: many command lines take long."""
    with closing(engine_of(fleet.engine, fleet.url, fleet.address)) as engine, stored(fleet.url) as hf:
        for one in work:
            made = flow_from(yaml.safe_load(one), "test") if one.startswith("flow:") else one
            hf.submit(made, engine=engine, **order)


def test_a_database_that_is_restarted_again_and_again_loses_nothing(own_fleet):
    """No finished call again, none left out: the database leaves every few seconds under many runs."""
    fleet, server = own_fleet
    names = [f"shaken-{number}" for number in range(200 if TORTURE else 10)]
    submit(fleet, *(ledger_flow(name, fleet.log, ("a", "b", "c")) for name in names))
    for number in range(2):
        fleet.start(f"host-{number}", "--slots", "3")
    finished = {}
    for _ in range(40 if TORTURE else 3):
        time.sleep(random.uniform(5, 40) if TORTURE else 3)
        for name in names:
            for phase in done_of(fleet.url, name):
                finished.setdefault(f"{name} {phase}", Counter(fleet.said())[f"{name} {phase}"])
        server.restart()
    for name in names:
        fleet.until_status(name, "completed")
    said = Counter(fleet.said())
    assert {call: said[call] for call in finished} == finished
    assert set(said) == {f"{name} {task}" for name in names for task in ("a", "b", "c")}


@pytest.mark.skipif("temporal" not in ENGINES, reason="temporalio is not installed")
def test_a_temporal_server_that_leaves_and_returns_loses_nothing(tmp_path):
    port, kept = free_port(), tmp_path / "server"
    kept.mkdir()
    with machines(tmp_path, shared_server(), "temporal", f"127.0.0.1:{port}") as fleet:
        slow = f'"echo one >> {fleet.log}; while [ ! -e {fleet.folder}/go ]; do sleep 0.1; done"'
        text = f"flow: left\nphases:\n  one: {slow}\n  two: {{approve: 'Go?', run: 'echo two >> {fleet.log}'}}\n"
        with temporal_server(kept, port):
            fleet.submit(text)
            fleet.start("one")
            fleet.until_said("one")
        fleet.submit(text, "--run-id", "other", code=6)
        (fleet.folder / "go").touch()
        fleet.until_status("left", "waiting")
        with temporal_server(kept, port):
            until(lambda: fleet.cli("queue", "show", "left").count("waiting"))
            fleet.cli("approve", "left")
            fleet.until_status("left", "completed")
            fleet.submit(text, "--run-id", "other")
            fleet.until_status("other", "waiting")
        assert fleet.said() == ["one", "two", "one"]


def test_an_answer_is_not_missed_before_at_or_after_the_wait_is_registered(fleet):
    (fleet.folder / "jobs.py").write_text(
        "def hear(run):\n"
        "    run.wait_signal('go')\n"
        f"    run.step('heard', lambda: open({str(fleet.log)!r}, 'a').write(run.id + '\\n'))\n"
        "    run.complete()\n"
    )
    runs = [f"hear-{number}" for number in range(6)]
    for run in runs:
        submit(fleet, "jobs:hear", run_id=run)
    for run in runs[:2]:
        fleet.signal(run)  # before anybody looks at the run
    fleet.start("one", "--functions", "jobs", "--slots", "6")
    for run in runs[2:4]:
        fleet.until_status(run, "waiting")
        fleet.signal(run)  # at once: the queue may not know yet that it waits
    until(lambda: fleet.cli("queue").count("waiting") == 2)
    for run in runs[4:]:
        fleet.signal(run)
    for run in runs:
        fleet.until_status(run, "completed")
    assert Counter(fleet.said()) == Counter(runs)


def test_cancel_ends_a_run_that_is_queued_waiting_or_running(fleet):
    fleet.submit(f"flow: queued\nphases:\n  one: 'echo queued >> {fleet.log}'\n", name="1.yaml")
    fleet.cli("queue", "cancel", "queued")
    fleet.submit("flow: waiting\nphases:\n  one: {approve: 'Push?', run: 'true'}\n", name="2.yaml")
    fleet.submit(
        f"flow: running\nphases:\n  one: 'echo begun >> {fleet.log}; sleep 600'\n  two: 'echo two >> {fleet.log}'\n",
        name="3.yaml",
    )
    fleet.start("one")
    fleet.until_said("begun")
    fleet.until_status("waiting", "waiting")
    for run in ("waiting", "running"):
        fleet.cli("queue", "cancel", run)
    for run in ("queued", "waiting", "running"):
        fleet.until_status(run, "cancelled")
    assert fleet.said() == ["begun"]


def test_sigterm_gives_claim_and_lease_back_before_the_worker_is_gone(fleet):
    wait = f'"echo begun >> {fleet.log}; while [ ! -e {fleet.folder}/go ]; do sleep 0.1; done"'
    fleet.submit(f"flow: given\nphases:\n  one: {wait}\n  two: 'echo two >> {fleet.log}'\n")
    worker = fleet.start("one", lease=600)  # nothing lapses here: what is taken over was given back
    fleet.until_said("begun")
    worker.send_signal(signal.SIGTERM)
    (fleet.folder / "go").touch()
    assert worker.wait(60) == 0
    with stored(fleet.url) as hf:
        assert hf.store.leases.running("given") is None
    fleet.start("two", lease=600)
    fleet.until_status("given", "completed")
    assert fleet.said() == ["begun", "two"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("shift_s", [3600, -3600])
def test_a_machine_whose_clock_is_an_hour_off_takes_over_and_waits_as_long_as_it_should(fleet, shift_s):
    shim = fleet.folder / "clock.so"
    (fleet.folder / "clock.c").write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <time.h>\n#include <sys/time.h>\n"
        "static int (*real)(clockid_t, struct timespec *);\n"
        "int clock_gettime(clockid_t id, struct timespec *at) {\n"
        '  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");\n'
        f"  int rc = real(id, at); if (id == CLOCK_REALTIME) at->tv_sec += {shift_s}; return rc; }}\n"
        "time_t time(time_t *out) { struct timespec at; clock_gettime(CLOCK_REALTIME, &at);\n"
        "  if (out) *out = at.tv_sec; return at.tv_sec; }\n"
        "int gettimeofday(struct timeval *restrict at, void *restrict zone) { struct timespec now;\n"
        "  clock_gettime(CLOCK_REALTIME, &now); at->tv_sec = now.tv_sec;\n"
        "  at->tv_usec = now.tv_nsec / 1000; return 0; }\n"
    )
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", shim, fleet.folder / "clock.c", "-ldl"], check=True, capture_output=True
    )
    (fleet.folder / "jobs.py").write_text(
        "from datetime import timedelta\n"
        "def nap(run):\n"
        f"    run.step('begun', lambda: open({str(fleet.log)!r}, 'a').write('begun\\n'))\n"
        "    run.sleep_until(run.host.now() + timedelta(seconds=2), name='nap')\n"
        f"    run.step('over', lambda: open({str(fleet.log)!r}, 'a').write('over\\n'))\n"
        "    run.complete()\n"
    )
    submit(fleet, "jobs:nap", run_id="nap")
    slow = f'"echo one >> {fleet.log}; test -e {fleet.folder}/go || sleep 600"'
    fleet.submit(f"flow: skewed\nphases:\n  one: {slow}\n  two: 'date +%s >> {fleet.log}'\n")
    first = fleet.start("right", "--functions", "jobs", "--slots", "1", "--queue", "nobody")
    fleet.kill(first)
    off = fleet.start("off", "--functions", "jobs", LD_PRELOAD=str(shim))
    fleet.until_said("one")
    fleet.until_status("nap", "completed")  # a pause by its own clock, not until a time of the database's
    fleet.kill(off)
    (fleet.folder / "go").touch()
    fleet.start("right", "--functions", "jobs")
    fleet.until_status("skewed", "completed")
    assert Counter(fleet.said()[:4])["one"] == 2
    assert {"begun", "over"} <= set(fleet.said())


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system can be mounted by root alone")
def test_a_full_disk_leaves_the_run_to_another_machine(fleet):
    (fleet.project / "large").write_bytes(os.urandom(3 << 20))
    small = fleet.folder / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        fleet.submit(f"flow: big\nphases:\n  one: 'wc -c < large >> {fleet.log}'\n")
        full = fleet.start("full", root=small)
        until(lambda: "cannot advance it" in (fleet.folder / "full.err").read_text(), 20)
        fleet.kill(full)
        fleet.start("roomy")
        fleet.until_status("big", "completed")
        assert [line.strip() for line in fleet.said()] == [str(3 << 20)]
    finally:
        subprocess.run(["umount", "-l", small], check=False)


def test_a_worker_without_its_database_or_engine_says_so_and_ends(fleet):
    away = "postgresql://app@127.0.0.1:9/nowhere"
    worker = fleet.start("lost", store=away)
    assert worker.wait(60) == 6
    assert (
        "nowhere" in (fleet.folder / "lost.err").read_text() or "127.0.0.1" in (fleet.folder / "lost.err").read_text()
    )


def test_a_worker_asks_the_store_no_more_among_many_runs(fleet):
    """No count of statements that grows with the number of runs in the store."""

    def statements():
        with psycopg.connect(fleet.url, autocommit=True) as connection:
            connection.execute("SELECT pg_stat_force_next_flush()")
            time.sleep(1.2)  # statistics are sent at most once a second
            row = connection.execute(
                "SELECT xact_commit, tup_returned FROM pg_stat_database WHERE datname = current_database()"
            ).fetchone()
        return row[0]

    def advanced(run):
        fleet.submit(ledger_flow(run, fleet.log), name=f"{run}.yaml")
        before = statements()
        fleet.drain(f"host-{run}")
        assert fleet.status(run) == "completed"
        return statements() - before

    if fleet.engine != "absurd":
        pytest.skip("the store is the same")
    advanced("warm")
    few = advanced("few")
    with stored(fleet.url) as hf:
        for number in range(2000 if TORTURE else 150):
            hf.run(f"other-{number}").checkpoint(state={"n": number})
    assert advanced("many") <= few * 1.5 + 10
