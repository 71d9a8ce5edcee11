"""Messages up to a point: what people, models and agents said, in runs of any framework.

They are looked for where they are kept: in the section `messages` (between agents), in the journal of a session, and
in lists of messages that a state or a channel holds. What each looks like differs by framework; who spoke and what is
found by the names that these use, and the value itself is in the state.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.errors import HoldfastError
from holdfast.journal.entry import body_of
from holdfast.model.sections import SECTION_TYPES, WORKSPACE
from holdfast.web.comparing import Pair
from holdfast.web.site import found

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.checkpoint import Checkpoint
    from holdfast.web import answers
    from holdfast.web.site import Handle, Site

_BETWEEN_AGENTS = "messages"
_NEVER = {*SECTION_TYPES, WORKSPACE} - {_BETWEEN_AGENTS, "context"}  # sections whose form is known to hold none
_RECORDED = ("items", "entries", "transcript:")  # where sessions of the adapters keep theirs in the journal
_POPPED, _CLEARED = "openai.popped", "openai.cleared"
_MOST_CHARS = 4000
_encode = msgspec.json.Encoder(enc_hook=repr).encode
_SPEAKERS = {"human": "user", "request": "user", "ai": "assistant", "response": "assistant"}
_ENDINGS = ("messagechunk", "message", "_call_output", "_call")
_CONTENT = ("content", "parts", "message", "body", "output", "contents", "result")


class SaidMessage(NamedTuple):
    """A message as it is stored, and where."""

    place: str
    value: Any
    note: str = ""


def page(site: Site, handle: Handle, run: str, at: int | None, *, offset: int, limit: int) -> answers.MessagePage:
    """Return the messages up to a checkpoint or up to now, oldest first: `limit` of them, `offset` from the end."""
    if at is None:
        record = handle.hf.store.run(run)
        point = found(handle, run) if record.head is not None else handle.hf.internals.present(run, None)
    else:
        point = found(handle, f"{run}@{at}")
    everything = list(_said(site, handle, point))
    shown = everything[max(0, len(everything) - offset - limit) : len(everything) - offset]
    return {
        "run": run,
        "total": len(everything),
        "offset": offset,
        "messages": [_document(handle, one) for one in shown],
    }


def compare(site: Site, handle: Handle, a: str, b: str, *, offset: int, limit: int) -> answers.MessageChanges:
    """Return the messages that only one of two points has, by their ids where they have one."""
    pair = Pair(site, handle, a, b)
    old, new = (_by_name(_said(site, handle, point)) for point in (pair.old, pair.until))
    removed = [one for name, one in old.items() if name not in new]
    added = [one for name, one in new.items() if name not in old]
    changes = [("removed", one) for one in removed] + [("added", one) for one in added]
    return {
        "added": len(added),
        "removed": len(removed),
        "kept": len(new) - len(added),
        "offset": offset,
        "changes": [
            {"kind": "added" if kind == "added" else "removed", "message": _document(handle, one)}
            for kind, one in changes[offset : offset + limit]
        ],
    }


def _said(site: Site, handle: Handle, point: Checkpoint) -> Iterator[SaidMessage]:
    """Yield what was said up to a point; a section that cannot be read says so elsewhere."""
    yield from _recorded(handle, point)
    for name in point.sections:
        if name in _NEVER:
            continue
        with suppress(HoldfastError):
            value = site.section(point, name)
            if name == _BETWEEN_AGENTS and isinstance(value, dict):
                yield from _between_agents(value)
            else:
                yield from _listed(name, value)


def _recorded(handle: Handle, point: Checkpoint) -> Iterator[SaidMessage]:
    """Yield the messages of a session, which are records of its journal."""
    store = handle.hf.store
    line = store.line(point.run) if point.ranges else None
    if line is None or "framework" not in store.run(point.run).attributes:
        return
    here = msgspec.structs.replace(line, ranges=point.ranges, number=point.number)
    packer = handle.hf.internals.journal_packer()
    for path in _RECORDED:
        kept: list[SaidMessage] = []
        for record in store.journal.of_path(here, path):
            if record.kind == _CLEARED:
                kept.clear()
            elif record.kind == _POPPED:
                del kept[-1:]
            else:
                with suppress(HoldfastError):
                    value = packer.unpack(body_of(record, store), path)
                    kept.append(SaidMessage(f"{path.rstrip(':')} #{record.number}", value))
        yield from (one for one in kept if _is_message(one.value))


def _between_agents(section: dict[str, Any]) -> Iterator[SaidMessage]:
    """Yield the messages between agents that are under way, answers to earlier ones, and open conflicts."""
    awaiting = {one.get("id") for one in section.get("awaiting_response") or ()}
    pending = section.get("pending") or []
    known = {one.get("id") for one in pending}
    for one in pending:
        note = "not acknowledged" + (", an answer is expected" if one.get("id") in awaiting else "")
        yield SaidMessage(_BETWEEN_AGENTS, one, note)
    for one in section.get("awaiting_response") or ():
        if one.get("id") not in known:
            yield SaidMessage(_BETWEEN_AGENTS, one, "waits for an answer")
    for name, answer in (section.get("answers") or {}).items():
        yield SaidMessage(_BETWEEN_AGENTS, {"id": f"answer {name}", "sender": "answer", "body": answer}, f"to {name}")
    for one in section.get("conflicts") or ():
        agents = ", ".join(map(str, one.get("agents") or ()))
        yield SaidMessage(_BETWEEN_AGENTS, {"sender": agents, "body": one}, f"conflict, round {one.get('round')}")


def _listed(name: str, value: Any, depth: int = 2) -> Iterator[SaidMessage]:
    """Yield the messages of a section that is a list of them, or has such lists close below it."""
    if isinstance(value, list) and value and _is_message(value[0]) and _is_message(value[-1]):
        yield from (SaidMessage(f"{name}[{number}]", item) for number, item in enumerate(value))
    elif isinstance(value, dict) and depth:
        for key, item in value.items():
            if not key.startswith("__"):  # what a framework hands to itself is said a second time
                yield from _listed(f"{name}.{key}", item, depth - 1)


def _is_message(value: Any) -> bool:
    """Tell whether a value looks as messages do: it says who speaks, and what."""
    if not isinstance(value, dict):
        return False
    speaks = any(isinstance(value.get(key), str) for key in ("role", "sender"))
    kind = str(value.get("@type") or value.get("type") or value.get("kind") or "").lower()
    named = kind.endswith(("message", "_call", "_call_output")) or kind in (
        "user",
        "assistant",
        "system",
        "human",
        "ai",
    )
    return (speaks or named) and any(key in value for key in (*_CONTENT, "arguments", "text"))


def _by_name(said: Iterable[SaidMessage]) -> dict[str, SaidMessage]:
    """Return messages by their ids, or else by what they say; the same words a second time are another message."""
    found: dict[str, SaidMessage] = {}
    for one in said:
        name = str(one.value.get("id") or one.value.get("uuid") or blake3(_encode(one.value)).hexdigest(8))
        while name in found:
            name += "+"
        found[name] = one
    return found


def _document(handle: Handle, one: SaidMessage) -> answers.MessageAnswer:
    value = handle.clean(one.value, one.place)
    text = handle.clean_text(_text(value))
    return {
        "place": one.place,
        "by": _speaker(value)[:100],
        "to": str(value["to"])[:100] if value.get("to") else None,
        "note": one.note,
        "text": text[:_MOST_CHARS],
        "cut": len(text) > _MOST_CHARS,
    }


def _speaker(value: dict[str, Any]) -> str:
    inner = value.get("message")
    for one in (value, inner if isinstance(inner, dict) else {}):
        for key in ("sender", "role"):
            if isinstance(one.get(key), str):
                return str(one[key])
    inner_kind = inner.get("kind") if isinstance(inner, dict) else None
    kind = str(value.get("@type") or inner_kind or value.get("type") or value.get("kind") or "")
    if kind.endswith("_call_output"):
        return "tool"
    word = kind.rpartition(".")[2].lower()
    for ending in _ENDINGS:
        word = word.removesuffix(ending)
    return "assistant" if kind.endswith("_call") else _SPEAKERS.get(word, word)


def _text(value: Any) -> str:
    """Return what a message says, its calls of tools included."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    name = value.get("name") or value.get("tool_name")
    given = next((value[key] for key in ("arguments", "args", "input") if key in value), None)
    if name and given is not None:
        return f"{name}({given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)})"
    calls = _text(value.get("tool_calls")) if value.get("tool_calls") else ""
    for key in ("text", "thinking", *_CONTENT):
        if key in value:
            return "\n".join(filter(None, (_text(value[key]), calls)))
    return calls or json.dumps(value, ensure_ascii=False)
