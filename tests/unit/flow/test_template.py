"""Values in texts and in shell commands; a value never becomes code by accident."""

import contextlib
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.flow.names import finder
from holdfast.flow.quoting import TemplateError
from holdfast.flow.template import fill, fill_shell, fill_value, names_in, shell_names_in, shell_places

TREE = {
    "params": {"goal": "win", "n": 3, "flag": True, "none": None, "data": {"a": [1, "é"]}},
    "failure": 'it\'s "bad" $(x) `y` \\',
}
VALUE = finder(TREE)


def test_names_are_filled_in_and_doubled_braces_are_braces():
    assert fill("go {params.goal} x{{y}} {params.n} {params.flag}{params.none}", VALUE) == "go win x{y} 3 true"


def test_data_is_shown_as_json_and_reached_by_dots():
    assert fill("{params.data} {params.data.a.1}", VALUE) == '{"a": [1, "é"]} é'


def test_a_text_that_is_one_name_becomes_the_value_itself():
    assert fill_value({"x": ["{params.data}", "n={params.n}", 5]}, VALUE) == {"x": [{"a": [1, "é"]}, "n=3", 5]}


@pytest.mark.parametrize(
    "text", ["{", "}", "{}", "a{print $1}", "{x y}", "{x", "x}", "{1x}", "{x:rew}", "{x!r}", "{a..b}", '{"a": 1}']
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


def test_variables_of_the_shell_are_left_to_it():
    assert fill_shell("echo ${HOME} ${X:-a} ${#X} {params.n}", VALUE) == "echo ${HOME} ${X:-a} ${#X} '3'"
    assert shell_names_in("${A} $B ${C%%x}") == ["A", "C"]


HOSTILE = [
    "; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "' ; touch pwned ; '",
    '" ; touch pwned ; "',
    "a\nb",
    "\\",
    "\\'",
    '\\"',
    "-rf /",
    "*",
    "~",
    "!!",
    "${HOME}",
    "$HOME",
    "#x",
    "",
    " ",
    "é\u202e",
    "a'b\"c",
    "'\"'\"'",
    "&& touch pwned",
    "\n# x",
]


@pytest.mark.parametrize(
    "command",
    [
        "printf %s {v}",
        "printf %s '{v}'",
        'printf %s "{v}"',
        "printf %s \"$(printf %s '{v}')\"",
        'printf %s "$(printf %s "{v}")"',
        'printf %s "$(printf %s {v})"',
        "(printf %s {v})",
        "true # it's a comment\nprintf %s {v}",
        "printf %s \\'\\\"{v} | cut -c 3-",
        'X=\'a\'{v}""; printf %s "$X" | tail -c +2',
        "if true; then printf %s {v}; fi",
        "{{ printf %s {v}; }}",
        'Y="it\'s"; printf %s "{v}"',
    ],
)
@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_in_a_command_is_only_ever_data(tmp_path, command, value):
    if "cut" in command or "$(" in command or "tail" in command:
        value = value.replace("\n", " ").rstrip() + "."
    script = fill_shell(command, lambda _: value)
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.decode().removesuffix("\n" if "cut" in command else "\0") == value
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=60, deadline=None)
@given(
    value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
    around=st.sampled_from(["{v}", "'{v}'", '"{v}"']),
)
def test_any_value_comes_out_of_the_shell_as_it_went_in(value, around):
    script = fill_shell(f"printf %s {around}", lambda _: value)
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout.decode() == value


@pytest.mark.parametrize(
    "command",
    [
        "echo `x {v}`",
        "echo hi # {v}",
        "cat <<EOF\n{v}\nEOF",
        "cat <<< {v}",
        "echo $'a' {v}",
        "echo \\{v}",
        'echo "\\{v}"',
        "echo $(({v}))",
        'echo "$(( {v} ))"',
        "((x={v}))",
        "case x in x) echo {v};; esac",
        '"$(case x in x) echo {v};; esac)"',
        "eval {v}",
        'eval "echo {v}"',
        "sh -c 'echo {v}'",
        'bash -ec "echo {v}"',
        "python3 -c 'print({v})'",
        "ssh host ls {v}",
        "echo {w:raw} {v}",
        "echo ${X:-'} {v}",
        "echo x) {v}",
        "cat <<'EOF' > f\n{v}\nEOF",
        'bash -euo pipefail -c "echo {v}"',
        "bash --norc -c 'echo {v}'",
        "sh \\\n -c 'echo {v}'",
        "timeout 5 'sh' -c 'echo {v}'",
        "su bob -c 'echo {v}'",
        "script -qc 'echo {v}' /dev/null",
        "python3 -W ignore -c 'print({v})'",
        "'eval' 'echo {v}'",
        "trap 'rm -f {v}' EXIT",
        "sed -n -e 's/a/{v}/p' f",
        "awk -F : '/{v}/'",
        "echo $(true)#'a\n{v}'",
    ],
)
def test_a_place_where_no_quoting_holds_is_refused_with_the_way_out(command):
    with pytest.raises(TemplateError, match="environment variable"):
        shell_places(command)


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'echo \"$1\"' _ {v}",
        "python3 script.py {v}",
        "echo '#' {v}",
        "cat ~/.ssh '{v}'",
        "python3 -m pytest -c '{v}'",
        "echo a#b {v}",
        'echo "#{v}"',
        "trap 'rm -f tmp' EXIT; echo '{v}'",
        "sed 's/a/b/' '{v}'",
        "awk -v x={v} '/x/'",
        "python3 tool.py -c '{v}'",
        "bash -e script.sh '{v}'",
    ],
)
def test_places_that_only_look_dangerous_are_allowed(command):
    shell_places(command)


def test_raw_is_the_way_out():
    assert fill_shell("{x:raw}", lambda _: "echo a | wc") == "echo a | wc"


def test_a_zero_byte_and_a_value_too_long_for_a_command_are_refused():
    with pytest.raises(TemplateError, match="zero byte"):
        fill_shell("echo {x}", lambda _: "a\0b")
    with pytest.raises(TemplateError, match="hand it over in a file"):
        fill_shell("echo {x}", lambda _: "é" * 60_000)


@pytest.mark.parametrize("command", ["x" * 100_001, "echo " + "{v} " * 501])
def test_a_command_that_no_shell_could_take_is_refused_at_once(command):
    with pytest.raises(TemplateError, match="put it into a script"):
        shell_places(command)


def test_a_value_that_is_no_text_is_refused():
    with pytest.raises(TemplateError, match="which is no text"):
        fill("{x}", lambda _: object())


@given(st.text(max_size=60))
def test_any_text_is_a_template_or_refused(text):
    with contextlib.suppress(TemplateError):
        shell_places(text)
