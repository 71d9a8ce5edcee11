import copy
import dataclasses
import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.checkpoint import SectionRecord
from holdfast.model.sections import Agent, Budget, Spending, TokenUsage
from holdfast.recovery.compare import Difference, agent_deltas, budget_delta, compare, compare_sections
from holdfast.recovery.differences import same
from holdfast.testing.strategies import HOSTILE, keys, values


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


class Node(msgspec.Struct):
    value: Any
    below: list[Any] = []


class Pair(NamedTuple):
    left: Any
    right: Any


class Color(Enum):
    RED = 1
    BLUE = 2


def applied(old, differences, depth=0):  # noqa: C901 - one branch for each kind of value
    """Turn the old value into the new one by nothing but the differences: removals, additions, then what is deeper."""
    here = [one for one in differences if len(one.steps) == depth]
    if here:
        return here[-1].new
    by_step = [one for one in differences if len(one.steps) == depth + 1]
    if isinstance(old, (set, frozenset)):
        kept = [m for m in old if not any(one.kind == "removed" and one.old is m for one in by_step)]
        return type(old)([*kept, *(one.new for one in by_step if one.kind == "added")])
    if type(old) in (list, tuple):
        gone = {one.steps[depth][1] for one in by_step if one.kind == "removed"}
        items = [item for index, item in enumerate(old) if index not in gone]
        for one in by_step:
            if one.kind == "added":
                items.insert(one.steps[depth][1], one.new)
        return type(old)(
            applied(item, inside(differences, depth, lambda step, i=index: step == ("index", i)), depth + 1)
            for index, item in enumerate(items)
        )
    if type(old) is dict:
        gone = [one.steps[depth][1] for one in by_step if one.kind == "removed"]
        result = []
        for key, item in old.items():
            if not any(key is one for one in gone):
                below = inside(differences, depth, lambda step, k=key: step[1] is k)
                result.append((key, applied(item, below, depth + 1)))
        return dict(result + [(one.steps[depth][1], one.new) for one in by_step if one.kind == "added"])
    if differences:
        names = {one.steps[depth][1] for one in differences}
        changes = {
            name: applied(getattr(old, name), inside(differences, depth, lambda step, n=name: step[1] == n), depth + 1)
            for name in names
        }
        if isinstance(old, Pair):
            return old._replace(**changes)
        replace = msgspec.structs.replace if isinstance(old, msgspec.Struct) else dataclasses.replace
        return replace(old, **changes)
    return old


def inside(differences, depth, wanted):
    """Return what lies at or below one step; an item that came or went as a whole is not below itself."""
    return [
        one for one in differences if wanted(one.steps[depth]) and (len(one.steps) > depth + 1 or one.kind == "changed")
    ]


objects = st.builds(Point, st.integers(), st.text()) | st.builds(Node, st.integers()) | st.builds(Pair, keys(), keys())
objects |= st.sampled_from(Color)
everything = values(objects, max_leaves=12)


