"""Runs on several machines: delivered, taken over, woken, parked, left (issue of many machines; proves X8)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import closing
from datetime import datetime, timedelta

import holdfast
from holdfast.worker.delivery import Worker
from holdfast.worker.wake import engine_of
from worker.conftest import until


def flow(fleet, name, **phases):
    lines = "\n".join(f"  {phase}: {command}" for phase, command in phases.items())
    return f"flow: {name}\nphases:\n{lines}\n"


def say(fleet, text):
    return f"echo {text} >> {fleet.log}"


def test_a_submitted_run_is_advanced_by_a_worker_with_its_files(fleet):
    """Proves X8."""
    (fleet.project / "notes.txt").write_text("from the laptop\n")
    fleet.submit(
        flow(fleet, "trip", read=f'"cat notes.txt >> {fleet.log}; echo made > out.txt"', last=say(fleet, "end"))
    )
    assert fleet.said() == []  # nothing is done where it is submitted
    fleet.start("one")
    fleet.until_status("trip", "completed")
    assert fleet.said() == ["from the laptop", "end"]
    assert (fleet.folder / "one" / "trip" / "out.txt").read_text() == "made\n"
    with holdfast.open(fleet.url, settings=holdfast.Settings()) as hf:
        assert hf.latest("trip").read("out.txt") == b"made\n"


def test_the_same_run_submitted_twice_is_delivered_once(fleet):
    text = flow(fleet, "once", one=say(fleet, "one"))
    fleet.submit(text)
    fleet.submit(text)
    assert fleet.cli("queue").count("once") == 1
    fleet.drain("one")
    assert fleet.said() == ["one"]


def test_a_run_killed_with_its_machine_continues_elsewhere_and_repeats_nothing(fleet):
    """Proves X8: no finished call again, files equal."""
    slow = f'"echo b >> work.txt; {say(fleet, "two")}; test -e {fleet.folder}/go || sleep 600"'
    fleet.submit(
        flow(fleet, "long", one=f'"echo a > work.txt; {say(fleet, "one")}"', two=slow, three=say(fleet, "three"))
    )
    first = fleet.start("one")
    fleet.until_said("two")
    fleet.kill(first)
    (fleet.folder / "go").touch()
    fleet.start("two")
    fleet.until_status("long", "completed")
    assert fleet.said() == ["one", "two", "two", "three"]  # what was under way began again, what was done did not
    assert (fleet.folder / "two" / "long" / "work.txt").read_text() == "a\nb\n"


def test_a_run_that_comes_back_to_a_machine_finds_the_other_ones_files(fleet):
    """Gap G2: one, then two, then one again."""
    waits = f'"test -e {fleet.folder}/go-%s || sleep 600"'
    fleet.submit(
        flow(
            fleet,
            "there",
            a=f'"echo one >> where.txt; {say(fleet, "a")}"',
            b=f'"{say(fleet, "b")}; test -e {fleet.folder}/go-b || sleep 600; echo two >> where.txt"',
            c=f'"{say(fleet, "c")}; test -e {fleet.folder}/go-c || sleep 600; cat where.txt >> {fleet.log}"',
        )
    )
    del waits
    first = fleet.start("one")
    fleet.until_said("b")
    fleet.kill(first)
    (fleet.folder / "go-b").touch()
    second = fleet.start("two")
    fleet.until_said("c")
    fleet.kill(second)
    (fleet.folder / "go-c").touch()
    fleet.start("one")
    fleet.until_status("there", "completed")
    assert fleet.said()[-2:] == ["one", "two"]


def test_an_answer_wakes_a_run_that_occupies_no_worker(fleet):
    text = (
        f"flow: ask\nphases:\n  build: {say(fleet, 'built')}\n"
        f"  ship: {{approve: 'Push?', run: '{say(fleet, 'shipped')}'}}\n"
    )
    fleet.submit(text)
    fleet.drain("one")  # it leaves: a waiting run is not due
    fleet.until_status("ask", "waiting")
    shown = json.loads(fleet.cli("queue", "--json"))
    assert shown["counts"] == {"waiting": 1}
    assert shown["runs"][0]["waits_for"] == ["Push?"]
    fleet.start("two")
    fleet.cli("approve", "ask")
    fleet.until_status("ask", "completed")
    assert fleet.said() == ["built", "shipped"]


def test_sigterm_hands_a_run_over_at_its_next_boundary(fleet):
    wait = f'"{say(fleet, "first")}; while [ ! -e {fleet.folder}/go ]; do sleep 0.1; done"'
    fleet.submit(flow(fleet, "hand", first=wait, second=say(fleet, "second")))
    worker = fleet.start("one")
    fleet.until_said("first")
    worker.send_signal(signal.SIGTERM)
    (fleet.folder / "go").touch()
    assert worker.wait(60) == 0
    assert fleet.said() == ["first"]
    fleet.drain("two")
    assert fleet.said() == ["first", "second"]
    assert fleet.status("hand") == "completed"


def test_a_run_that_no_worker_can_follow_is_parked_with_the_reason(fleet):
    (fleet.project / "mine.py").write_text("def work(call):\n    return 1\n")
    fleet.submit("flow: odd\nphases:\n  one: {call: 'mine:work'}\n")
    fleet.drain("one")
    shown = fleet.cli("queue")
    assert "cannot be advanced" in shown
    assert "mine" in shown


def test_a_run_that_kills_its_worker_is_parked_after_three_times(fleet):
    fleet.submit(flow(fleet, "poison", one=say(fleet, "one"), two=f'"{say(fleet, "two")}; kill -9 $PPID"'))
    for number in range(3):
        fleet.start(f"host-{number}").wait(120)  # until it dies of it
    fleet.start("host-3")
    until(lambda: "cannot be advanced" in fleet.cli("queue"))
    assert "died 3 times" in fleet.cli("queue")
    assert fleet.said().count("one") == 1
    assert fleet.said().count("two") == 3


def test_cancel_ends_a_run_that_waits_in_the_queue(fleet):
    fleet.submit("flow: never\nphases:\n  ship: {approve: 'Push?', run: 'true'}\n")
    fleet.drain("one")
    fleet.cli("queue", "cancel", "never")
    fleet.drain("two")
    assert fleet.status("never") == "cancelled"


def test_a_program_of_the_workers_own_is_a_run_too(fleet):
    (fleet.folder / "jobs.py").write_text(
        "def count(run):\n"
        f"    run.step('one', lambda: open({str(fleet.log)!r}, 'a').write('one\\n'))\n"
        "    run.approve('more?')\n"
        f"    run.step('two', lambda: open({str(fleet.log)!r}, 'a').write('two\\n'))\n"
        "    run.complete()\n"
    )
    source = (
        "import holdfast, sys\nwith holdfast.open(sys.argv[1]) as hf:\n    hf.submit('jobs:count', run_id='count')\n"
    )
    subprocess.run([sys.executable, "-c", source, fleet.url], check=True, cwd=fleet.project, env=fleet.environment)
    fleet.drain("one", "--functions", "jobs")
    fleet.cli("approve", "count")
    fleet.drain("two", "--functions", "jobs")
    assert fleet.said() == ["one", "two"]
    assert fleet.status("count") == "completed"


def test_a_program_that_fails_is_parked_and_a_retry_repeats_nothing(fleet):
    (fleet.folder / "jobs.py").write_text(
        "import os\n"
        "def count(run):\n"
        f"    run.step('one', lambda: open({str(fleet.log)!r}, 'a').write('one\\n'))\n"
        f"    run.step('two', lambda: os.path.getsize({str(fleet.folder / 'go')!r}))\n"
        "    run.complete()\n"
    )
    fleet.cli("submit", "jobs:count", "--run-id", "count")
    fleet.drain("one", "--functions", "jobs")
    shown = json.loads(fleet.cli("queue", "show", "count", "--json"))["runs"][0]
    assert shown["state"] == "parked"
    assert "FileNotFoundError" in shown["waits_for"][0]
    (fleet.folder / "go").touch()
    fleet.cli("queue", "retry", "count")
    fleet.drain("two", "--functions", "jobs")
    assert fleet.status("count") == "completed"
    assert fleet.said() == ["one"]


def test_a_run_that_was_deleted_is_delivered_again_when_it_is_submitted_again(fleet):
    text = flow(fleet, "again", one=say(fleet, "one"))
    for _ in range(2):
        fleet.submit(text)
        fleet.drain("one")
        assert json.loads(fleet.cli("queue", "--json"))["counts"] == {"done": 1}
        fleet.cli("delete", "--run", "again", "--yes")
    assert fleet.said() == ["one", "one"]
    assert json.loads(fleet.cli("queue", "--json"))["counts"] == {"deleted": 1}


def test_a_run_that_was_deleted_while_it_slept_is_delivered_at_once_when_it_is_submitted_again(fleet):
    text = flow(fleet, "anew", one=say(fleet, "one"))
    fleet.submit(text, "--at", "2099-01-01T00:00")
    fleet.drain("one")
    fleet.cli("delete", "--run", "anew", "--yes")
    fleet.submit(text)
    fleet.drain("one")
    assert fleet.said() == ["one"]


def test_a_run_submitted_again_waits_for_its_own_answer_and_keeps_no_worker_busy(fleet):
    """Its inbox counts from 1 again, and the queue remembers that 1 came to the one that was deleted."""
    text = f"flow: ask\nphases:\n  ship: {{approve: 'Push?', run: '{say(fleet, 'shipped')}'}}\n"
    fleet.submit(text)
    fleet.drain("one")
    fleet.cli("approve", "ask")
    fleet.drain("one")
    fleet.until_status("ask", "completed")
    fleet.cli("delete", "--run", "ask", "--yes")
    fleet.submit(text)
    worker = Worker(lambda _: holdfast.open(fleet.url, settings=holdfast.Settings()), fleet.folder / "two")
    handled = []

    def counted(delivery):
        handled.append(delivery.attempt)
        if len(handled) > 10:
            delivery.lost.set()
        return worker.handle(delivery)

    with closing(engine_of(fleet.engine, fleet.url, fleet.address)) as engine:
        engine.serve(counted, queue="default", slots=1, lease_s=30, stop=threading.Event(), drain=True)
    assert len(handled) == 1
    assert fleet.status("ask") == "waiting"
    fleet.cli("approve", "ask")
    fleet.drain("three")
    assert fleet.status("ask") == "completed"
    assert fleet.said() == ["shipped", "shipped"]


def test_a_time_given_to_a_run_that_has_begun_does_not_stop_it(fleet):
    text = f"flow: begun\nphases:\n  ship: {{approve: 'Push?', run: '{say(fleet, 'shipped')}'}}\n"
    fleet.submit(text)
    fleet.drain("one")
    fleet.submit(text, "--at", "2099-01-01T00:00")
    fleet.cli("approve", "begun")
    fleet.drain("one")
    assert fleet.status("begun") == "completed"
    assert fleet.said() == ["shipped"]


def test_queue_asks_the_engine_that_a_run_was_submitted_to(fleet):
    fleet.submit(flow(fleet, "mine", one=say(fleet, "one")))
    other = {"absurd": "temporal", "temporal": "absurd"}[fleet.engine]
    settings = fleet.folder / "config" / "holdfast" / "holdfast.yaml"
    settings.write_text(f"workers: {{engine: {other}, temporal: '{fleet.address or '127.0.0.1:1'}'}}\n")
    fleet.cli("queue", "retry", "mine")
    assert "mine" in fleet.cli("queue", "show", "mine")
    fleet.drain("one", "--engine", fleet.engine)
    assert fleet.said() == ["one"]


def test_a_completed_program_is_not_called_again(fleet):
    (fleet.folder / "jobs.py").write_text(
        f"def count(run):\n    open({str(fleet.log)!r}, 'a').write('called\\n')\n    run.complete()\n"
    )
    for _ in range(2):
        fleet.cli("submit", "jobs:count", "--run-id", "count")
        fleet.drain("one", "--functions", "jobs")
    assert fleet.said() == ["called"]
    assert json.loads(fleet.cli("queue", "--json"))["counts"] == {"done": 1}


def test_a_runs_own_attributes_are_not_taken_for_those_of_its_queue(fleet):
    (fleet.folder / "jobs.py").write_text("def count(run):\n    run.complete()\n")
    names = ("at", "queue", "engine", "setup", "settings", "entry", "parked", "delivered")
    own = dict.fromkeys(names, "noon")
    with holdfast.open(fleet.url, settings=holdfast.Settings()) as hf:
        run = hf.run("count", attributes=own)
        run.checkpoint()
        run.close()
    fleet.cli("submit", "jobs:count", "--run-id", "count")
    fleet.cli("queue")
    fleet.drain("one", "--functions", "jobs")
    assert fleet.status("count") == "completed"
    assert json.loads(fleet.cli("queue", "--json"))["counts"] == {"done": 1}
    with holdfast.open(fleet.url, settings=holdfast.Settings()) as hf:
        assert own.items() <= hf.store.row_of("count").attributes.items()


def test_an_answer_to_a_copy_of_a_submitted_run_in_a_store_of_one_machine_tells_no_queue(tmp_path):
    with holdfast.open(tmp_path / "store.db", settings=holdfast.Settings()) as hf:
        run = hf.run("copied", attributes={"holdfast.queue": "default", "holdfast.engine": "absurd"})
        run.checkpoint()
        run.close()
        hf.control.cancel("copied")


def test_cancel_ends_a_run_that_sleeps_until_a_time(fleet):
    (fleet.folder / "jobs.py").write_text(
        "from datetime import timedelta\n"
        "def nap(run):\n"
        "    run.sleep_until(run.host.now() + timedelta(days=40_000), name='nap')\n"
    )
    fleet.cli("submit", "jobs:nap", "--run-id", "nap")
    fleet.submit(flow(fleet, "late", one=say(fleet, "late")), "--at", "2099-01-01T00:00")
    fleet.drain("one", "--functions", "jobs")
    assert json.loads(fleet.cli("queue", "--json"))["counts"] == {"asleep": 2}
    for run in ("nap", "late"):
        fleet.cli("queue", "cancel", run)
    fleet.start("two", "--functions", "jobs")
    for run in ("nap", "late"):
        fleet.until_status(run, "cancelled")
    until(lambda: json.loads(fleet.cli("queue", "--json"))["counts"] == {"cancelled": 2})
    assert fleet.said() == []


def test_a_store_of_one_machine_is_refused(tmp_path):
    (tmp_path / "flow.yaml").write_text("flow: x\nphases: {one: 'true'}\n")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "submit", "flow.yaml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "postgresql://" in done.stderr


def test_a_set_up_command_runs_once_in_each_directory(fleet):
    """What git ignores is made again on each machine, before the run's first call there."""
    (fleet.project / ".gitignore").write_text("modules/\n")
    slow = f'"{say(fleet, "two")}; test -e {fleet.folder}/go || sleep 600; cat modules/here >> {fleet.log}"'
    fleet.submit(
        flow(fleet, "needs", one=f'"cat modules/here >> {fleet.log}"', two=slow),
        "--setup", f"mkdir -p modules && hostname > modules/here && echo set up >> {fleet.log}",
    )  # fmt: skip
    first = fleet.start("one")
    fleet.until_said("two")
    fleet.kill(first)
    (fleet.folder / "go").touch()
    fleet.start("two")
    fleet.until_status("needs", "completed")
    assert fleet.said().count("set up") == 2
    assert fleet.said()[0] == "set up"
    with holdfast.open(fleet.url, settings=holdfast.Settings()) as hf:
        assert "modules/here" not in [file.path for file in hf.latest("needs").files()]


