"""The run of a session: what an event does to it, once something changed."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import HeadMoved, HoldfastError, LeaseHeld, LimitExceeded, UsageError, ValueRefused
from holdfast.hook.glance import (
    drop_stamps,
    key_of,
    packed,
    read_state,
    state_file,
    tidy_states,
    watched_files,
    write_state,
)
from holdfast.hook.transcript import last_mark, read_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.engine import Holdfast
    from holdfast.hook.event import HookEvent
    from holdfast.run import Run

_PATIENCE_S = 5.0
_LOOK_EVERY_S = 0.02
_LONGEST = 120
_UNFINISHED = ("running", "waiting", "paused", "failed")
_LISTED = 20
SECTION = "session"
"""What a run knows of its session: the assistant, its id, its directory."""


class HookPlace(NamedTuple):
    """Where an event happens: the project's directory, how its store is opened, what names the store from outside."""

    root: Path
    open: Callable[[], Holdfast]
    named_store: str | None
    watched: Sequence[str]
    """Files that tell whether the store is as it was left, and the user's own ignore rules; empty for other stores."""


class HookReply(NamedTuple):
    """What the assistant is answered: a message for the person, context for the model."""

    message: str = ""
    context: str = ""

    def document(self, event: HookEvent | None) -> dict[str, Any]:
        """Return the answer in the assistant's own form."""
        answer: dict[str, Any] = {}
        if event is None:
            return {"systemMessage": self.message} if self.message else {}
        if self.message:
            answer[str(event.dialect.message[0])] = self.message
        if self.context and event.dialect.context == "hookSpecificOutput":
            answer["hookSpecificOutput"] = {"hookEventName": event.name, "additionalContext": self.context}
        elif self.context and event.dialect.context:
            answer[event.dialect.context] = self.context
        return answer


def handle(event: HookEvent, place: HookPlace) -> HookReply:
    """Carry out what an event causes; a failure is remembered, and told now if the assistant waits for an answer."""
    rule = event.rule
    if rule is None or rule.do == "close":
        return HookReply()
    if not place.root.is_dir():
        return HookReply(f"Holdfast: nothing was captured: there is no directory {str(place.root)!r}.")
    file = state_file(str(place.root), event.run)
    before = read_state(file)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        context, state = _carried_out(event, place)
    except Exception as error:  # noqa: BLE001 - an assistant is never stopped by its checkpoints
        lost = before.get("unprotected") or {"since": now}
        lost = {"since": str(lost.get("since", now)), "why": _sentence(error)}
        write_state(file, {**drop_stamps(before), "unprotected": lost})
        told = f"Holdfast: unprotected since {lost['since']}: {lost['why']}. `holdfast doctor` looks for the cause."
        return HookReply(told if rule.waits else "")
    was = before.get("unprotected")
    if was and not rule.waits:
        state["unprotected"] = {**was, "until": was.get("until", now)}
    write_state(file, state)
    message = ""
    if was and rule.waits:
        until = was.get("until", now)
        message = f"Holdfast: protected again; unprotected from {was.get('since')} to {until}: {was.get('why')}."
    return HookReply(message, context)


def _carried_out(event: HookEvent, place: HookPlace) -> tuple[str, dict[str, Any]]:
    """Capture what changed; return context for the model and the stamps for the next glance."""
    rule = event.rule
    assert rule is not None
    root = str(place.root)
    watched = watched_files(root)
    keys = [(name, key_of(name)) for name in watched]  # before the capture: what moves during it is seen next time
    hf = place.open()
    try:
        run = hf.run(event.run, workspace=root, waiting="leave")
        context = _context(hf, run) if rule.do == "attach" else ""
        if rule.do == "attach":
            tidy_states(root, time.time())
        with _turn(run):
            _take(event, run)
        tree = run.workspace.capture.stamps(run.recorder.head_record)
    finally:
        hf.close()
    state: dict[str, Any] = {"root": root, "store": place.named_store}
    if tree is not None and place.watched:
        keys += [(name, key_of(name)) for name in place.watched]  # after: closing the store writes to it
        state |= {"watched": keys, "tree": packed(tree)}
    return context, state


