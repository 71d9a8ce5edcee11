"""JSON on the command line and in files that a person names: one reader, and every refusal is a sentence."""

import pytest

import holdfast
from holdfast import Settings

BAD = {
    "deep list": "[" * 60_000,
    "deep mapping": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "deeper than is stored": "[" * 300 + "]" * 300,
    "many digits": "1" * 5_000,
    "not a number": "NaN",
    "too large": "1e999",
    "key twice": '{"a": 1, "a": 2}',
    "no JSON": "{",
}


@pytest.fixture
def waiting(hf, project):
    assert hf("checkpoint", "r").code == 0
    (project / "flow.yaml").write_text("flow: f\nparams: {p: {default: 1}}\nphases: {a: {tasks: {t: {run: 'true'}}}}\n")
    return project


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_value_that_cannot_be_read_is_refused_in_a_sentence(hf, waiting, text):
    """`signal --value` with deep JSON was an unexpected RecursionError, and NaN went into the store."""
    (waiting / "state.json").write_text(text)
    for words in (
        ("signal", "r", "go", "--value", text),
        ("checkpoint", "r", "--state", "state.json"),
        ("checkpoint", "r", "--section", "plan=state.json"),
        ("save", "--run", "r", "--state", "state.json"),
    ):
        done = hf(*words)
        assert done.code == 2, words[0]
        assert "unexpected" not in done.err
        assert len(done.err) < 1_000
    with holdfast.open(settings=Settings()) as opened:
        assert len(opened.checkpoints("r")) == 1


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_where_a_text_will_do_it_is_one(hf, waiting, text):
    assert hf("run", "flow.yaml", "--run-id", "other", "--param", f"p={text}").code == 0
    done = hf("checkpoint", "r", "--attribute", f"a={text}")
    assert done.code in (0, 2)
    assert "unexpected" not in done.err


def test_a_file_that_a_person_names_may_be_a_link_and_one_that_is_found_may_not(hf, waiting, tmp_path):
    """Flows and states are followed as any program follows an argument; settings of a folder are not."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "flow.yaml").write_text((waiting / "flow.yaml").read_text())
    (elsewhere / "state.json").write_text("[1]")
    (elsewhere / "holdfast.yaml").write_text("enabled: true\n")
    for name in ("flow.yaml", "state.json"):
        (waiting / name).unlink(missing_ok=True)
        (waiting / name).symlink_to(elsewhere / name)
    assert hf("run", "flow.yaml", "--run-id", "linked").code == 0
    assert hf("checkpoint", "r", "--state", "state.json").code == 0
    (waiting / "holdfast.yaml").symlink_to(elsewhere / "holdfast.yaml")
    refused = hf("checkpoint", "r")
    assert refused.code == 2
    assert "link" in refused.err
