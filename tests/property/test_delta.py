"""A delta makes one value of the other, whatever they are."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.capture.delta import applied, delta_of
from holdfast.capture.sections import plain_value
from holdfast.encode.values import Packer
from holdfast.model.sections import Agent, AgentTask

LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4)
)


@given(VALUES, VALUES)
def test_a_delta_makes_one_value_of_the_other(before, after):
    changes = delta_of(before, after)
    assert applied(before, changes) == after
    assert bool(changes) == (before != after or type(before) is not type(after) or changes != [])


@given(VALUES, VALUES, VALUES)
def test_deltas_follow_each_other_after_packing(first, second, third):
    packer = Packer()
    value = first
    for before, after in ((first, second), (second, third)):
        value = applied(value, packer.unpack(packer.pack(delta_of(before, after), "d"), "d"))
    assert value == third


@given(st.lists(st.sampled_from(["pending", "running", "completed"]), min_size=1, max_size=4))
def test_a_part_is_changed_field_by_field(statuses):
    before = [Agent(id="a", status="pending", tasks={"t": AgentTask(status="pending")})]
    value = msgspec.to_builtins(before)
    for status in statuses:
        task = msgspec.structs.replace(before[0].tasks["t"], status=status)
        after = [msgspec.structs.replace(before[0], status=status, tasks={"t": task})]
        delta = [[path, kind, *map(plain_value, given)] for path, kind, *given in delta_of(before, after)]
        value = applied(value, delta)
        before = after
    assert value == msgspec.to_builtins(before)
