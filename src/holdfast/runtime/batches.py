"""Tasks with needs, as batches that can run one after another; pure.

A batch holds every task whose needs are met by what is done and by the batches before it. What is done is left out, so
batches made again in the middle of the work hold exactly what is still to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import GraphInvalid
from holdfast.model.nearest import hint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    Needs = Mapping[str, Collection[str]]


def check_graph(needs: Needs) -> None:
    """Raise GraphInvalid for a need that is not a task, with the nearest, and for a circle, which is named."""
    for name, wanted in needs.items():
        for other in wanted:
            if other not in needs:
                known = (task for task in needs if task != name)
                raise GraphInvalid(f"task {name!r} needs {other!r}, which is not a task: {hint(other, known)}")
    circle = find_circle(needs)
    if circle:
        shown = " -> ".join(circle)
        raise GraphInvalid(f"these tasks need each other in a circle: {shown}. Take one of the needs away")


def find_circle(needs: Needs) -> list[str]:
    """Return one circle of needs, its first task at both ends, or nothing."""
    settled: set[str] = set()
    for start in needs:
        circle = _circle_from(start, needs, settled)
        if circle:
            return circle
    return []


def _circle_from(start: str, needs: Needs, settled: set[str]) -> list[str]:
    if start in settled:
        return []
    path = [start]
    on_path = {start: 0}
    ahead = [iter(needs.get(start, ()))]
    while path:  # a loop, not recursion: a chain of needs may be longer than Python's stack
        step = next(ahead[-1], None)
        if step is None:
            ahead.pop()
            done = path.pop()
            del on_path[done]
            settled.add(done)
        elif step in on_path:
            return [*path[on_path[step] :], step]
        elif step not in settled:
            on_path[step] = len(path)
            path.append(step)
            ahead.append(iter(needs.get(step, ())))
    return []


def make_batches(needs: Needs, *, done: Collection[str] = (), without: Collection[str] = ()) -> list[list[str]]:
    """Return the batches of what is not done, in the order the tasks were given; GraphInvalid if there can be none.

    Tasks in `without` are left out, and with them all that need them.
    """
    check_graph(needs)
    out = set(without) | held_back(needs, without)
    waiting = {
        name: {other for other in wanted if other not in done}
        for name, wanted in needs.items()
        if name not in done and name not in out
    }
    needed_by: dict[str, list[str]] = {}
    for name, wanted in waiting.items():
        for other in wanted:
            needed_by.setdefault(other, []).append(name)
    place = {name: index for index, name in enumerate(waiting)}
    found: list[list[str]] = []
    batch = [name for name, wanted in waiting.items() if not wanted]
    while batch:
        found.append(batch)
        ready: list[str] = []
        for name in batch:
            for other in needed_by.get(name, ()):
                waiting[other].discard(name)
                if not waiting[other]:
                    ready.append(other)
        batch = sorted(ready, key=place.__getitem__)
    return found


def held_back(needs: Needs, failed: Iterable[str]) -> set[str]:
    """Return every task that needs one of these, directly or through others; not these themselves."""
    needed_by: dict[str, list[str]] = {}
    for name, wanted in needs.items():
        for other in wanted:
            needed_by.setdefault(other, []).append(name)
    first = set(failed)
    found: set[str] = set()
    ahead = list(first)
    while ahead:
        for name in needed_by.get(ahead.pop(), ()):
            if name not in found and name not in first:
                found.add(name)
                ahead.append(name)
    return found
