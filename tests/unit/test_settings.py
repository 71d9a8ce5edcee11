import textwrap
from pathlib import Path

import pytest

import holdfast
from holdfast import RetentionPolicy, Settings, SettingsInvalid, Trigger, UsageError
from holdfast.model.rules import RULES, Keep, Rule
from holdfast.run_files import options_of
from holdfast.settings.apply import make_strategy, watch_options
from holdfast.settings.file import find_settings, load_settings, located, make_settings
from holdfast.settings.outside import read_key
from holdfast.settings.presets import PRESETS
from holdfast.settings.values import WorkspaceSettings
from holdfast.workspace.options import WorkspaceOptions

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
    assert watch_options(settings, None).rules == settings.policy.rules == RULES


def test_a_task_keeps_its_last_five_and_cleans_up_by_itself(tmp_path):
    """Proves D6: 5 per task, enabled, automatic clean-up."""
    settings = make_settings({"preset": "task", "session": {"signals": False}})
    assert settings.policy == RetentionPolicy(rules=RULES.keeping({"*": None}), last=5)
    assert (settings.enabled, settings.automatic, settings.retention.enabled) == (True, True, True)
    with holdfast.open(tmp_path, settings=settings) as hf:
        with hf.run("task") as run:
            for step in range(12):
                run.checkpoint(state={"step": step}, trigger="manual" if step % 2 else "batch_complete")
        kept = hf.checkpoints("task", archived=True)
        assert [cp.seq for cp in kept] == [14, 13, 12, 11, 10]
        assert kept[0].trigger == "shutdown"
        assert hf.latest("task").section("state") == {"step": 11}
        hf.mark(kept[-1].id, pinned=True)
        with hf.run("task") as run:
            run.checkpoint(state="more")
        assert [cp.seq for cp in hf.checkpoints("task", archived=True)] == [16, 15, 14, 13, 12, 10]
        assert hf.verify().sound


def test_a_preset_holds_where_nothing_else_is_set():
    """Proves D6, C13: what is set wins, also where it equals the default."""
    given = {"preset": "task", "retention": {"live": 50, "age_days": 30, "triggers": {"manual": 2}}}
    for task in (make_settings(given), Settings.preset("task", retention=given["retention"])):
        assert (task.policy.last, task.policy.age_days, task.policy.live) == (5, 30, 50)
        assert [name for name, rule in task.rules.rows.items() if rule.keep.count is not None] == ["manual"]
    assert make_settings({"preset": "workflow"}) == Settings()
    assert Settings().policy == RetentionPolicy(live=50, age_days=30)


def test_there_is_a_preset_for_each_kind_of_work():
    """Proves C14, D6, E3: the defaults of the five documents."""
    assert list(PRESETS) == ["workflow", "plan", "issue", "task", "episode"]
    issue = Settings.preset("issue")
    assert not issue.rules.takes(Trigger.AGENT_COMPLETE)
    assert (issue.compression, issue.retention.total_mb) == ("none", 50)
    episode = Settings.preset("episode")
    assert (episode.retention.age_days, episode.retention.last) == (7, 10)
    with holdfast.open("memory:", settings=episode) as hf, hf.run("e") as run:
        assert run.maybe_checkpoint("phase_complete", phase="plan") is None
        assert run.maybe_checkpoint("budget_warning") is None
    with holdfast.open("memory:", settings=Settings.preset("episode", strategy={"phases": ["plan"]})) as hf:
        assert hf.run("e").maybe_checkpoint("phase_complete", phase="plan") is not None
    with pytest.raises(UsageError, match="use workflow, plan, issue, task, episode"):
        Settings.preset("tsk")


def test_one_table_says_what_an_event_causes():
    """Proves C14: switches, files and counts of the settings are rows of the same table."""
    settings = make_settings(
        {
            "triggers": {"conflict_events": False},
            "workspace_on": ["gate_complete"],
            "retention": {"triggers": {"gate_complete": 2, "batch_complete": 7}},
        }
    )
    rules = settings.rules
    assert rules.of("gate_complete") == Rule(checkpoint=True, files=True, keep=Keep(2))
    assert rules.of("batch_complete") == Rule(checkpoint=True, files=False, keep=Keep(7, per_phase=True))
    assert not rules.takes(Trigger.CONFLICT_START, asked=True)
    assert settings.policy.rules == watch_options(settings, None).rules == rules
    off = make_settings({"automatic": False}).rules
    assert [trigger for trigger in Trigger if off.takes(trigger, asked=True)] == ["manual"]


def test_a_workspace_is_captured_as_the_settings_say_unless_code_says_otherwise(tmp_path):
    """Proves C14."""
    assert options_of(WorkspaceSettings()) == WorkspaceOptions()
    root = tmp_path / "project"
    root.mkdir()
    for name in ("kept.txt", "left.log", "big.bin", ".env"):
        (root / name).write_bytes(bytes(1 << 20 if name == "big.bin" else 9))
    data = {"workspace": {"ignore": ["*.log"], "include": [".env"], "max_file_mb": 0.5}}
    with holdfast.open(tmp_path / "store.db", settings=make_settings(data)) as hf:
        taken = hf.run("r", workspace=root).checkpoint()
        assert sorted(file.path for file in taken.files()) == [".env", "kept.txt"]
        taken = hf.run("code", workspace=root, workspace_options=WorkspaceOptions()).checkpoint()
        assert sorted(file.path for file in taken.files()) == ["big.bin", "kept.txt", "left.log"]


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
    assert settings.rules.of("batch_complete").keep.count == -1
    assert settings.rules.of("agent_complete").keep.count == 1
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
    ({"redaction": {"patterns": {"mine": "("}}}, "not a valid regular expression"),
    ({"redaction": {"patterns": {"mine": "x*"}}}, "matches empty text"),
    ({"encryption": {"key_file": "a", "key_env": "B"}}, "not both"),
    (["a list"], "a mapping"),
    ({1: 2}, "no setting '1'"),
    ({"workspace": {"max_file": 5}}, "'workspace.max_file'; did you mean 'max_file"),
    ({"workspace": {"max_file_mb": 0}}, "workspace.max_file_mb"),
    ({"workspace": {"ignore": "*.log"}}, "workspace.ignore"),
    ({"preset": "tsk"}, "use workflow, plan, issue, task, episode"),
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
def test_yaml_that_is_not_plain_is_refused(text, tmp_path):
    """Threats 1 and 8: no tags, no alias bombs, no key that quietly wins over another."""
    (tmp_path / "holdfast.yaml").write_bytes(text)
    with pytest.raises(SettingsInvalid):
        load_settings(tmp_path / "holdfast.yaml")


def test_an_alias_bomb_costs_nothing(tmp_path):
    bomb = b"a0: &a0 [x]\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)
    )
    (tmp_path / "holdfast.yaml").write_bytes(bomb)
    with pytest.raises(SettingsInvalid, match="anchors"):
        load_settings(tmp_path / "holdfast.yaml")


def test_settings_are_yaml_1_2_like_every_other_document(tmp_path):
    """Issue 18.4: `no` is a text, and where a truth value is wanted the message says what to write."""
    with pytest.raises(SettingsInvalid, match="write true or false"):
        load_settings(write(tmp_path, "enabled: no\n"))
    assert load_settings(write(tmp_path, "mirror: {form: off}\n")).mirror.form == "off"


def test_a_file_that_is_too_large_or_not_there_is_told(tmp_path):
    large = write(tmp_path, "#" * (1 << 20) + "\n\n")
    with pytest.raises(SettingsInvalid, match="the limit is"):
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
