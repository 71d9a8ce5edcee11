"""Repetition of calls whose transaction was rolled back: nothing of them was written, so they are made again."""

from __future__ import annotations

import time
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.medium import RolledBack

if TYPE_CHECKING:
    from collections.abc import Callable

_Call = TypeVar("_Call", bound="Callable[..., Any]")
_Class = TypeVar("_Class", bound=type)
MOST_TURNS = 50


def repeated(call: _Call) -> _Call:
    """Repeat a call whose transaction was rolled back without a fault of its own; StoreUnavailable if it stays so."""

    @wraps(call)
    def repeat(*given: Any, **named: Any) -> Any:
        for turn in range(MOST_TURNS):
            try:
                return call(*given, **named)
            except RolledBack as error:
                last = error
                time.sleep(min(0.1, 0.005 * turn))
        raise StoreUnavailable(last.store, last.detail) from last

    return repeat  # type: ignore[return-value]


def repeats(*, but: str = "") -> Callable[[_Class], _Class]:
    """Let every public method of a class repeat itself, but for those that yield, and for one that does so itself."""

    def decorate(owner: _Class) -> _Class:
        for name, method in list(vars(owner).items()):
            if isfunction(method) and not isgeneratorfunction(method) and name[0] != "_" and name != but:
                setattr(owner, name, repeated(method))
        return owner

    return decorate
