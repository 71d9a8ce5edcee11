"""The ways through a flow and its graphs: circles, and what can be reached. Pure, and without recursion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.flow.model import END

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.flow.model import Flow


def circle_in(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a circle of names that need each other, its first name again at its end; empty if there is none."""
    done: set[str] = set()
    for root in needs:
        path: list[str] = []
        on_path: set[str] = set()
        ahead = [(root, iter(needs[root]))] if root not in done else []
        if ahead:
            path.append(root)
            on_path.add(root)
        while ahead:
            name, rest = ahead[-1]
            need = next(rest, None)
            if need is None:
                ahead.pop()
                done.add(path.pop())
                on_path.discard(name)
            elif need in on_path:
                return [*path[path.index(need) :], need]
            elif need not in done:
                ahead.append((need, iter(needs[need])))
                path.append(need)
                on_path.add(need)
    return []


def ways_out(flow: Flow, phase: str) -> list[str]:
    """Return the phases that may follow one: its routes, and the one below it if none of them must be taken."""
    routes = flow.phases[phase].next
    ways = [route.to for route in routes]
    if not routes or routes[-1].when is not None:
        ways.append(flow.after(phase))
    return ways


def reachable(flow: Flow) -> set[str]:
    """Return the phases that some way leads to."""
    found: set[str] = set()
    ahead = [flow.first]
    while ahead:
        phase = ahead.pop()
        if phase not in found and phase in flow.phases:
            found.add(phase)
            ahead += ways_out(flow, phase)
    return found


def unconditional_circle(flow: Flow) -> list[str]:
    """Return phases that follow each other for ever whatever happens, empty if every way can end."""
    only = {name: ways_out(flow, name) for name in flow.phases}
    ends = {END}
    grown = True
    while grown:
        grown = False
        for name, ways in only.items():
            if name not in ends and any(way in ends for way in ways):
                ends.add(name)
                grown = True
    endless = {name: [way for way in ways if way not in ends] for name, ways in only.items() if name not in ends}
    return circle_in(endless)
