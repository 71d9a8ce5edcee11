"""What Holdfast keeps in a user's home: private whatever the umask, and nowhere for a user without one."""

import os
import stat
import tempfile
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import SettingsInvalid, generate_key
from holdfast.flow.events import Event
from holdfast.flow.task_output import OutputFiles, output_folder, run_folder
from holdfast.settings.environment import config_folder
from holdfast.settings.file import project_settings, user_file
from holdfast.settings.trust import Wish, is_trusted, trust
from holdfast.workspace.git import user_ignore_file
from holdfast.workspace.user_key import user_key

WISHES = [Wish("location", "/elsewhere")]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home in which nothing is yet, of a user whose group may write what is made."""
    (tmp_path / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    before = os.umask(0o002)
    yield tmp_path / "home"
    os.umask(before)


@pytest.fixture
def homeless(home, tmp_path, monkeypatch):
    """Let a user have no home, in a folder that came with a "~" in it; "~" as HOME is what is left as it is, too."""
    monkeypatch.setenv("HOME", "~")
    (tmp_path / "cloned" / "~" / ".config" / "holdfast").mkdir(parents=True)
    (tmp_path / "cloned" / "~" / ".config" / "holdfast" / "holdfast.yaml").write_text("enabled: false\n")
    monkeypatch.chdir(tmp_path / "cloned")
    return tmp_path / "cloned"


def test_a_store_with_a_key_leaves_a_folder_that_trust_can_rest_on(home, tmp_path):
    holdfast.open(tmp_path / "a.db", key=generate_key()).close()
    made = [home / ".config" / "holdfast", home / ".config" / "holdfast" / "stores"]
    assert [stat.S_IMODE(one.stat().st_mode) for one in made] == [0o700, 0o700]
    trust(WISHES, tmp_path / "holdfast.yaml")
    assert is_trusted(WISHES, tmp_path / "holdfast.yaml")


def test_trust_closes_a_folder_that_others_may_write_to(home, tmp_path):
    folder = home / ".config" / "holdfast"
    folder.mkdir(parents=True)
    assert stat.S_IMODE(folder.stat().st_mode) & 0o022
    trust(WISHES, tmp_path / "holdfast.yaml")
    assert not stat.S_IMODE(folder.stat().st_mode) & 0o022
    assert is_trusted(WISHES, tmp_path / "holdfast.yaml")


def test_output_of_tasks_leaves_a_folder_that_the_users_key_is_kept_in(home, tmp_path):
    files = OutputFiles(output_folder("postgresql://server/data", None) / "run")
    files.take(Event(kind="task_output", at=datetime.now(UTC), phase="one", task="one", text="words\n"))
    files.close()
    user_key()
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("journal.key")] == [
        (home / ".local" / "state" / "holdfast" / "journal.key").relative_to(tmp_path)
    ]


def test_a_user_without_a_home_has_no_files_in_the_folder_that_happens_to_be_current(homeless, tmp_path):
    before = sorted(homeless.rglob("*"))
    assert config_folder() is None
    assert user_file() is None
    assert project_settings(None).enabled
    assert user_key() == user_key()
    assert not user_ignore_file().startswith("~")
    assert output_folder("postgresql://server/data", None) is None
    with holdfast.open(tmp_path / "a.db", key=generate_key()) as hf:
        hf.run("run").checkpoint(state=1)
    with holdfast.open(tmp_path / "b.db") as hf:
        assert run_folder(hf, "run") is None
    with pytest.raises(SettingsInvalid, match="no home"):
        trust(WISHES, homeless / "holdfast.yaml")
    assert not is_trusted(WISHES, homeless / "holdfast.yaml")
    assert sorted(homeless.rglob("*")) == before
    assert [path.parent.parent for path in tmp_path.rglob("journal.key")] == [tmp_path / "tmp"]
