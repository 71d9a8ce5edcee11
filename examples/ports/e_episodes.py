"""System E on Holdfast: an episode service on PostgreSQL.

    python examples/ports/e_episodes.py postgresql://USER@HOST/DATABASE

`Episodes`, `Strategy` and `Manager` are the three classes of that design, on runs: an episode is a run. Below them is
every case of its own test file, against a real server, and its security list. `create(progress=, budget=)` fills what
`SELECT * FROM holdfast.episode` shows.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import psycopg

import holdfast
from holdfast import Checkpoint, Every, Holdfast, OnBudgetWarning, OnLoopComplete, OnPhaseComplete, Settings
from holdfast.settings.values import RetentionSettings

PHASES = {"PERCEIVE": "perceive", "PLAN": "plan", "ACT": "act", "OBSERVE": "observe"}


class Episodes:
    """The checkpoint service: create, read, delete and prune."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf

    def create(self, episode: str, *, phase: str, progress: dict[str, Any], loop_count: int, **more: Any) -> Checkpoint:
        """Store a checkpoint of exactly what is given: a section that is left out is not carried over."""
        given: dict[str, Any] = {"progress": {"loop_count": loop_count, "detail": progress}}
        if "budget" in more:
            given["budget"] = {"spending": more.pop("budget")}
        return self.hf.run(episode).checkpoint(phase=phase, carry_over=False, sections=more, **given)

    def latest(self, episode: str) -> Checkpoint | None:
        """Return the newest checkpoint of an episode."""
        return self.hf.latest(episode)

    def of_episode(self, episode: str) -> list[Checkpoint]:
        """Return all checkpoints of an episode, newest first."""
        return self.hf.checkpoints(episode)

    def restore(self, checkpoint: str) -> dict[str, Any] | None:
        """Return what `create` was given; damaged data raises instead of turning into defaults."""
        try:
            found = self.hf.get(checkpoint)
        except holdfast.NotFound:
            return None
        told = found.section("progress")
        data = {"episode": found.run, "phase": found.summary.phase, "progress": told.detail}
        data |= {name: found.section(name) for name in found.sections if name not in ("progress", "budget")}
        if "budget" in found.sections:
            data["budget"] = found.section("budget").spending
        return data | {"loop_count": told.loop_count}

    def delete(self, checkpoint: str) -> None:
        """Delete one checkpoint, once or again."""
        self.hf.delete(checkpoint, missing_ok=True)

    def delete_episode(self, episode: str) -> None:
        """Delete an episode with all its checkpoints."""
        self.hf.delete_run(episode)

    def prune(self, *, max_age_days: float = 7) -> int:
        """Delete checkpoints of every episode that are older, and whole episodes that ended before; return how many."""
        return len(self.hf.prune(older_than=timedelta(days=max_age_days)))

    def prune_episode(self, episode: str, *, max_count: int = 10) -> int:
        """Keep the newest so many; return how many were deleted."""
        return len(self.hf.prune(episode, keep=max_count))


class Manager:
    """Takes a checkpoint where the strategy says so: a Holdfast is opened with it."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.last_checkpoint_at: Any = None

    def maybe_checkpoint(self, episode: str, event: str, *, is_loop_end: bool = False, **state: Any) -> Any:
        """Offer a checkpoint at an event of the loop; None if none is due."""
        progress = {"loop_count": state.pop("loop_count", 0), "detail": state.pop("progress", {})}
        name = event.removesuffix("_COMPLETE")
        triggers: list[tuple[str, str | None]] = (
            [("phase_complete", PHASES[name])] if name in PHASES and name != event else []
        )
        triggers += [("loop_complete", None)] if is_loop_end else []
        triggers += [("budget_warning", None)] if event == "BUDGET_WARNING" else []
        run = self.hf.run(episode)
        for trigger, phase in triggers or [("step_complete", None)]:
            taken = run.maybe_checkpoint(trigger, phase=phase, progress=progress, sections=state)
            if taken:
                self.last_checkpoint_at = taken.created_at
                return taken
        return None

    def restore_latest(self, episode: str) -> dict[str, Any] | None:
        """Return the newest checkpoint's data, None if there is none."""
        found = self.hf.latest(episode)
        return None if found is None else Episodes(self.hf).restore(found.id)

    def history(self, episode: str) -> list[Checkpoint]:
        """Return all checkpoints, newest first."""
        return self.hf.checkpoints(episode)

    def cleanup(self, episode: str, *, keep_latest: int = 1) -> int:
        """Keep the newest so many; return how many were deleted."""
        return len(self.hf.prune(episode, keep=keep_latest))

    def reset(self) -> None:
        """Forget when the last checkpoint was taken; the stored ones stay."""
        self.last_checkpoint_at = None


