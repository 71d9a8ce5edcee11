"""Values in texts and in the arguments of commands."""

from functools import partial

import pytest

from holdfast.errors import UsageError
from holdfast.flow.names import find
from holdfast.flow.template import TemplateError, fill, fill_arguments, fill_value, names_in, shell_names_in

TREE = {
    "params": {"goal": "win", "n": 3, "flag": True, "none": None, "data": {"a": [1, "é"]}, "option": "--eval=x"},
    "failure": 'it\'s "bad" $(x) `y` \\',
}
VALUE = partial(find, TREE)


def test_names_are_filled_in_and_doubled_braces_are_braces():
    assert fill("go {params.goal} x{{y}} {params.n} {params.flag}{params.none}", VALUE) == "go win x{y} 3 true"


def test_data_is_shown_as_json_and_reached_by_dots():
    assert fill("{params.data} {params.data.a.1}", VALUE) == '{"a": [1, "é"]} é'


def test_a_text_that_is_one_name_becomes_the_value_itself():
    assert fill_value({"x": ["{params.data}", "n={params.n}", 5]}, VALUE) == {"x": [{"a": [1, "é"]}, "n=3", 5]}


@pytest.mark.parametrize(
    "text", ["{", "}", "{}", "a{print $1}", "{x y}", "{x", "x}", "{1x}", "{x:raw}", "{x!r}", "{a..b}", '{"a": 1}']
)
def test_a_brace_that_is_no_name_is_refused_with_the_way_to_write_it(text):
    with pytest.raises(TemplateError, match=r"\{\{|\}\}"):
        names_in(text)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("params.gaol", "did you mean 'goal'?"),
        ("parms.goal", "did you mean 'params'?"),
        ("params.data.a.7", "a list of 2"),
        ("params.goal.x", "a plain value"),
        ("params.none.x", "is nothing"),
    ],
)
def test_an_unknown_name_is_said_with_the_nearest(name, said):
    with pytest.raises(UsageError) as caught:
        fill(f"{{{name}}}", VALUE)
    assert said in str(caught.value)


def test_variables_of_a_shell_are_left_to_it():
    assert fill("echo ${HOME} ${X:-a} ${#X} {params.n}", VALUE) == "echo ${HOME} ${X:-a} ${#X} 3"
    assert shell_names_in("${A} $B ${C%%x}") == ["A", "C"]


def test_each_argument_is_filled_in_by_itself_and_stays_one():
    """Proves F4."""
    assert fill_arguments(["claude", "-p", "{failure}", "n={params.n}", "", "{params.none}"], VALUE) == [
        "claude", "-p", TREE["failure"], "n=3", "", "",
    ]  # fmt: skip


def test_an_argument_that_is_an_option_because_of_its_value_is_refused_unless_options_have_ended():
    """Proves F4."""
    with pytest.raises(TemplateError, match="put '--' before it"):
        fill_arguments(["make", "{params.option}"], VALUE)
    with pytest.raises(TemplateError, match="put '--' before it"):
        fill_arguments(["make", "{params.none}{params.option}"], VALUE)
    assert fill_arguments(["make", "--", "{params.option}"], VALUE)[2] == "--eval=x"
    assert fill_arguments(["make", "--x={params.option}", "-{params.n}"], VALUE)[1:] == ["--x=--eval=x", "-3"]


def test_what_is_too_long_for_an_argument_is_said_with_what_to_do():
    with pytest.raises(TemplateError, match="_FILE"):
        fill_arguments(["x", "{v}"], lambda _: "é" * 60_000)


def test_a_zero_byte_is_refused():
    with pytest.raises(TemplateError, match="zero byte"):
        fill("{v}", lambda _: "a\0b")
