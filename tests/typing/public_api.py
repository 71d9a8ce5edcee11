"""The API as a type checker sees it in a user's program; checked by mypy, never run."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

import holdfast
from holdfast import Checkpoint, Holdfast, HoldfastError, IntegrityError, Run, Trigger, TypeRegistry
from holdfast.model.checkpoint import RunRecord, Summary
from holdfast.model.recovery import RecoveryInfo
from holdfast.model.sections import Agent, Workflow
from holdfast.retain.prune import Pruned
from holdfast.store.api import Listing, StoreStats
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.store import Store  # noqa: TC001 - what a type checker is asked about
from holdfast.verify.check import Fault, Report


class Mine:
    """A class of the user's."""


def opening() -> None:
    assert_type(holdfast.open(), Holdfast)
    assert_type(holdfast.open("sqlite:///x.db", durability="process"), Holdfast)
    assert_type(holdfast.open(Path("x"), types=[Mine], compression="gzip", enabled=False), Holdfast)
    assert_type(holdfast.open(types=TypeRegistry([Mine])), Holdfast)
    with holdfast.open("memory:") as hf:
        assert_type(hf, Holdfast)
    holdfast.open(5)  # type: ignore[arg-type]
    holdfast.open(compression="brotli")  # type: ignore[arg-type]


def taking(hf: Holdfast) -> None:
    run = hf.run("issue-42")
    assert_type(run, Run)
    assert_type(run.id, str)
    assert_type(run.head, Checkpoint | None)
    cp = run.checkpoint(trigger="manual", reason="before refactor", state={"messages": [1]})
    assert_type(cp, Checkpoint)
    assert_type(run.checkpoint(trigger=Trigger.MANUAL, label="x", pinned=True, drop=["state"]), Checkpoint)
    run.checkpoint(workflow=Workflow(current_state="BUILD"), agents=[Agent(id="a", status="running")])
    run.checkpoint(sections={"mine": object()})
    run.checkpoint("manual")  # type: ignore[call-arg]
    run.checkpoint(reason=5)  # type: ignore[arg-type]
    Agent(id="a", status="asleep")  # type: ignore[arg-type]


def reading(hf: Holdfast, cp: Checkpoint) -> None:
    assert_type(hf.get(cp.id), Checkpoint)
    assert_type(hf.latest("r"), Checkpoint | None)
    assert_type(hf.latest("r", required=True), Checkpoint)
    assert_type(hf.latest("r", required=True, sound=True).skipped, tuple[IntegrityError, ...])
    assert_type(hf.checkpoints("r", limit=50), Listing[Checkpoint])
    assert_type(hf.checkpoints("r")[0], Checkpoint)
    assert_type(hf.checkpoints("r").damaged, tuple[IntegrityError, ...])
    assert_type(hf.runs(), Listing[RunRecord])
    assert_type(hf.has("r"), bool)
    assert_type(cp.section("state"), Any)
    assert_type(cp.created_at, datetime)
    assert_type(cp.seq, int)
    assert_type(cp.parent, str | None)
    assert_type(cp.label, str | None)
    assert_type(cp.pinned, bool)
    assert_type(cp.saved, bool)
    assert_type(cp.sections, tuple[str, ...])
    assert_type(cp.recovery, RecoveryInfo)
    assert_type(cp.recovery.blockers, tuple[str, ...])
    assert_type(cp.summary, Summary)
    assert_type(cp.checksum, str)
    cp.id = "another"  # type: ignore[misc]
    cp.recovery.can_resume = True  # type: ignore[misc]
    hf.checkpoints("r", 50)  # type: ignore[call-arg]


def keeping(hf: Holdfast, cp: Checkpoint) -> None:
    assert_type(hf.mark(cp.id, status="archived", pinned=True, label="x"), Checkpoint)
    assert_type(hf.prune("r", keep=5, older_than=timedelta(days=7), dry_run=True), Pruned)
    assert_type(hf.verify(), Report)
    assert_type(hf.verify().faults, tuple[Fault, ...])
    assert_type(hf.verify().sound, bool)
    assert_type(hf.verify(cp), Report)
    assert_type(hf.stats(), StoreStats)
    hf.delete(cp.id, cp.id, missing_ok=True)
    hf.delete_run("r")
    hf.close()
    hf.mark(cp.id, status="lost")  # type: ignore[arg-type]


def stores() -> None:
    both: list[Store] = [MemoryStore(), SQLiteStore("x.db")]
    for store in both:
        assert_type(Holdfast(store), Holdfast)


def errors(error: HoldfastError) -> None:
    assert_type(error.exit_code, int)
    assert_type(error.retryable, bool)
    assert_type(error.sentence(), str)
    try:
        raise error
    except holdfast.HeadMoved as moved:
        assert_type(moved.expected, str | None)
        assert_type(moved.run, str)
    except holdfast.ValueRefused as refused:
        assert_type(refused.path, str)
    except holdfast.ChunkCorrupt as corrupt:
        assert_type(corrupt.section, str | None)


def types() -> None:
    registry = TypeRegistry([Mine])
    registry.register(Mine, name="mine", take_apart=str, put_together=lambda _: Mine())
    assert_type(holdfast.__version__, str)