# What that design's own tests say, case by case. `new` gives a service for a tenant of its own.


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class World:
    """A database, and a fresh tenant for each case."""

    def __init__(self, url: str) -> None:
        self.url, self.clock, self.opened = url, Clock(), 0

    def open(self, strategy: Any = None, *, tenant: str | None = None) -> Holdfast:
        """Open the store of a tenant, with the clock of this world."""
        self.opened += 1
        place = f"{self.url}{'&' if '?' in self.url else '?'}tenant={tenant or f'case-{self.opened}-{time.time_ns()}'}"
        settings = Settings(retention=RetentionSettings(enabled=False))
        hf = holdfast.open(place, settings=settings)
        return Holdfast(hf.store, settings=settings, strategy=strategy, clock=self.clock)

    def service(self) -> Episodes:
        """Return a service without episodes."""
        return Episodes(self.open())


def create_a_checkpoint_for_an_episode(world: World) -> None:
    """Create."""
    spent = {"tokens": {"used": 5000, "limit": 10000}, "time_s": {"used": 30, "limit": 60}}
    service = world.service()
    made = service.create(
        "ep_1", phase="planning", progress={"step": 5, "total": 10}, loop_count=3, context_data={"q": "x"}, budget=spent
    )
    assert made.run == "ep_1"
    assert service.hf.has("ep_1")


def complex_structures_are_stored(world: World) -> None:
    """Create."""
    graph = {"nodes": [{"id": "n1"}, {"id": "n2"}], "edges": [{"from": "n1", "to": "n2"}]}
    progress = {"pending_tools": ["tool1", "tool2"], "completed_tools": ["tool3"]}
    service = world.service()
    made = service.create("ep_1", phase="acting", progress=progress, loop_count=5, plan={"graph": graph})
    restored = service.restore(made.id)
    assert restored is not None
    assert (restored["progress"], restored["plan"]) == (progress, {"graph": graph})


def a_checkpoint_has_its_time(world: World) -> None:
    """Create."""
    before = world.clock.now
    made = world.service().create("ep_1", phase="planning", progress={}, loop_count=0)
    assert made.created_at.timestamp() >= before - 0.001


def ids_are_unique(world: World) -> None:
    """Create."""
    service = world.service()
    made = [service.create("ep_1", phase="planning", progress={}, loop_count=n).id for n in range(5)]
    assert len(set(made)) == 5


def latest_is_the_newest(world: World) -> None:
    """Latest."""
    service = world.service()
    for step, phase in enumerate(("planning", "acting", "observing")):
        service.create("ep_1", phase=phase, progress={"step": step}, loop_count=4)
    found = service.latest("ep_1")
    assert found is not None
    assert (found.summary.phase, found.section("progress").detail) == ("observing", {"step": 2})


def latest_of_none_is_none(world: World) -> None:
    """Latest."""
    assert world.service().latest("ep_nonexistent") is None


def latest_goes_by_order_not_by_clock(world: World) -> None:
    """Latest."""
    service = world.service()
    service.create("ep_1", phase="first", progress={}, loop_count=0)
    world.clock.now -= 3600
    last = service.create("ep_1", phase="second", progress={}, loop_count=0)
    world.clock.now += 3600
    found = service.latest("ep_1")
    assert found is not None
    assert found.id == last.id