def test_a_set_up_command_that_brings_a_link_writes_nothing_outside(fleet):
    """What it clones may hold a link in the place of the mark that it has run."""
    outside = fleet.folder / "outside"
    outside.write_text("not yours")
    link = f"mkdir -p .holdfast; ln -sf {outside} .holdfast/setup"
    fleet.submit(flow(fleet, "linked", one=say(fleet, "one")), "--setup", link)
    fleet.drain("one")
    assert fleet.said() == ["one"]
    assert outside.read_text() == "not yours"


def test_a_set_up_command_that_fails_parks_the_run_and_a_retry_runs_it_again(fleet):
    fleet.submit(flow(fleet, "broken", one=say(fleet, "one")), "--setup", f"cat {fleet.folder}/wheels")
    fleet.drain("one")
    assert json.loads(fleet.cli("queue", "show", "broken", "--json"))["runs"][0]["state"] == "parked"
    assert "wheels" in fleet.cli("queue", "show", "broken")
    assert fleet.said() == []
    (fleet.folder / "wheels").touch()
    fleet.cli("queue", "retry", "broken")
    fleet.drain("one")
    assert fleet.said() == ["one"]


def test_settings_travel_with_the_run_and_a_workers_own_stay(fleet):
    (fleet.project / "holdfast.yaml").write_text("workspace: {ignore: ['*.tmp']}\nlease_s: 77\n")
    fleet.submit(flow(fleet, "settled", one='"echo 1 > kept.txt; echo 2 > scratch.tmp"'))
    fleet.drain("one")
    with holdfast.open(fleet.url, settings=holdfast.Settings()) as hf:
        files = {file.path for file in hf.latest("settled").files()}
    assert "kept.txt" in files
    assert "scratch.tmp" not in files


