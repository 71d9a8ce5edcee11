import textwrap
from pathlib import Path

import pytest

import holdfast
from holdfast import Settings, SettingsInvalid
from holdfast.settings.apply import make_strategy, read_key, watch_options
from holdfast.settings.file import find_settings, load_settings, located, make_settings
from holdfast.settings.yaml_text import read_yaml

EXAMPLE = Path(__file__).parents[2] / "holdfast.example.yaml"


def write(folder, text, name="holdfast.yaml"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def test_the_defaults_are_those_of_the_ledger():
    """Proves A9, C14, D6."""
    settings = Settings()
    assert settings.enabled
    assert settings.automatic
    assert settings.compression == "zstd"
    assert settings.interval_s == 300
    assert (settings.retention.live, settings.retention.age_days) == (50, 30)
    assert settings.on_checkpoint_failure == "continue"
    assert watch_options(settings, None).switches.off == frozenset()


def test_the_example_is_complete_documented_and_states_the_defaults():
    """Proves C14."""
    assert load_settings(EXAMPLE) == Settings()
    text = EXAMPLE.read_text()
    for name in Settings.__struct_fields__:
        assert f"{name}:" in text, f"{name} is not in the example"
    values = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert all("#" in line for line in values), "every line says what it does"


def test_a_yaml_file_and_a_pyproject_table_say_the_same(tmp_path):
    """Proves C14."""
    yaml = write(
        tmp_path,
        """
        enabled: true
        triggers: {agent_complete: false}
        retention: {live: 7, triggers: {batch_complete: -1}}
        destructive: {operations: [drop_table]}
    """,
    )
    toml = write(tmp_path, """
        [tool.holdfast]
        enabled = true
        triggers = {agent_complete = false}
        retention = {live = 7, triggers = {batch_complete = -1}}
        destructive = {operations = ["drop_table"]}
    """, "pyproject.toml")  # fmt: skip
    assert load_settings(yaml) == load_settings(toml)
    settings = load_settings(yaml)
    assert settings.policy.triggers["batch_complete"].keep == -1
    assert settings.policy.triggers["agent_complete"].keep == 1
    assert "drop_table" in settings.operations
    assert find_settings(tmp_path) == yaml
    yaml.unlink()
    assert find_settings(tmp_path) == toml
    toml.write_text("[tool.other]\n")
    assert find_settings(tmp_path) is None


@pytest.mark.parametrize(("data", "told"), [
    ({"retension": {}}, "no setting 'retension'; did you mean 'retention'"),
    ({"retention": {"liv": 5}}, "no setting 'retention.liv'; did you mean 'live'"),
    ({"session": {"deadline": 5}}, "'session.deadline'; did you mean 'deadline_s'"),
    ({"retention": {"live": -1}}, "retention.live"),
    ({"retention": {"age_days": -3}}, "retention.age_days"),
    ({"retention": {"triggers": {"manual": -2}}}, "keep=-2"),
    ({"interval_s": 0}, "interval_s"),
    ({"enabled": "yes please"}, "enabled"),
    ({"triggers": {"agent_completed": True}}, "did you mean 'agent_complete'"),
    ({"on_checkpoint_failure": "ignore"}, "on_checkpoint_failure"),
    ({"compression": "brotli"}, "compression"),
    ({"redaction": {"patterns": {"mine": "("}}}, "no regular expression"),
    ({"redaction": {"patterns": {"mine": "x*"}}}, "matches empty text"),
    ({"encryption": {"key_file": "a", "key_env": "B"}}, "not both"),
    (["a list"], "a mapping"),
    ({1: 2}, "no setting '1'"),
])  # fmt: skip
def test_what_cannot_be_followed_is_refused_by_name(data, told):
    """Proves C14."""
    with pytest.raises(SettingsInvalid) as caught:
        make_settings(data, "holdfast.yaml")
    assert told in str(caught.value)
    assert str(caught.value).startswith("holdfast.yaml: ")


@pytest.mark.parametrize("text", [
    b"a: &x [1]\nb: *x", b"a: 1\na: 2", b"!!python/object/apply:os.system [id]", b"[" * 60, b"a: [1", b"\xff\xfe\x00",
    b"x: {y: 1, y: 2}",
])  # fmt: skip
def test_yaml_that_is_not_plain_is_refused(text):
    """Threats 1 and 8: no tags, no alias bombs, no key that quietly wins over another."""
    with pytest.raises(SettingsInvalid):
        read_yaml(text, "holdfast.yaml")


def test_an_alias_bomb_costs_nothing():
    bomb = b"a0: &a0 [x]\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)
    )
    with pytest.raises(SettingsInvalid, match="anchors"):
        read_yaml(bomb, "holdfast.yaml")