def all_of_an_episode_newest_first(world: World) -> None:
    """By episode."""
    service = world.service()
    for count, phase in enumerate(("planning", "acting", "observing")):
        service.create("ep_1", phase=phase, progress={}, loop_count=count)
    service.create("ep_2", phase="planning", progress={}, loop_count=0)
    assert [one.section("progress").loop_count for one in service.of_episode("ep_1")] == [2, 1, 0]


def an_unknown_episode_has_none(world: World) -> None:
    """By episode."""
    assert world.service().of_episode("ep_nonexistent") == []


def restore_gives_the_data_of_an_id(world: World) -> None:
    """Restore."""
    service = world.service()
    spent = {"tokens": {"used": 5000, "limit": 10000}}
    made = service.create(
        "ep_1", phase="planning", progress={"step": 5}, loop_count=3, query={"last": "t"}, budget=spent
    )
    service.create("ep_1", phase="acting", progress={"step": 6}, loop_count=4)
    restored = service.restore(made.id)
    assert restored is not None
    assert (restored["episode"], restored["phase"], restored["loop_count"]) == ("ep_1", "planning", 3)
    assert (restored["progress"], restored["query"]) == ({"step": 5}, {"last": "t"})
    assert (restored["budget"]["tokens"].used, restored["budget"]["tokens"].limit) == (5000, 10000)


def restore_gives_structures_and_leaves_out_what_was_not_given(world: World) -> None:
    """Restore: the budget of the checkpoint before is not carried over."""
    service = world.service()
    service.create("ep_1", phase="plan", progress={}, loop_count=1, budget={"tokens": {"used": 1, "limit": 2}})
    progress = {"pending_tools": ["tool1"], "results": [{"success": True}]}
    made = service.create("ep_1", phase="acting", progress=progress, loop_count=2, plan={"nodes": [{"id": "n1"}]})
    restored = service.restore(made.id)
    assert restored is not None
    assert restored["progress"]["results"] == [{"success": True}]
    assert len(restored["plan"]["nodes"]) == 1
    assert "budget" not in restored


def restore_of_none_is_none(world: World) -> None:
    """Restore."""
    assert world.service().restore("cp_" + "0" * 32) is None


def one_checkpoint_is_deleted(world: World) -> None:
    """Delete: again is not an error."""
    service = world.service()
    first, second = (service.create("ep_1", phase="plan", progress={}, loop_count=n) for n in range(2))
    for _ in range(2):
        service.delete(first.id)
    assert [one.id for one in service.of_episode("ep_1")] == [second.id]


def all_of_an_episode_are_deleted(world: World) -> None:
    """Delete: again, or of an unknown episode, is not an error."""
    service = world.service()
    for episode in ("ep_1", "ep_2"):
        service.create(episode, phase="plan", progress={}, loop_count=0)
    for _ in range(2):
        service.delete_episode("ep_1")
    assert (service.of_episode("ep_1"), len(service.of_episode("ep_2"))) == ([], 1)


def old_checkpoints_are_pruned_over_all_episodes(world: World) -> None:
    """Prune."""
    service = world.service()
    for days in (10, 8):
        world.clock.now = time.time() - days * 86_400
        for episode in ("ep_1", "ep_2"):
            service.create(episode, phase="plan", progress={}, loop_count=0)
    world.clock.now = time.time()
    for episode in ("ep_1", "ep_2"):
        service.create(episode, phase="act", progress={}, loop_count=1)
    assert service.prune(max_age_days=7) == 4
    assert [len(service.of_episode(episode)) for episode in ("ep_1", "ep_2")] == [1, 1]


def recent_checkpoints_are_kept(world: World) -> None:
    """Prune."""
    service = world.service()
    service.create("ep_1", phase="plan", progress={}, loop_count=0)
    assert service.prune(max_age_days=7) == 0


def an_episode_is_pruned_by_number(world: World) -> None:
    """Prune."""
    service = world.service()
    made = [service.create("ep_1", phase="plan", progress={}, loop_count=n).id for n in range(15)]
    assert service.prune_episode("ep_1", max_count=10) == 5
    assert [one.id for one in service.of_episode("ep_1")] == made[:4:-1]


