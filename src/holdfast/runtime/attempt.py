"""Trying again: transient errors are retried with growing pauses, or when the other side says."""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.errors import HoldfastError, StepTimeout, UsageError
from holdfast.lazy import lazily
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.wait_limit import watch_for

with lazily():
    from email import utils

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.runtime.host import Host

T = TypeVar("T")

_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_TRANSIENT_NAMES = frozenset(
    {
        "RateLimitError",
        "APITimeoutError",
        "APIConnectionError",
        "InternalServerError",
        "ServiceUnavailableError",
        "OverloadedError",
        "ReadTimeout",
        "ConnectTimeout",
        "ConnectError",
        "ReadError",
        "RemoteProtocolError",
    }
)  # fmt: skip - by name, because no client library is imported for this


def is_transient(error: Exception) -> bool:
    """Tell whether an error may be gone next time: timeouts, connections, rate limits, servers in trouble."""
    if isinstance(error, HoldfastError):
        return error.retryable
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    if _status(error) in _TRANSIENT_STATUS:
        return True
    return any(cls.__name__ in _TRANSIENT_NAMES for cls in type(error).__mro__)


def _status(error: Exception) -> int | None:
    response = getattr(error, "response", None)
    for holder, name in ((error, "status_code"), (error, "status"), (response, "status_code"), (response, "status")):
        status = getattr(holder, name, None)
        if isinstance(status, int):
            return status
    return None


def retry_after_s(error: Exception, now: datetime) -> float | None:
    """Return how long the other side asks to wait, None if it does not say."""
    given = getattr(error, "retry_after", None)
    if given is None:
        headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None) or {}
        try:
            given = headers.get("retry-after") or headers.get("Retry-After")
        except AttributeError:
            return None
    if given is None:
        return None
    try:
        return max(0.0, float(given))
    except (TypeError, ValueError):
        pass
    try:
        return max(0.0, (utils.parsedate_to_datetime(str(given)) - now).total_seconds())
    except (TypeError, ValueError):
        return None


class Retry(NamedTuple):
    """How often and how patiently a call is tried again."""

    retries: int = 0
    backoff_s: float = 1.0
    factor: float = 2.0
    longest_s: float = 60.0
    transient: Callable[[Exception], bool] = is_transient

    def pause_s(self, attempt: int, error: Exception, now: datetime) -> float | None:
        """Return how long to wait after this failed attempt (the first is 1), None if it was the last one."""
        if attempt > self.retries or is_interruption(error) or not self.transient(error):
            return None
        asked = retry_after_s(error, now)
        return asked if asked is not None else min(self.longest_s, self.backoff_s * self.factor ** (attempt - 1))


def check_retry(retry: Retry, timeout_s: float | None) -> None:
    """Raise UsageError unless these can be followed."""
    if not isinstance(retry.retries, int) or retry.retries < 0:
        raise UsageError(f"retries={retry.retries!r}: give a number from 0 up")
    if not retry.backoff_s >= 0:
        raise UsageError(f"backoff={retry.backoff_s!r}: give seconds from 0 up")
    if timeout_s is not None and not timeout_s > 0:
        raise UsageError(f"timeout_s={timeout_s!r}: give seconds, more than 0")


def attempt(
    call: Callable[[], T],
    retry: Retry,
    host: Host,
    *,
    timeout_s: float | None = None,
    name: str = "",
    failed: Callable[[int, Exception, float | None], None] | None = None,
) -> T:
    """Call, and again while the error is transient and retries are left; raise the last error.

    `failed` hears of each failure with the pause before the next try, None if there is none. A call that takes longer
    than `timeout_s` is left behind on its thread, and what it returns is not used.
    """
    number = 0
    while True:
        number += 1
        try:
            return call() if timeout_s is None else within(call, timeout_s, name)
        except Exception as error:
            pause = retry.pause_s(number, error, host.now())
            if failed is not None:
                failed(number, error, pause)
            if pause is None:
                raise
        host.sleep(pause)


def within(call: Callable[[], T], timeout_s: float, name: str) -> T:
    """Return what a call returns, StepTimeout if that takes too long; the thread is then left to itself.

    What it awaits on another's loop is cancelled then.
    """
    outcome: list[Any] = []
    context, gone = contextvars.copy_context(), threading.Event()
    context.run(watch_for, gone)

    def work() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            outcome.append((False, error))

    thread = threading.Thread(target=context.run, args=(work,), name=f"holdfast-step-{name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not outcome:
        gone.set()
        raise StepTimeout(name, timeout_s)
    is_result, value = outcome[0]
    if is_result:
        return value  # type: ignore[no-any-return]
    raise value
