"""What tasks print, in files: no link is followed, and no credential is cut in two."""

import os
import stat
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast.capture.redact import text_redactor
from holdfast.flow.events import Event
from holdfast.flow.redaction import EventRedactor
from holdfast.flow.task_output import OutputFiles, open_output, outputs_in, run_folder
from holdfast.settings.apply import redaction_rules

TOKEN = "ghp_" + "jEjFfpPfIwn76YOzYL0IRWHaiXS24fEz0zly"


def printed(hf, *texts):
    """Return what is kept of what one task prints."""
    files = OutputFiles.of(hf, "r")
    redactor = EventRedactor(text_redactor(hf.internals.types, redaction_rules(hf.settings.redaction)))
    for kind, text in [("task_started", ""), *(("task_output", text) for text in texts), ("task_done", "")]:
        for event in redactor.take(Event(kind=kind, at=datetime.now(UTC), phase="one", task="one", text=text)):
            files.take(event)
    files.close()
    (found,) = outputs_in(run_folder(hf, "r"))
    with open_output(found.path) as file:
        return file.read().decode()


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / ".holdfast") as opened:
        yield opened


@pytest.mark.parametrize("before", [65_000, 65_502, 65_534, 131_050])
def test_a_credential_in_a_long_line_is_not_kept(hf, before):
    line = ("z " * before)[:before] + f" {TOKEN} end\n"
    kept = printed(hf, *(line[at : at + 4096] for at in range(0, len(line), 4096)))
    assert "end" in kept
    assert TOKEN not in kept.replace("\n", "")


def test_a_credential_between_colours_is_not_kept(hf):
    kept = printed(hf, f"TOKEN=\x1b[01;31m\x1b[K{TOKEN[:4]}\x1b[m\x1b[K{TOKEN[4:]}\n")
    assert "TOKEN=" in kept
    assert TOKEN[4:] not in kept


def said_at_once(hf, *texts):
    """Return what is handed on of what one task prints, before it prints more or ends."""
    redactor = EventRedactor(text_redactor(hf.internals.types, redaction_rules(hf.settings.redaction)))
    events = [Event(kind="task_output", at=datetime.now(UTC), phase="one", task="one", text=text) for text in texts]
    return "".join(said.text for event in events for said in redactor.take(event))


@pytest.mark.parametrize(
    "text", ["10%\r20%\r", "-----BEGIN CERTIFICATE-----\nMIIB\n", "-----BEGIN of the report\nfirst line\n"]
)
def test_whole_lines_are_handed_on_at_once(hf, text):
    assert said_at_once(hf, text) == text


@pytest.mark.parametrize("kind", ["PRIVATE KEY", "RSA PRIVATE KEY", "RSA \x1b[01;31m\x1b[KPRIVATE\x1b[m\x1b[K KEY"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_private_key_is_held_until_its_end_and_what_comes_before_it_is_not(hf, kind, end):
    body = [TOKEN[4:] * 2] * 3
    lines = [line + end for line in ("before", f"-----BEGIN {kind}-----", *body)]
    assert said_at_once(hf, *lines) == f"before{end}"
    whole = said_at_once(hf, *lines, f"-----END {kind}-----{end}", f"after{end}")
    assert whole.endswith(f"after{end}")
    assert TOKEN[4:] not in whole


@pytest.mark.parametrize("what", ["output", "output/r", "output/r/one%2Fone.log"])
def test_nothing_is_written_or_read_through_a_link(hf, tmp_path, what):
    outside = tmp_path / "outside"
    outside.mkdir()
    place = tmp_path / ".holdfast" / what
    place.parent.mkdir(parents=True, exist_ok=True)
    target = outside / "file" if what.endswith(".log") else outside
    if what.endswith(".log"):
        target.write_text("theirs")
    place.symlink_to(target)
    files = OutputFiles.of(hf, "r")
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on where the link is
        files.take(Event(kind="task_output", at=datetime.now(UTC), phase="one", task="one", text="mine\n"))
    assert [path.read_text() for path in outside.rglob("*") if path.is_file()] in ([], ["theirs"])
    assert outputs_in(run_folder(hf, "r")) == []


def test_a_pipe_is_not_waited_for_and_files_are_the_users_own(hf, tmp_path):
    assert "hello" in printed(hf, "hello\n")
    (found,) = outputs_in(run_folder(hf, "r"))
    assert stat.S_IMODE(found.path.stat().st_mode) == 0o600
    found.path.unlink()
    os.mkfifo(found.path)
    assert outputs_in(run_folder(hf, "r")) == []


def said_when_quiet(hf, *texts):
    """Return what is handed on after each piece of output, and whatever is left, if the stream is quiet after each."""
    redactor = EventRedactor(text_redactor(hf.internals.types, redaction_rules(hf.settings.redaction)))
    found = []
    for text in texts:
        said = redactor.take(Event(kind="task_output", at=datetime.now(UTC), phase="one", task="one", text=text))
        found.append("".join(one.text for one in [*said, *redactor.quiet()]))
    return [*found, "".join(one.text for one in redactor.end())]


@pytest.mark.parametrize("question", ["Go on? [y/N] ", "Password:", "Name (ann): ", "> ", "Really?", "root@host:~# "])
def test_a_question_is_handed_on_when_nothing_follows_it(hf, question):
    assert said_when_quiet(hf, question, "\nnext\n") == [question, "\nnext\n", ""]


@pytest.mark.parametrize("cut", [0, 3, 4, 10, 30, 39])
@pytest.mark.parametrize("before", ["", "the token is ", "TOKEN=", "curl -H 'Authorization: Bearer "])
def test_no_part_of_a_credential_is_handed_on_in_a_quiet_moment(hf, before, cut):
    said = said_when_quiet(hf, before + TOKEN[:cut], TOKEN[cut:] + " and", " more\n")
    assert TOKEN[4:8] not in "".join(said)
    assert "".join(said).endswith("and more\n")


def test_a_password_after_its_question_is_taken_out_by_what_was_said_before(hf):
    said = said_when_quiet(hf, "password: ", "hunter2-Tr0ub4dor&3", "\n")
    assert said[0] == "password: "
    assert "Tr0ub4dor" not in "".join(said)


def test_a_private_key_is_held_in_a_quiet_moment_too(hf):
    said = said_when_quiet(
        hf, "-----BEGIN RSA PRIVATE KEY-----\n", TOKEN[4:] + " ", "\n-----END RSA PRIVATE KEY-----\n"
    )
    assert TOKEN[4:8] not in "".join(said)
