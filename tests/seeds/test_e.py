"""System E, an episode with five budgets on PostgreSQL, stopped by a rate, a warning and a limit; the ledger's E."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

import holdfast
from holdfast import (
    CheckpointCorrupt,
    ChunkCorrupt,
    Every,
    Holdfast,
    NotFound,
    OnBudgetWarning,
    OnLoopComplete,
    OnPhaseComplete,
    Secret,
    Settings,
    UsageError,
)
from holdfast.flow.load import flow_from, load_flow
from holdfast.flow.runner import run_flow
from holdfast.settings.values import RetentionSettings
from postgres_server import shared_server
from seeds.killing import KILLS, kill_and_resume, pace

if TYPE_CHECKING:
    from seeds.conftest import System

RUN = "episode"
BOXES = ["anvil", "books", "clock", "drums", "easel", "flute"]
ROUND = ("perceive", "plan", "act {box}", "observe")
CALLS = [phase.format(box=box) for box in BOXES for phase in ROUND]
KEEP_ALL = Settings(retention=RetentionSettings(enabled=False))


@pytest.fixture(scope="module")
def url():
    """A database of this file's own, and its URL."""
    server = shared_server()
    made = server.database()
    yield made
    server.drop(made)


@pytest.fixture
def store(url):
    """A tenant of the database for one test."""
    with holdfast.open(f"{url}&tenant=t{time.monotonic_ns()}", settings=KEEP_ALL) as hf:
        yield hf


class Stop(NamedTuple):
    """Where a process of the episode ended."""

    status: str
    kind: str
    question: str
    calls: list[str]


@pytest.fixture(scope="module")
def played(system, url):
    """The example on PostgreSQL, played to its end with a person's answers from other processes; not to be changed."""
    made = system("e_episode")
    place = f"{url}&tenant=played"
    stops: list[Stop] = []

    def life(hf: Holdfast) -> None:
        result = run_flow(hf, load_flow(made.folder / "flow.yaml"), workspace=made.folder, waiting="leave")
        wait = next(iter(hf.control.waiting(RUN)), None)
        stops.append(Stop(result.status, wait.kind if wait else "", wait.question if wait else "", made.lines()))

    with holdfast.open(place, settings=KEEP_ALL) as hf:
        life(hf)
        life(hf)  # too early
        life(Holdfast(hf.store, settings=KEEP_ALL, clock=lambda: time.time() + 91))  # a minute and a half later
        assert made.hf("answer", "continue", RUN, "--store", place).code == 0
        life(hf)
        assert made.hf("budget", RUN, "tokens+=4000", "--note", "worth it", "--store", place).code == 0
        life(hf)
    return made, place, stops


def test_a_checkpoint_holds_episode_phase_progress_loops_context_budgets_and_version(played, store):
    """Proves E1."""
    _, place, _ = played
    with holdfast.open(place, settings=KEEP_ALL) as hf:
        waits = [one for one in hf.checkpoints(RUN, archived=True) if one.reason.startswith("waits: The budget")]
        stopped = waits[0]
        assert (stopped.run, stopped.summary.state) == (RUN, "plan")
        assert stopped.section("phases").phases["observe"].summary == "2 left"
        loops = Counter(visit.state for visit in stopped.section("workflow").history)
        assert (loops["observe"], loops["plan"], stopped.record.envelope.format_version) == (4, 5, 2)
        spending = stopped.section("budget").spending
        limits = {name: one.limit for name, one in spending.items()}
        assert limits == {"tokens": 4000, "time_s": 600, "retries": 5, "subcalls": 40, "tool_calls": 60}
        used = {name: one.used for name, one in spending.items() if name != "time_s"}
        assert used == {"tokens": 4660, "retries": 1, "subcalls": 19, "tool_calls": 13}  # the call that failed is one
        assert 0 < spending["time_s"].used < 600
    with store.run("r") as run:
        run.context.note(pending_tools=["search"], client="acme")
    assert store.latest("r").section("context").metadata == {"pending_tools": ["search"], "client": "acme"}


