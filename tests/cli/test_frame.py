"""The frame that every command stands in: options anywhere, errors as sentences, streams, the place of the store."""

from __future__ import annotations

import os
import re

import apsw
import pytest

import holdfast
from holdfast.cli.table import BY_NAME, COMMANDS, OTHER_NAMES


def test_the_version_and_the_overview_need_nothing(hf):
    assert hf("--version") == (0, f"holdfast {holdfast.__version__}\n", "")
    for words in ([], ["--help"], ["help"], ["-h"]):
        done = hf(*words)
        assert done.code == 0
        assert all(re.search(rf"^  {command.name} ", done.out, re.MULTILINE) for command in COMMANDS if command.group)
    assert "__complete" not in hf("--help").out


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_explains_itself(hf, command):
    done = hf(command, "--help")
    assert done.code == 0
    assert done.out.startswith(f"usage: holdfast {command}")
    assert "everywhere on the line" in done.out
    assert hf("help", command).out == done.out


@pytest.mark.parametrize("command", [command.name for command in COMMANDS if command.group])
def test_an_unknown_option_is_a_usage_error_with_the_usage(hf, command):
    done = hf(command, "--no-such-option")
    assert done.code == 2
    assert done.out == ""
    assert f"Usage: holdfast {command}" in done.err
    assert "Traceback" not in done.err


ODD = [
    "",
    "-",
    "\udcff",
    "a" * 5000,
    "../..",
    "r@99999999999999999999",
    "~",
    "@:",
    "\x1b[31m",
    "cp_" + "0" * 32,
    "ffff",
    "=",
    "-1",
]


@pytest.mark.parametrize(
    "command", [one.name for one in COMMANDS if one.name not in ("demo", "doctor", "diff", "init")]
)
def test_odd_words_are_refused_and_not_stumbled_over(hf, story, command):
    for word in ODD:
        for words in ([word], [word, word], ["--yes", "issue-42", word], [word, "issue-42", "--json"]):
            done = hf(command, *words)
            assert done.code != 1, (words, done)
            assert "Traceback" not in done.err
            assert "unexpected" not in done.err + done.out, (words, done)


def test_an_unknown_command_offers_the_nearest(hf):
    done = hf("chekpoint", "r")
    assert done.code == 2
    assert done.err == "holdfast: there is no command 'chekpoint'; did you mean 'checkpoint'?\n"
    assert "`holdfast --help` lists all" in hf("zzzzzz").err
    assert hf("--frobnicate").code == 2


@pytest.mark.parametrize(("name", "meant"), OTHER_NAMES.items())
def test_a_verb_of_other_tools_is_answered_by_what_does_it_here(hf, name, meant):
    assert name not in BY_NAME
    done = hf(name, "RUN")
    assert (done.code, done.err) == (2, f"holdfast: there is no command {name!r}: {meant}\n")
    lines = [line.split() for line in re.findall(r"`holdfast ([^`]+)`", meant)]
    assert lines
    for command, *words in lines:  # each of them is there, with its options
        options = hf(command, "--help").out + hf(command, words[0] if words else "", "--help").out
        assert all(word in options for word in words if word.startswith("-"))


def test_what_is_looked_at_is_the_run_that_moved_last(hf, story):
    hf("checkpoint", "older")
    hf("checkpoint", "newer")
    for words in (["log"], ["show"], ["status"], ["diff", "--parent"], ["events"], ["cost"]):
        done = hf(*words)
        assert done.code == 0, (words, done.err)
        assert "The run that moved last is newer." in done.err, words
    assert hf("log", "--json").json["run"] == hf("status", "--json").json["run"] == "newer"
    assert hf("show", "--json").json["run"] == "newer"
    hf("checkpoint", "older")
    assert hf("log", "--json").json["run"] == "older"
    assert hf("undo").code != 0  # what changes something is told which run


def test_options_of_every_command_stand_anywhere_on_the_line(hf, story):
    plain = hf("ls", "--json").json
    assert hf("--json", "ls").json == plain
    assert hf("--json", "-C", story, "ls", "-n", "3").json == plain
    assert hf("ls", f"--store={story}/.holdfast", "--json").json == plain
    assert hf("ls", "--store", f"sqlite://{story}/.holdfast/holdfast.db", "--json").json == plain
    assert hf("ls", "--store").code == 2
    assert hf("ls", "-C", "/no/such/folder").code == 6


def test_options_of_a_command_stand_between_its_words(hf, story, tmp_path):
    assert hf("restore", "issue-42@1", "--into", tmp_path / "new", "a.txt", "--yes").code == 0
    assert [path.name for path in (tmp_path / "new").glob("*.*")] == ["a.txt"]
    assert hf("diff", "issue-42@1", "--stat", "issue-42@2").out.startswith("~ state")
    assert hf("fork", "issue-42@1", "--label", "tried", "other", "--json").json["run"] == "other"
    assert hf("label", "issue-42@1", "--", "-odd").code == 0


def test_no_store_here_says_how_to_begin(hf):
    done = hf("ls")
    assert done.code == 3
    assert "Begin one here with `holdfast init`, or name one with --store URL" in done.err
    assert not any(hf(*words).code != 3 for words in (["log", "r"], ["show", "r"], ["verify"], ["stats"], ["prune"]))


