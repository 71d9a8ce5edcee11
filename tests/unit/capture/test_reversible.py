"""Redaction that can be undone with the store's key: the program that resumes gets the values, nobody else does."""

import pytest

import holdfast
from credential_corpus import CREDENTIALS, STRUCTURED
from holdfast import Redacted, Secret, Settings, UsageError, generate_key
from holdfast.cli.main import main
from holdfast.encode.encrypt import Vault
from holdfast.settings.values import EncryptionSettings, RedactionSettings
from holdfast.store.keys import keys_of

KEY = generate_key()
SETTINGS = Settings(redaction=RedactionSettings(reversible=True), compression="none")
TOKEN = "ghp_" + "a1B2c3D4" * 4 + "e5F6"
STATE = {
    "api_key": TOKEN,
    "config": {"password": "hunter2", "host": "db"},
    "note": f"use {TOKEN} now",
    "call": ["deploy", "--password", "swordfish", f"--token={TOKEN}"],
    "raw": f"token {TOKEN}".encode(),
    "lone": f"\udc80 {TOKEN}",
    "kinds": {("a", TOKEN)},
}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


def opened(place, *, key=KEY, settings=SETTINGS, **options):
    return holdfast.open(place, key=key, settings=settings, durability="process", **options)


def everything(hf, run="r"):
    """Return all that can be read of a run, as text."""
    there = hf.latest(run)
    told = [there.section(name) for name in there.sections]
    told += [there.calls, there.notes, there.log("said"), there.summary, there.recovery, there.redacted, there.reason]
    return repr((told, list(hf.runs()), list(hf.checkpoints(run)), hf.control.waiting(run)))


def work(hf):
    with hf.run("r") as run:
        run.step("ask", lambda: {"said": f"the key is {TOKEN}", "password": "hunter2"})
        run.log("said").append({"text": TOKEN})
        run.checkpoint(state=STATE, error={"message": f"refused {TOKEN}"}, reason=f"for {TOKEN}")


def test_a_program_that_resumes_gets_the_values_back(place):
    with opened(place) as hf:
        work(hf)
    with opened(place) as hf:
        assert hf.latest("r").section("state") == STATE
        [failed] = [one for one in hf.checkpoints("r") if "error" in one.sections]
        assert failed.section("error").message == f"refused {TOKEN}"
        with hf.run("r") as run:
            kept = run.step("ask", lambda: pytest.fail("a step that was done is not done again"))
            assert kept == {"said": f"the key is {TOKEN}", "password": "hunter2"}
            assert list(run.log("said")) == [{"text": TOKEN}]
            assert run.checkpoint(state=hf.latest("r").section("state")).section("state") == STATE
        assert hf.verify().sound


def test_who_only_looks_sees_what_was_taken_out(place):
    with opened(place) as hf:
        work(hf)
        assert TOKEN not in repr((list(hf.runs()), list(hf.checkpoints("r")), hf.latest("r").redacted))
        assert "for [redacted:github-token]" in [one.reason for one in hf.checkpoints("r")]
    for settings in (SETTINGS, Settings(compression="none")):
        with opened(place, settings=settings, reveal=False) as hf:
            assert TOKEN not in everything(hf)
            assert "hunter2" not in everything(hf)
            back = hf.latest("r").section("state")
            assert back["config"] == {"password": Redacted("key"), "host": "db"}
            assert back["note"] == "use [redacted:github-token] now"
            assert back["call"][3] == "--token=[redacted:telling name]"
    with opened(place, settings=Settings()) as hf:  # who does not ask for it gets markers
        assert TOKEN not in everything(hf)


def test_no_byte_of_the_store_tells_them(place):
    with opened(place) as hf:
        work(hf)
    stored = b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())
    assert TOKEN.encode() not in stored
    assert b"hunter2" not in stored


def test_it_needs_an_encrypted_store(place):
    for key, sign in ((None, None), (KEY, True)):
        with pytest.raises(UsageError, match="reversible"):
            opened(place / str(sign), key=key, sign=sign)


def test_a_secret_that_the_program_marked_and_what_a_variable_fills_are_not_kept(place, monkeypatch):
    monkeypatch.setenv("HOLDFAST_TEST_TOKEN", "fresh")
    redaction = RedactionSettings(reversible=True, fill={"state.api_key": "HOLDFAST_TEST_TOKEN"})
    with opened(place, settings=Settings(redaction=redaction)) as hf:
        hf.run("r").checkpoint(state={"api_key": TOKEN, "marked": Secret("mine4711"), "deep": {"password": Secret(7)}})
        back = hf.latest("r").section("state")
    assert back == {"api_key": "fresh", "marked": Redacted("marked"), "deep": {"password": Redacted("key")}}
    with opened(place, settings=Settings(redaction=redaction), reveal=False) as hf:
        assert hf.latest("r").section("state")["api_key"] == Redacted("key", "HOLDFAST_TEST_TOKEN")


