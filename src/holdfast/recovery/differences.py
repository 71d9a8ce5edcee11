"""What differs between two values, by place: the least that turns one into the other; pure.

Types count: 1, True and 1.0 differ, and so do a tuple and a list. The order of a mapping's keys does not.
"""

from __future__ import annotations

from datetime import datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.encode.values import below
from holdfast.recovery.align import align
from holdfast.recovery.fingerprints import Vague, exact_bytes, fields_of, float_token, moment_token, print_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

Kind = Literal["added", "removed", "changed"]
_DEEPEST = 100  # what is nested deeper is compared as a whole
_DEEPEST_EQUAL = 10_000
_ATOMS = frozenset({str, int, bool, bytes, type(None)})


class Difference(msgspec.Struct, frozen=True):
    """One place that differs. A removed item of a list has its old index in its path, everything else new ones.

    `steps` is the path for programs: ("key", k), ("index", n), ("field", name) or ("member", item) of a set.
    """

    path: str
    kind: Kind
    old: Any = None
    new: Any = None
    steps: tuple[tuple[str, Any], ...] = ()


def compare(old: Any, new: Any, *, where: str = "state") -> list[Difference]:
    """Return every difference between two values, in the order of their places."""
    return list(_differences(old, new, where, (), 0, is_unequal=True))


def _differences(
    old: Any, new: Any, where: str, steps: tuple[Any, ...], depth: int, *, is_unequal: bool = False
) -> Iterator[Difference]:
    """Yield the differences; `is_unequal` says that looking at the whole first would be in vain."""
    if old is new:
        return
    kind = type(old)
    if kind is type(new) and depth < _DEEPEST:
        if kind is dict:
            exact = None if is_unequal else exact_bytes(old)
            if exact is None or exact != exact_bytes(new):
                yield from _of_mappings(old, new, where, steps, depth)
            return
        if kind is list or kind is tuple:
            yield from _of_lists(old, new, where, steps, depth)
            return
        if kind is set or kind is frozenset:
            yield from _of_sets(old, new, where, steps)
            return
        fields = fields_of(kind)
        if fields:
            for field in fields:
                one, other = getattr(old, field, _MISSING), getattr(new, field, _MISSING)
                place, step = f"{where}.{field}", (*steps, ("field", field))
                yield from _one_sided(one, other, place, step) or _differences(one, other, place, step, depth + 1)
            return
    if not same(old, new):
        yield Difference(where, "changed", old, new, steps)


def _of_mappings(
    old: dict[Any, Any], new: dict[Any, Any], where: str, steps: tuple[Any, ...], depth: int
) -> Iterator[Difference]:
    olds, news = _by_token(old), _by_token(new)
    for token, key in olds.items():
        one, other = old[key], new[news[token]] if token in news else _MISSING
        kind = type(one)
        if one is other or (kind in _ATOMS and kind is type(other) and one == other):
            continue
        place, step = below(where, key), (*steps, ("key", key))
        if other is _MISSING:
            yield Difference(place, "removed", one, None, step)
        elif kind in _ATOMS:
            yield Difference(place, "changed", one, other, step)
        else:
            yield from _differences(one, other, place, step, depth + 1)
    for token, key in news.items():
        if token not in olds:
            yield Difference(below(where, key), "added", None, new[key], (*steps, ("key", key)))


def _of_lists(old: Any, new: Any, where: str, steps: tuple[Any, ...], depth: int) -> Iterator[Difference]:
    olds, news = [*map(print_of, old)], [*map(print_of, new)]
    if olds == news and not any(type(one) is Vague for one in olds):
        return
    equal, edited = align(old, new, (olds, news))
    known = {pair for pair in equal if type(olds[pair[0]]) is not Vague}
    i, j = 0, 0
    for a, b in [*sorted([*equal, *edited]), (len(old), len(new))]:
        for index in range(i, a):
            yield Difference(f"{where}[{index}]", "removed", old[index], None, (*steps, ("index", index)))
        for index in range(j, b):
            yield Difference(f"{where}[{index}]", "added", None, new[index], (*steps, ("index", index)))
        if a < len(old) and b < len(new) and (a, b) not in known:
            place, step = f"{where}[{b}]", (*steps, ("index", b))
            yield from _differences(old[a], new[b], place, step, depth + 1, is_unequal=True)
        i, j = a + 1, b + 1


