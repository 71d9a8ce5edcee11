"""Who works on a run: members with role, status, and the tasks that each has done and has before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.sections import typed
from holdfast.errors import UsageError
from holdfast.model.sections import Member
from holdfast.model.sections import Team as TeamSection
from holdfast.runtime.host import Alone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.runtime.host import Host

IDLE, WORKING = "idle", "working"


class Team:
    """The team of a run, as a live section; a member that is idle works when it gets a task, and the reverse."""

    gives_typed = True

    def __init__(
        self,
        host: Host | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the field's name
        members: Mapping[str, str] | None = None,
    ) -> None:
        """Begin with these members and their roles; the team's id is the run's unless given."""
        self._host: Host = host or Alone()
        self._id = id or self._host.id
        self._members: dict[str, Member] = {}
        self.changes = 0
        for agent, role in (members or {}).items():
            self.add(agent, role)

    @property
    def id(self) -> str:
        """The team's id."""
        return self._id

    def rename(self, id: str) -> None:  # noqa: A002 - the field's name
        """Give the team another id."""
        with self._host.lock:
            if id != self._id:
                self._id = id
                self.changes += 1

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, in the order they joined."""
        return tuple(self._members.values())

    def __contains__(self, agent: object) -> bool:
        return agent in self._members

    def __getitem__(self, agent: str) -> Member:
        """Return a member; UsageError names those that there are."""
        try:
            return self._members[agent]
        except KeyError:
            there = ", ".join(self._members) or "nobody yet"
            raise UsageError(f"{agent!r} is not a member of team {self._id!r} ({there}): add it first") from None

    def add(self, agent: str, role: str, *, status: str = IDLE) -> Member:
        """Take a member in; one that is there keeps its tasks and gets the role."""
        with self._host.lock:
            known = self._members.get(agent)
            if known is None:
                return self._put(Member(agent=agent, role=role, status=status))
            return known if known.role == role else self._put(msgspec.structs.replace(known, role=role))

    def remove(self, agent: str) -> Member:
        """Let a member go and return it; its pending tasks are nobody's until they are assigned again."""
        with self._host.lock:
            member = self[agent]
            del self._members[agent]
            self.changes += 1
            return member

    def status(self, agent: str, status: str) -> Member:
        """Set a member's status."""
        with self._host.lock:
            member = self[agent]
            return member if member.status == status else self._put(msgspec.structs.replace(member, status=status))

    def assign(self, agent: str, task: str) -> Member:
        """Give a task to a member; whoever had it pending has it no longer, and one that is done is not given again."""
        with self._host.lock:
            member = self[agent]
            if task in member.pending or task in member.completed:
                return member
            for other in self.members:
                if task in other.pending:
                    self._tasks(other, pending=[name for name in other.pending if name != task])
            return self._tasks(member, pending=[*member.pending, task])

    def done(self, agent: str, task: str) -> Member:
        """Note that a member has done a task; saying so twice changes nothing."""
        with self._host.lock:
            member = self[agent]
            if task in member.completed:
                return member
            left = [name for name in member.pending if name != task]
            return self._tasks(member, pending=left, completed=[*member.completed, task])

    def snapshot(self) -> TeamSection:
        """Return all of it as a section."""
        return TeamSection(id=self._id, members=list(self._members.values()))

    def restore(self, value: Any) -> None:
        """Take a section back."""
        section: TeamSection = typed("team", value)
        with self._host.lock:
            self._id = section.id
            self._members = {member.agent: member for member in section.members}
            self.changes += 1

    def _tasks(self, member: Member, *, pending: list[str], completed: list[str] | None = None) -> Member:
        """Keep a member with other tasks; counts go along, those of tasks without a name included."""
        done = member.completed if completed is None else completed
        status = member.status
        if status in (IDLE, WORKING):
            status = WORKING if pending else IDLE
        return self._put(
            msgspec.structs.replace(
                member,
                status=status,
                pending=pending,
                completed=done,
                tasks_pending=max(0, member.tasks_pending - len(member.pending)) + len(pending),
                tasks_completed=max(0, member.tasks_completed - len(member.completed)) + len(done),
            )
        )

    def _put(self, member: Member) -> Member:
        self._members[member.agent] = member
        self.changes += 1
        return member