def taken(world: World, strategy: Any, *events: str, is_loop_end: bool = False, apart_s: float = 0) -> list[bool]:
    """Return at which of these events a checkpoint is taken."""
    manager, said = Manager(world.open(strategy)), []
    for event in events:
        said.append(bool(manager.maybe_checkpoint("ep_1", event, is_loop_end=is_loop_end)))
        world.clock.now += apart_s
    return said


def a_strategy_for_phases(world: World) -> None:
    """Strategy: all phases, or those that are named."""
    events = ("PLAN_COMPLETE", "ACT_COMPLETE", "OBSERVE_COMPLETE", "BUDGET_WARNING", "ACT")
    assert taken(world, OnPhaseComplete(), *events) == [True, True, True, False, False]
    assert taken(world, OnPhaseComplete("plan"), *events) == [True, False, False, False, False]


def a_strategy_for_loops(world: World) -> None:
    """Strategy."""
    assert taken(world, OnLoopComplete(), "OBSERVE_COMPLETE", is_loop_end=True) == [True]
    assert taken(world, OnLoopComplete(), "OBSERVE_COMPLETE") == [False]


def a_strategy_for_budget_warnings(world: World) -> None:
    """Strategy."""
    assert taken(world, OnBudgetWarning(), "BUDGET_WARNING", "PLAN_COMPLETE") == [True, False]


def a_strategy_for_an_interval(world: World) -> None:
    """Strategy: after 35 of 30 seconds it is due, after 10 it is not."""
    assert taken(world, Every(30), "ACT_COMPLETE", "ACT_COMPLETE", apart_s=35) == [True, True]
    assert taken(world, Every(30), "ACT_COMPLETE", "ACT_COMPLETE", apart_s=10) == [True, False]


def strategies_combine(world: World) -> None:
    """Strategy."""
    both = OnPhaseComplete() | OnBudgetWarning() | Every(60)
    assert taken(world, both, "PLAN_COMPLETE", "BUDGET_WARNING", "ACT", apart_s=1) == [True, True, False]
    assert taken(world, both, "PLAN_COMPLETE", "ACT", apart_s=65) == [True, True]


def a_manager_takes_what_the_strategy_allows(world: World) -> None:
    """Manager."""
    manager = Manager(world.open(OnPhaseComplete()))
    made = manager.maybe_checkpoint("ep_1", "PLAN_COMPLETE", progress={"step": 1}, loop_count=1)
    assert made.section("progress").loop_count == 1


def a_manager_leaves_out_what_the_strategy_denies(world: World) -> None:
    """Manager."""
    manager = Manager(world.open(OnLoopComplete()))
    assert manager.maybe_checkpoint("ep_1", "PLAN_COMPLETE", progress={}, loop_count=1) is None
    assert manager.history("ep_1") == []


def a_manager_knows_its_last_checkpoint(world: World) -> None:
    """Manager: and forgets it when it is reset."""
    manager = Manager(world.open(OnPhaseComplete()))
    assert manager.last_checkpoint_at is None
    made = manager.maybe_checkpoint("ep_1", "PLAN_COMPLETE")
    assert manager.last_checkpoint_at == made.created_at
    manager.reset()
    assert manager.last_checkpoint_at is None
    assert manager.history("ep_1")


def a_manager_restores_the_latest(world: World) -> None:
    """Manager: and cleans up all but it."""
    manager = Manager(world.open(OnPhaseComplete()))
    for count, event in enumerate(("PLAN_COMPLETE", "ACT_COMPLETE")):
        manager.maybe_checkpoint("ep_1", event, progress={"step": count}, loop_count=count)
    restored = manager.restore_latest("ep_1")
    assert restored is not None
    assert (restored["phase"], restored["progress"], restored["loop_count"]) == ("act", {"step": 1}, 1)
    assert manager.restore_latest("ep_2") is None
    assert manager.cleanup("ep_1") == 1


