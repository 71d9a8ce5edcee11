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


CODE = [
    "sh -c {v}",
    "bash -c {v}",
    "bash -lc {v}",
    "sh -c -- {v}",
    "sh -c - {v}",
    "sh -o errexit -c {v}",
    "bash -co pipefail {v}",
    "bash +o posix -c -e {v}",
    "bash --rcfile f -c {v}",
    "zsh -c {v}",
    "/bin/sh -c {v}",
    "su -c {v}",
    "su bob {v}",
    "script -qc {v}",
    "watch {v}",
    "xargs sh -c {v}",
    '$SHELL -c "{v}"',
    '"${{SHELL:-sh}}" -lc {v}',
    "$(command -v sh) -c {v}",
    "/bin/?ash -c {v}",
    "sh {v}",
    "sh ./{v}.sh",
    "sh -s{v}",
    "python3 -c {v}",
    "python3.12 -Bc {v}",
    "python3 {v}",
    "python3 -m {v}",
    "node -e {v}",
    "node --eval={v}",
    "node -pe {v}",
    "perl -e {v}",
    "perl -ne {v} f",
    "ruby -e {v}",
    "php -r {v}",
    "lua -e {v}",
    "fish -c {v}",
    "ssh host {v}",
    "ssh {v} uptime",
    "sed {v} f",
    "sed f -e {v}",
    "awk {v}",
    "awk -f {v}",
    "trap {v} EXIT",
    ". {v}",
    "let {v}",
    "[[ {v} -eq 1 ]]",
    "read {v}",
    "unset {v}",
    "echo $[ {v} ]",
    'echo "$[ {v} ]"',
    "coproc sh -c {v}",
    "ksh93 -c {v}",
    "s'h' \"-c\" {v}",
    "s\\h -c {v}",
    "sh -c 'cd x; '{v}",
    "ipython3 -c {v}",
    "expect -c {v}",
    "env X=1 sh -c {v}",
    "env - sh -c {v}",
    "nice -n 5 sh -c {v}",
    "timeout -k 1 5 sh -c {v}",
    "sudo -u bob sh -c {v}",
    "exec -a x sh -c {v}",
    "command sh -c {v}",
    "X=1 nohup time sh -c {v}",
    "docker exec box sh -c {v}",
    "find . -exec sh -c {v} \\;",
    "if sh -c {v}; then true; fi",
    "true && ! sh -c {v}",
    "(sh -c {v})",
    "echo $(sh -c {v})",
    "2>/dev/null sh >f -c {v}",
    'sh -c "$(echo {v})"',
    "eval $(echo {v})",
    "sh <(echo {v})",
    "echo {v} | sh",
    "echo {v} | cat | bash -s x",
    "echo {v} |& sh -",
    "(echo {v}) | python3",
    "{{ echo {v}; }} | sh",
    "if true; then echo {v}; fi | sh",
    "for x in {v}; do echo $x; done | sh",
    "echo {v} | (cat; sh)",
    "echo {v} | {{ cat; sh; }}",
    "echo {v} | sudo sh",
    "echo {v} | sh /dev/stdin",
    "echo {v} | python3 -",
    "echo {v} | ssh -p 22 host",
    "echo {v} | at now",
    "echo {v} | xargs sh -c",
    "echo {v} | xargs -I% sh -c 'echo %'",
    "echo {v} | xargs env",
    "echo {v} > >(sh)",
    "sh < {v}",
    "true; echo {v} 2>&1 | sh # run",
    # a pipe at the end of its line
    "echo {v} |\n  sh",
    "echo {v} |\n\n sh",
    "echo {v} | # c\n # d\n sh",
    "echo {v} |& \n sh",
    "echo {v} | cat |\n (sh)",
    "echo {v} | while true; do for x in a; do true; done; sh; done",
    "echo {v} | select x in a; do sh; done",
    # an option of a prefix that has its argument apart, or is not known
    "nice --adjustment 5 script -qc {v} /dev/null",
    "timeout --signal TERM 5 sh {v}",
    "timeout --signal TERM 5 env {v}",
    "sudo --user bob ssh host {v}",
    "env --chdir /tmp ssh host {v}",
    "flock --timeout 5 f ssh h {v}",
    "stdbuf --output L ssh h {v}",
    "chroot --userspec a /r ssh h {v}",
    "sudo -t type ssh h {v}",
    "unshare -l x ssh h {v}",
    "xargs -d'\\n' ssh h {v}",
    "env -S 'ssh h' ls {v}",
    "env --split-string='ssh h' ls {v}",
    "echo {v} | env --chdir /tmp sh",
    # a command behind a name
    "f() {{ eval {v}; }}; f",
    "f () {{ sh -c {v}; }}; f",
    "f( ) {{ eval {v}; }}",
    "if true; then f() {{ eval {v}; }}; fi",
    "function f {{ eval {v}; }}",
    "function f() {{ eval {v}; }}",
    "coproc N {{ eval {v}; }}",
    "coproc N while eval {v}; do true; done",
    "coproc ssh '{{' ls {v}",
    "echo {v} | {{ coproc N {{ true; }}; sh; }}",
    # words that xargs gives
    "printf %s {v} | xargs -0 python3 -c",
    "printf %s {v} | xargs -0 python3 -m",
    "printf %s {v} | xargs perl -e",
    "printf %s {v} | xargs -n1 perl -w -e 1 -e",
    "printf %s {v} | xargs sed -e",
    "printf %s {v} | xargs sed --expression",
    "printf %s {v} | xargs ssh host ls",
    "printf %s {v} | xargs -I% %",
    "printf %s {v} | xargs -I% docker exec c sh -c %",
    # a shell behind a prefix that is not known, or that another program starts
    "echo {v} | docker exec -i c sh",
    "echo {v} | docker exec -i c bash -x",
    "echo {v} | docker run -i python:3.12",
    "echo {v} | kubectl exec -i p -- bash",
    "echo {v} | kubectl exec -i p -- python3 -",
    "echo {v} | $SHELL",
    'echo {v} | "${{SHELL:-/bin/sh}}"',
    "echo {v} | su bob",
    "echo {v} | sudo -s",
    "echo {v} | chroot /r",
    "echo {v} | . /dev/stdin",
]


