"""A credential in every place where a text can be: no byte of it reaches the store."""

import contextlib

import pytest

import holdfast
from credential_corpus import CREDENTIALS
from holdfast import Settings

RUN = "run"


def failing(text):
    raise ValueError(text)


def in_step(hf, text):
    with hf.run("steps") as run:
        run.step("result", lambda: {"said": text})


def in_error(hf, text):
    with contextlib.suppress(ValueError), hf.run("errors") as run:
        run.step("fails", lambda: failing(text))


PLACES = {
    "state": lambda hf, text: hf.run(RUN).checkpoint(state={"deep": [{"said": text}]}),
    "key of state": lambda hf, text: hf.run(RUN).checkpoint(state={text: 1}),
    "bytes of state": lambda hf, text: hf.run(RUN).checkpoint(state=text.encode()),
    "section": lambda hf, text: hf.run(RUN).checkpoint(sections={"mine": [text]}),
    "reason": lambda hf, text: hf.run(RUN).checkpoint(reason=text),
    "label": lambda hf, text: hf.run(RUN).checkpoint(label=text[:200]),
    "label of a mark": lambda hf, text: hf.mark(hf.latest(RUN).id, label=text[:200]),
    "log": lambda hf, text: hf.run(RUN).log("messages").append({"said": text}),
    "signal": lambda hf, text: hf.signal(RUN, "go", {"said": text}),
    "note of a signal": lambda hf, text: hf.signal(RUN, "go", note=text),
    "note of a cancel": lambda hf, text: hf.cancel(RUN, note=text),
    "result of a step": in_step,
    "error of a step": in_error,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
def test_a_credential_does_not_reach_the_store_from_any_place(place, tmp_path):
    """Threats 12, issue 18.6: a part of the corpus in every place where a text can be, looked for in every byte."""
    given = CREDENTIALS[::4]
    with holdfast.open(tmp_path / "store", settings=Settings(compression="none"), durability="process") as hf:
        hf.run(RUN).checkpoint(state=1)
        for one in given:
            with contextlib.suppress(holdfast.UsageError, holdfast.RunCancelled):
                PLACES[place](hf, one.text)
    stored = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
    missed = [one.name for one in given if one.secret.encode() in stored]
    assert len(missed) <= len(given) // 10, missed