def test_a_secret_is_named_and_never_stored(fleet):
    text = f"flow: hush\nenv_from: [DEPLOY_KEY_X]\nphases:\n  one: 'echo $DEPLOY_KEY_X | wc -c >> {fleet.log}'\n"
    fleet.submit(text)
    fleet.drain("one")
    shown = json.loads(fleet.cli("queue", "--json"))["runs"][0]
    assert shown["state"] == "parked"
    assert "DEPLOY_KEY_X" in shown["waits_for"][0]
    fleet.environment["DEPLOY_KEY_X"] = "12345"
    fleet.cli("queue", "retry", "hush")
    fleet.drain("two")
    assert [line.strip() for line in fleet.said()] == ["6"]


def test_a_secret_in_the_flow_is_refused_where_it_is_submitted(fleet):
    """Redaction would take it out of the store, and no worker could follow the flow."""
    text = "flow: leaky\nenv: {API_KEY: 'sk-live-0123456789abcdef'}\nphases: {one: 'true'}\n"
    (fleet.project / "flow.yaml").write_text(text)
    fleet.cli("submit", "flow.yaml", code=2)
    assert fleet.status("leaky") is None


def test_a_repository_is_cloned_where_the_run_is_submitted(fleet):
    source = fleet.folder / "source"
    source.mkdir()
    for words in ("init -q -b main", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m one", "tag first"):
        subprocess.run(["git", *words.split()], cwd=source, check=True)
    fleet.submit(flow(fleet, "cloned", one=f'"git log --format=%s >> {fleet.log}"'), "--git", f"{source}@first")
    fleet.drain("one")
    assert fleet.said() == ["one"]
    fleet.cli("submit", "flow.yaml", "--run-id", "away", "--git", source / "nowhere", code=2)
    assert fleet.status("away") is None


def test_a_run_of_one_engine_is_refused_by_another_queue(fleet):
    text = flow(fleet, "placed", one=say(fleet, "one"))
    fleet.submit(text)
    fleet.submit(text, "--queue", "other", code=2)
    fleet.drain("one")
    assert fleet.said() == ["one"]


def test_queue_show_says_who_has_a_run_and_since_when(fleet):
    fleet.submit(flow(fleet, "held", one=f'"{say(fleet, "one")}; sleep 600"'))
    fleet.start("one")
    fleet.until_said("one")
    shown = json.loads(fleet.cli("queue", "show", "held", "--json"))["runs"]
    assert [row["state"] for row in shown] == ["running"]
    assert shown[0]["since"] is not None
    assert shown[0]["worker"]
    fleet.cli("queue", "show", "nothing", code=3)


def test_a_queue_has_no_more_runs_under_way_than_its_limit(fleet):
    if fleet.engine == "temporal":
        assert fleet.start("one", "--limit", "1").wait(60) == 2
        return
    count = (
        f'"{say(fleet, "begin")}; test $(grep -c begin {fleet.log}) -gt $(($(grep -c end {fleet.log}) + 1))'
        f' && {say(fleet, "two at once")}; sleep 0.3; {say(fleet, "end")}"'
    )
    for number in range(6):
        fleet.submit(flow(fleet, f"limited-{number}", one=count), name=f"{number}.yaml")
    workers = [fleet.start(f"host-{number}", "--limit", "1", "--slots", "4") for number in range(2)]
    for number in range(6):
        fleet.until_status(f"limited-{number}", "completed")
    assert fleet.said() == ["begin", "end"] * 6
    assert workers


def test_an_artifact_that_git_ignores_travels_and_its_task_is_not_run_again(fleet):
    """What a flow says that it makes goes along although git ignores it; else a finished call would be repeated."""
    (fleet.project / ".gitignore").write_text("build/\n")
    fleet.submit(
        "flow: made\nphases:\n"
        f"  one: {{run: 'mkdir -p build; echo made > build/out.bin; echo x > build/scrap; {say(fleet, 'one')}', "
        "artifacts: [build/out.bin]}\n"
        f"  two: '{say(fleet, 'two')}; test -e {fleet.folder}/go || sleep 600; cat build/out.bin >> {fleet.log}'\n"
    )
    first = fleet.start("one")
    fleet.until_said("two")
    fleet.kill(first)
    (fleet.folder / "go").touch()
    fleet.start("two")
    fleet.until_status("made", "completed")
    assert fleet.said() == ["one", "two", "two", "made"]
    assert not (fleet.folder / "two" / "made" / "build" / "scrap").exists()


def test_a_run_for_later_is_asleep_until_then(fleet):
    fleet.submit(flow(fleet, "late", one=say(fleet, "late")), "--at", "2099-01-01T00:00")
    assert fleet.status("late") is None  # it has not begun, and nothing of it has ended
    for _ in range(2):
        shown = json.loads(fleet.cli("queue", "show", "late", "--json"))["runs"][0]
        assert (shown["state"], shown["until"][:4]) == ("asleep", "2099")
        fleet.drain("one")
    assert fleet.said() == []
    soon = (datetime.now().astimezone() + timedelta(seconds=2)).isoformat()
    fleet.submit(flow(fleet, "soon", one=say(fleet, "soon")), "--at", soon, name="soon.yaml")
    fleet.start("two")
    fleet.until_status("soon", "completed")
    assert fleet.said() == ["soon"]


def test_lines_that_no_worker_could_follow_are_refused_at_once(fleet):
    (fleet.project / "flow.yaml").write_text("flow: x\nphases: {one: 'true'}\n")
    fleet.cli("submit", "flow.yaml", "--queue", "a'b", code=2)
    fleet.cli("submit", "jobs:count", code=2)
    fleet.cli("submit", "flow.yaml", "--at", "tomorrow", code=2)
    fleet.cli("submit", "flow.yaml", "--priority", "0" if fleet.engine == "temporal" else "1", code=2)
    fleet.cli("worker", "--root", "/proc/nowhere", "--drain", code=2)
    fleet.cli("worker", "--root", fleet.folder / "w", "--limit", "0", code=2)
    fleet.cli("worker", "--drain", code=2)
    fleet.cli("advance", "nothing", "--root", fleet.folder / "w", code=3)
    assert fleet.status("x") is None


def test_one_worker_serves_several_queues_of_an_engine_that_is_named(fleet):
    for queue in ("day", "night"):
        fleet.submit(f"flow: {queue}\nphases:\n  one: 'echo {queue} >> {fleet.log}'\n", "--queue", queue)
    fleet.drain("one", "--queue", "day", "--queue", "night", "--engine", fleet.engine)
    assert sorted(fleet.said()) == ["day", "night"]