def test_a_view_shows_phase_progress_loop_count_and_budget_unless_the_store_is_encrypted(url):
    """Proves E1, E5: a dashboard reads it with SQL; rows go with their checkpoint, and a tenant sees its own."""
    query = "SELECT seq, phase, progress, loop_count, budget -> 'tokens', trigger FROM holdfast.episode ORDER BY seq"
    spent = {"spending": {"tokens": {"used": 1, "limit": 9}}}
    names = [f"{name}{time.monotonic_ns()}" for name in ("plain", "sealed")]

    def seen(tenant):
        with psycopg.connect(url) as database:
            database.execute("SELECT set_config('holdfast.tenant', %s, false)", (tenant,))
            return database.execute(query).fetchall()

    for name, key in zip(names, (None, holdfast.generate_key()), strict=True):
        with holdfast.open(f"{url}&tenant={name}", settings=KEEP_ALL, key=key) as hf:
            run = hf.run("ep")
            for loop in range(2):
                told = {"loop_count": loop, "detail": {"left": ["a", "b"][loop:], "api_key": "a1B2" * 10}}
                run.checkpoint(phase="act", progress=told, budget=spent)
            rows = seen(name)
            if key is not None:
                assert [row[1:] for row in rows] == [(None,) * 5] * 2
                continue
            assert [(row[:2], row[3:]) for row in rows] == [
                ((seq, "act"), (seq - 1, {"used": 1, "limit": 9}, "manual")) for seq in (1, 2)
            ]
            assert [row[2]["left"] for row in rows] == [["a", "b"], ["b"]]
            assert "a1B2a1B2" not in str(rows)
            hf.delete(hf.checkpoints("ep")[-1].id)
            assert [row[0] for row in seen(name)] == [2]
            hf.delete_run("ep")
            assert seen(name) == []


def test_a_section_that_is_not_given_is_carried_over_or_not_as_the_caller_says(store):
    """Proves E4."""
    with store.run("ep") as entered:
        entered.budget.limit(tokens=9)
        entered.budget.spend(tokens=5)
        entered.checkpoint(state={"n": 1}, sections={"notes": "of the first"})
    run = store.run("ep")
    second = run.checkpoint(state={"n": 2})
    assert (second.section("budget").spending["tokens"].used, second.section("notes")) == (5, "of the first")
    third = run.checkpoint(state={"n": 3}, carry_over=False)
    assert third.sections == ("state",)
    assert store.recover(third.id).state == {"state": {"n": 3}}  # nor does a recovery find it again
    assert "notes" not in store.run("ep").checkpoint(state={"n": 4}).sections
    assert store.recover(second.id).state["notes"] == "of the first"
    with store.run("ep") as entered:
        entered.budget.limit(tokens=7)
        made = entered.checkpoint(state={"n": 5}, carry_over=False)  # what the run itself has is not left out
        assert made.section("budget").spending["tokens"].limit == 7
        assert "notes" not in made.sections


def test_checkpoints_are_made_listed_restored_deleted_and_pruned_by_age_and_number(store):
    """Proves E2: newest first; 7 days, 10 checkpoints."""
    now = [time.time() - 30 * 86_400]
    hf = Holdfast(store.store, settings=KEEP_ALL, clock=lambda: now[0])
    run = hf.run("ep-1")
    for step in range(30):
        now[0] += 86_400
        run.checkpoint(state={"step": step})
    assert hf.latest("ep-1").section("state") == {"step": 29}
    assert [one.seq for one in hf.checkpoints("ep-1")] == list(range(30, 0, -1))
    old = hf.checkpoints("ep-1")[5]
    assert hf.recover(old.id).success
    assert hf.latest("ep-1").section("state") == {"step": 24}
    hf.delete(hf.checkpoints("ep-1")[-1].id)
    with pytest.raises(NotFound):
        hf.find("ep-1@1")
    assert len(hf.prune("ep-1", older_than=timedelta(days=7))) == 21
    assert len(hf.checkpoints("ep-1")) == 9
    other = hf.run("ep-2")
    for step in range(15):
        other.checkpoint(state={"step": step})
    assert len(hf.prune("ep-2", keep=10)) == 5
    assert [one.seq for one in hf.checkpoints("ep-2")] == list(range(15, 5, -1))
    assert hf.verify().sound
    hf.delete_run("ep-1")
    assert [one.id for one in hf.runs()] == ["ep-2"]
    assert hf.latest("ep-1") is None


