"""A flow's progress: a live view in a terminal, plain lines elsewhere, JSON lines for machines.

Text from agents is shown without control characters: what a model prints must not move a person's cursor.
"""

from __future__ import annotations

import threading
import unicodedata
from typing import TYPE_CHECKING, Literal

from holdfast.flow.duration import show_duration
from holdfast.flow.events import Event, json_line
from holdfast.flow.view import BudgetView, PhaseView, TaskView, View, fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Style = Literal["live", "lines", "json"]

_SIGNS = {"pending": "·", "running": "▸", "done": "✓", "kept": "=", "failed": "✗", "skipped": "-", "waiting": "?"}
_MOST_TASKS = 12
_BAR = 20
_OFTEN_S = 0.1
_TICK_S = 1.0
_FAILURES = {"task_failed", "phase_failed", "flow_failed"}
_QUIET = {"task_output", "checkpoint", "budget", "gate_started", "protected"}
_NOTICES = {
    "flow_changed", "subject_changed", "background_ended", "artifact_gone",
    "hook_failed", "report_refused", "knowledge_failed",
}  # fmt: skip


class Progress:
    """An observer that shows a flow through `write`; it may be called from several threads."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        style: Style = "lines",
        width: Callable[[], int] = lambda: 80,
        height: Callable[[], int] | None = None,
        monotonic: Callable[[], float] | None = None,
        output: bool = False,
        tick_s: float = _TICK_S,
    ) -> None:
        """With `output`, plain lines hold what tasks print, too.

        With a clock (`monotonic`) a live view is drawn again every `tick_s` until it is closed.
        """
        self.view = View()
        self._write = write
        self._style = style
        self._width = width
        self._height = height
        self._tick_s = tick_s
        self._ticker: _Ticker | None = None
        self._now = (0.0, 0.0)  # the time of the last event, and when that was by the clock that never jumps
        self._monotonic = monotonic
        self._output = output
        self._drawn = 0
        self._drawn_at = float("-inf")
        self._failures: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Take one event in, and show it."""
        with self._lock:
            self.view = fold(self.view, event)
            if self._style == "json":
                self._write(json_line(event))
            elif self._style == "lines":
                line = line_of(event, output=self._output, said=self._failures)
                if line is not None:
                    self._write(line + "\n")
            else:
                self._live(event)
            if event.kind in _FAILURES and event.text:
                self._failures.append(event.text.partition("\n")[0])

    def unsaid(self, text: str) -> str:
        """Return a text without the failures that were shown already."""
        return text if self._style == "json" else without_said(text, self._failures)

    def _live(self, event: Event) -> None:
        now = event.at.timestamp()
        if self._monotonic is not None:
            self._now = now, self._monotonic()
            if self._ticker is None:
                self._ticker = _Ticker(self._tick, self._tick_s)
        if event.kind in _NOTICES or (event.kind == "task_started" and event.text):
            above = f"\x1b[{self._drawn}F\x1b[0J" if self._drawn else ""
            self._write(f"{above}{line_of(event)}\n")  # it stays, and the view continues below it
            self._drawn = 0
        if self.view.flow and (event.kind not in _QUIET or self._is_due()):
            self._draw(now)

    def close(self) -> None:
        """Draw the last state, so that it stays on the screen; what comes later is drawn below it."""
        if self._ticker is not None:
            self._ticker.stop()
            self._ticker = None
        with self._lock:
            if self._style == "live" and self.view.flow:
                self._draw(None)
                self._drawn = 0

    def _tick(self) -> None:
        """Let the clocks of the view continue."""
        with self._lock:
            if self._monotonic is not None and self.view.status in ("running", "waiting"):
                told, by_clock = self._now
                self._draw(told + self._monotonic() - by_clock)

    def _is_due(self) -> bool:
        return self._monotonic is not None and self._monotonic() - self._drawn_at >= _OFTEN_S

    def _draw(self, now: float | None) -> None:
        most = self._height() - 1 if self._height is not None else None  # the cursor stands below the last line
        lines = render(self.view, self._width(), now=now, most=most)
        above = f"\x1b[{self._drawn}F" if self._drawn else ""
        self._write(above + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[0J")
        self._drawn = len(lines)
        if self._monotonic is not None:
            self._drawn_at = self._monotonic()


class _Ticker:
    """Calls something now and then on a thread of its own, until it is stopped."""

    def __init__(self, call: Callable[[], None], every_s: float) -> None:
        self._call = call
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-view", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._call()
            except (OSError, ValueError):  # nobody reads any more; who tells the next event hears of it
                return


def render(view: View, width: int, *, now: float | None = None, most: int | None = None) -> list[str]:
    """Return the live view as lines that fit into a width, and `most` as many; what runs is shown first."""
    rows = _rows(view, now)
    if most is not None and len(rows) > most:
        rows = _chosen(rows, max(1, most))
    return [fit(line, width) for _, line in rows]


# How much a line matters where there is no room for all: the less the more.
_FIRST, _RUNS, _STANDS, _BESIDE, _REST = range(5)


def _chosen(rows: list[tuple[int, str]], most: int) -> list[tuple[int, str]]:
    """Return the lines that matter most, in their order; of equals those that are nearest to what runs."""
    runs = next((at for at, (rank, _) in enumerate(rows) if rank == _RUNS), 0)
    ranked = sorted(range(len(rows)), key=lambda at: (rows[at][0], abs(at - runs)))
    shown = sorted(ranked[: max(1, most - 1)])
    told = [rows[at] for at in shown]
    return told if most == 1 else [*told, (_REST, f"… {len(rows) - len(told)} more lines")]


def _rows(view: View, now: float | None) -> list[tuple[int, str]]:
    """Return the lines of the live view, each with how much it matters."""
    head = f"{view.flow} · run {view.run}" if view.flow else "not begun"
    if view.started_at is not None and now is not None:
        head += f" · {show_duration(now - view.started_at)}"
    said = [task.detail for phase in view.phases.values() for task in phase.tasks.values() if task.status == "failed"]
    said = [detail for detail in said if detail]  # each failure stands once, where it happened
    detail = without_said(view.detail, said)
    rows = [(_FIRST, f"{head} · {view.status}" + (f": {detail}" if detail else ""))]
    for name, phase in view.phases.items():
        is_open = phase.status in ("running", "failed")
        rows.append((_RUNS if is_open else _REST, _phase_line(name, phase, said)))
        rows += _task_rows(phase, now) if is_open else []
    rows += [(_STANDS, _budget_line(name, one)) for name, one in view.budgets.items() if one.limit is not None]
    rows += [(_BESIDE, f"  | {line}") for line in view.output] if view.status == "running" else []
    if view.checkpoint:
        age = f" ({show_duration(now - view.checkpoint_at)} ago)" if now and view.checkpoint_at is not None else ""
        rows.append((_STANDS, f"saved: {without_said(view.checkpoint, said)}{age}"))
    if view.waiting:
        rows.append((_FIRST, f"? waiting: {without_said(view.waiting, said)}"))
        rows += [(_FIRST, f"  {view.hint}")] if view.hint else []
    if view.unprotected:
        rows.append((_FIRST, f"! UNPROTECTED {view.unprotected}"))
    return rows


def without_said(text: str, said: Sequence[str]) -> str:
    """Return a text without the failures in it that were said before: what is left tells where, and to what it led."""
    for failure in sorted(said, key=len, reverse=True):
        text = text.replace(failure, "")
    return text.rstrip(" :;") if said else text


def line_of(event: Event, *, output: bool = False, said: Sequence[str] = ()) -> str | None:
    """Return an event as a line for a log, and below it what a failed task printed or what to do; None for none.

    A failure that was `said` before is not repeated by the phase and the flow that fail by it.
    """
    if event.kind == "task_output":
        return "\n".join(f"  | {clean(line)}" for line in event.text.splitlines()) or None if output else None
    if event.kind in _QUIET:
        return None
    place = "/".join(part for part in (event.phase, event.task) if part)
    took = event.data.get("duration_s")
    parts = [
        event.at.strftime("%H:%M:%S"),
        event.kind.replace("_", " "),
        place,
        event.gate or "",
        f"[{show_duration(took)}]" if took is not None else "",
        _head(event, said),
    ]
    line = clean(" ".join(part for part in parts if part))
    hint = event.data.get("hint")
    below = event.text.splitlines()[1:] if event.kind == "task_failed" else ()
    return "\n".join([line, *(f"  | {clean(one)}" for one in below), *([f"  {clean(hint)}"] if hint else [])])


def _head(event: Event, said: Sequence[str]) -> str:
    head = event.text.partition("\n")[0]
    return without_said(head, said) if event.kind in ("phase_failed", "flow_failed", "waiting") else head


def clean(text: str) -> str:
    """Return a text without anything that a terminal would obey."""
    return "".join(char if unicodedata.category(char)[0] != "C" else " " if char == "\t" else "�" for char in text)


def fit(text: str, width: int) -> str:
    """Return a clean text cut to a number of columns; wide characters take two, combining ones none."""
    text = clean(text)
    used = 0
    for at, char in enumerate(text):
        columns = 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used + columns > width:
            return _cut(text[:at], width)
        used += columns
    return text


def _cut(text: str, width: int) -> str:
    while text and _columns(text) > width - 1:
        text = text[:-1]
    return text + "…" if width > 0 else ""


def _columns(text: str) -> int:
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _phase_line(name: str, phase: PhaseView, said: Sequence[str]) -> str:
    done = sum(task.status in ("done", "kept", "skipped") for task in phase.tasks.values())
    parts = [f"{_SIGNS[phase.status]} {name}"]
    if len(phase.tasks) > 1:
        parts.append(f"{done}/{len(phase.tasks)}")
    if phase.visits > 1:
        parts.append(f"round {phase.visits}")
    if phase.replans:
        parts.append(f"replanned {phase.replans}x")
    if phase.took_s is not None:
        parts.append(show_duration(phase.took_s))
    if phase.status == "kept":
        parts.append("kept from before")
    if detail := without_said(phase.detail, said):
        parts.append(f"- {detail}")
    return "  ".join(parts)


def _task_rows(phase: PhaseView, now: float | None) -> list[tuple[int, str]]:
    order = {"running": 0, "failed": 1, "waiting": 2, "done": 3, "kept": 3, "pending": 4, "skipped": 5}
    ranked = sorted(phase.tasks.items(), key=lambda item: order[item[1].status])[:_MOST_TASKS]
    shown = {name for name, _ in ranked}
    rows = [
        (_RUNS if task.status in ("running", "failed") else _REST, _task_line(name, task, now))
        for name, task in phase.tasks.items()
        if name in shown
    ]
    hidden = len(phase.tasks) - len(rows)
    return [*rows, (_REST, f"    … {hidden} more")] if hidden else rows


def _task_line(name: str, task: TaskView, now: float | None) -> str:
    parts = [f"    {_SIGNS[task.status]} {name}"]
    if task.agent:
        parts.append(f"({task.agent})")
    if task.gates:
        parts.append("gates " + "".join(_SIGNS[gate.status] for gate in task.gates.values()))
    if task.fixes:
        parts.append(f"fix {task.fixes}")
    if task.tries > 1:
        parts.append(f"try {task.tries}")
    if task.took_s is not None:
        parts.append(show_duration(task.took_s))
    elif task.status == "running" and task.started_at is not None and now is not None:
        parts.append(show_duration(now - task.started_at))
    if task.detail:
        parts.append(f"- {task.detail}")
    return " ".join(parts)


def _budget_line(name: str, budget: BudgetView) -> str:
    limit = budget.limit or 0
    share = min(1.0, budget.used / limit) if limit else 1.0
    full = round(share * _BAR)
    amounts = (
        f"{show_duration(budget.used)} of {show_duration(limit)}"
        if name == "time"
        else f"{budget.used:,g} of {limit:,g}"
    )
    return f"{name:>10} [{'#' * full}{'-' * (_BAR - full)}] {amounts} ({share:.0%}){'  !' if budget.warned else ''}"
