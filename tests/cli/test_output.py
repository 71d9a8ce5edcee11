"""The streams: what goes where, progress, questions, the pager."""

from __future__ import annotations

import io

import pytest

import holdfast
from cli.streams import stream, text_of
from holdfast.cli.ask import Prompt
from holdfast.cli.output import Cell, Output, Paint
from holdfast.cli.progress import ProgressBar

TERMINAL = {"TERM": "xterm", "PATH": "/usr/bin:/bin", "PAGER": "cat"}


def output(*, terminal=False, **options):
    return Output(stream(terminal=terminal), stream(terminal=terminal), environment=dict(TERMINAL), **options)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_notes_go_to_standard_error_and_are_silent_when_asked():
    out = output()
    out.line("result")
    out.note("by the way")
    out.detail("only with --verbose")
    assert (text_of(out.stdout), text_of(out.stderr)) == ("result\n", "by the way\n")
    quiet = output(quiet=True)
    quiet.note("by the way")
    quiet.warn("take care")
    quiet.warn("take care")
    assert text_of(quiet.stderr) == "warning: take care\n"
    assert text_of(output(verbose=True).stderr) == ""


def test_json_is_one_document_and_nothing_else():
    out = output(json=True)
    out.line("text")
    out.note("note")
    out.table([["a"]])
    out.warn("take care")
    out.document({"a": 1})
    assert text_of(out.stdout) == '{\n  "a": 1,\n  "warnings": [\n    "take care"\n  ]\n}\n'
    assert text_of(out.stderr) == ""


def test_a_table_counts_columns_not_letters(monkeypatch):
    out = output()
    out.table(
        [[Cell.of("漢字"), Cell.of("1", right=True), "x"], ["abc", Cell.of("22", right=True), "y"]], ("A", "N", "")
    )
    assert text_of(out.stdout) == "A      N\n漢字   1  x\nabc   22  y\n"
    monkeypatch.setenv("COLUMNS", "20")
    narrow = output(terminal=True, no_color=True)
    narrow.table([["key", Paint("漢字漢字漢字漢字漢字漢字漢字", "red")]])
    assert text_of(narrow.stdout) == "key  漢字漢字漢字...\n"


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere():
    clock = Clock()
    out = output(terminal=True)
    with ProgressBar(out, "Copying", monotonic=clock) as progress:
        progress.update(1, 10)
        assert text_of(out.stderr) == "", "short work shows nothing"
        clock.now = 1
        progress.update(5, 10, "run-\x1b")
        assert "Copying run-\\e [############............]  50% (5 of 10)" in text_of(out.stderr)
    assert text_of(out.stderr).endswith("\r\x1b[K")
    pipe = output()
    with ProgressBar(pipe, "Verifying", monotonic=clock) as progress:
        progress.update(1)
        clock.now = 20
        progress.update(1200, None, "chunks")
    assert text_of(pipe.stderr) == "Verifying chunks: 1,200\n"


@pytest.mark.parametrize("options", [{"quiet": True}, {"json": True}])
def test_progress_is_silent_when_asked(options):
    clock = Clock()
    out = output(terminal=True, **options)
    with ProgressBar(out, "Copying", monotonic=clock) as progress:
        clock.now = 100
        progress.update(1, 10)
    assert text_of(out.stderr) == ""


def asked(answers, **options):
    out = output(terminal=True)
    return Prompt(out, stream(answers, terminal=True), **options), out


def test_a_question_takes_yes_no_and_silence():
    assert asked(b"y\n")[0].agreed("Sure?")
    assert asked(b"YES\n")[0].agreed("Sure?")
    assert not asked(b"\n")[0].agreed("Sure?")
    assert not asked(b"n\n")[0].agreed("Sure?")
    assert asked(b"what\ny\n")[0].agreed("Sure?")
    assert asked(b"", yes=True)[0].agreed("Sure?")
    assert asked(b"\n")[0].confirmed("Continue?", unasked="it continues")
    assert not asked(b"no\n")[0].confirmed("Continue?", unasked="it continues")


def test_a_choice_takes_a_name_its_beginning_or_the_safe_one():
    options = (("keep", "keep it"), ("take", "take it"), ("kill", "end it"))
    assert asked(b"take\n")[0].choose("What?", options, safe="keep") == "take"
    assert asked(b"t\n")[0].choose("What?", options, safe="keep") == "take"
    assert asked(b"k\n\n")[0].choose("What?", options, safe="keep") == "keep", "k may be two things, so it asks again"
    assert asked(b"")[0].choose("What?", options, safe="keep") == "keep"


class Gone(io.TextIOWrapper):
    """A terminal that went away."""

    def isatty(self):
        return True

    def readline(self, *_args):
        raise OSError(5, "Input/output error")


def test_a_terminal_that_goes_away_is_the_safe_choice_and_it_is_said():
    out = output(terminal=True)
    assert not Prompt(out, Gone(io.BytesIO())).agreed("Sure?")
    assert "The terminal was closed in the middle of a question" in text_of(out.stderr)


def test_without_standard_input_nobody_is_asked():
    out = output()
    assert not Prompt(out, None).agreed("Sure?")
    assert "There is no terminal to ask on" in text_of(out.stderr)


def test_the_pager_gets_what_is_long_and_may_be_left_early(tmp_path):
    out = output(terminal=True)
    out.environment = TERMINAL | {"PAGER": f"dd of={tmp_path / 'paged'} status=none"}
    with out.paged():
        out.line("one")
    assert (tmp_path / "paged").read_text() == "one\n"
    out.environment = TERMINAL | {"PAGER": "true"}
    with out.paged():
        for _ in range(100_000):
            out.line("x" * 100)
    out.line("after")
    assert text_of(out.stdout) == "after\n"


@pytest.mark.parametrize("pager", ["cat", "", "no-such-pager-anywhere", "'"])
def test_without_a_pager_it_is_written_as_it_is(pager):
    out = output(terminal=True)
    out.environment = TERMINAL | {"PAGER": pager, "PATH": "/nowhere"}
    with out.paged():
        out.line("one")
    assert text_of(out.stdout) == "one\n"


def test_verbose_shows_the_librarys_log(hf, project):
    (project / "holdfast.yaml").write_text("enabled: false\n")
    assert "INFO holdfast" in hf("checkpoint", "r", "-v").err
    assert "INFO holdfast" not in hf("checkpoint", "r").err


def test_a_run_that_another_process_moves_is_left_to_it(hf, project, monkeypatch):
    monkeypatch.setattr("holdfast.cli.script._PATIENCE_S", 0.1)
    store = holdfast.open()
    with store.run("r") as run:
        run.checkpoint()
        done = hf("checkpoint", "r")
    store.close()
    assert done.code == 4
    assert "has it until" in done.err
    assert hf("checkpoint", "r").code == 0