LOOP = {
    "flow": "ep",
    "budget": {"tokens": 20, "on_warning": "continue"},
    "agents": {"robot": """echo '{"result": "ok", "tokens": {"input": 9, "output": 0}}'"""},
    "phases": {
        "perceive": "true",
        "plan": "true",
        "act": {"agent": "robot"},
        "observe": {"run": "true", "next": [{"to": "perceive", "when": "visit < 2"}, "end"]},
    },
}
PHASES = ["perceive", "plan", "act", "observe"]


@pytest.mark.parametrize(
    ("strategy", "taken"),
    [
        (OnPhaseComplete(), [("phase_complete", phase) for phase in (*PHASES, *PHASES)]),
        (OnPhaseComplete("plan", "observe"), [("phase_complete", phase) for phase in ("plan", "observe") * 2]),
        (OnLoopComplete(), [("loop_complete", "observe")]),
        (OnBudgetWarning(), [("budget_warning", "act")]),
        (OnPhaseComplete("act") | OnBudgetWarning(),
         [("phase_complete", "act"), ("budget_warning", "act"), ("phase_complete", "act")]),
        (Every(3600), [("state_transition", None)]),
        (OnLoopComplete() & Every(3600), [("loop_complete", "observe")]),
    ],
    ids=["phases", "some phases", "loops", "budget", "either", "interval", "both"],
)  # fmt: skip
def test_a_strategy_decides_at_which_events_of_a_loop_a_checkpoint_is_taken(url, strategy, taken):
    """Proves E3: two rounds of a flow, and a budget that is nearly used up in the second; what is done is kept anyway.

    The one at the end of the session is not the strategy's.
    """
    with holdfast.open(f"{url}&tenant=s{time.monotonic_ns()}", settings=KEEP_ALL, strategy=strategy) as hf:
        assert run_flow(hf, flow_from(LOOP), waiting="leave").status == "completed"
        *found, last = [(one.trigger, one.summary.phase) for one in reversed(hf.checkpoints("ep"))]
        assert (found, last) == (taken, ("shutdown", None))
        assert hf.latest("ep").section("budget").spending["tokens"].used == 18


def test_an_interval_is_due_again_when_its_time_is_over(store):
    """Proves E3: the clock moves, phases come and go, and a program that is started again knows the last one's time."""
    now = [time.time()]
    taken = []
    for process in ((0, 30, 31, 29), (30, 31)):  # each ends with a checkpoint
        moving = {"clock": lambda: now[0], "monotonic": lambda: now[0]}
        hf = Holdfast(store.store, settings=KEEP_ALL, strategy=Every(60), **moving)
        with hf.run("ep") as run:
            for after in process:
                now[0] += after
                before = hf.latest("ep").seq
                with run.phase(f"at {now[0]}"):
                    pass
                taken.append(hf.latest("ep").seq - before)
    assert taken == [0, 0, 1, 0, 0, 1]


def test_a_run_knows_its_last_checkpoint_restores_it_shows_its_history_and_begins_anew(store):
    """Proves E4."""
    with store.run("ep") as run:
        begun = run.head.created_at
        first = run.maybe_checkpoint("phase_complete", phase="plan", state={"loop": 1})
        assert first is not None
        assert run.head.created_at == first.created_at >= begun
        run.maybe_checkpoint("loop_complete", state={"loop": 2})
    assert store.latest("ep").section("state") == {"loop": 2}
    triggers = [one.trigger for one in store.checkpoints("ep")]
    assert triggers == ["shutdown", "loop_complete", "phase_complete", "state_transition"]
    plan = next(one for one in store.checkpoints("ep") if one.trigger == "phase_complete")
    assert store.recover(plan.id).state["state"] == {"loop": 1}
    assert store.latest("ep").section("state") == {"loop": 1}
    assert store.undo("ep").success
    assert store.latest("ep").section("state") == {"loop": 2}
    with store.run("other") as run:
        for phase in ROUND[:2]:
            with run.phase(phase):
                run.checkpoint(state=phase)
    newest, *older = [one.id for one in store.checkpoints("other", archived=True)]
    assert len(older) >= 6
    assert sorted(store.prune("other", keep=1)) == sorted(older)
    assert [one.id for one in store.checkpoints("other", archived=True)] == [newest]
    assert store.recover("other").state["state"] == "plan"
    store.recovery.start_fresh("ep")
    assert "state" not in store.latest("ep").sections