def test_looking_makes_no_store(hf, project):
    hf("ls")
    hf("stats")
    assert list(project.iterdir()) == []


def test_the_store_of_a_folder_above_is_found(hf, story, monkeypatch):
    monkeypatch.chdir(story / "src")
    assert hf("ls", "-q").out.splitlines()[1].startswith("issue-42")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_another_user_is_not_followed_from_below(hf, project, monkeypatch):
    (project / "holdfast.yaml").write_text("location: elsewhere\n")
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    assert hf("ls").code == 0
    os.chown(project / "holdfast.yaml", 65534, 65534)
    assert hf("ls").code == 3


def test_a_variable_names_the_store(hf, story, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hf("ls").code == 3
    monkeypatch.setenv("HOLDFAST_STORE", str(story / ".holdfast"))
    assert hf("ls").code == 0


def test_an_error_with_json_is_a_document(hf, story):
    done = hf("show", "issue-43", "--json")
    assert done.code == 3
    assert done.err == ""
    assert done.json["error"]["kind"] == "NotFound"
    assert done.json["error"]["exit_code"] == 3
    assert "issue-42" in done.json["error"]["message"]


def test_a_traceback_is_for_those_who_ask(hf, story):
    assert "Traceback" not in hf("show", "issue-43").err
    assert "Traceback" in hf("show", "issue-43", "--debug").err


def test_what_was_stored_cannot_play_with_the_terminal(hf, project):
    """Threat 19: escapes in stored text are written out, in text and in JSON."""
    store = holdfast.open()
    store.run("r").checkpoint(reason="a\x1b[31mb\nc\rd\u202ee\x07", state={"k\x1b]0;x\x07": "v\x9b"}, label="l\x1b")
    store.close()
    for words in (["ls"], ["log", "r"], ["show", "r"], ["show", "r", "state"]):
        for terminal in (False, True):
            said = hf(*words, "--no-color", terminal=terminal).out
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", said)
        assert hf(*words, "--json").out.isascii()
    assert r"a\e[31mb" in hf("log", "r").out


def test_names_of_files_cannot_play_with_the_terminal_either(hf, project):
    """Threat 19, for names that are bytes."""
    name = b"a\x1b[31m\xff\n.txt"
    (project / os.fsdecode(name)).write_bytes(b"one\n")
    store = holdfast.open()
    run = store.run("r", workspace=project)
    first = run.checkpoint()
    (project / os.fsdecode(name)).write_bytes(b"two\x1b]0;x\x07\n")
    run.checkpoint()
    store.close()
    for words in (["files", "r"], ["files", "r", "-l"], ["diff", first.id, "r"], ["diff", first.id, "r", "--names"],
                  ["diff", first.id, "r", "--stat"], ["restore", first.id, "--dry-run"],
                  ["resume", first.id, "--dry-run"]):  # fmt: skip
        done = hf(*words)
        assert done.code == 0
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", done.out + done.err), words
        assert hf(*words, "--json").out.isascii()
    assert hf("cat", f"r:{os.fsdecode(name)}").out == "two\x1b]0;x\x07\n", "a pipe gets every byte"


def test_colours_are_for_terminals_that_show_them(hf, story, monkeypatch):
    assert "\x1b[" in hf("log", "issue-42", terminal=True).out
    assert "\x1b[" not in hf("log", "issue-42").out
    assert "\x1b[" not in hf("log", "issue-42", "--no-color", terminal=True).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in hf("log", "issue-42", terminal=True).out
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[" not in hf("log", "issue-42", terminal=True).out


def test_a_table_keeps_to_the_terminals_width_and_a_pipe_has_none(hf, project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    store = holdfast.open()
    store.run("r").checkpoint(reason="word " * 50)
    store.close()
    assert max(map(len, hf("ls", "--no-color", terminal=True).out.splitlines())) <= 60
    assert len(hf("ls").out.splitlines()[1]) > 200


def test_damage_is_warned_about_and_the_rest_is_shown(hf, story):
    connection = apsw.Connection(str(story / ".holdfast" / "holdfast.db"))
    connection.execute("UPDATE checkpoint SET value = x'00' WHERE seq = 2")
    connection.close()
    done = hf("log", "issue-42")
    assert done.code == 0
    assert "@3" in done.out
    assert "@1" in done.out
    assert done.err.startswith("warning: ")
    assert hf("log", "issue-42", "--json").json["warnings"]


def test_a_store_of_a_newer_version_says_upgrade(hf, story):
    connection = apsw.Connection(str(story / ".holdfast" / "holdfast.db"))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    done = hf("ls")
    assert done.code == 5
    assert "upgrade holdfast" in done.err


def test_a_file_that_is_no_store_is_refused(hf, project):
    (project / ".holdfast").mkdir()
    (project / ".holdfast" / "holdfast.db").write_bytes(b"no database at all " * 100)
    done = hf("ls")
    assert done.code == 5
    assert "Traceback" not in done.err
    assert "restore it from a copy" in done.err
    assert hf("verify").err == done.err, "no advice to do what was just done"


def test_settings_that_cannot_be_followed_are_named(hf, project):
    (project / "holdfast.yaml").write_text("intervall_s: 3\n")
    done = hf("ls")
    assert done.code == 2
    assert "did you mean 'interval_s'" in done.err