def test_values_of_before_a_rotation_come_back_after_it_and_not_with_the_removed_key(place):
    new = generate_key()
    with opened(place) as hf:
        work(hf)
        hf.keys.add(new)
    with opened(place, key=new) as hf:
        hf.keys.remove(KEY)
        hf.run("after").checkpoint(state=STATE)
    with opened(place, key=new) as hf:
        assert hf.latest("r").section("state") == STATE == hf.latest("after").section("state")
    with pytest.raises(holdfast.KeyRefused):
        opened(place)


def test_a_copy_under_another_key_has_the_markers_alone(place, tmp_path):
    other = generate_key()
    with opened(place) as hf, opened(tmp_path / "other", key=other) as target:
        work(hf)
        hf.transfer.copy_to(target)
        assert hf.latest("r").section("state") == STATE
    with opened(tmp_path / "other", key=other) as target:
        assert TOKEN not in everything(target)
        assert target.latest("r").section("state")["config"]["password"] == Redacted("key")
        assert target.verify().sound
    with opened(place) as hf:
        hf.transfer.export(tmp_path / "r.holdfast", "r")
    with opened(tmp_path / "third") as third:
        third.transfer.import_from(tmp_path / "r.holdfast", key=KEY)
        assert TOKEN not in everything(third)


def test_the_corpus_comes_back_as_it_was(place):
    """Every credential, alone and in every structure that tells one."""
    state = {"texts": [one.text for one in CREDENTIALS], "calls": [value for value, _ in STRUCTURED.values()]}
    state["bytes"] = [one.text.encode() for one in CREDENTIALS]
    with opened(place) as hf:
        taken = hf.run("r").checkpoint(state=state)
        assert taken.redacted_count > len(CREDENTIALS)
    with opened(place) as hf:
        assert hf.latest("r").section("state") == state
    with opened(place, reveal=False) as hf:
        shown = repr(hf.latest("r").section("state"))
    assert sum(one.secret in shown for one in CREDENTIALS) <= len(CREDENTIALS) // 10


def test_a_long_list_that_grows_keeps_its_values(place):
    with opened(place) as hf:
        run = hf.run("r")
        for count in (3, 400, 401, 900):
            run.checkpoint(state=[{"n": n, "text": f"{'x' * 200} {TOKEN}"} for n in range(count)])
    with opened(place) as hf:
        assert hf.latest("r").section("state")[899] == {"n": 899, "text": f"{'x' * 200} {TOKEN}"}


def test_a_value_locked_for_another_store_is_no_error(place):
    with opened(place) as hf:
        vault = keys_of(hf.store)._vault
        assert hf.store.codec.unlock_value(hf.store.codec.lock_value(b"so")) == b"so"
        for odd in (b"", b"\0", b"\xff" * 40, Vault(bytes(32)).lock(b"x", b"taken out\0"), vault.lock(b"x", b"other")):
            assert hf.store.codec.unlock_value(odd) is None


def test_the_same_state_is_stored_once(place):
    with opened(place) as hf:
        run = hf.run("r")
        run.checkpoint(state=STATE)
        before = hf.stats().chunks
        run.checkpoint(state=STATE)
        assert hf.stats().chunks == before


def test_the_command_line_shows_markers_and_a_script_that_loads_gets_the_value(place, tmp_path, monkeypatch, capsys):
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    (project / "key").write_text(KEY)
    (project / "holdfast.yaml").write_text(
        f"location: {place}\nencryption: {{key_file: {project}/key}}\nredaction: {{reversible: true}}\n"
    )
    with pytest.raises(holdfast.SettingsUntrusted, match="reversible"):
        holdfast.open()
    assert main(["trust"]) == 0
    with holdfast.open() as hf:
        work(hf)
    capsys.readouterr()
    for line in (["show", "r"], ["show", "r", "state"], ["log", "r"], ["ls"], ["events"], ["logs", "r"]):
        for form in ([], ["--json"]):
            assert main([*line, *form]) == 0
            said = capsys.readouterr()
            assert TOKEN not in said.out + said.err, line
            assert "hunter2" not in said.out + said.err, line
    assert main(["load", "--run", "r"]) == 0
    assert TOKEN in capsys.readouterr().out


def test_encryption_settings_alone_do_not_keep_anything(place):
    assert EncryptionSettings() == Settings().encryption
    assert Settings().redaction.reversible is False
    with opened(place, settings=Settings()) as hf:
        hf.run("r").checkpoint(state=STATE)
    with opened(place) as hf:
        assert TOKEN not in repr(hf.latest("r").section("state"))