@pytest.mark.parametrize("command", CODE)
def test_what_a_known_program_would_read_as_code_is_refused_with_the_way_out(command):
    with pytest.raises(TemplateError, match="environment variable"):
        shell_places(command)


@pytest.mark.parametrize(
    "command",
    [
        "{v}",
        "{v} -x",
        "'{v}'",
        "./tools/{v}",
        "$(echo {v})",
        "env {v}",
        "timeout 5 {v}",
        "xargs {v}",
        "sudo -n {v}",
        "flock x -c {v}",
        "X=1 {v}",
        "a; {v}",
        "a | {v}",
        "a && {v}",
        "a & {v}",
        "if {v}; then b; fi",
        "a > f\n{v}",
        "find . -exec {v} \\;",
        "f() {{ {v}; }}; f",
        "function f {{ {v}; }}",
        "function {v} {{ true; }}",
        "coproc N {{ {v}; }}",
        "coproc {v}",
        "timeout --foreground 5 {v}",
    ],
)
def test_a_value_is_no_program(command):
    with pytest.raises(TemplateError, match="has its program"):
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
        "sh -c 'echo $1' _ {v}",
        'sh -c \'echo "$1"\' _ "$(printf %s {v})"',
        "python3 -c 'import sys; print(sys.argv)' {v}",
        "perl -ne 'print' {v}",
        "sh run.sh -c {v}",
        "timeout {v} make",
        "command -v {v}",
        "nice -n {v} make",
        "env X={v} make",
        "X={v} make",
        "X=$(cat {v}) make",
        "cp . {v}",
        "grep -r sh {v}",
        "echo node {v}",
        '"$AGENT" {v}',
        "sed -f prog.sed {v}",
        "echo {v} | python3 tool.py",
        "echo {v} | sh -c 'cat >f'",
        "echo {v} | ssh host tee f",
        "echo {v} | xargs -n1",
        "echo {v} | xargs -I% cp % there",
        "echo {v} | xargs sh -c 'rm \"$@\"' _",
        "echo {v}; sh",
        "echo {v} || sh",
        "echo {v} && sh <f",
        "(echo {v}); sh",
        "echo {v} >| f",
        "echo {v} >&2",
        "cat < {v}",
        "for x in {v}; do echo $x; done",
        "find . -name {v} -exec rm {{}} \\;",
        "echo {v} |\n  cat\nsh",
        "echo {v} | # c\n cat # d\n sh",
        "echo {v} ||\n sh",
        "echo {v} | (cat)\nsh",
        "echo {v} | (\ncat\n)\nsh",
        "f() {{ echo {v}; }}; f",
        "function f {{ echo {v}; }}",
        "timeout --signal=TERM --foreground 5 make {v}",
        "timeout -s TERM -k 1 5 make {v}",
        "nice -5 make {v}",
        "sudo -nu bob cp {v} there",
        "sudo --non-interactive -- cp {v} there",
        "env -i X=1 make {v}",
        "echo {v} | xargs -0 -r -n 1 cp -t there",
        "echo {v} | xargs --null python3 tool.py",
        "printf %s {v} | xargs -0 python3 -c 'print()'",
        "echo {v} | docker exec -i c python3 tool.py",
        "echo {v} | docker exec -i c tee f",
        'echo {v} | "$AGENT"',
        "echo {v} | timeout 60 agent --print",
        "echo {v} | {{ exec 3>f; cat; }}",
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
