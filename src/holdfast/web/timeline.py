"""Timeline of a run: bars by phase, agent, task and wait, marks for what happened, and idle stretches; pure but one."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Unpack

from holdfast.web.history import samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.runtime.audit import Event
    from holdfast.web import answers
    from holdfast.web.events import EventIndex
    from holdfast.web.site import Handle

_MOST_BARS = 4000
_MOST_MARKS = 2000
_IDLE_SHARE = 0.08  # a pause longer than this part of the whole is folded
_IDLE_LEAST_S = 2.0
_LOOKED_AT = 200


def timeline(handle: Handle, index: EventIndex) -> answers.Spans:
    """Return the lanes of a run as it stands now; what is under way has no end."""
    hf, run = handle.hf, index.run
    present, happened = index.of(handle)
    sections = {
        name: handle.clean(present.plain_section(name), name)
        for name in ("phases", "agents", "graph", "waits")
        if name in present.sections
    }
    happened = hf.events(run)
    events: list[answers.Mark] = handle.clean(
        [
            {"at": one.at, "kind": one.kind, "what": one.what[:300], "phase": one.phase, "by": one.by,
             "duration_s": one.duration_s, "error": one.details.get("error")}
            for one in happened
        ],
        "events",
    )  # fmt: skip
    bars: list[answers.TimeBar] = [
        *_phases(sections.get("phases")),
        *_agents(sections.get("agents")),
        *_tasks(sections.get("graph")),
    ]
    bars += [*_steps(events, known={bar["name"] for bar in bars if bar["lane"] in ("task", "phase")})]
    bars += [*_waits(sections.get("waits"), happened)]
    bars = sorted((bar for bar in bars if bar["from"]), key=lambda bar: bar["from"] or "")
    saved = [one["at"] for one in samples(hf, run, _LOOKED_AT)["samples"]]
    times = saved + [one["at"] for one in events] + [time for bar in bars for time in (bar["from"], bar["to"]) if time]
    return {
        "run": run,
        "bars": bars[-_MOST_BARS:],
        "bars_left_out": max(0, len(bars) - _MOST_BARS),
        "marks": [one for one in events if not one["kind"].startswith("step ")][-_MOST_MARKS:],
        "idle": idle(times),
        "is_cut": index.is_cut,
    }


def _bar(
    lane: Literal["phase", "agent", "task", "wait"],
    name: str,
    status: str,
    start: str | None,
    end: str | None,
    **more: Unpack[answers.BarFacts],
) -> answers.TimeBar:
    return {"lane": lane, "name": name, "status": status, "from": start, "to": end, **more}


def _phases(section: Mapping[str, Any] | None) -> Iterable[answers.TimeBar]:
    for name, one in ((section or {}).get("phases") or {}).items():
        end = one.get("completed_at") or _after(one.get("started_at"), one.get("duration_s"), one.get("status"))
        error = (one.get("error") or {}).get("message")
        yield _bar("phase", name, one.get("status", ""), one.get("started_at"), end, phase=name, error=error)


def _agents(section: Iterable[Mapping[str, Any]] | None) -> Iterable[answers.TimeBar]:
    for agent in section or ():
        tasks = agent.get("tasks") or {}
        for name, one in tasks.items():
            tokens = one.get("tokens") or {}
            yield _bar(
                "agent", agent["id"], one.get("status", ""), one.get("started_at"), one.get("completed_at"),
                task=name, tokens=(tokens.get("input") or 0) + (tokens.get("output") or 0),
                error=(one.get("error") or {}).get("message"),
            )  # fmt: skip
        if not tasks:
            yield _bar(
                "agent", agent["id"], agent.get("status", ""), agent.get("started_at"), agent.get("completed_at"),
                error=agent.get("error"),
            )  # fmt: skip


def _tasks(section: Mapping[str, Any] | None) -> Iterable[answers.TimeBar]:
    graphs = [section, *((section.get("others") or {}).values())] if section else []
    for graph in graphs:
        for name, one in (graph.get("tasks") or {}).items():
            error = (one.get("error") or {}).get("message")
            yield _bar("task", name, one.get("status", ""), one.get("started_at"), one.get("completed_at"), error=error)


def _steps(events: Iterable[answers.Mark], known: set[str]) -> Iterable[answers.TimeBar]:
    """Yield the steps: those that ended from their end and how long they took, and those that only began."""
    begun: dict[str, str] = {}
    for one in events:
        if not one["kind"].startswith("step ") or one["what"].rpartition("/")[2] in known:
            continue  # a flow's task is a step, too, under the name of its phase
        word = one["kind"].removeprefix("step ")
        if word == "started":
            begun[one["what"]] = one["at"]
            continue
        start = begun.pop(one["what"], None) or _before(one["at"], one["duration_s"])
        status = {"done": "completed"}.get(word, word)
        yield _bar("task", one["what"], status, start, one["at"], phase=one["phase"], error=one.get("error"))
    for name, at in begun.items():
        yield _bar("task", name, "running", at, None)


def _waits(section: Mapping[str, Any] | None, events: Iterable[Event]) -> Iterable[answers.TimeBar]:
    """Yield what was waited for, from when it was asked to when it was answered."""
    asked: dict[str, str] = {}
    for one in events:
        if one.kind in ("question asked", "timer asked"):
            asked[one.what] = one.at.isoformat()
        elif one.kind in ("question done", "timer done") and one.what in asked:
            choice = str(one.details.get("choice", ""))
            yield _bar("wait", one.what, choice, asked.pop(one.what), one.at.isoformat(), by=one.by)
    for name, wait in ((section or {}).get("open") or {}).items():
        yield _bar("wait", wait.get("question") or name, "waiting", asked.get(name), None)


def _before(at: str, seconds: float | None) -> str:
    return datetime.fromtimestamp(_seconds(at) - (seconds or 0), tz=datetime.fromisoformat(at).tzinfo).isoformat()


def _after(at: str | None, seconds: float | None, status: str | None) -> str | None:
    if at is None or status == "running" or not seconds:
        return None
    return datetime.fromtimestamp(_seconds(at) + seconds, tz=datetime.fromisoformat(at).tzinfo).isoformat()


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def idle(times: Iterable[str]) -> list[tuple[str, str]]:
    """Return the stretches in which nothing happened that are so long that they would squash the rest."""
    ordered = sorted(set(times), key=_seconds)
    if len(ordered) < 3:  # noqa: PLR2004 - between two moments is the whole of it
        return []
    whole = _seconds(ordered[-1]) - _seconds(ordered[0])
    least = max(_IDLE_LEAST_S, whole * _IDLE_SHARE)
    pairs = pairwise(ordered)
    return [(one, other) for one, other in pairs if _seconds(other) - _seconds(one) > least]
