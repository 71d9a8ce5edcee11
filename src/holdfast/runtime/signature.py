"""What a function of the user's asks for, read from its parameters."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def wants_argument(call: Callable[..., Any]) -> bool:
    """Tell whether a function has a parameter that must be given; one with a default is the function's own."""
    method = type(call).__call__
    if not inspect.isfunction(method):
        return _asks(call) > 0
    return _asks_once(method) > 1  # an object of a class of the user's: the first is the object itself


def _asks(call: Callable[..., Any]) -> int:
    """Count the parameters that must be given."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return 0
    return sum(one.kind in _POSITIONAL and one.default is one.empty for one in parameters)


_asks_once = lru_cache(maxsize=256)(_asks)  # of a class, because a graph may have thousands of its objects
