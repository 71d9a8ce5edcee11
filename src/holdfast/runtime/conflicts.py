"""Conflicts between agents: a start, positions in rounds, a resolution; one under way continues where it stood.

Each position is saved as it comes, so no agent is asked twice for the same round.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import SectionInvalid, UsageError
from holdfast.model.nearest import hint
from holdfast.model.triggers import Trigger
from holdfast.runtime.coroutines import result_of
from holdfast.runtime.host import Alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.runtime.host import Host


class Position(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent held in one round."""

    agent: str
    round: int
    position: Any
    at: datetime


class ConflictRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One conflict as it is stored."""

    name: str
    agents: list[str]
    question: str = ""
    round: int = 1
    positions: list[Position] = []
    started_at: datetime
    resolution: Any = None
    resolved_by: str = ""
    resolved_at: datetime | None = None


class Conflicts:
    """The conflicts of a run, by name; they are stored with its messages."""

    def __init__(self, host: Host | None = None) -> None:
        self._host = host or Alone()
        self._records: dict[str, ConflictRecord] = {}
        self.changes = 0

    def snapshot(self) -> tuple[list[Any], list[Any]]:
        """Return the conflicts under way and those that are resolved, as plain data."""
        with self._host.lock:
            records = list(self._records.values())
        plain = [(record.resolved_at is None, _plain(record)) for record in records]
        return [one for is_open, one in plain if is_open], [one for is_open, one in plain if not is_open]

    def restore(self, running: list[Any], resolved: list[Any]) -> None:
        """Take them back."""
        try:
            records = msgspec.convert([*resolved, *running], list[ConflictRecord])
        except msgspec.ValidationError as error:
            raise SectionInvalid(str(error), "messages") from None
        with self._host.lock:
            self._records = {record.name: record for record in records}
            self.changes += 1

    def start(self, name: str, agents: Iterable[str], question: str = "") -> Conflict:
        """Begin a conflict and save; one of this name that was begun in an earlier process is returned as it stood."""
        names = list(dict.fromkeys(agents))
        if isinstance(agents, str) or not names:
            raise UsageError(f"conflict {name!r}: name the agents in a list")
        with self._host.lock:
            is_new = name not in self._records
            if is_new:
                self._put(ConflictRecord(name=name, agents=names, question=question, started_at=self._host.now()))
        if is_new:
            self._host.save(Trigger.CONFLICT_START, f"conflict {name}: {', '.join(names)}")
        return Conflict(self._host, self, name)

    def get(self, name: str) -> Conflict:
        """Return a conflict that was begun."""
        self.record(name)
        return Conflict(self._host, self, name)

    def __contains__(self, name: object) -> bool:
        with self._host.lock:
            return name in self._records

    @property
    def running(self) -> list[str]:
        """The names of conflicts that are not resolved."""
        with self._host.lock:
            return [name for name, record in self._records.items() if record.resolved_at is None]

    def record(self, name: str) -> ConflictRecord:
        """Return how a conflict stands."""
        with self._host.lock:
            if name not in self._records:
                raise UsageError(f"there is no conflict {name!r}: {hint(name, self._records)}")
            return self._records[name]

    def _put(self, record: ConflictRecord) -> None:
        self._records[record.name] = record
        self.changes += 1

    def change(self, name: str, **fields: Any) -> None:
        """Change fields of a conflict that is under way."""
        with self._host.lock:
            record = self.record(name)
            if record.resolved_at is not None:
                raise UsageError(f"conflict {name!r} is resolved: start another one")
            self._put(msgspec.structs.replace(record, **fields))


class Conflict:
    """One conflict: who holds what, in which round, and how it ended."""

    def __init__(self, host: Host, conflicts: Conflicts, name: str) -> None:
        self._host = host
        self._conflicts = conflicts
        self.name = name

    @property
    def record(self) -> ConflictRecord:
        """How it stands."""
        return self._conflicts.record(self.name)

    @property
    def round(self) -> int:
        """The round under way; the first is 1."""
        return self.record.round

    @property
    def positions(self) -> dict[str, Any]:
        """What each agent said last."""
        return {position.agent: position.position for position in self.record.positions}

    @property
    def to_speak(self) -> list[str]:
        """Who has not spoken in this round."""
        record = self.record
        spoken = {position.agent for position in record.positions if position.round == record.round}
        return [agent for agent in record.agents if agent not in spoken]

    @property
    def is_resolved(self) -> bool:
        """Whether it is settled."""
        return self.record.resolved_at is not None

    @property
    def resolution(self) -> Any:
        """How it was settled, None while it is not."""
        return self.record.resolution

    def position(self, agent: str, position: Any) -> None:
        """Take down what an agent holds in this round, and save; UsageError if it has spoken in it."""
        with self._host.lock:
            record = self.record
            if agent not in record.agents:
                raise UsageError(f"{agent!r} has no part in conflict {self.name!r}: {hint(agent, record.agents)}")
            if agent not in self.to_speak:
                raise UsageError(f"{agent!r} has spoken in round {record.round} already: call next_round() first")
            said = self._host.keep(position, f"the position of {agent!r} in conflict {self.name!r}")
            spoken = Position(agent=agent, round=record.round, position=said, at=self._host.now())
            self._conflicts.change(self.name, positions=[*record.positions, spoken])
        self._host.save(Trigger.STEP_COMPLETE, f"conflict {self.name}: {agent} in round {record.round}")

    def next_round(self) -> int:
        """Begin another round and return its number; it is stored with the first position in it."""
        with self._host.lock:
            self._conflicts.change(self.name, round=self.record.round + 1)
            return self.record.round

    def resolve(self, resolution: Any, *, by: str = "") -> None:
        """Settle it and save; a conflict that is settled stays as it was settled."""
        with self._host.lock:
            if self.is_resolved:
                return
            settled = self._host.keep(resolution, f"the resolution of conflict {self.name!r}")
            self._conflicts.change(self.name, resolution=settled, resolved_by=by, resolved_at=self._host.now())
        self._host.save(Trigger.CONFLICT_RESOLVED, f"conflict {self.name} resolved" + (f" by {by}" if by else ""))

    def debate(
        self,
        speak: Callable[[str, Conflict], Any],
        settle: Callable[[Conflict], Any],
        *,
        max_rounds: int = 5,
        by: str = "",
    ) -> Any:
        """Let everybody speak in turn until `settle` returns a resolution, and return that; None if rounds run out.

        What was said before a crash is not asked for again.
        """
        while not self.is_resolved:
            for agent in self.to_speak:
                self.position(agent, result_of(speak(agent, self), "what speaks in a conflict"))
            resolution = result_of(settle(self), "what settles a conflict")
            if resolution is not None:
                self.resolve(resolution, by=by)
            elif self.round >= max_rounds:
                return None
            else:
                self.next_round()
        return self.resolution


def _plain(record: ConflictRecord) -> dict[str, Any]:
    positions = [msgspec.structs.asdict(position) for position in record.positions]
    return msgspec.structs.asdict(record) | {"positions": positions}