def test_a_file_that_is_too_large_or_not_there_is_told(tmp_path):
    large = write(tmp_path, "#" * (1 << 20) + "\n\n")
    with pytest.raises(SettingsInvalid, match="larger than"):
        load_settings(large)
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        load_settings(tmp_path / "missing.yaml")


def test_code_wins_over_the_file_and_the_file_over_the_defaults(tmp_path, monkeypatch):
    """Proves C14."""
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path,
        """
        compression: gzip
        on_checkpoint_failure: pause
        location: "stores/{project}"
        destructive: {operations: [drop_table]}
    """,
    )
    hf = holdfast.open(on_checkpoint_failure="stop", destructive=["wipe"])
    assert hf.settings.compression == "gzip"
    assert hf.settings.on_checkpoint_failure == "stop"
    assert {"drop_table", "wipe", "git_push"} <= set(hf.settings.operations)
    assert hf.run("r").checkpoint(state=["x" * 100] * 10).record.envelope.codec == "gzip"
    assert (tmp_path / "stores" / tmp_path.name / "holdfast.db").exists()
    assert holdfast.open("memory:", compression="none").settings.compression == "none"
    hf.close()


def test_a_location_may_be_a_url_and_only_known_names_are_filled_in(tmp_path):
    assert located(make_settings({"location": "memory:"}), None) == "memory:"
    file = tmp_path / "holdfast.yaml"
    assert located(make_settings({"location": "{root}/x"}), file) == f"{tmp_path}/x"
    with pytest.raises(SettingsInvalid, match=r"only {project} and {root}"):
        located(make_settings({"location": "{issue}"}), file)


def test_a_strategy_can_be_set_in_the_file():
    """Proves E3."""
    strategy = make_strategy(make_settings({"strategy": {"phases": ["plan"], "every_loops": 3, "every_s": 9}}).strategy)
    assert len(strategy.conditions) == 3


def test_a_key_comes_from_a_file_or_from_the_variable_that_is_named(tmp_path, monkeypatch):
    key = tmp_path / "key"
    key.write_text("text of the key")
    monkeypatch.setenv("HOLDFAST_TEST_KEY", "text in a variable")
    assert read_key(make_settings({"encryption": {"key_file": str(key)}})) == "text of the key"
    assert read_key(make_settings({"encryption": {"key_env": "HOLDFAST_TEST_KEY"}})) == "text in a variable"
    assert read_key(Settings()) is None
    with pytest.raises(SettingsInvalid, match=r"HOLDFAST_TEST_MISSING.*not set"):
        read_key(make_settings({"encryption": {"key_env": "HOLDFAST_TEST_MISSING"}}))
    with pytest.raises(SettingsInvalid, match="key file cannot be read"):
        read_key(make_settings({"encryption": {"key_file": str(tmp_path / "nothing")}}))


@pytest.mark.parametrize(("given", "told"), [
    ({"interval_s": -1}, "interval_s"), ({"interval_s": 0}, "interval_s"), ({"interval_s": "soon"}, "interval_s"),
    ({"on_checkpoint_failure": "stopp"}, "use continue, pause, stop"), ({"compression": "brotli"}, "use none, zstd"),
    ({"enabled": "yes"}, "enabled"), ({"settings": Settings(interval_s=-1)}, "interval_s"),
    ({"interval_s": object()}, "object"),
])  # fmt: skip
def test_what_code_gives_is_checked_like_a_file(given, told):
    """Proves C14."""
    with pytest.raises(SettingsInvalid) as caught:
        holdfast.open("memory:", **{"settings": Settings(), **given})
    assert told in str(caught.value)


def test_code_can_switch_the_timer_off():
    """Proves C14: None is given, not left out."""
    assert holdfast.open("memory:", settings=Settings(interval_s=9)).settings.interval_s == 9
    assert holdfast.open("memory:", settings=Settings(interval_s=9), interval_s=None).settings.interval_s is None
