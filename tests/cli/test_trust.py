"""Settings of a repository that somebody else wrote: what they may say, and what waits for `holdfast trust`."""

import os
import shutil
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast import Settings, SettingsInvalid, SettingsUntrusted
from holdfast.settings import trust
from holdfast.workspace.user_key import user_key

WISHES = {
    "location: postgresql://elsewhere.example/db": "location",
    "location: /tmp/elsewhere": "location",
    "location: ../elsewhere": "location",
    "location: file:///tmp/elsewhere": "location",
    "location: sqlite:///tmp/elsewhere.db": "location",
    "location: 'memory:'": "location",
    "location: outside/store": "location",
    "redaction: {enabled: false}": "redaction.enabled",
    "redaction: {keys: []}": "redaction.keys",
    "redaction: {fill: {state.x: AWS_SECRET_ACCESS_KEY}}": "redaction.fill",
    "redaction: {fill_env: [AWS_SECRET_ACCESS_KEY]}": "redaction.fill_env",
    "redaction: {reversible: true}": "redaction.reversible",
    "redaction: {patterns: {slow: '(a|a)*b(?=c)'}}": "redaction.patterns",
    "redaction: {patterns: {all: '.'}}": "redaction.patterns",
    "redaction: {patterns: {badge: 'BADGE-[0-9]{6}'}}": "redaction.patterns",
    "redaction: {more_keys: [messages]}": "redaction.more_keys",
    "redaction: {paths: ['**']}": "redaction.paths",
    "mirror: {form: yaml, location: '.git/hooks/{run}'}": "mirror.location",
    "location: .git/hooks/x": "location",
    "location: .GIT./x": "location",
    "encryption: {key_file: key}": "encryption.key_file",
    "encryption: {key_env: HOME}": "encryption.key_env",
    "encryption: {sign: true}": "encryption.sign",
    "workspace: {include: [.env]}": "workspace.include",
    "workspace: {use_gitignore: false}": "workspace.use_gitignore",
    "mirror: {form: yaml, location: '/tmp/{run}'}": "mirror.location",
    "mirror: {form: yaml, location: 'outside/{run}'}": "mirror.location",
}
FREE = """
automatic: true
location: stores/{project}
interval_s: 60
triggers: {agent_complete: false}
retention: {live: 7}
redaction: {more_keys: [], paths: [], patterns: {}, enabled: true}
workspace: {ignore: ['*.log']}
mirror: {form: json, location: 'readable/{run}'}
"""


