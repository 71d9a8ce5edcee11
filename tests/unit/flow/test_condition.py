import contextlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.flow.condition import ConditionError, parse_condition
from holdfast.flow.names import find

VALUES = partial(
    find,
    {"a": 1, "b": {"c": "ok", "list": [1, 2]}, "phases": {"add-login": {"done": True}}, "nothing": None, "t": "x"},
)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("a == 1", True),
        ("a != 1", False),
        ("a < 2 and a >= 1", True),
        ("a > 5 or b.c == 'ok'", True),
        ("not a == 1", False),
        ("not (a == 2) and true", True),
        ("phases.add-login.done", True),
        ("nothing == null", True),
        ("nothing", False),
        ("b.c in ['ok', \"fine\"]", True),
        ("a not in b.list", False),
        ("t in 'xyz'", True),
        ("a == -1", False),
        ("a == 1.0", True),
        ("False or None == nothing", True),
        ("b.list == [1, 2,]", True),
        ("[] == []", True),
        ("a == 2 or a == 1 and b.c == 'no'", False),
        ("not not a", True),
        ("b.list.1 == 2", True),
    ],
)
def test_conditions_mean_what_they_say(text, truth):
    assert parse_condition(text).holds(VALUES) is truth


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at its end"),
        ("a ==", "at its end"),
        ("a = 1", "'='"),
        ("a == 1 b", "at 'b'"),
        ("(a", ") is expected"),
        ("a < 1 < 2", "one comparison at a time"),
        ("a and", "expected"),
        ("and a", "expected"),
        ("f(1)", "at '('"),
        ("a + 1", "'+' is not understood"),
        ("a.b()", "at '('"),
        ("__import__('os')", "at '('"),
        ("a[0]", "at '['"),
        ("'open", "not understood"),
        ("a is None", "at 'is'"),
        ("lambda: 1", "not understood"),
        ("a; b", "';'"),
        ("x" * 3000, "at most"),
        ("(" * 500 + "a" + ")" * 500, "nested too deeply"),
        ("not " * 400 + "a", "nested too deeply"),
        ("[" * 400, "nested too deeply"),
        ("a not b", "in is expected"),
        ("1abc == 1", "not understood"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(text, said):
    with pytest.raises(ConditionError) as caught:
        parse_condition(text)
    assert said in str(caught.value)


def test_the_names_of_a_condition_are_known_before_it_is_asked():
    assert parse_condition("a == 1 or b.c in [t, 'x'] and not a").names == ("a", "b.c", "t")


def test_values_that_cannot_be_compared_are_said_with_the_condition():
    with pytest.raises(ConditionError, match="does not fit its values"):
        parse_condition("a < b.c").holds(VALUES)


def test_what_decides_early_is_not_asked_further():
    assert parse_condition("a == 1 or not_there").holds(VALUES)


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_refused(text):
    with contextlib.suppress(ConditionError):
        parse_condition(text)


def expressions():
    leaf = st.sampled_from(["a", "1", "'x'", "t", "true", "false", "b.c", "2", "nothing"])
    compared = st.tuples(leaf, st.sampled_from(["==", "!="]), leaf).map(" ".join)
    return st.recursive(
        compared | leaf,
        lambda inner: (
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})")
            | inner.map(lambda e: f"not ({e})")
        ),
        max_leaves=8,
    )


@given(expressions())
def test_conditions_agree_with_python(text):
    names = {"a": 1, "t": "x", "true": True, "false": False, "nothing": None, "b": type("B", (), {"c": "ok"})}
    assert parse_condition(text).holds(VALUES) == bool(eval(text, {"__builtins__": {}}, names))
