"""How much of what is secret is found, and how little else is touched: measured on the corpus, in every place."""

import json

import pytest

import holdfast
from credential_corpus import (
    CREDENTIALS,
    INNOCENT_FIELDS,
    INNOCENT_TEXTS,
    STRUCTURED,
)
from holdfast import Redacted
from holdfast.capture import scan, secrets

FOUND_AT_LEAST = 0.9
TOUCHED_AT_MOST = 0.03

PLACES = {
    "a value": lambda text: {"v": text},
    "a list": lambda text: [text, 1],
    "a sentence": lambda text: {"log": f"first\n{text}\nlast"},
    "a key": lambda text: {text: 1},
    "bytes": lambda text: {"v": text.encode()},
    "a tuple": lambda text: (text,),
    "a line of JSON": lambda text: {"log": json.dumps({"stdout": f"first\n{text}"})},
    "an address": lambda text: {"log": f"q=first%20{text}"},
}
HIDDEN = {"behind what nobody sees": lambda text: {"log": f"first\u200b{text[:6]}\u00ad{text[6:]}"}}


@pytest.fixture(params=["hyperscan", "re"])
def engine(request, monkeypatch):
    """Both ways of looking: with the native library, and without it."""
    for made in (scan.make_scan, scan.make_find, secrets.make_finder):
        made.cache_clear()
    if request.param == "re":
        monkeypatch.setattr(scan, "_database", lambda *_: None)
    yield request.param
    for made in (scan.make_scan, scan.make_find, secrets.make_finder):
        made.cache_clear()


@pytest.fixture
def hf():
    return holdfast.open("memory:", settings=holdfast.Settings())


def missed(stored, secret):
    return secret in repr(stored).replace("\\\\", "\\") or repr(secret)[1:-1] in repr(stored)


def saved(hf, state):
    return hf.run("r").checkpoint(state=state).section("state")


def test_the_corpus_is_large_enough():
    assert len({one.name for one in CREDENTIALS}) == len(CREDENTIALS) >= 150
    assert len(INNOCENT_FIELDS) >= 100
    assert len(INNOCENT_TEXTS) >= 100


@pytest.mark.parametrize("place", [*PLACES, *HIDDEN])
def test_nine_of_ten_credentials_are_found_in_any_place(engine, hf, place):
    left = [one.name for one in CREDENTIALS if missed(saved(hf, (PLACES | HIDDEN)[place](one.text)), one.secret)]
    assert len(left) <= (1 - FOUND_AT_LEAST) * len(CREDENTIALS), left


@pytest.mark.parametrize("field", ["reason", "label"])
def test_nine_of_ten_credentials_are_found_in_what_describes_a_checkpoint(hf, field):
    left = []
    for one in CREDENTIALS:
        taken = hf.run("r").checkpoint(state=1, **{field: f"about {one.text}"})
        if missed(getattr(taken, field), one.secret):
            left.append(one.name)
    assert len(left) <= (1 - FOUND_AT_LEAST) * len(CREDENTIALS), left


def test_nine_of_ten_credentials_are_found_in_results_errors_and_agents(hf):
    left = set()
    for number, one in enumerate(CREDENTIALS):
        with hf.run(f"r{number}") as run:
            run.step("work", lambda text=one.text: {"stdout": text})
            taken = run.checkpoint(
                error={"message": one.text, "stack": f"File x\n{one.text}"},
                agents=[{"id": "a", "status": "failed", "output": [one.text], "error": one.text}],
            )
        if any(missed(taken.section(name), one.secret) for name in taken.sections):
            left.add(one.name)
    assert len(left) <= (1 - FOUND_AT_LEAST) * len(CREDENTIALS), left


@pytest.mark.parametrize("name", STRUCTURED)
def test_a_secret_is_told_by_the_structure_around_it(engine, hf, name):
    value, secret = STRUCTURED[name]
    assert not missed(saved(hf, {"call": value}), secret)


def test_innocent_fields_come_back_as_they_were(engine, hf):
    touched = [value for value in INNOCENT_FIELDS if saved(hf, {"args": value}) != {"args": value}]
    assert len(touched) <= TOUCHED_AT_MOST * len(INNOCENT_FIELDS), touched


@pytest.mark.parametrize("place", PLACES)
def test_innocent_texts_come_back_as_they_were(engine, hf, place):
    touched = [text for text in INNOCENT_TEXTS if saved(hf, PLACES[place](text)) != PLACES[place](text)]
    assert len(touched) <= TOUCHED_AT_MOST * len(INNOCENT_TEXTS), touched


def test_a_value_under_a_telling_name_is_treated_alike_in_structure_and_text(hf):
    back = saved(hf, {"result": {"token": "abc123def"}, "output": '{"token": "abc123def"}'})
    assert isinstance(back["result"]["token"], Redacted)
    assert "abc123def" not in back["output"]


def test_a_key_that_the_user_names_takes_out_everything(hf):
    settings = holdfast.Settings(redaction=type(hf.settings.redaction)(more_keys=["note"]))
    own = holdfast.open("memory:", settings=settings)
    back = own.run("r").checkpoint(state={"note": "required", "deep": {"note": {"a": 1}}}).section("state")
    assert back == {"note": Redacted("key"), "deep": {"note": Redacted("key")}}