@pytest.fixture
def cloned(project, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (project / "outside").symlink_to(tmp_path / "elsewhere")
    (project / "key").write_text(holdfast.generate_key())
    return project


@pytest.mark.parametrize("text", WISHES)
def test_a_repository_s_wish_is_shown_and_refused_until_it_is_trusted(cloned, hf, text):
    """Issue 18.5."""
    (cloned / "holdfast.yaml").write_text(text)
    done = hf("checkpoint", "run")
    assert done.code == 2
    assert WISHES[text] in done.err
    assert "holdfast trust" in done.err
    with pytest.raises(SettingsUntrusted) as caught:
        holdfast.open()
    assert caught.value.wishes[0].startswith(WISHES[text])
    assert not (cloned / ".holdfast").exists()
    assert not list((cloned.parent / "elsewhere").iterdir())
    assert hf("trust", "--show", "--json").json["trusted"] is False
    assert hf("checkpoint", "run").code == 2
    assert hf("trust", "--json").json["trusted"] is True
    assert "asks for what" not in hf("ls").err
    assert hf("trust", "--remove").code == 0
    assert hf("ls").code == 2


def test_what_a_repository_may_say_needs_no_trust(cloned, hf):
    (cloned / "holdfast.yaml").write_text(FREE)
    assert hf("checkpoint", "run").code == 0
    assert (cloned / "stores" / cloned.name / "holdfast.db").exists()
    assert list((cloned / "readable/run").iterdir())
    assert hf("trust", "--json").json == {"file": str(cloned / "holdfast.yaml"), "wishes": [], "trusted": True}


def test_trust_is_for_one_place_and_for_these_values(cloned, hf, tmp_path, monkeypatch):
    """As direnv does: an edit of what was trusted, or a copy in another folder, is asked about again."""
    file = cloned / "holdfast.yaml"
    file.write_text("workspace: {include: [.env]}\n")
    assert hf("trust").code == 0
    assert hf("checkpoint", "run").code == 0
    file.write_text("workspace: {include: [.env]}\ninterval_s: 7\n")  # what needs no trust may change
    assert hf("ls").code == 0
    file.write_text("workspace: {include: [.env, id_rsa]}\n")
    assert hf("ls").code == 2
    file.write_text("workspace: {include: [.env]}\n")
    assert hf("ls").code == 0
    other = tmp_path / "copy"
    other.mkdir()
    shutil.copy(file, other)
    monkeypatch.chdir(other)
    assert hf("checkpoint", "run").code == 2


def test_folders_of_ours_that_others_could_write_to_are_closed_to_them_and_that_is_said(cloned, hf, tmp_path):
    """A umask of 002 left them open, and trust was refused for ever."""
    own = tmp_path / "config/holdfast"
    own.mkdir(parents=True)
    own.chmod(0o775)
    (cloned / "holdfast.yaml").write_text("workspace: {include: [.env]}\n")
    told = hf("trust")
    assert told.code == 0
    assert str(own) in told.err
    assert "0775" in told.err
    for place in (own / "trusted", own):
        place.chmod(0o777)
        told = hf("checkpoint", "run")
        assert (told.code, place.stat().st_mode & 0o777, str(place) in told.err) == (0, 0o755, True)
        assert "written by others" not in hf("checkpoint", "run").err


def test_trust_that_others_could_have_written_is_not_believed(cloned, hf, tmp_path, monkeypatch):
    file = cloned / "holdfast.yaml"
    file.write_text("workspace: {include: [id_rsa]}\n")
    assert hf("trust").code == 0
    folder = tmp_path / "config/holdfast/trusted"
    wanted = next(folder.iterdir())
    file.write_text("workspace: {include: [.env]}\n")
    assert hf("trust").code == 0
    kept = next(folder.iterdir())
    assert kept.stat().st_mode & 0o777 == 0o600
    folder.chmod(0o777)
    kept.rename(wanted)  # what whoever can write to the folder can do
    file.write_text("workspace: {include: [id_rsa]}\n")
    assert hf("checkpoint", "run").code == 2
    wanted.rename(kept)
    file.write_text("workspace: {include: [.env]}\n")
    assert hf("checkpoint", "run").code == 0
    kept.rename(tmp_path / "kept")
    kept.symlink_to(tmp_path / "kept")
    assert hf("checkpoint", "run").code == 2
    kept.unlink()
    (tmp_path / "kept").rename(kept)
    kept.chmod(0o660)
    assert hf("checkpoint", "run").code == 2
    kept.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert hf("trust").code == 2
    assert "chown" in hf("trust").err


def test_the_users_key_is_not_taken_from_a_folder_that_others_wrote_to(tmp_path, monkeypatch, hf):
    monkeypatch.setenv("HOME", str(tmp_path))
    state = tmp_path / ".local" / "state" / "holdfast"
    state.mkdir(parents=True)
    state.chmod(0o775)
    key = user_key()
    assert state.stat().st_mode & 0o777 == 0o755
    assert user_key() == key
    (state / "journal.key").chmod(0o644)  # as one that another user put there can be read by them
    assert user_key() != key


def test_the_user_s_own_file_the_command_line_and_code_need_no_trust(cloned, hf, tmp_path, monkeypatch):
    """Issue 18.5: two classes of settings."""
    own = tmp_path / "config/holdfast"
    own.mkdir(parents=True)
    (own / "key").write_text((cloned / "key").read_text())
    text = "encryption: {key_file: key}\nredaction: {more_keys: [mine]}\nworkspace: {ignore: [private/]}\n"
    (own / "holdfast.yaml").write_text(text + "interval_s: 9\nlocation: mine\n")
    (cloned / "holdfast.yaml").write_text(
        "redaction: {more_keys: [theirs]}\nworkspace: {ignore: ['*.log']}\ninterval_s: 8\n"
    )
    assert hf("trust").code == 0  # lists are put together, also where the project's needs it
    with holdfast.open() as opened:
        settings = opened.settings
        assert opened.store.codec.mode == "encrypt"
    assert (settings.interval_s, settings.redaction.more_keys) == (8, ["mine", "theirs"])
    assert settings.workspace.ignore == ["private/", "*.log"]
    assert (cloned / "mine/holdfast.db").exists()
    (cloned / "holdfast.yaml").unlink()
    assert hf("checkpoint", "run").code == 0
    assert hf("ls", "--json").json["runs"]
    (own / "holdfast.yaml").unlink()
    (cloned / "holdfast.yaml").write_text("location: postgresql://elsewhere.example/db\n")
    assert hf("checkpoint", "run", "--store", str(tmp_path / "named")).code == 0  # the wish is not followed
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "named"))
    assert hf("ls").code == 0
    holdfast.open(tmp_path / "named").close()
    with pytest.raises(SettingsInvalid):  # named by code, so it is followed
        holdfast.open("memory:", settings=write(cloned, "encryption: {key_env: HOLDFAST_NOT_SET}"))
    with pytest.raises(SettingsUntrusted):
        holdfast.open("memory:")


def write(folder, text):
    (folder / "holdfast.yaml").write_text(text)
    return folder / "holdfast.yaml"