TESTS = (
    create_a_checkpoint_for_an_episode, complex_structures_are_stored, a_checkpoint_has_its_time, ids_are_unique,
    latest_is_the_newest, latest_of_none_is_none, latest_goes_by_order_not_by_clock,
    all_of_an_episode_newest_first, an_unknown_episode_has_none,
    restore_gives_the_data_of_an_id, restore_gives_structures_and_leaves_out_what_was_not_given,
    restore_of_none_is_none, one_checkpoint_is_deleted, all_of_an_episode_are_deleted,
    old_checkpoints_are_pruned_over_all_episodes, recent_checkpoints_are_kept, an_episode_is_pruned_by_number,
    a_strategy_for_phases, a_strategy_for_loops, a_strategy_for_budget_warnings, a_strategy_for_an_interval,
    strategies_combine,
    a_manager_takes_what_the_strategy_allows, a_manager_leaves_out_what_the_strategy_denies,
    a_manager_knows_its_last_checkpoint, a_manager_restores_the_latest,
)  # fmt: skip


# Its integration tests, schema and security list.


def an_episode_stops_and_continues_where_it_was(world: World) -> None:
    """Integration: a budget that is used up, an approval, a restart; each call is made once."""
    hf = world.open()
    calls: list[str] = []

    def episode() -> str:
        with hf.run("ep_1", waiting="leave") as run:
            run.budget.limit(tokens=100)
            for phase in ("perceive", "plan", "act"):
                run.step(phase, calls.append, phase)
                run.budget.spend(tokens=60, once=phase)
            return run.approve("Publish?").choice

    for kind in ("budget", "approval"):
        try:
            episode()
        except holdfast.RunWaiting as waiting:
            assert waiting.kind == kind
        if kind == "budget":
            assert calls == ["perceive", "plan"]
            hf.control.raise_budget("ep_1", {"tokens": 100})
    hf.control.answer("ep_1", "approve", by="ann")
    assert (episode(), calls) == ("approve", ["perceive", "plan", "act"])


def dashboards_read_episodes_with_sql(world: World) -> None:
    """Schema: phase, progress, loop count and budget are columns, and go with their checkpoint."""
    tenant = f"sql-{time.time_ns()}"
    service = Episodes(world.open(tenant=tenant))
    spent = {"tokens": {"used": 5000, "limit": 10000}}
    for step in range(3):
        made = service.create("ep_1", phase="act", progress={"step": step}, loop_count=step, budget=spent)
    query = """SELECT phase, loop_count, (progress ->> 'step')::int, (budget -> 'tokens' ->> 'used')::int
        FROM holdfast.episode WHERE episode = 'ep_1' ORDER BY seq DESC"""
    with psycopg.connect(world.url, autocommit=True) as database:
        database.execute("SELECT set_config('holdfast.tenant', %s, false)", (tenant,))
        assert database.execute(query).fetchall() == [("act", step, step, 5000) for step in (2, 1, 0)]
        service.delete(made.id)
        assert len(database.execute(query).fetchall()) == 2
        service.delete_episode("ep_1")
        assert database.execute(query).fetchall() == []
        database.execute("SELECT set_config('holdfast.tenant', 'another', false)")
        assert database.execute("SELECT count(*) FROM holdfast.episode").fetchone() == (0,)


def it_is_safe(world: World) -> None:
    """Security: no secrets, one tenant, damage is named, storage is bounded."""
    hf, canary = world.open(), "ghp_" + "a1B2" * 9
    Episodes(hf).create("ep_1", phase="plan", progress={"api_key": canary}, loop_count=0, notes={"text": canary})
    found = Episodes(hf).restore(hf.checkpoints("ep_1")[0].id)
    assert canary not in str(found)
    assert canary not in hf.checkpoints("ep_1")[0].summary.progress
    assert world.service().latest("ep_1") is None
    with Holdfast(hf.store, settings=Settings.preset("episode")).run("ep_2") as run:  # 10, and 7 days
        for step in range(40):
            run.checkpoint(progress={"loop_count": step})
    assert len(hf.checkpoints("ep_2", archived=True)) <= 10


ALL = (*TESTS, an_episode_stops_and_continues_where_it_was, dashboards_read_episodes_with_sql, it_is_safe)


def main(url: str) -> int:
    """Check everything against a database."""
    world = World(url)
    for check in ALL:
        check(world)
        print("ok", check.__name__.replace("_", " "))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
