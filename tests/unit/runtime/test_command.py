import os
import resource
import signal
import subprocess
import sys
import threading

import pytest

from holdfast.errors import CommandFailed, StepTimeout, UsageError
from holdfast.model.sections import TokenUsage
from holdfast.runtime.command import Command
from holdfast.runtime.output import KeptOutput, cut

PATH = "/usr/local/bin:/usr/bin:/bin"


def test_output_exit_code_and_duration_are_kept_apart():
    """Proves D3."""
    result = Command("echo out; echo err >&2; exit 3").run()
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert (result.stdout_bytes, result.stderr_bytes) == (4, 4)
    assert result.duration_s > 0
    assert not result.succeeded
    assert (result.command, result.problem) == ("echo out; echo err >&2; exit 3", "err")
    with pytest.raises(CommandFailed, match="ended with 3: err"):
        result.check()


def test_a_failure_says_the_last_line_and_the_end_of_both_streams_below_it():
    """Proves D3."""
    with pytest.raises(CommandFailed) as caught:
        Command("seq 1000; printf 'Traceback\\nValueError: x\\n\\n' >&2; exit 1").run().check()
    head, *below = str(caught.value).splitlines()
    assert head.endswith("ended with 1: ValueError: x")
    assert below[0] == "standard output:"
    assert below[-4:] == ["1000", "standard error:", "Traceback", "ValueError: x"]
    assert len(str(caught.value)) < 2000


def test_a_text_that_is_cut_twice_says_how_much_is_left_out_in_all():
    text = "x" * 3_000_000
    once = cut(text, 1 << 20)
    for limit in (64 << 10, 16 << 10):
        once = cut(once, limit)
        gap = f"\n[... {3_000_000 - limit:,} bytes left out ...]\n"
        assert gap in once
        assert len(once) == limit + len(gap)


def test_a_program_gets_its_arguments_as_they_are():
    result = Command(["printf", "%s|", "a b", "$HOME", "'", "", "*"]).run()
    assert result.check().stdout == "a b|$HOME|'||*|"
    assert result.command.startswith("printf '%s|' 'a b'")


def test_standard_input_is_the_text_or_nothing():
    assert Command("cat").run(stdin="hé\0llo").stdout == "hé\0llo"
    assert Command("cat", stdin="always").run().stdout == "always"
    assert Command("cat", stdin="always").run(stdin="").stdout == ""
    assert Command("cat").run().stdout == ""
    big = "x" * 3_000_000
    assert Command("wc -c").run(stdin=big).stdout.strip() == "3000000"
    assert Command("true").run(stdin=big).succeeded
    assert Command("cat").run(stdin="\udcff").stdout == r"\xff"
    assert Command("cat").run(stdin="\ud800").stdout == r"\xed\xa0\x80"


def test_variables_are_added_to_the_environment_it_inherits_or_is_given(monkeypatch):
    monkeypatch.setenv("INHERITED", "yes")
    hostile = "a'b\"c\n$(echo no) `echo no`"
    show = [sys.executable, "-c", "import os; print(os.environ.get('ADDED')); print(os.environ.get('INHERITED'))"]
    assert Command(show, env={"ADDED": hostile}).run().check().stdout == f"{hostile}\nyes\n"
    assert Command(show, env={"ADDED": hostile}, base_env={"PATH": PATH}).run().check().stdout == f"{hostile}\nNone\n"


def test_added_variables_are_not_on_any_command_line():
    look = Command(
        "cat /proc/$$/cmdline | tr '\\0' ' '; cat /proc/$$/environ | tr '\\0' '\\n' | grep TOKEN",
        env={"TOKEN": "s3cr3t"},
    )
    first, _, rest = look.run().check().stdout.partition("TOKEN=")
    assert "s3cr3t" not in first
    assert rest == "s3cr3t\n"