def test_every_setting_is_judged(project):
    """A setting that nobody has thought about needs trust."""
    named = {name.partition(".")[0] for name in trust._ALLOWED} | trust._FREE | trust._SECTIONS
    assert set(Settings.__struct_fields__) <= named
    for section in trust._SECTIONS:
        fields = {f"{section}.{field}" for field in getattr(Settings(), section).__struct_fields__}
        assert fields <= set(trust._ALLOWED)
    assert [str(one) for one in trust.wishes_of({"new": 1, "mirror": {"also": 2}}, project)] == [
        "mirror.also: 2",
        "new: 1",
    ]


@pytest.mark.parametrize("text", [
    "location: '{project:>3000000000}'", "location: '{project!r}'", "location: '{root.parent}'", "location: '{'",
    "redaction: {patterns: {deep: '" + "(" * 900 + "a" + ")" * 900 + "'}}",
    "redaction: {patterns: {long: '" + "a" * 3000 + "'}}", "redaction: {patterns: {many: 'a{1,99999999999}'}}",
    "redaction: {patterns: {empty: '(?:|){40}'}}", "location: 'a\\u0000b'", 'location: "a\\0b"',
    'encryption: {key_file: "a\\0b"}', "a: " + "[" * 40 + "]" * 40, "? [a]\n: b", "1: 2", "", "null", "[]", "x",
])  # fmt: skip
def test_hostile_settings_end_in_a_sentence_within_bounds(project, hf, text):
    """Threats 8: a format string allocated 3 GB, a regular expression hung."""
    (project / "holdfast.yaml").write_text(text)
    before = time.process_time()
    done = hf("ls")
    assert done.code in (0, 2, 3), done.err
    assert hf("trust").code in (0, 2)
    assert time.process_time() - before < 20


def test_a_settings_file_is_a_plain_file(project, hf, tmp_path):
    """Threats 6 and 7: a link is not followed, a pipe is not waited for, a large file is not read."""
    secret = tmp_path / "secret"
    secret.write_text("TOP: [secret")
    file = project / "holdfast.yaml"
    file.symlink_to(secret)
    done = hf("ls")
    assert (done.code, "symbolic link" in done.err, "secret" in done.err.replace(str(secret), "")) == (2, True, False)
    file.unlink()
    os.mkfifo(file)
    assert hf("ls").code == 2
    file.unlink()
    with file.open("wb") as sparse:
        sparse.truncate(3 << 30)
    assert hf("ls").code == 2
    file.unlink()
    os.mkfifo(project / "pyproject.toml")
    assert hf("ls").code == 3
    (project / "pyproject.toml").unlink()
    for text in (
        "[tool.holdfast]\na" + ".a" * 400_000 + " = 1",
        "[tool.holdfast]\na = " + "[" * 200_000,
        "tool = 3 # [tool.holdfast",
    ):
        (project / "pyproject.toml").write_text(text)
        assert hf("ls").code == 2


def test_a_key_file_is_a_short_plain_file(project, tmp_path):
    key = tmp_path / "key"
    os.mkfifo(key)
    with pytest.raises(SettingsInvalid, match="not a regular file"):
        holdfast.open("memory:", settings=Settings(), key_file=str(key))
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    with pytest.raises(SettingsInvalid, match="limit"):
        holdfast.open("memory:", settings=Settings(), key_file=str(tmp_path / "large"))


@pytest.mark.parametrize(
    "said", ["encryption: {key_file: null}", "encryption: {}", "encryption: {sign: false, key_file: null}"]
)
def test_a_repository_cannot_switch_the_users_own_encryption_off(project, tmp_path, said):
    """Threats 8: to say nothing is not to say no."""
    key = tmp_path / "key"
    key.write_text(holdfast.generate_key())
    home = tmp_path / "config" / "holdfast"
    home.mkdir(parents=True)
    (home / "holdfast.yaml").write_text(f"encryption: {{key_file: {key}}}\n")
    (project / "holdfast.yaml").write_text(f"{said}\n")
    line = [sys.executable, "-m", "holdfast", "checkpoint", "r", "--reason", "a word in plain sight"]
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = subprocess.run(line, cwd=project, env=env, check=False, capture_output=True, text=True)
    stored = b"".join(path.read_bytes() for path in (project / ".holdfast").rglob("*") if path.is_file())
    assert b"plain sight" not in stored, done.stderr
    assert done.returncode == 0, done.stderr


def test_a_repository_may_not_raise_bounds(project):
    wishes = trust.wishes_of({"max_section_mb": 4096, "redaction": {"paths": ["state.**.a.**.b.**"]}}, project)
    assert {wish.name for wish in wishes} == {"max_section_mb", "redaction.paths"}
    assert trust.wishes_of({"max_section_mb": 8, "redaction": {"paths": []}}, project) == []
