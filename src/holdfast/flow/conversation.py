"""What the agents of a flow say to each other: messages, conflicts and knowledge, as the file declares them.

All of it is kept in the sections of the run's mailbox and knowledge, and stored with the next record: after a crash a
message that was not read is given again, an answer or a position is not asked for twice, and what was learned is kept
once. Agents are told by facts (`messages`, `message`, `conflict`, `knowledge`), and say something by reporting it in
their JSON. A report that cannot be taken in is said (`report refused`) and stops nothing: the work was paid for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import CommandFailed, HoldfastError, UsageError, ValueRefused
from holdfast.flow.model import Action
from holdfast.flow.names import CONFLICT, ENTRY_VARIABLES, MESSAGE, REPORTED
from holdfast.flow.template import fill, shown
from holdfast.model.nearest import hint
from holdfast.model.triggers import Trigger
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.knowledge import entry_facts
from holdfast.runtime.recorded import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.flow.actions import Place
    from holdfast.flow.facts import Facts
    from holdfast.flow.model import Conflict, Entry, Flow, Message
    from holdfast.model.sections import KnowledgeEntry
    from holdfast.run import Run
    from holdfast.runtime.command import CommandResult
    from holdfast.runtime.conflicts import Conflict as Held
    from holdfast.runtime.message import Message as Sent

_TOLD = {"message": MESSAGE, "conflict": CONFLICT}


class ConflictUnsettled(HoldfastError):
    """The rounds of a conflict are over, and nothing was agreed on."""

    conflict: str
    rounds: int
    positions: dict[str, Any]

    def sentence(self) -> str:
        """Say who holds what."""
        held = "; ".join(f"{agent}: {shown(position)}" for agent, position in self.positions.items())
        return f"conflict {self.conflict} is not settled after {self.rounds} rounds ({held}): retry for more"


class Said(NamedTuple):
    """What came of asking an agent, and what it reports besides."""

    done: dict[str, Any]
    reported: dict[str, Any]

    @property
    def answer(self) -> Any:
        """What it says: its result, also of an agent whose whole output is taken as JSON."""
        result = self.done.get("result")
        return result.get("result", result) if isinstance(result, dict) else result


class Conversation:
    """Carries out what the agents of one flow say to each other."""

    def __init__(
        self,
        run: Run,
        flow: Flow,
        *,
        ask: Callable[[str, Any, Place, Facts], Said],
        execute: Callable[[Action, Place, Facts], CommandResult],
        emit: Callable[..., None],
    ) -> None:
        self._run = run
        self._flow = flow
        self._ask = ask
        self._execute = execute
        self._emit = emit
        self._known = {*flow.agents, *(flow.team.members if flow.team is not None else ()), flow.name}
        tasks = [
            (task, f"{name}/{task}")
            for name, phase in flow.phases.items()
            for task, work in phase.work(name).items()
            if work.conflict is not None
        ]
        self._conflicts = dict(tasks)  # an agent knows a conflict by the name of its task

    def told(self, agent: str | None, facts: Facts) -> list[str]:
        """Return the facts that an agent's command has unasked."""
        if agent is None:
            return []
        names = [
            name for root in _TOLD if root in facts.more for name in (root, *(f"{root}.{one}" for one in _TOLD[root]))
        ]
        names += ["messages"] if facts.more.get("messages") else []
        return [*names, "knowledge"] if self._is_there("knowledge") and facts("knowledge") else names

    def unread(self, agent: str) -> list[Sent]:
        """Return the messages that an agent has not read; nobody else is given them meanwhile."""
        if not self._is_there("messages"):
            return []
        found: list[Sent] = []
        while (message := self._run.mailbox.receive(agent)) is not None:
            found.append(message)
        return found

    def put_back(self, messages: Iterable[Sent]) -> None:
        """Let messages be given again: whoever was given them failed."""
        for message in messages:
            self._run.mailbox.release(message)

    def send(self, message: Message, place: Place, facts: Facts) -> dict[str, Any]:
        """Send a message of the flow, once; with `answer`, return when it has its answer."""
        mailbox = self._run.mailbox
        text = fill(message.text, facts)
        sender = message.sender or self._flow.name
        place = self._occasion(place)
        sent = mailbox.send(sender, message.to, text, expects_answer=message.answer, key=place.name)
        if not message.answer:
            return {"result": sent, "summary": f"{sent} to {message.to}: {text}"}
        if not mailbox.has_answer(sent) and message.to in self._flow.agents:
            self._run.host.offer(Trigger.STEP_COMPLETE, f"message {sent} sent")
            asked = {"id": sent, "from": sender, "text": text}
            said = self._asked(message.to, text, place, f"answer {sent}", facts.having(message=asked))
            mailbox.answer(sent, said.answer)
        answer = mailbox.await_answer(sent)
        return {"result": answer, "summary": shown(answer)}

    def settle(self, conflict: Conflict, place: Place, facts: Facts) -> dict[str, Any]:
        """Let agents settle a conflict, from where it stood; ConflictUnsettled when its rounds are over."""
        question = fill(conflict.question, facts)
        place = self._occasion(place)
        held = self._run.mailbox.conflicts.start(place.name, conflict.between, question)
        last = -(-held.round // conflict.rounds) * conflict.rounds
        while not held.is_resolved:
            for agent in held.to_speak:
                said = self._asked(agent, question, place, f"round {held.round}", _in_conflict(held, facts))
                held.position(agent, _of_conflict(said, "position"))
            resolution = self._resolution(conflict, held, place, facts)
            if resolution is not None:
                held.resolve(resolution, by=conflict.settle or "")
                break
            positions = held.positions
            if held.next_round() > last:
                raise ConflictUnsettled(place.name, last, positions)
        return {"result": held.resolution, "summary": shown(held.resolution)}

    def _occasion(self, place: Place) -> Place:
        """Return a place under the name that what is said there has until its task is done: then it is said again."""
        before = self._run.calls.last_end(place.name)
        return place._replace(name=f"{place.name}~{str(digest_of(before))[:6]}") if before else place

    def _resolution(self, conflict: Conflict, held: Held, place: Place, facts: Facts) -> Any:
        positions = list(held.positions.values())
        if conflict.settle is None:
            return positions[0] if all(one == positions[0] for one in positions) else None
        name = f"decision {held.round}"
        said = self._asked(conflict.settle, held.record.question, place, name, _in_conflict(held, facts))
        return _of_conflict(said, "resolution") or None

    def _asked(self, agent: str, given: Any, place: Place, name: str, facts: Facts) -> Said:
        """Ask an agent something inside a task; what it was asked in an earlier process is kept."""
        said = self._ask(agent, given, place._replace(name=f"{place.name} {name}"), facts)
        self.take(agent, {key: said.reported[key] for key in said.reported if key != "conflict"}, place)
        return said

    def take(self, agent: str, reported: dict[str, Any], place: Place) -> None:
        """Take in what an agent reports; the same again changes nothing."""
        for message in reported.get("read", ()):
            self._run.mailbox.drop(message)
        for at, one in enumerate(_listed(reported.get("messages"))):
            self._taken(place, f"messages.{at}", self._take_message, agent, one)
        for at, one in enumerate(_listed(reported.get("knowledge"))):
            self._taken(place, f"knowledge.{at}", self._take_entry, agent, one)
        if reported.get("conflict") is not None:
            self._taken(place, "conflict", self._take_conflict, agent, reported["conflict"])

    def _taken(self, place: Place, what: str, take: Callable[[str, Any, Place], object], agent: str, one: Any) -> None:
        try:
            take(agent, one, place)
        except (UsageError, ValueRefused) as error:
            self._emit("report_refused", phase=place.phase, task=place.task, text=f"{agent}: {what}: {error}")

    def _take_message(self, agent: str, said: Any, place: Place) -> None:
        text = _field(said, "text")
        mailbox = self._run.mailbox
        if (asked := said.get("answer_to")) is not None:
            with self._run.lock:  # sent before it is answered: a commit in between must not lose it
                sender = mailbox.sender_of(str(asked))
                if sender in self._flow.agents and not mailbox.has_answer(str(asked)):
                    mailbox.send(agent, sender, text, key=f"answer:{asked}", answer_to=str(asked))
                mailbox.answer(str(asked), text)
            return
        to = self._member(_field(said, "to"))
        key = f"{place.name}:{agent}:{digest_of([to, text])}"
        mailbox.send(agent, to, text, expects_answer=said.get("answer") is True, key=key)

    def _take_entry(self, agent: str, said: Any, place: Place) -> None:
        if isinstance(said, str):
            said = {"text": said}
        known = {
            name: str(said[name]) for name in ("id", "kind", "source") if isinstance(said, dict) and said.get(name)
        }
        self._run.knowledge.capture(_field(said, "text"), **{"source": f"{agent}: {place.name}", **known})

    def _take_conflict(self, agent: str, said: Any, place: Place) -> None:  # noqa: ARG002 - as the others
        name = str(_field(said, "name"))
        name = self._conflicts.get(name, name)
        conflicts = self._run.mailbox.conflicts
        if name not in conflicts:
            others = [self._member(one) for one in _listed(said.get("with"))]
            declared = self._declared(name)
            agents = declared.between if declared is not None else [agent, *others]
            conflicts.start(name, agents, str(said.get("question", "")))
        held = conflicts.get(name)
        if said.get("position") is not None and not held.is_resolved and agent in held.to_speak:
            held.position(agent, said["position"])
        if said.get("resolution") is not None:
            held.resolve(said["resolution"], by=agent)

    def _declared(self, name: str) -> Conflict | None:
        phase, _, task = name.partition("/")
        work = self._flow.phases[phase].work(phase) if phase in self._flow.phases else {}
        return work[task].conflict if task in work else None

    def _member(self, name: Any) -> str:
        if name not in self._known:
            raise UsageError(f"there is no {name!r} in the team: {hint(str(name), self._known)}")
        return str(name)

    def inform(self, facts: Facts, place: Place) -> None:
        """Tell the run what the flow says is known, and hand on what an earlier process did not."""
        knowledge = self._flow.knowledge
        if knowledge is None:
            return
        for entry in knowledge.entries:
            self._run.knowledge.inject(fill(entry.text, facts), id=entry.id, kind=entry.kind, source=entry.source)
        if knowledge.read is not None:
            result = self._execute(Action(run=knowledge.read), place, facts).check()
            for said in _entries(result):
                known = {name: str(said[name]) for name in ("id", "kind", "source") if said.get(name)}
                self._run.knowledge.inject(_field(said, "text"), **known)
        self.hand_on(facts, place)

    def learn(self, entries: Iterable[Entry], place: Place, facts: Facts) -> None:
        """Keep what a task has learned by what the flow says, each entry once."""
        for entry in entries:
            source = entry.source or place.name
            self._run.knowledge.capture(fill(entry.text, facts), id=entry.id, kind=entry.kind, source=source)

    def hand_on(self, facts: Facts, place: Place) -> None:
        """Give what was learned to the command that takes it; one that fails gets it again after the next task."""
        knowledge = self._flow.knowledge
        if knowledge is None or knowledge.write is None or not self._run.knowledge.pending:
            return

        def write(entry: KnowledgeEntry) -> None:
            action = Action(run=knowledge.write, env=ENTRY_VARIABLES)
            self._execute(action, place, facts.having(entry=entry_facts(entry))).check()

        try:
            self._run.knowledge.flush(write)
        except HoldfastError as error:
            if is_interruption(error):
                raise
            self._emit("knowledge_failed", phase=place.phase or None, text=str(error))

    def _is_there(self, section: str) -> bool:
        """Tell whether a section of the run was made, here or in an earlier process."""
        run = self._run
        return run.host.has_part(section) or (run.head is not None and section in run.head.sections)


def message_facts(message: Sent) -> dict[str, Any]:
    """Return a message as its reader sees it."""
    told = {"id": message.id, "from": message.sender, "text": message.body}
    told |= {"expects_answer": True} if message.expects_answer else {}
    return told | ({"answer_to": message.answer_to} if message.answer_to else {})


def reported_in(said: Any) -> dict[str, Any]:
    """Return what an agent's JSON says to the others."""
    return {name: said[name] for name in REPORTED if said.get(name)} if isinstance(said, dict) else {}


def _in_conflict(held: Held, facts: Facts) -> Facts:
    record = held.record
    told = {"name": record.name, "question": record.question, "round": record.round, "positions": held.positions}
    return facts.having(conflict=told)


def _of_conflict(said: Said, name: str) -> Any:
    """Return what an agent says in a conflict: in its report, or as its result."""
    reported = said.reported.get("conflict")
    return reported.get(name) if isinstance(reported, dict) else said.answer


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _field(said: Any, name: str) -> Any:
    if not isinstance(said, dict) or said.get(name) in (None, ""):
        raise UsageError(f"it is to be an object with {name!r}, not {said!r:.80}")
    return said[name]


def _entries(result: CommandResult) -> list[dict[str, Any]]:
    """Return the entries that a command printed: a JSON list, or one object a line."""
    try:
        try:
            return msgspec.json.decode(result.stdout, type=list[dict[str, Any]])
        except msgspec.MsgspecError:
            lines = filter(str.strip, result.stdout.splitlines())
            return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CommandFailed(result.command, result.exit_code, f"it was to print entries as JSON: {error}") from None
