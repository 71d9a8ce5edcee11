"""Several calls at once on threads, all of them let to settle."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import UsageError
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.threads import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


def run_parallel(calls: Mapping[str, Callable[[], T]], *, limit: int) -> dict[str, T]:
    """Return the results by name; what failed is raised when all have settled, alone or as an ExceptionGroup."""
    if not isinstance(limit, int) or limit < 1:
        raise UsageError(f"limit={limit!r}: give a number from 1 up")
    results: dict[str, T] = {}
    errors: list[Exception] = []

    def settle(name: str, call: Callable[[], T]) -> None:
        try:
            results[name] = call()
        except Exception as error:
            if is_interruption(error):
                raise  # no more are begun: the run is to be left
            errors.append(error)

    run_in_threads([lambda name=name, call=call: settle(name, call) for name, call in calls.items()], limit, "parallel")  # type: ignore[misc]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(calls)} parallel steps failed", errors)
    return {name: results[name] for name in calls}
