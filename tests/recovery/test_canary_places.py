"""A credential in every place where a text can be: no byte of it reaches store, mirror, logs or kept output."""

import contextlib
import logging
import os

import pytest

import holdfast
from credential_corpus import CREDENTIALS
from holdfast import Settings
from holdfast.flow.load import flow_from
from holdfast.flow.runner import run_flow
from holdfast.settings.values import MirrorSettings

RUN = "run"
TORTURE = bool(os.environ.get("HOLDFAST_TORTURE"))


def failing(text):
    raise ValueError(text)


def in_step(hf, text):
    with hf.run("steps") as run:
        run.step("result", lambda: {"said": text})


def in_error(hf, text):
    with contextlib.suppress(ValueError), hf.run("errors") as run:
        run.step("fails", lambda: failing(text))


def in_error_of_the_block(hf, text):
    with contextlib.suppress(ValueError), hf.run("blocks"):
        failing(text)


def in_message(hf, text):
    with hf.run("messages") as run:
        run.mailbox.join("a", "b")
        run.mailbox.send("a", "b", {"said": text})


def in_answer(hf, text):
    run = f"asked{len(hf.runs())}"
    with contextlib.suppress(holdfast.RunWaiting), hf.run(run, waiting="leave") as asking:
        asking.approve(f"Deploy {text}?", name="deploy", seen=text)
    hf.control.answer(run, "approve", by=text[:100], note=text)
    with hf.run(run, waiting="leave") as asking:
        asking.approve(f"Deploy {text}?", name="deploy", seen=text)


def in_note(hf, text):
    with hf.run("notes") as run:
        run.host.note("observed", text, detail=text)


def in_agent(hf, text):
    with hf.run("agents") as run:
        run.agents.register("coder", lambda given: {"said": given})
        run.agents.call("coder", {"ask": text})


def in_loop(hf, text):
    hf.run(RUN).checkpoint(sections={"context": {"task": text, "lessons": [text], "metadata": {"note": text}}})


PLACES = {
    "state": lambda hf, text: hf.run(RUN).checkpoint(state={"deep": [{"said": text}]}),
    "key of state": lambda hf, text: hf.run(RUN).checkpoint(state={text: 1}),
    "bytes of state": lambda hf, text: hf.run(RUN).checkpoint(state=text.encode()),
    "section": lambda hf, text: hf.run(RUN).checkpoint(sections={"mine": [text]}),
    "typed section": in_loop,
    "reason": lambda hf, text: hf.run(RUN).checkpoint(reason=text),
    "label": lambda hf, text: hf.run(RUN).checkpoint(label=text[:200]),
    "label of a mark": lambda hf, text: hf.mark(hf.latest(RUN).id, label=text[:200]),
    "log": lambda hf, text: hf.run(RUN).log("messages").append({"said": text}),
    "signal": lambda hf, text: hf.control.signal(RUN, "go", {"said": text}),
    "note of a signal": lambda hf, text: hf.control.signal(RUN, "go", note=text),
    "note of a cancel": lambda hf, text: hf.control.cancel(RUN, note=text),
    "answer and question": in_answer,
    "note": in_note,
    "message": in_message,
    "input and output of an agent": in_agent,
    "result of a step": in_step,
    "error of a step": in_error,
    "error of the block": in_error_of_the_block,
}


def found_in(folder, given, *texts):
    """Return the names of the credentials that stand in a byte of a folder, or in a text."""
    stored = b"\n".join(file.read_bytes() for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    stored += "\n".join(texts).encode(errors="surrogatepass")
    return [one.name for one in given if one.secret.encode() in stored]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
def test_a_credential_does_not_reach_store_mirror_or_log_from_any_place(place, tmp_path, caplog, capsys):
    """Threats 12, issue 18.6: a part of the corpus, all of it with HOLDFAST_TORTURE, looked for in every byte."""
    given = CREDENTIALS if TORTURE else CREDENTIALS[::13]
    mirror = MirrorSettings(form="json", location=str(tmp_path / "mirror/{run}"))
    settings = Settings(compression="none", mirror=mirror)
    with caplog.at_level(logging.DEBUG), holdfast.open(tmp_path / "s", settings=settings, durability="process") as hf:
        hf.run(RUN).checkpoint(state=1)
        for one in given:
            with contextlib.suppress(holdfast.UsageError, holdfast.RunCancelled):
                PLACES[place](hf, one.text)
        events = [repr(item) for item in hf.follow().ready()]
    said = capsys.readouterr()
    missed = found_in(tmp_path, given, caplog.text, said.out, said.err, *events)
    assert len(missed) <= len(given) // 10, missed


def test_a_credential_that_a_task_prints_reaches_neither_the_store_nor_the_kept_output(tmp_path, capfd):
    """Threats 12: standard output and error of a command, kept in files and shown by `holdfast logs`."""
    given = CREDENTIALS if TORTURE else CREDENTIALS[::4]
    (tmp_path / "work").mkdir()
    (tmp_path / "printed").write_text("\n\n".join(one.text for one in given))
    command = f"cat {tmp_path}/printed; cat {tmp_path}/printed >&2; false"
    flow = flow_from({"flow": "prints", "phases": {"one": {"tasks": {"a": {"run": command}}}}})
    with holdfast.open(tmp_path / "store", settings=Settings(compression="none"), durability="process") as hf:
        run_flow(hf, flow, workspace=tmp_path / "work", waiting="leave")
        told = repr(hf.latest("prints").calls)
    missed = found_in(tmp_path / "store", given, told)
    assert len(missed) <= len(given) // 10, missed
