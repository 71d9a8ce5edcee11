"""What a function of the user's asks for, read from its parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def wants_argument(call: Callable[..., Any]) -> bool:
    """Tell whether a function has a parameter that must be given; one with a default is the function's own."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(one.kind in _POSITIONAL and one.default is one.empty for one in parameters)