def _of_sets(old: Any, new: Any, where: str, steps: tuple[Any, ...]) -> Iterator[Difference]:
    olds, news = _by_token(old), _by_token(new)
    place = f"{where}{{}}"
    for token, item in olds.items():
        if token not in news:
            yield Difference(place, "removed", item, None, (*steps, ("member", item)))
    for token, item in news.items():
        if token not in olds:
            yield Difference(place, "added", None, item, (*steps, ("member", item)))


_MISSING = object()


def _one_sided(old: Any, new: Any, where: str, steps: tuple[Any, ...]) -> list[Difference]:
    """Return the difference of a field that only one of two objects has."""
    if (old is _MISSING) == (new is _MISSING):
        return []
    if old is _MISSING:
        return [Difference(where, "added", None, new, steps)]
    return [Difference(where, "removed", old, None, steps)]


def same(old: Any, new: Any) -> bool:
    """Tell whether two values are alike to the last type; NaN is like NaN, and 0.0 is not like -0.0."""
    pairs = [(old, new, 0)]
    while pairs:
        old, new, depth = pairs.pop()
        if old is new:
            continue
        kind = type(old)
        if kind is not type(new) or depth > _DEEPEST_EQUAL:
            return False
        if kind in _ATOMS:
            if old != new:
                return False
            continue
        inside = _inside(kind, old, new)
        if inside is None:
            return False
        pairs += [(one, other, depth + 1) for one, other in inside]
    return True


def _inside(kind: type, old: Any, new: Any) -> list[tuple[Any, Any]] | None:
    """Return what must be alike for two values of one type to be, None if they are not whatever is inside."""
    if kind is list or kind is tuple:
        return list(zip(old, new, strict=True)) if len(old) == len(new) else None
    if kind is dict:
        if len(old) != len(new):
            return None
        if all(type(key) is str for key in old):
            found = [(item, new.get(key, _MISSING)) for key, item in old.items()]
            return found if all(type(key) is str for key in new) else None
        olds, news = _by_token(old), _by_token(new)
        return [(old[key], new[news[token]]) for token, key in olds.items()] if olds.keys() == news.keys() else None
    if kind is set or kind is frozenset:
        return [] if len(old) == len(new) and _by_token(old).keys() == _by_token(new).keys() else None
    fields = fields_of(kind)
    if fields:
        return [(getattr(old, field, _MISSING), getattr(new, field, _MISSING)) for field in fields]
    return [] if _same_atoms(kind, old, new) else None


def _same_atoms(kind: type, old: Any, new: Any) -> bool:
    if kind is float:
        return float_token(old) == float_token(new)
    if kind is Decimal:
        return bool(old.as_tuple() == new.as_tuple())
    if kind is datetime or kind is time:
        return moment_token(old) == moment_token(new)
    try:
        return bool(old == new)
    except Exception:  # noqa: BLE001 - an object that cannot be compared is not known to be alike
        return False


def _by_token(values: Any) -> dict[Hashable, Any]:
    """Return keys or members by something that tells 1 from True and 1.0; NaNs are numbered, as each is its own."""
    found: dict[Hashable, Any] = {}
    for value in values:
        token: Hashable = value if type(value) is str else _token(value)
        number = 0
        while token in found:
            number += 1
            token = (token, number)
        found[token] = value
    return found


def _token(value: Any) -> Hashable:
    kind = type(value)
    if kind is tuple:
        return (kind, *(_token(item) for item in value))
    if kind is frozenset:
        return (kind, frozenset(_by_token(value)))
    if kind is float:
        return (kind, float_token(value))
    if kind is Decimal:
        return (kind, value.as_tuple())
    if kind is datetime or kind is time:
        return (kind, moment_token(value))
    return (kind, value)