def edited(value, draw):
    """Return a copy of a value with a few edits, so that most of two values is shared."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(0, 3))):
        place = value
        while True:
            inner = list(place.values()) if type(place) is dict else place if type(place) is list else []
            deeper = [one for one in inner if type(one) in (dict, list) and one]
            if not deeper or draw(st.booleans()):
                break
            place = draw(st.sampled_from(deeper))
        if type(place) is list:
            index = draw(st.integers(0, len(place)))
            what = draw(st.sampled_from(["insert", "delete", "set"]))
            if what == "insert":
                place.insert(index, copy.deepcopy(draw(everything)))
            elif place and what == "delete":
                del place[index - 1]
            elif place:
                place[index - 1] = copy.deepcopy(draw(everything))
        elif type(place) is dict:
            place[draw(keys())] = copy.deepcopy(draw(everything))
    return value


quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(everything, everything)
def test_applying_the_differences_of_any_two_values_gives_the_new_one(old, new):
    """Proves X5."""
    assert same(applied(old, compare(old, new)), new)


@quick
@given(st.data())
def test_applying_the_differences_after_a_few_edits_gives_the_new_one(data):
    """Proves X5."""
    old = data.draw(st.lists(everything, max_size=6) | st.dictionaries(keys(), everything, max_size=5))
    new = edited(old, data.draw)
    assert same(applied(old, compare(old, new)), new)


@quick
@given(everything)
def test_a_value_does_not_differ_from_itself_or_its_copy(value):
    """Proves X5."""
    assert compare(value, value) == []
    assert compare(value, copy.deepcopy(value)) == []
    assert compare([value], [copy.deepcopy(value)]) == []


@quick
@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_a_list_is_compared_by_its_longest_common_part(old, new):
    kept = len(old) - sum(one.kind != "added" for one in compare(old, new))
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, one in enumerate(old):
        for j, other in enumerate(new):
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if one == other else max(lengths[i][j + 1], lengths[i + 1][j])
    assert kept == lengths[-1][-1]


def paths(old, new):
    return [(one.path, one.kind) for one in compare(old, new)]


MESSAGES = [{"role": "user", "content": f"message {n}", "n": n} for n in range(50)]


def test_an_appended_message_is_one_difference():
    """Proves X5."""
    new = [*copy.deepcopy(MESSAGES), {"role": "assistant", "content": "hi"}]
    assert compare({"messages": MESSAGES}, {"messages": new}) == [
        Difference("state.messages[50]", "added", None, new[50], (("key", "messages"), ("index", 50)))
    ]


def test_an_insertion_in_the_middle_is_one_difference_and_so_is_a_removal():
    new = [*MESSAGES[:20], {"role": "tool"}, *MESSAGES[20:]]
    assert paths(MESSAGES, new) == [("state[20]", "added")]
    assert paths(new, MESSAGES) == [("state[20]", "removed")]


def test_an_edit_inside_a_message_is_found_where_it_is_also_beside_an_insertion():
    new = copy.deepcopy(MESSAGES)
    new[7]["content"] = "edited"
    assert paths(MESSAGES, new) == [("state[7].content", "changed")]
    new.insert(7, {"role": "tool", "content": "x", "n": -1})
    assert paths(MESSAGES, new) == [("state[7]", "added"), ("state[8].content", "changed")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, True), (1, 1.0), (0, False), ((1,), [1]), (0.0, -0.0), ("a", b"a"), ({1}, frozenset({1})), ({}, []),
        (Decimal("1.0"), Decimal("1.00")), (Point(1), Node(1)), (Pair(1, 2), (1, 2)), (Color.RED, Color.BLUE),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC, fold=1)),
    ],
)  # fmt: skip
def test_a_change_of_type_is_a_difference_wherever_it_is(old, new):
    """Proves X5."""
    assert [one.kind for one in compare(old, new)] == ["changed"]
    assert [one.kind for one in compare([0, old, 9], [0, new, 9])] == ["changed"]
    assert [one.kind for one in compare({"a": {"b": old}}, {"a": {"b": new}})] == ["changed"]


def test_keys_that_are_equal_and_of_another_type_are_other_keys():
    assert paths({1: "a"}, {True: "a"}) == [("state[1]", "removed"), ("state[True]", "added")]
    assert paths({(1,): 0}, {(True,): 0}) == [("state[(1,)]", "removed"), ("state[(True,)]", "added")]
    assert paths({1, 2}, {True, 2}) == [("state{}", "removed"), ("state{}", "added")]


def test_objects_are_compared_by_their_fields():
    assert paths(Point(1, [Node(1)]), Point(1, [Node(2)])) == [("state.y[0].value", "changed")]
    assert paths([Pair(1, 2)], [Pair(1, 3)]) == [("state[0].right", "changed")]


def test_the_order_of_keys_is_no_difference():
    assert compare({"a": 1, "b": [{"c": 1, "d": 2}]}, {"b": [{"d": 2, "c": 1}], "a": 1}) == []


def test_paths_are_written_as_refusals_write_them():
    old = {"a": [0, 1, 2, {"x": 1}], "odd key": 1, 7: 1, "\x1b[31m": 1}
    new = {"a": [0, 1, 2, {"x": 2}], "odd key": 2, 7: 2, "\x1b[31m": 2}
    assert [path for path, _ in paths(old, new)] == [
        "state.a[3].x", "state['odd key']", "state[7]", "state['\\x1b[31m']",
    ]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_keys_are_data(hostile):
    assert compare(hostile, copy.deepcopy(hostile)) == []
    assert same(applied({}, compare({}, hostile)), hostile)


def test_what_is_nested_without_end_is_compared_as_a_whole():
    def nested(depth, value):
        for _ in range(depth):
            value = [value]
        return value

    assert compare(nested(3_000, 1), nested(3_000, 1)) == []
    assert len(compare(nested(3_000, 1), nested(3_000, 2))) == 1
    loop, twin = [], []
    loop.append(loop)
    twin.append(twin)
    assert len(compare(loop, twin)) <= 1


def test_lists_of_the_same_few_values_are_compared_without_looking_at_every_pair(monkeypatch):
    assert compare([n % 2 for n in range(20_000)], [n // 3 % 2 for n in range(20_000)])
    monkeypatch.setattr("holdfast.recovery.align._MOST_CANDIDATES", 50)
    old, new = [n % 2 for n in range(300)], [9, *(n // 3 % 2 for n in range(300))]
    assert same(applied(old, compare(old, new)), new)


def test_objects_that_cannot_be_compared_are_a_difference_and_no_error():
    class Odd:
        def __eq__(self, other):
            raise RuntimeError

        __hash__ = None

    assert [one.kind for one in compare([Odd()], [Odd()])] == ["changed"]


def record(name, root):
    return SectionRecord(name, 1, root * 32, 1)


def section_diff(old, new):
    def reader(values):
        def read(name):
            read_names.append(name)
            return values[name]

        return read

    read_names = []
    olds = [record(name, b"o" if name in new and new[name] != value else b"=") for name, value in old.items()]
    news = [record(name, b"n" if name in old and old[name] != value else b"=") for name, value in new.items()]
    return compare_sections(olds, news, reader(old), reader(new), names=("cp_a", "cp_b")), read_names


def test_only_sections_whose_roots_differ_are_read():
    """Proves X5."""
    found, read = section_diff({"state": {"a": 1}, "big": [1]}, {"state": {"a": 2}, "big": [1], "fresh": 1})
    assert read == ["state", "state", "fresh"]
    assert [(one.name, one.kind) for one in found.sections] == [("state", "changed"), ("fresh", "added")]
    assert found.unchanged == ("big",)
    assert not section_diff({"a": 1}, {"a": 1})[0]


def test_files_are_said_to_differ_and_are_not_read_here():
    found, read = section_diff({"workspace": 1}, {"workspace": 2})
    assert found.files_differ
    assert read == []


def test_budgets_and_agents_have_deltas_of_their_own():
    """Proves X5."""
    budget = [Budget(spending={"tokens": Spending(used=n, limit=100), "money": Spending(used=1)}) for n in (10, 35)]
    agents = [
        [Agent(id="coder", status=status, attempts=n, tokens=TokenUsage(input=n * 10))]
        for n, status in enumerate(("running", "completed"), 1)
    ]
    agents[1].append(Agent(id="new", status="pending"))
    found, _ = section_diff({"budget": budget[0], "agents": agents[0]}, {"budget": budget[1], "agents": agents[1]})
    assert [str(one) for one in found.budget] == ["tokens: 10 -> 35 of 100 (+25)"]
    assert [str(one) for one in found.agents] == [
        "coder: running -> completed, +1 attempts, +10 input tokens",
        "new: absent -> pending",
    ]
    plain = msgspec.to_builtins(budget)
    assert budget_delta(*plain) == budget_delta(*budget)
    assert agent_deltas(*msgspec.to_builtins(agents)) == agent_deltas(*agents)
    assert budget_delta(None, budget[0])[0].used_before is None
    assert agent_deltas(None, None) == ()


def test_a_diff_prints_in_bounded_lines_and_serialises():
    old = {"state": {"text": "x" * 10_000, "n": 1, "many": list(range(1_000)), "\x1b]0;evil\x07": 1}}
    new = {"state": {"text": "y" * 10_000, "n": True, "many": [], "raw": b"\0" * 9_000, "evil": "\x1b[2J\u202e"}}
    found, _ = section_diff(old, new)
    lines = found.lines(width=60, most=20)
    assert lines[0] == "~ state (1,005 differences)"
    assert "  ~ state.n: 1 -> True" in lines
    assert lines[-1] == "  ... and 985 more"
    assert all(len(line) < 400 and line.isprintable() for line in lines)
    text = json.dumps(found.to_json(max_chars=100), allow_nan=False)
    assert len(text) < 200_000
    assert json.loads(text)["sections"][0]["count"] == 1_005


@quick
@given(everything, everything)
def test_any_diff_prints_and_serialises(old, new):
    found, _ = section_diff({"state": [0, old]}, {"state": [1, new]})
    json.dumps(found.to_json(), allow_nan=False).encode()
    assert all(line.isprintable() for line in found.lines())


def test_no_difference_says_so():
    assert section_diff({}, {})[0].lines() == ["no difference"]
