"""What errors say on the line: what is missing, letters as they are, and commands instead of calls."""

from __future__ import annotations

import apsw
import pytest

from holdfast.cli.errors import told_text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "issue-42", "nosec"], "there is no section 'nosec': issue-42@3 has state, workflow, workspace"),
        (["ls", "--store", "/nowhere/x"], "there is no store '/nowhere/x': `holdfast checkpoint RUN`"),
        (["import", "nope"], "there is no bundle 'nope'\n"),
        (["run", "nope.yaml"], "there is no flow file 'nope.yaml'\n"),
        (["begin", "NOPE.md"], "there is no plan 'NOPE.md': give the path of a Markdown file"),
        (["checkpoint", "r", "--state", "nofile"], "there is no file 'nofile'\n"),
        (["log", "issue-43"], "there is no run 'issue-43': did you mean issue-42?"),
        (["fork", "issue-42", "--drop", "nope"], "there is no section 'nope': issue-42@3 has state"),
        (["store", "key", "remove", "nope"], "there is no key 'nope': those of this store are none"),
    ],
)
def test_what_is_not_there_is_named_and_nothing_else(hf, story, words, said):
    done = hf(*words)
    assert done.code == 3
    assert said in done.err


def test_letters_are_shown_as_they_are_and_what_cannot_be_printed_is_escaped(hf, story):
    assert "'héllo'" in hf("checkpoint", "héllo").err
    assert "'日本'" in hf("show", "日本").err
    done = hf("show", "a\u202eb\x1b[31m")
    assert r"a\u202eb\x1b[31m" in done.err


@pytest.mark.parametrize("name", ["a@1", "a:label", "latest", "before", "cp_" + "0" * 32])
def test_a_run_is_not_called_what_a_checkpoint_is_called(hf, project, name):
    assert hf("checkpoint", "a", "--label", "label").code == 0
    done = hf("checkpoint", name)
    assert done.code == 2
    assert "is not a run id" in done.err
    assert len(hf("ls", "--json").json["runs"]) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hf.recover(hf.plan('r')) goes back", "`holdfast resume r` goes back"),
        ("unknown={'x': ...}: that step", "step 'x': that step"),
        ("keep=0 would delete everything", "--keep 0 would delete everything"),
        ("`holdfast resume r`, or hf.run('r', workspace='/a b'), ends it", "`holdfast resume r` ends it"),
        ("open it again with hf.run('r')", "repeat the command"),
        ("hf.undo('r') goes back to cp_1", "`holdfast undo r` goes back to cp_1"),
    ],
)
def test_calls_are_told_as_commands(text, said):
    assert told_text(text) == said


def test_no_command_is_advised_in_python(hf, story):
    connection = apsw.Connection(str(story / ".holdfast" / "holdfast.db"))
    connection.execute("UPDATE chunk SET data = x'00'")
    connection.close()
    for words in (
        ["verify"], ["show", "issue-42"], ["load", "--run", "issue-42"], ["replay", "issue-42"], ["status", "issue-42"],
        ["prune", "issue-42", "--keep", "0"], ["resume", "issue-42", "--retry", "x"], ["files", "issue-42"],
    ):  # fmt: skip
        done = hf(*words)
        assert "hf." not in done.out + done.err, words


def test_a_refused_checkpoint_is_refused_and_no_more(hf, project):
    (project / "bad.json").write_text('{"current_state": 5}')
    done = hf("checkpoint", "r", "--section", "workflow=bad.json")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "unprotected" not in done.err


def test_what_was_set_aside_is_shown_by_the_line_that_is_named(hf, project):
    (project / "PLAN.md").write_text("## Phase 1: Look\n")
    run = hf("begin", "PLAN.md").out.strip()
    assert f"`holdfast log {run} -a`" in hf("begin", "PLAN.md", "--fresh").err
    assert hf("log", run, "-a").code == 0


def test_numbers_come_back_as_they_were_or_are_refused(hf, project):
    (project / "PLAN.md").write_text("## Phase 1: Look\n")
    hf("begin", "PLAN.md")
    text = b'{"n": 123456789012345678901234567890, "f": 1.5e+300, "less": -9007199254740993}'
    assert hf("save", "--state", "-", stdin=text).code == 0
    assert hf("load").json == {"n": 123456789012345678901234567890, "f": 1.5e300, "less": -9007199254740993}
    for word in (b"1e400", b"-1e400", b"NaN", b"Infinity", b"-Infinity"):
        done = hf("save", "--state", "-", stdin=b"[" + word + b"]")
        assert done.code == 2, word
        assert word.decode() in done.err


def test_one_cause_is_one_finding(hf, project):
    (project / "holdfast.yaml").write_text("a: [\n")
    done = hf("doctor", "--json")
    assert [one["check"] for one in done.json["findings"] if one["grade"] == "bad"] == ["settings"]


def test_the_reason_of_a_path_left_out_names_who_asked_for_it(hf, project):
    (project / "holdfast.yaml").write_text("workspace: {ignore: [skip/]}\n")
    (project / ".holdfastignore").write_text("own\n")
    (project / "skip").mkdir()
    for name in ("skip/x", "own"):
        (project / name).write_text("")
    hf("checkpoint", "r", "--workspace")
    left = {one["path"]: one["reason"] for one in hf("files", "r", "--left-out", "--json").json["left_out"]}
    assert left == {"skip": "ignored by the settings", "own": "ignored by .holdfastignore"}


def test_an_unknown_trigger_is_refused_with_those_that_are_known(hf, story):
    done = hf("log", "issue-42", "--trigger", "nope")
    assert done.code == 2
    assert "agent_complete" in done.err


def test_one_secret_is_one_value(hf, project):
    done = hf("checkpoint", "r", "--state", "-", stdin=b'{"password": "swordfish9X"}')
    assert "1 value kept out" in done.err


def test_a_run_that_waits_for_nothing_is_said_to(hf, story):
    done = hf("approve", "issue-42")
    assert done.code == 2
    assert done.err == "holdfast: run 'issue-42' waits for nothing\n"


@pytest.mark.parametrize("word", ["reset", "abort", "inspect", "top", "back"])
def test_a_verb_of_other_tools_is_answered_by_its_meaning(hf, project, word):
    done = hf(word)
    assert done.code == 2
    assert "did you mean" not in done.err
    assert "`holdfast " in done.err.partition("':")[2]


def test_a_patch_is_looked_for_in_the_run_that_moved_last(hf, story):
    hf("checkpoint", "newer")
    done = hf("patch", "work")
    assert done.code == 3
    assert "The run that moved last is newer." in done.err
    assert "no call has ended in run 'newer'" in done.err