def test_it_runs_where_it_is_told(tmp_path):
    assert Command("pwd", cwd=tmp_path).run().stdout.strip() == str(tmp_path)
    with pytest.raises(UsageError, match="cannot be started"):
        Command("pwd", cwd=tmp_path / "nowhere").run()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ([], "empty"),
        (["echo", "a\0b"], "NUL"),
    ],
)
def test_what_is_no_command_is_refused(command, words):
    with pytest.raises(UsageError, match=words):
        Command(command)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"env": {"A B": "1"}}, "not a .*name"),
        ({"env": {"A": 5}}, "not a? ?text"),
        ({"env": {"A": "a\0b"}}, "not a? ?text"),
        ({"timeout_s": 0}, "more than 0"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        Command("true", **options)


@pytest.mark.parametrize("command", [["no-such-program-here"], "no-such-program-here --version"])
def test_a_program_that_is_not_there_is_said_to_be_missing(command):
    result = Command(command).run()
    assert result.exit_code == 127
    with pytest.raises(CommandFailed, match=r"not found, so install it.*no-such-program-here"):
        result.check()


def test_a_file_that_is_no_program_is_said_to_be_none(tmp_path):
    (tmp_path / "script").write_text("echo hi")
    with pytest.raises(CommandFailed, match="could not be executed, so look at its permissions"):
        Command([str(tmp_path / "script")]).run().check()


def test_a_command_that_was_killed_names_the_signal():
    result = Command("kill -9 $$").run()
    assert (result.exit_code, result.problem) == (-9, "it was killed by signal SIGKILL")


def test_a_command_that_ctrl_c_ended_is_interrupted_and_has_not_failed():
    with pytest.raises(KeyboardInterrupt):
        Command("kill -INT $$").run()


def held_open(fifo):
    """Return when nobody has a fifo open for writing any more."""
    with fifo.open("rb") as reader:
        return reader.read()


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "alive"
    os.mkfifo(path)
    return path


CHILDREN = "( ( exec sleep 1000 ) & exec sleep 1000 ) & wait"


def test_a_timeout_ends_the_whole_group(fifo):
    result = Command(f"exec 9>{fifo}; {CHILDREN}", timeout_s=0.2)
    reader = threading.Thread(target=held_open, args=[fifo])
    reader.start()
    ended = result.run()
    reader.join(20)
    assert not reader.is_alive()
    assert ended.timed_out
    assert "longer than 0.2 s" in ended.problem
    with pytest.raises(StepTimeout):
        ended.check()


def test_a_group_that_will_not_end_is_killed(monkeypatch):
    monkeypatch.setattr("holdfast.runtime.command._GRACE_S", 0.1)
    ended = Command("trap '' TERM; echo begun; while :; do sleep 0.01; done", timeout_s=0.3).run()
    assert (ended.exit_code, ended.timed_out, ended.stdout) == (-9, True, "begun\n")


def test_it_can_be_stopped_from_another_thread():
    stop = threading.Event()
    ended = Command("echo begun; exec sleep 1000").run(stop=stop, on_output=lambda _stream, _text: stop.set())
    assert ended.stopped
    assert not ended.succeeded
    with pytest.raises(CommandFailed, match="it was stopped"):
        ended.check()


def test_what_it_leaves_in_the_background_ends_with_it(fifo):
    reader = threading.Thread(target=held_open, args=[fifo])
    reader.start()
    result = Command(f"exec 9>{fifo}; sleep 1000 >/dev/null 2>&1 & echo done").run()
    assert result.check().stdout == "done\n"
    reader.join(20)
    assert not reader.is_alive()


def test_output_that_comes_behind_the_end_is_waited_for_but_not_for_ever(monkeypatch):
    monkeypatch.setattr("holdfast.runtime.command._GRACE_S", 0.5)
    assert Command("( sleep 0.1; echo late ) & echo early").run().stdout == "early\nlate\n"
    assert Command("( sleep 1000; echo late ) & echo early").run().stdout == "early\n"


def test_output_is_heard_as_it_comes_and_an_error_of_the_listener_ends_the_command(fifo):
    heard = []
    Command("echo a; echo b >&2").run(on_output=lambda stream, text: heard.append((stream, text)))
    assert sorted(heard) == [("stderr", "b\n"), ("stdout", "a\n")]
    reader = threading.Thread(target=held_open, args=[fifo])
    reader.start()

    def refuse(_stream, _text):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        Command(f"exec 9>{fifo}; echo a; {CHILDREN}").run(on_output=refuse)
    reader.join(20)
    assert not reader.is_alive()


def test_bytes_that_are_no_text_are_shown_and_a_character_in_two_pieces_is_one():
    assert Command(r"printf '\377\303a'").run().stdout == r"\xff\xc3a"
    heard = []
    Command(r"printf '\303'; sleep 0.1; printf '\251'").run(on_output=lambda _stream, text: heard.append(text))
    assert "".join(heard) == "é"


def test_of_endless_output_the_head_and_the_tail_are_kept(tmp_path):
    all_of_it = tmp_path / "all"
    result = Command("echo first; seq 100000; echo last", keep_bytes=1000, output_file=all_of_it).run()
    assert result.stdout.startswith("first\n1\n2\n")
    assert result.stdout.endswith("99999\n100000\nlast\n")
    assert len(result.stdout) < 1100
    assert result.stdout_bytes == all_of_it.stat().st_size == 588895 + 11
    assert "[... 587,906 bytes left out ...]" in result.stdout


def test_a_gigabyte_of_output_does_not_grow_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = Command("head -c 1000000000 /dev/zero").run()
    assert result.stdout_bytes == 1_000_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


@pytest.mark.parametrize("size", range(1, 12))
def test_a_cut_does_not_go_through_a_character(size):
    kept = KeptOutput(size)
    kept.add("é€😀".encode() * 5)
    assert "\\x" not in kept.text()
    whole = KeptOutput(45)
    whole.add("é€😀".encode() * 5)
    assert whole.text() == "é€😀" * 5


@pytest.mark.parametrize(
    ("printed", "output", "tokens"),
    [
        ("plain text\n", "plain text\n", TokenUsage()),
        ('{"result": "done", "usage": {"input_tokens": 5, "output_tokens": 7}}', "done", TokenUsage(input=5, output=7)),
        ('thinking\n{"result": [1], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}\n', [1],
         TokenUsage(input=1, output=2)),
        ('{"usage": {"input_tokens": 1, "cache_read_input_tokens": 9, "output_tokens": -3}}',
         {"usage": {"input_tokens": 1, "cache_read_input_tokens": 9, "output_tokens": -3}}, TokenUsage(input=10)),
        ("[1, 2]", [1, 2], TokenUsage()),
        ("hello\n5\n", "hello\n5\n", TokenUsage()),
        ("hello\n[1]\n", "hello\n[1]\n", TokenUsage()),
        ("5\n", 5, TokenUsage()),
        ("[]", [], TokenUsage()),
        ('{"result": 1, "usage": {"total_tokens": 30}}', 1, TokenUsage(input=30)),
        ('{"result": 1, "usage": {"output_tokens": 3, "total_tokens": 30}}', 1, TokenUsage(output=3)),
        ('[{"usage": {"input": 1}}, {"usage": {"input": 2, "output": 3}}]',
         [{"usage": {"input": 1}}, {"usage": {"input": 2, "output": 3}}], TokenUsage(input=2, output=3)),
        ('{"usage": 5}', {"usage": 5}, TokenUsage(input=5)),
        ("", "", TokenUsage()),
    ],
)  # fmt: skip
def test_what_an_agent_prints_as_json_is_read(printed, output, tokens):
    result = Command("cat").run(stdin=printed)
    assert (result.output, result.tokens) == (output, tokens)


PARENT = """
import sys
from holdfast.runtime.command import Command
Command(sys.argv[1]).run(on_output=lambda _stream, text: print(text, end="", flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_this_process_is_killed_its_command_writes_no_more(tmp_path, fifo, number):
    """Proves D8: nothing continues writing behind the back of the next process."""
    written = tmp_path / "written"
    command = f"exec 9>{fifo}; echo x >> {written}; echo begun; while :; do echo x >> {written}; done"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, command], stdout=subprocess.PIPE)
    with fifo.open("rb") as reader, parent:
        assert parent.stdout.readline() == b"begun\n"
        parent.send_signal(number)
        parent.wait()
        reader.read()  # until the last of the group has let go
    assert written.stat().st_size > 0


def test_a_program_that_waits_for_all_its_children_does_not_wait_for_ours():
    wait = "import os\ntry:\n    os.wait()\nexcept ChildProcessError:\n    print('none')"
    assert Command([sys.executable, "-c", wait], timeout_s=30).run().check().stdout == "none\n"


def test_commands_run_side_by_side_without_holding_one_another():
    results = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(Command(f"echo {n}; sleep 0.0{n}").run().stdout))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == [f"{n}\n" for n in range(8)]
