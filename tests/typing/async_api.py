"""The asynchronous API as a type checker sees it in a user's program; checked by mypy, never run."""

from __future__ import annotations

from typing import assert_type

from holdfast import AsyncHoldfast, Checkpoint
from holdfast.aio import AsyncRun
from holdfast.model.checkpoint import RunRecord
from holdfast.model.runtime_sections import Reply
from holdfast.store.api import Listing


async def awaiting(hf: AsyncHoldfast, run: AsyncRun) -> None:
    assert_type(await AsyncHoldfast.open("memory:"), AsyncHoldfast)
    assert_type(await hf.run("r"), AsyncRun)
    assert_type(await hf.latest("r", required=True), Checkpoint)
    assert_type(await hf.runs(limit=5), Listing[RunRecord])
    assert_type(await run.checkpoint(state=1, label="x"), Checkpoint)
    assert_type(await run.approve("ship it?"), Reply)
    assert_type(run.head, Checkpoint | None)
    await run.complete("done")
    await hf.control.signal("r", "go")
    await hf.control.answer("r", "approve")
    await run.budget.spend(tokens=5)
    async with run.phase("plan"):
        await run.agents.call("writer", "begin")
    async with run.destructive("git_push"):
        pass


async def forgetting_to_await(hf: AsyncHoldfast, run: AsyncRun) -> None:
    hf.latest("r").section("state")  # type: ignore[attr-defined]
    str(run.checkpoint(state=1).id)  # type: ignore[attr-defined]
    run.agents.call("writer", "begin")  # type: ignore[unused-coroutine]
    hf.control.cancel("r")  # type: ignore[unused-coroutine]
    run.complete()  # type: ignore[unused-coroutine]


async def misspelling(hf: AsyncHoldfast, run: AsyncRun) -> None:
    await hf.lastest("r")  # type: ignore[attr-defined]
    await run.chekpoint(state=1)  # type: ignore[attr-defined]
    await run.agents.cal("writer", "begin")  # type: ignore[attr-defined]
    await hf.latest("r", sond=True)  # type: ignore[call-overload]
    await hf.prune("r", kep=3)  # type: ignore[call-arg]
    await run.wait_signal("go", untl=None)  # type: ignore[call-arg]
    await AsyncHoldfast.open("place", intervl_s=5, settings=3)  # type: ignore[arg-type]
    await hf.run("r", workspce=".")  # type: ignore[call-arg]
    await run.maybe_checkpoint("manual", reason=5)  # type: ignore[arg-type]
