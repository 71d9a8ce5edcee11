"""Steps: a function and its arguments as a call, identified by what goes into it."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from blake3 import blake3

from holdfast.errors import UsageError, ValueRefused
from holdfast.runtime.attempt import Retry, is_transient
from holdfast.runtime.calls import CallOptions, check_name, current_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.runtime.host import Host

_HIDDEN = (str, bytes, int, float, bool, type(None), tuple, frozenset)
"""Types of captured variables that count as inputs. Lists and dicts do not: programs collect results in them, so they
differ after a resume for reasons that are none of the step's."""


class Step(NamedTuple):
    """A step that is ready to be called."""

    work: Callable[[], Any]
    identity: dict[str, Any]


def prepared(
    host: Host,
    name: str,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    named: dict[str, Any],
    *,
    version: str = "",
    after: Sequence[str] = (),
    has_key: bool = False,
) -> Step:
    """Return a function with its arguments as a call; UsageError if it is not a function, or `after` is not a list.

    One that has a key (an effect) gives it to a function that asks for it.
    """
    check_name("step", name)
    if not callable(call):
        raise UsageError(f"step {name!r}: {call!r:.80} cannot be called: give a function, and its arguments after it")
    if isinstance(after, str):
        raise UsageError(f"step {name!r}: after={after!r} is one text: give a list, after=[{after!r}]")
    inputs, code = step_identity(host.pack, name, call, args, named)
    if version:
        inputs = f"{inputs}:{version}"
    seen = {path: host.calls.version(path) for path in after}
    work = partial(call, *args, **named)
    work = partial(_with_key, work) if has_key and takes_key(call) else work
    return Step(work, {"inputs": inputs, "code": code, "after": seen})


def _with_key(work: Callable[..., Any]) -> Any:
    """Call a function that asks for the call's key, the same in every attempt."""
    context = current_step()
    return work(idempotency_key=context.key) if context is not None and context.key else work()


def step_identity(
    pack: Callable[[Any, str], bytes], name: str, call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[str, str]:
    """Return a digest of a step's inputs, and which function it calls."""
    while isinstance(call, partial):
        args, named, call = (*call.args, *args), {**call.keywords, **named}, call.func
    digest = blake3()
    for key, value in (*enumerate(args), *sorted(named.items()), *_hidden(call)):
        try:
            packed = pack(value, name)
        except (ValueRefused, UsageError):  # it stands for all of its type
            packed = f"{type(value).__module__}.{type(value).__qualname__}".encode()
        digest.update(f"{key}:{len(packed)}:".encode() + packed)
    return digest.hexdigest(16), _code_of(call)


def _hidden(call: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function captured and that cannot change by themselves, and its defaults."""
    code, cells = getattr(call, "__code__", None), getattr(call, "__closure__", None) or ()
    for variable, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # it is set later
        if isinstance(value, _HIDDEN):
            yield f"captured {variable}", value
    for number, value in enumerate(getattr(call, "__defaults__", None) or ()):
        if isinstance(value, _HIDDEN):
            yield f"default {number}", value


def takes_key(call: Callable[..., Any]) -> bool:
    """Tell whether a function asks for the call's key by the name `idempotency_key`."""
    try:
        return "idempotency_key" in inspect.signature(call).parameters
    except (TypeError, ValueError):
        return False


def bare(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside partials."""
    while isinstance(call, partial):
        call = call.func
    return call


def _code_of(call: Callable[..., Any]) -> str:
    """Return which function it is, by name, for lists; it decides nothing."""
    function = bare(call)
    owner = function if hasattr(function, "__qualname__") else type(function)
    name = str(owner.__qualname__).rpartition("<locals>.")[2]
    return "<lambda>" if name.endswith("<lambda>") else name


def step_options(
    *,
    retries: int = 0,
    backoff: float = 1.0,
    retry_on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool] | None = None,
    effect: str | bool | None = None,
    **others: Any,
) -> CallOptions:
    """Return the options of a step as one value."""
    if isinstance(retry_on, (type, tuple)):
        kinds = retry_on
        retry_on = lambda error: isinstance(error, kinds)  # noqa: E731
    transient: Callable[[Exception], bool] = retry_on or is_transient
    what = "an outside effect" if effect is True else effect or None
    return CallOptions(retry=Retry(retries, backoff, transient=transient), effect=what, **others)