def test_the_schema_has_indexes_for_the_latest_and_for_age_and_an_episode_takes_its_checkpoints_along(url):
    """Proves E5: neither a checkpoint nor a chunk of a deleted episode is left; its neighbour keeps its own."""
    tenant = f"d{time.monotonic_ns()}"

    def rows(database):
        tables = database.execute(
            "SELECT table_name FROM information_schema.columns c JOIN information_schema.tables t USING "
            "(table_schema, table_name) WHERE table_schema = 'holdfast' AND column_name = 'tenant' "
            "AND table_type = 'BASE TABLE' ORDER BY 1"
        ).fetchall()
        counted = {}
        for (table,) in tables:
            query = psycopg.sql.SQL("SELECT count(*) FROM holdfast.{} WHERE tenant = %s")
            counted[table] = database.execute(query.format(psycopg.sql.Identifier(table)), (tenant,)).fetchone()[0]
        return counted

    with holdfast.open(f"{url}&tenant={tenant}", settings=KEEP_ALL) as hf, psycopg.connect(url) as database:
        database.autocommit = True
        database.execute("SELECT set_config('holdfast.tenant', %s, false)", (tenant,))
        hf.run("stays").checkpoint(state=1)
        before = rows(database)
        for number in range(3):
            hf.run("gone").checkpoint(state={"n": number, "text": f"{number}" * 9000})
        with_it = rows(database)
        assert (with_it["checkpoint"], with_it["chunk"] > before["chunk"]) == (before["checkpoint"] + 3, True)
        found = database.execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'holdfast'").fetchall()
        assert {"checkpoint_pkey", "checkpoint_time"} <= {name for (name,) in found}
        hf.delete_run("gone")
        assert hf.checkpoints("gone") == []
        hf.prune()
        left = rows(database)
        assert (left["checkpoint"], left["chunk"]) == (before["checkpoint"], before["chunk"])
        assert hf.latest("stays").section("state") == 1


def test_a_rate_limit_is_waited_out_over_restarts_and_a_run_that_is_started_too_early_asks_nobody(played):
    """Proves E6: a cool-down."""
    _, _, stops = played
    limited, early, later, *_ = stops
    assert (limited.status, limited.kind) == ("waiting", "cooldown")
    assert limited.calls == [*CALLS[:4], "perceive", "plan"]
    assert early == limited  # the same wait, and not one call more
    assert later.calls[:7] == [*limited.calls, "plan"]


def test_a_budget_warning_asks_a_person_and_the_limit_is_raised_from_another_process(played):
    """Proves E6: a warning, an exhausted budget; it continues exactly where it was."""
    system, place, (_, _, warned, used_up, over) = played
    assert (warned.status, warned.kind) == (used_up.status, used_up.kind) == ("waiting", "budget")
    assert "is nearly used up (3,700 of 4,000)" in warned.question
    assert "is used up (4,660 of 4,000)" in used_up.question
    assert (over.status, over.kind) == ("completed", "")
    whole = [*CALLS[:5], "plan", *CALLS[5:]]  # the call that was turned away, and each other once
    assert over.calls == whole
    for before, after in ((warned, used_up), (used_up, over)):
        assert after.calls[: len(before.calls)] == before.calls
    assert sorted(path.name for path in (system.folder / "shelf").iterdir()) == BOXES
    with holdfast.open(place, settings=KEEP_ALL) as hf:
        tokens = hf.latest(RUN).section("budget").spending["tokens"]
        assert (tokens.used, tokens.limit, tokens.raised) == (6 * 960, 8000, 4000)
        said = [line["what"] for line in hf.latest(RUN).log("journal") if line["kind"] == "budget_raised"]
        assert said == ["tokens raised by 4,000"]
        assert hf.verify().sound


