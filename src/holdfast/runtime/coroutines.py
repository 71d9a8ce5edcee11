"""Asynchronous functions that parts are given: awaited on the loop of who awaits the part, or on one of their own."""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from typing import Any

from holdfast.errors import UsageError
from holdfast.lazy import lazily
from holdfast.runtime.wait_limit import at_most_s, is_given_up

with lazily():  # a fifth of what a process without coroutines loads
    import asyncio
    from concurrent import futures

_LOOK_EVERY_S = 60.0
_home: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("holdfast_home_loop", default=None)


def call_home(loop: asyncio.AbstractEventLoop) -> None:
    """Let asynchronous functions that are called in this context, on threads, run on a loop."""
    _home.set(loop)


def result_of(returned: Any, what: str) -> Any:
    """Return a value as it is, and of something awaitable what it comes to.

    Whoever gives up waiting cancels it. UsageError on a thread whose loop would stand still meanwhile.
    """
    if not inspect.isawaitable(returned):
        return returned
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop = _home.get()
    else:
        if inspect.iscoroutine(returned):
            returned.close()
        raise UsageError(f"{what} is asynchronous, and so is its caller: await it on a run of an AsyncHoldfast")
    if loop is None:
        return asyncio.run(_awaited(returned))
    return _settled(asyncio.run_coroutine_threadsafe(_awaited(returned), loop))


async def _awaited(returned: Any) -> Any:
    return await returned


def _settled(future: futures.Future[Any]) -> Any:
    while not future.done():
        futures.wait([future], at_most_s(_LOOK_EVERY_S))
        if is_given_up():
            future.cancel()
    if future.cancelled():
        raise asyncio.CancelledError
    return future.result()