def _take(event: HookEvent, run: Run) -> None:
    """Take a checkpoint, unless the newest one already has everything."""
    rule = event.rule
    assert rule is not None
    if rule.do == "keep":
        for name, path in (("transcript", event.transcript), (_agent_log(event), event.agent_transcript)):
            if name and path:
                _take_over(run, name, path)
    head = run.head
    known = head.section(SECTION) if head is not None and SECTION in head.sections else {}
    shown = "".join(one if one.isprintable() else "?" for one in event.session)[:200]
    value = {"assistant": event.dialect.name, "id": shown, "cwd": event.cwd}
    if value == known and run.workspace.capture.is_as(run.recorder.head_record):
        return
    taken = run.checkpoint(trigger=rule.trigger, reason=_reason(event), sections={SECTION: value})
    if not taken.saved:
        raise UsageError("checkpointing is disabled in the settings (enabled: false)")


def _take_over(run: Run, name: str, path: str) -> None:
    """Append what a transcript has since it was last read to the run's log of that name."""
    log = run.log(name)
    try:
        lines, mark = read_on(path, last_mark(log))
    except (OSError, ValueError):
        return  # the assistant has not written it yet, or took it away
    if not lines:
        return
    items = [*lines, msgspec.to_builtins(mark)]
    try:
        log.extend(items)
    except (ValueRefused, LimitExceeded):
        for item in items:  # one that cannot be stored as it is must not cost the others
            try:
                log.append(item)
            except (ValueRefused, LimitExceeded):
                log.append(f"(a line that cannot be stored: {item!s:.200})")


def _agent_log(event: HookEvent) -> str:
    """Return the log of a subagent's transcript."""
    name = "".join(one for one in event.agent if one.isalnum() or one in "-_")[:100]
    return f"transcript-{name}" if name else ""


def _reason(event: HookEvent) -> str:
    """Return why a checkpoint is taken, in words."""
    rule = event.rule
    assert rule is not None
    detail = event.command if rule.do == "destructive" else event.prompt or event.agent
    text = " ".join(detail.encode(errors="replace").decode().split())
    text = text[: _LONGEST - 1] + "…" if len(text) > _LONGEST else text
    return f"{rule.why}: {text}" if text else rule.why


def _context(hf: Holdfast, run: Run) -> str:
    """Return what the model should know when a session starts: only ids and counts, and nothing is done by itself."""
    head = run.recorder.head_record
    told = []
    if head is not None:
        when = f"{head.envelope.created_at:%Y-%m-%d %H:%M} UTC"
        told.append(
            f"Holdfast has recovery points of this session, run {run.id}, the newest @{head.envelope.seq} of {when}: "
            f"`holdfast log {run.id}` lists them."
        )
    unfinished = []
    for record in hf.runs(limit=_LISTED):
        if record.id != run.id and record.head is not None:
            status = hf.get(record.head).summary.status
            if status in _UNFINISHED:
                unfinished.append(f"{record.id} ({status})")
    if unfinished:
        told.append(
            f"Unfinished runs of this project: {', '.join(unfinished[:5])}. `holdfast status RUN` tells where one "
            "stands, `holdfast resume RUN` resumes it; ask the person before doing so."
        )
    return " ".join(told)


@contextmanager
def _turn(run: Run) -> Iterator[None]:
    """Hold the run's lease; another hook of the same session is waited for."""
    end = time.monotonic() + _PATIENCE_S
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(run.held())
                break
            except (LeaseHeld, HeadMoved):
                if time.monotonic() > end:
                    raise
                time.sleep(_LOOK_EVERY_S)
        yield


def _sentence(error: Exception) -> str:
    text = (
        str(error) if isinstance(error, (HoldfastError, OSError)) and str(error) else f"{type(error).__name__}: {error}"
    )
    return " ".join(text.split())[:400].rstrip(".")