def test_an_episode_stops_for_an_approval_and_for_maintenance_and_goes_on(store):
    """Proves E6: a person's approval, maintenance."""

    def life():
        with store.run("ep", waiting="leave") as run:
            run.step("one", lambda: 1)
            reply = run.approve("Continue?")
            run.checkpoint()
            return reply.choice, run.step("two", lambda: 2)

    with pytest.raises(holdfast.RunWaiting, match="Continue"):
        life()
    store.control.answer("ep", "approve", by="ann")
    store.control.pause("ep", by="ops", note="maintenance")
    with pytest.raises(holdfast.RunWaiting, match="maintenance"):
        life()
    assert store.latest("ep").summary.status == "paused"
    store.control.unpause("ep")
    assert life() == ("approve", 2)


WAITS = """
import sys, holdfast
with holdfast.open(sys.argv[1], settings=holdfast.Settings()) as hf, hf.run("ep") as run:
    print(run.approve("Continue with the shelf?").choice)
"""


def test_a_program_that_waits_says_so_on_standard_error(url):
    """Proves E6: it blocks, says what for, and continues when another process answers."""
    place = f"{url}&tenant=w{time.monotonic_ns()}"
    waits = subprocess.Popen(
        [sys.executable, "-c", WAITS, place], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = waits.stderr.readline()
    assert "run ep waits" in said
    assert "Continue with the shelf?" in said
    with holdfast.open(place, settings=KEEP_ALL) as hf:
        hf.control.answer("ep", "approve")
    out, _ = waits.communicate(timeout=120)
    assert (waits.returncode, out) == (0, "approve\n")


def test_secrets_stay_out_tenants_are_apart_and_damage_is_named(url):
    """Proves E7."""
    canary = "sk-live-" + "a1B2" * 10
    tenants = [f"{name}{time.monotonic_ns()}" for name in ("acme", "other")]
    with holdfast.open(f"{url}&tenant={tenants[0]}", settings=KEEP_ALL, compression="none") as hf:
        given = {"api_key": canary, "marked": Secret(canary), "goal": "tidy up"}
        made = hf.run("ep").checkpoint(state=given)
        assert made.redacted_count == 2
        assert hf.latest("ep").section("state")["goal"] == "tidy up"
        with holdfast.open(f"{url}&tenant={tenants[1]}", settings=KEEP_ALL) as other:
            assert list(other.runs()) == []
            assert other.latest("ep") is None
            with pytest.raises(NotFound):
                other.get(made.id)
            with pytest.raises(NotFound):
                other.find("ep")
            with pytest.raises(NotFound):
                other.delete(made.id)
            other.run("ep").checkpoint(state="theirs")
        assert hf.latest("ep").id == made.id
    with psycopg.connect(url) as database:
        database.execute("SELECT set_config('holdfast.tenant', %s, false)", (tenants[0],))
        stored = database.execute("SELECT data FROM holdfast.chunk WHERE tenant = %s", (tenants[0],)).fetchall()
        assert stored
        assert all(canary.encode() not in bytes(data) for (data,) in stored)
        changed = "UPDATE holdfast.chunk SET data = 'damaged' WHERE tenant = %s"
        database.execute(changed, (tenants[0],))
    with (
        holdfast.open(f"{url}&tenant={tenants[0]}", settings=KEEP_ALL) as hf,
        pytest.raises((ChunkCorrupt, CheckpointCorrupt)),
    ):
        hf.latest("ep").section("state")


def test_storage_stays_bounded_while_an_episode_goes_on(url):
    """Proves E7: pruned by itself."""
    settings = Settings(retention=RetentionSettings(triggers={"*": 5}, last=5))
    with holdfast.open(f"{url}&tenant=b{time.monotonic_ns()}", settings=settings) as hf:
        with hf.run("ep") as run:
            for number in range(40):
                run.checkpoint(state={"n": number, "text": f"{number}" * 20_000})
        newest = hf.latest("ep").seq
        assert newest >= 40
        assert [one.seq for one in hf.checkpoints("ep", archived=True)] == list(range(newest, newest - 5, -1))
        assert hf.stats().chunk_bytes < 8 * 40_000  # of five, not of forty
        with pytest.raises(UsageError):
            hf.run("..")


PLAY = f"""
import sys, holdfast
from holdfast.flow.load import load_flow
from holdfast.flow.runner import run_flow
with holdfast.open(sys.argv[1], settings=holdfast.Settings()) as hf:
    while run_flow(hf, load_flow("flow.yaml"), workspace=".", waiting="leave").status == "waiting":
        for wait in hf.control.waiting({RUN!r}):
            if wait.kind == "budget" and "continue" not in wait.options:
                hf.control.raise_budget({RUN!r}, {{"tokens": 4000}}, by="ann")
            else:
                hf.control.answer({RUN!r}, "continue", wait=wait.id, by="ann")
    assert hf.latest({RUN!r}).summary.status == "completed"
"""


def end_of(system: System, place: str) -> dict[str, object]:
    """Return all that must be the same however often the episode was killed."""
    with holdfast.open(place, settings=Settings()) as hf:
        assert hf.verify().sound
        head = hf.latest(RUN)
        spending = head.section("budget").spending
        return {
            "status": head.summary.status,
            "state": head.section("workflow").current_state,
            "loops": Counter(visit.state for visit in head.section("workflow").history),
            "phases": {name: (one.status, one.summary) for name, one in head.section("phases").phases.items()},
            "used": {name: spending[name].used - spending[name].lost for name in ("tokens", "tool_calls")},
            "subcalls": spending["subcalls"].used,
            "lost": spending["tokens"].lost,
            "results": {
                one["step"]: one["result"]["result"]
                for one in head.calls
                if one["event"] == "done" and one["kind"] == "step"
            },
            "shelf": sorted(path.name for path in (system.folder / "shelf").iterdir()),
        }


def ended_calls(place: str) -> list[tuple[str, str]]:
    """Return the calls of the robot that the store has an end of, in order: how, and where."""
    with holdfast.open(place, settings=Settings()) as hf:
        calls = hf.latest(RUN).calls if hf.has(RUN) else []
        robot = [one for one in calls if one["kind"] == "agent" and one["event"] in ("done", "failed")]
        return [(one["event"], one["step"]) for one in robot]


def test_killed_at_random_moments_the_episode_ends_as_an_unbroken_one_does(system, url):
    """Proves E6, E8, D8: on PostgreSQL; the robot's own log and the store's records tell the same, call by call."""
    whole, place = system("e_episode"), f"{url}&tenant=whole{time.monotonic_ns()}"
    play = [sys.executable, "-c", PLAY]
    times = pace([*play, place], whole.folder)
    expected = end_of(whole, place)
    expected.pop("subcalls")
    assert expected.pop("lost") == 0
    killed = number = 0
    while killed < KILLS:
        number += 1
        broken, place = system("e_episode"), f"{url}&tenant=broken{time.monotonic_ns()}"
        seen: list[tuple[int, int]] = []  # after each process: lines of the robot, ends in the store

        def look(seen=seen, broken=broken, place=place) -> None:
            seen.append((len(broken.lines()), len(ended_calls(place))))

        ended = kill_and_resume([*play, place], broken.folder, 6, f"episode {number}", **times, after_each=look)
        assert ended.code == 0, ended.err
        lines, ends, kept = broken.lines(), ended_calls(place), []
        for (before, had), (after, has) in pairwise([(0, 0), *seen]):
            was_cut = (after - before) - (has - had)  # begun in this process, and the store has no end of it
            assert was_cut in (0, 1), seen
            kept += lines[before : after - was_cut]
        assert seen[-1] == (len(lines), len(ends))
        assert [line.split()[0] for line in kept] == [step.split("/")[0].partition("#")[0] for _, step in ends]
        done = [step for how, step in ends if how == "done"]
        assert len(done) == len(set(done)) == len(CALLS)  # each once, however often it was killed
        found = end_of(broken, place)
        # A call is charged before it begins, so one that a kill kept from beginning may be charged; none is missing.
        assert len(lines) <= found.pop("subcalls") <= len(ends) + ended.kills
        lost, cut = found.pop("lost"), len(lines) - len(kept)
        assert 700 * cut <= lost <= 700 * ended.kills, "what one call costs at most, for each that was cut off"
        assert found == expected
        killed += ended.kills
