"""Call records: what the journal says of one piece of work, by its path: started, asked, done, failed, skipped, ...

The newest record of a path counts. A view of them (`call_lines`) is what lists, plans and replays read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.errors import IntegrityError
from holdfast.journal.entry import body_of
from holdfast.journal.outcomes import resolved

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from holdfast.journal.outcomes import LookUp
    from holdfast.store.store import Store
    from holdfast.store.tables import Record


class CallPacker(Protocol):
    """Packs the values of calls and takes them apart: a packer, or the run."""

    def pack(self, value: Any, where: str, /) -> bytes:
        """Return a value's bytes."""

    def unpack(self, data: bytes, where: str, /) -> Any:
        """Return a packed value."""


CALL_EVENTS = frozenset({"started", "asked", "progress", "done", "failed", "skipped", "withdrawn", "voided"})
_PREFIX = "call:"
_NO_WORK = frozenset({"question", "timer", "phase", "decision"})


class CallRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One record of a call; values that a caller gave are packed."""

    kind: str
    """What it is: step, agent, gate, fix, task, phase, replan, question, timer, decision."""
    at: float
    identity: str
    """A digest of its definition, its inputs and the call around it: of another identity, it is other work."""
    input: str = ""
    code: str = ""
    version: str = ""
    """Another one whenever its result, or the files it wrote, may be others than before."""
    seen: dict[str, str] = {}
    """The version of each call that it depends on."""
    key: str = ""
    phase: str | None = None
    effect: str | None = None
    on_unknown: str | None = None
    attempts: int = 0
    duration_s: float = 0.0
    result: bytes | None = None
    error: bytes | None = None
    spent: dict[str, int | float] = {}
    """What it was charged, without the calls inside it: tokens, money, tool calls."""
    refers: bool = False
    """Whether parts of its result are those of calls inside it, and stand in their records."""
    again: str = ""
    """What made it due again, whatever came of it: what is called inside it from then on is other work."""
    last_end: str = ""
    """Of a start, progress or a failure: what tells the last result before it from others."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CallRecord).decode


def stored_path(path: str) -> str:
    """Return the path under which the journal has a call's records."""
    return _PREFIX + path


def is_call(record: Record) -> bool:
    """Tell whether a record is of a call."""
    return record.kind in CALL_EVENTS and record.path.startswith(_PREFIX)


def container_path(name: str) -> str:
    """Return the path of a container: like a folder's, so that a call of the same name beside it is another one."""
    return f"{name}/"


def is_work(line: Mapping[str, Any]) -> bool:
    """Tell whether a call did something by itself: to wait or to decide is not to work, and a phase is its calls."""
    return line.get("kind") not in _NO_WORK


def is_inside(path: str, others: Container[str]) -> bool:
    """Tell whether a call was made inside one of these."""
    return any(path[:at] in others for at, sign in enumerate(path) if sign == "/")


def encode_call(record: CallRecord) -> bytes:
    """Return the body of a record."""
    return _encode(record)


def decode_call(body: bytes, path: str) -> CallRecord:
    """Return a record of its body; IntegrityError names the call if it cannot be read."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(f"the record of call {path!r} cannot be decoded ({error})") from error


def call_line(
    event: str, path: str, call: CallRecord, packer: CallPacker, look_up: LookUp | None = None
) -> dict[str, Any]:
    """Return a record as plain data, as lists, plans and replays read it; `look_up` finds results it refers to."""
    given = {
        "kind": call.kind,
        "idempotency": call.key,
        "effect": call.effect,
        "phase": call.phase,
        "on_unknown": call.on_unknown,
        "attempts": call.attempts,
        "seen": call.seen,
        "version": call.version,
        "spent": call.spent,
        "again": call.again,
        "last_end": call.last_end,
    }
    line: dict[str, Any] = {
        "step": path,
        "at": datetime.fromtimestamp(call.at, UTC),
        "event": event,
        "input": call.input,
        "code": call.code,
        "identity": call.identity,
        **{name: value for name, value in given.items() if value},
    }
    if event in ("done", "failed"):
        line["duration_s"] = call.duration_s
    if call.result is not None:
        line["result"] = result_of(call, path, packer, look_up)
    if call.error is not None:
        line["error"] = packer.unpack(call.error, f"call {path}")
    return line


def result_of(call: CallRecord, path: str, packer: CallPacker, look_up: LookUp | None) -> Any:
    """Return the result that a record keeps, with those of other calls that it refers to."""
    if call.result is None:
        return None
    result = packer.unpack(call.result, f"call {path}")
    return resolved(result, look_up) if call.refers and look_up is not None else result


def call_lines(
    records: Iterable[Record], store: Store, packer: CallPacker, look_up: LookUp | None = None
) -> list[dict[str, Any]]:
    """Return those of these records that are of calls as plain data, in their order."""
    found = []
    for record in records:
        if is_call(record):
            path = record.path.removeprefix(_PREFIX)
            found.append(call_line(record.kind, path, decode_call(body_of(record, store), path), packer, look_up))
    return found


def call_of_line(line: Mapping[str, Any], packer: CallPacker) -> tuple[str, str, bytes]:
    """Return a line of plain data as a record: kind, path and body; ValueRefused if it holds what cannot be stored."""
    path = str(line["step"])
    call = CallRecord(
        kind=str(line.get("kind", "step")),
        at=line["at"].timestamp(),
        identity=str(line.get("identity", "")),
        input=str(line.get("input", "")),
        code=str(line.get("code", "")),
        version=str(line.get("version", "")),
        seen=dict(line.get("seen", {})),
        key=str(line.get("idempotency", "")),
        phase=line.get("phase"),
        effect=line.get("effect"),
        on_unknown=line.get("on_unknown"),
        attempts=int(line.get("attempts", 0)),
        duration_s=float(line.get("duration_s", 0.0)),
        spent=dict(line.get("spent", {})),
        again=str(line.get("again", "")),
        last_end=str(line.get("last_end", "")),
        result=packer.pack(line["result"], f"call {path}") if "result" in line else None,
        error=packer.pack(line["error"], f"call {path}") if "error" in line else None,
    )
    return str(line["event"]), stored_path(path), encode_call(call)
