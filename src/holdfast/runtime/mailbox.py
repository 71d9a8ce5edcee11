"""Messages between agents: each is given to its reader until the reader has acknowledged it, also over a resume.

A message and the answer to it are in the same checkpoint as the acknowledgement, so a message that is given again was
never dealt with as far as anything saved can tell. The first answer to a message is its answer for good.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.sections import typed
from holdfast.errors import SectionInvalid, UsageError
from holdfast.model import sections
from holdfast.model.nearest import hint
from holdfast.model.runtime_sections import Wait
from holdfast.model.triggers import Trigger
from holdfast.runtime.conflicts import Conflicts
from holdfast.runtime.host import Alone
from holdfast.runtime.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.runtime.host import Host

_SLICE_S = 1.0  # how long a thread waits for another's answer before it lets a pause from outside in
_BRIEF_S = 0.001


class Mailbox:
    """The messages of a run's agents; threads may use it at once.

    Without `agents`, any name is a reader.
    """

    gives_typed = True

    def __init__(self, host: Host | None = None, agents: Iterable[str] | None = None) -> None:
        self._host = host or Alone()
        self._agents: dict[str, None] | None = None if agents is None else dict.fromkeys(agents)
        self._pending: dict[str, Message] = {}  # not acknowledged, in the order they were sent
        self._awaiting: dict[str, Message] = {}
        self._answers: dict[str, Any] = {}
        self._keys: dict[str, str] = {}
        self._sent = 0
        self._given: set[str] = set()  # to a reader in this process
        self._answered = threading.Condition()
        self._changes = 0
        self.conflicts = Conflicts(self._host)

    @property
    def changes(self) -> int:
        """How often anything changed."""
        return self._changes + self.conflicts.changes

    def snapshot(self) -> sections.Messages:
        """Return what is under way."""
        with self._host.lock:
            running, resolved = self.conflicts.snapshot()
            return sections.Messages(
                pending=[msgspec.structs.asdict(message) for message in self._pending.values()],
                awaiting_response=[msgspec.structs.asdict(message) for message in self._awaiting.values()],
                conflicts=running,
                answers=dict(self._answers),
                keys=dict(self._keys),
                resolved=resolved,
                sent=self._sent,
            )

    def restore(self, value: sections.Messages | dict[str, Any]) -> None:
        """Take it back; what was not acknowledged is given to its reader again."""
        section: sections.Messages = typed("messages", value)
        pending = _by_id(section.pending)
        awaiting = _by_id(section.awaiting_response)
        with self._host.lock, self._answered:
            self.conflicts.restore(section.conflicts, section.resolved)
            self._pending, self._awaiting = pending, awaiting
            self._answers, self._keys = dict(section.answers), dict(section.keys)
            self._sent = section.sent
            self._given = set()
            self._changes += 1
            self._answered.notify_all()

    def join(self, *agents: str) -> None:
        """Let more agents take part; from the first on, only those that have joined are readers."""
        with self._host.lock:
            self._agents = {**(self._agents or {}), **dict.fromkeys(agents)}

    def send(
        self,
        sender: str,
        to: str,
        body: Any,
        *,
        expects_answer: bool = False,
        key: str | None = None,
        answer_to: str = "",
    ) -> str:
        """Send a message and return its id; one that was sent under this key before is not sent again.

        A program that comes by the same line again after a resume gives a key.
        """
        self._check_agent(sender)
        self._check_agent(to)
        body = self._host.keep(body, f"the message from {sender!r} to {to!r}")
        with self._host.lock:
            if key is not None and key in self._keys:
                return self._keys[key]
            self._sent += 1
            message = Message(
                id=f"m{self._sent}",
                sender=sender,
                to=to,
                body=body,
                sent_at=self._host.now(),
                expects_answer=expects_answer,
                answer_to=answer_to,
            )
            self._pending[message.id] = message
            if expects_answer:
                self._awaiting[message.id] = message
            if key is not None:
                self._keys[key] = message.id
            self._changes += 1
        return message.id

    def broadcast(
        self, sender: str, body: Any, *, expects_answer: bool = False, key: str | None = None
    ) -> dict[str, str]:
        """Send to all other agents and return the ids by reader."""
        if self._agents is None:
            raise UsageError("nobody is known to this mailbox: name its agents, Mailbox(agents=[...])")
        with self._host.lock:
            return {
                agent: self.send(
                    sender, agent, body, expects_answer=expects_answer, key=None if key is None else f"{key}:{agent}"
                )
                for agent in self._agents
                if agent != sender
            }

    def receive(self, agent: str) -> Message | None:
        """Return the agent's next message, None if there is none; call `ack` when it is dealt with."""
        self._check_agent(agent)
        with self._host.lock:
            for message in self._pending.values():
                if message.to == agent and message.id not in self._given:
                    self._given.add(message.id)
                    return message
        return None

    def ack(self, message: Message | str) -> None:
        """Say that a message is dealt with, and save: it is never given again."""
        if self.drop(message):
            self._host.offer(Trigger.STEP_COMPLETE, f"message {self._id_of(message)} read")

    def drop(self, message: Message | str) -> bool:
        """Say that a message is dealt with, which is stored with the next commit; False if it was before."""
        with self._host.lock:
            is_there = self._pending.pop(self._id_of(message), None) is not None
            self._changes += is_there
        return is_there

    def release(self, message: Message) -> None:
        """Let a message be received again: whoever received it did not deal with it."""
        with self._host.lock:
            self._given.discard(message.id)

    @contextmanager
    def reading(self, agent: str) -> Iterator[Message | None]:
        """Give the agent's next message, acknowledged at the end; after an error it can be received again."""
        message = self.receive(agent)
        try:
            yield message
        except BaseException:
            if message is not None:
                self.release(message)
            raise
        if message is not None:
            self.ack(message)

    def answer(self, message: Message | str, body: Any) -> bool:
        """Answer a message, which acknowledges it; False if it has its answer already, which then stays."""
        id_ = self._id_of(message)
        is_first = self._take_answer(id_, body)
        if is_first:
            self._host.resolve(f"answer:{id_}", body)
            self._host.offer(Trigger.STEP_COMPLETE, f"message {id_} answered")
        return is_first

    def answer_to(self, message: Message | str) -> Any:
        """Return the answer to a message, None if there is none yet; `has_answer` tells a None from none."""
        with self._host.lock:
            return self._answers.get(self._id_of(message))

    def sender_of(self, message: str) -> str | None:
        """Return who waits for the answer to a message, None if nobody does."""
        with self._host.lock:
            asked = self._awaiting.get(message)
        return None if asked is None else asked.sender

    def has_answer(self, message: Message | str) -> bool:
        """Tell whether a message was answered."""
        with self._host.lock:
            return self._id_of(message) in self._answers

    def await_answer(self, message: Message | str, *, within_s: float | None = 0.0) -> Any:
        """Return the answer to a message; the same one however often it is asked for.

        Other threads of this process have `within_s` seconds to answer (None: as long as it takes); then the run waits
        for somebody outside, who answers with the signal `answer:<id>`.
        """
        id_ = self._id_of(message)
        self._check_awaited(id_)
        self._wait_for_thread(id_, within_s)
        with self._host.lock:
            asked = self._awaiting.get(id_)
        if asked is not None:
            reply = self._host.wait_for(
                Wait(
                    id=f"answer:{id_}",
                    kind="signal",
                    question=f"{asked.sender} waits for an answer of {asked.to}: {asked.body!s:.500}",
                    details={"signal": f"answer:{id_}", "sender": asked.sender, "to": asked.to},
                )
            )
            self._take_answer(id_, reply.choice if reply.value is None else reply.value)
        return self.answer_to(id_)

    @property
    def pending(self) -> list[Message]:
        """Messages that are not acknowledged, oldest first."""
        with self._host.lock:
            return list(self._pending.values())

    @property
    def awaiting_response(self) -> list[Message]:
        """Messages whose answer is awaited, oldest first."""
        with self._host.lock:
            return list(self._awaiting.values())

    def _take_answer(self, id_: str, body: Any) -> bool:
        body = self._host.keep(body, f"the answer to message {id_!r}")
        with self._host.lock, self._answered:
            self._check_awaited(id_)
            if id_ in self._answers:
                return False
            self._answers[id_] = body
            self._awaiting.pop(id_)
            self._pending.pop(id_, None)
            self._changes += 1
            self._answered.notify_all()
        return True

    def _wait_for_thread(self, id_: str, within_s: float | None) -> None:
        end = None if within_s is None else self._host.monotonic() + within_s
        while not self.has_answer(id_):
            left = _SLICE_S if end is None else min(_SLICE_S, end - self._host.monotonic())
            if left <= 0:
                return
            with self._answered:
                if id_ not in self._answers:
                    self._answered.wait(left)
            self._host.sleep(_BRIEF_S)

    def _check_awaited(self, id_: str) -> None:
        if id_ in self._answers or id_ in self._awaiting:
            return
        number = int(id_[1:]) if id_[:1] == "m" and id_[1:].isdecimal() else 0
        if 0 < number <= self._sent:
            raise UsageError(f"message {id_!r} was sent without expects_answer=True: nobody waits for an answer")
        raise UsageError(f"there is no message {id_!r}: {hint(id_, self._awaiting)}")

    def _check_agent(self, agent: str) -> None:
        if self._agents is not None and agent not in self._agents:
            raise UsageError(f"there is no agent {agent!r}: {hint(agent, self._agents)}")

    @staticmethod
    def _id_of(message: Message | str) -> str:
        return message if isinstance(message, str) else message.id


def _by_id(stored: list[Any]) -> dict[str, Message]:
    try:
        messages = msgspec.convert(stored, list[Message])
    except msgspec.ValidationError as error:
        raise SectionInvalid(str(error), "messages") from None
    return {message.id: message for message in messages}
