"""One gate: a command or a function that says whether the work is sound, and what it said."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import UsageError
from holdfast.model.failure import failure_of
from holdfast.model.sections import GateResult
from holdfast.runtime.command import Command, CommandResult
from holdfast.runtime.coroutines import result_of
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.signature import wants_argument

if TYPE_CHECKING:
    from holdfast.runtime.host import Host

_LONGEST_TEXT = 20_000
Work = Callable[..., Any] | Command


class Gate(NamedTuple):
    """A check with its place in the row; `when` says whether it is to be made at all."""

    check: Any
    description: str = ""
    level: int | None = None
    when: Callable[[], bool] | None = None

    @property
    def command(self) -> str | None:
        """What is run, where the check is a command."""
        return str(self.check) if isinstance(self.check, Command) else None

    def gave(self, result: GateResult) -> bool:
        """Tell whether a result is of this gate."""
        return (self.level, self.description) == (result.level, result.description)


class GateFailure(NamedTuple):
    """What a fix is given: the failed gate, and which try this is."""

    task: str
    gate: GateResult
    attempt: int
    max_fixes: int

    def __str__(self) -> str:
        """Return what a prompt needs: the gate, how it ended, and the end of what it wrote."""
        gate = self.gate
        ended = f" (exit code {gate.exit_code})" if gate.exit_code is not None else ""
        said = "\n".join(text.strip()[-_LONGEST_TEXT:] for text in (gate.stdout, gate.stderr) if text.strip())
        return f"{gate.command or gate.description} failed{ended}" + (f":\n{said}" if said else "")


def as_gate(given: Any, level: int) -> Gate:
    """Return a gate, a check by itself with what it is called; UsageError if it is neither."""
    gate = given if isinstance(given, Gate) else Gate(given)
    gate = gate._replace(check=as_work(gate.check, f"gate {level}"))
    name = gate.description or gate.command or getattr(gate.check, "__name__", None) or f"gate {level}"
    return gate._replace(description=name, level=level if gate.level is None else gate.level)


def as_work(given: Any, what: str) -> Work:
    """Return a function or command as it is, a line for the shell as a command."""
    if isinstance(given, str):
        return Command(given)
    if not isinstance(given, Command) and not callable(given):
        raise UsageError(f"{what}: {given!r:.80} can be neither run nor called: give a Command or a function")
    return given  # type: ignore[no-any-return]


def bound(work: Work, host: Host, argument: Any = None) -> Callable[[], Any]:
    """Return the call of a function or command; a command reads the argument from its standard input."""
    if isinstance(work, Command):
        return partial(work.run, host=host, stdin=None if argument is None else str(argument))
    call = partial(work, argument) if wants_argument(work) else work
    return lambda: result_of(call(), getattr(work, "__name__", "a function"))


def run_gate(gate: Gate, host: Host) -> GateResult:
    """Make a check and return what it said; what it raises is a failure, unless the run is to be left."""
    assert gate.level is not None
    blank = GateResult(level=gate.level, description=gate.description, success=True, command=gate.command)
    if gate.when is not None and not gate.when():
        return msgspec.structs.replace(blank, skipped=True)
    started = host.monotonic()
    try:
        said = bound(gate.check, host)()
    except Exception as error:
        if is_interruption(error):
            raise
        failure = failure_of(error)
        said = msgspec.structs.replace(blank, success=False, stderr=failure.stack or failure.message)
    return _result(blank, said, host.monotonic() - started)


def _result(blank: GateResult, said: Any, duration_s: float) -> GateResult:
    if isinstance(said, GateResult):
        place = {"level": blank.level, "description": blank.description, "command": blank.command or said.command}
        return msgspec.structs.replace(said, **place, duration_s=said.duration_s or duration_s)
    if isinstance(said, bool):
        return msgspec.structs.replace(blank, success=said, duration_s=duration_s)
    if isinstance(said, str):
        return msgspec.structs.replace(blank, success=not said, stderr=said, duration_s=duration_s)
    if not isinstance(said, CommandResult):
        raise UsageError(
            f"gate {blank.level} ({blank.description}) returned {said!r:.80}: return True or False, a text that says "
            "what is wrong ('' for nothing), or a GateResult"
        )
    return msgspec.structs.replace(
        blank,
        success=said.succeeded,
        exit_code=said.exit_code,
        stdout=said.stdout,
        stderr="\n".join(filter(None, (said.stderr, said.problem if said.timed_out or said.stopped else ""))),
        duration_s=said.duration_s,
    )
