"""Events: what an assistant writes to standard input, read by its dialect."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from holdfast.hook.dialects import CLAUDE, CODEX, DIALECTS, Dialect, DialectRule, Path

MAX_BYTES = 64 * 1024 * 1024
_LONGEST_NAME = 100


class EventInvalid(ValueError):
    """What was read is not an event of an assistant."""


class HookEvent(NamedTuple):
    """One event; `rule` is None for an event that causes nothing."""

    dialect: Dialect
    name: str
    session: str
    cwd: str
    rule: DialectRule | None
    prompt: str = ""
    command: str = ""
    transcript: str = ""
    agent: str = ""
    agent_transcript: str = ""
    source: str = ""

    @property
    def run(self) -> str:
        """The run of the session."""
        return run_of(self.dialect.name, self.session)


def read_event(data: bytes, named: str | None = None) -> HookEvent:
    """Return the event that bytes hold, of the assistant that is named; EventInvalid says what is wrong with them."""
    if len(data) > MAX_BYTES:
        raise EventInvalid(f"the event has {len(data):,} bytes; at most {MAX_BYTES:,} are read")
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise EventInvalid(f"standard input is not JSON ({error!s:.200})") from None
    if not isinstance(given, dict):
        raise EventInvalid("standard input is not a JSON object")
    return event_of(given, named)


def event_of(given: dict[str, Any], named: str | None = None) -> HookEvent:
    """Return the event in an object."""
    dialect = DIALECTS[named] if named is not None else _recognised(given)
    name, session, cwd = (_text(given, way) for way in (dialect.event, dialect.session, dialect.cwd))
    if not name or not session:
        missing = dialect.event if not name else dialect.session
        raise EventInvalid(f"the event has no {missing[0]!r}, as events of {dialect.title} have")
    rule = dialect.events.get(name)
    if rule is not None and rule.do == "destructive" and dialect.shells:
        rule = rule if _text(given, dialect.tool) in dialect.shells else None
    return HookEvent(
        dialect,
        name[:_LONGEST_NAME],
        session,
        cwd,
        rule,
        prompt=_text(given, dialect.prompt),
        command=_command(given, dialect.command),
        transcript=_text(given, dialect.transcript),
        agent=_text(given, dialect.agent),
        agent_transcript=_text(given, dialect.agent_transcript),
        source=_text(given, ("source",)),
    )


def run_of(assistant: str, session: str) -> str:
    """Return the run of a session: named after it where its id is a plain one, else after its digest."""
    if session.isascii() and 0 < len(session) <= 128 and session.replace("-", "").replace("_", "").isalnum():  # noqa: PLR2004
        return f"{assistant}-{session}"
    from hashlib import blake2b  # noqa: PLC0415 - few sessions have such a name, and loading it takes 2 ms

    return f"{assistant}-{blake2b(session.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


def _recognised(given: dict[str, Any]) -> Dialect:
    for dialect in DIALECTS.values():
        if any(mark in given for mark in dialect.marks):
            return dialect
    return CODEX if "/.codex/" in _text(given, CODEX.transcript) else CLAUDE


def _found(given: Any, way: Path) -> Any:
    for step in way:
        if isinstance(given, dict) and isinstance(step, str):
            given = given.get(step)
        elif isinstance(given, list) and isinstance(step, int) and step < len(given):
            given = given[step]
        else:
            return None
    return given


def _text(given: Any, way: Path) -> str:
    found = _found(given, way)
    return found if isinstance(found, str) else ""


def _command(given: Any, way: Path) -> str:
    """Return a shell command, also one that is given as its words."""
    found = _found(given, way)
    if isinstance(found, list):
        return " ".join(word for word in found if isinstance(word, str))
    return found if isinstance(found, str) else ""
