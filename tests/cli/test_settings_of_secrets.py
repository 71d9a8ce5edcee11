"""Settings that name a secret or a mirror: keys stay out of checkpoints, and a mirror never fails a checkpoint."""

import subprocess
import zlib

import pytest

import holdfast
from holdfast import Settings, UsageError
from holdfast.encode.compress import decompress
from holdfast.settings.presets import PRESETS
from holdfast.settings.trust import wishes_of


def captured(store, run):
    found = (store.get(one.id) for one in store.checkpoints(run))
    return {file.path for one in found if "workspace" in one.sections for file in one.files()}


@pytest.fixture
def keyed(hf, project):
    """A project with a key under a plain name in it, which the user's own settings name."""
    assert hf("store", "key", "new", "notes").code == 0
    (project / "a").write_text("x")
    return project / "notes"


def test_the_key_file_is_never_captured(keyed, project):
    with holdfast.open(key_file=str(keyed)) as store:
        with store.run("r", workspace=project) as run:
            run.checkpoint(state=1)
            (project / "b").write_text("y")
            run.checkpoint(state=2)
        assert captured(store, "r") == {"a", "b"}


def test_a_key_file_behind_a_link_and_a_relative_name_is_never_captured(keyed, project):
    (project / "folder").mkdir()
    (project / "folder" / "link").symlink_to(keyed)
    with holdfast.open(key_file="folder/link") as store:
        with store.run("r", workspace=project) as run:
            run.checkpoint(state=1)
        assert "notes" not in captured(store, "r")


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("below", [False, True])
def test_a_key_file_that_git_knows_is_in_no_chunk(keyed, project, is_committed, below):
    """Staged it came with the git position, committed with the history."""
    home = project / "below" if below else project
    home.mkdir(exist_ok=True)
    key = keyed.rename(home / "notes")
    (home / "a").write_text("x")
    git = ["git", "-C", home, "-c", "user.name=n", "-c", "user.email=e@e"]
    words = [["init", "-q"], ["add", "-A"], *([["commit", "-qm", "first"]] if is_committed else [])]
    for one in words:
        subprocess.run([*git, *one], check=True)
    with holdfast.open(key_file=str(key), sign=True) as store:
        with store.run("r", workspace=project) as run:
            taken = run.checkpoint(state=1)
        contents = [
            zlib.decompress(file.read_bytes()) for file in (home / ".git" / "objects").rglob("*") if file.is_file()
        ]
        assert any(key.read_bytes() in one for one in contents), "git has it"
        chunks = store.store.fetch(list(store.store.medium.chunk_ids()))
        stored = b"".join(decompress(one.codec, one.data, one.size) for one in chunks.values())
        assert key.read_bytes().strip() not in stored
        packs = [one.history for one in taken.workspace.positions if one.history is not None]
        assert not any(one.packs for one in packs), "nor in what is packed of the history"
        assert any("left out" in skip.reason for skip in taken.not_captured.problems)


def test_a_restore_leaves_a_key_that_was_captured_before_as_it_is(keyed, project):
    text = keyed.read_text()
    with holdfast.open() as store, store.run("r", workspace=project) as run:
        run.checkpoint(state=1)
    keyed.write_text(text + "# another\n")
    settings = Settings(encryption=holdfast.settings.values.EncryptionSettings(key_file=str(keyed)))
    with holdfast.Holdfast(holdfast.open().store, settings=settings) as store:
        assert store.recover("r@1", workspace=project).success
    assert keyed.read_text() == text + "# another\n"


@pytest.mark.parametrize("location", [".git/hooks/{run}", "{root}/.GIT/{run}", "a/git~1/{run}", "link/{run}"])
def test_a_mirror_is_never_in_git(hf, project, location):
    """Git runs what lies there."""
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / "link").symlink_to(".git")
    (project / "holdfast.yaml").write_text(f"mirror: {{form: yaml, location: '{location}'}}\n")
    hf("trust")
    hf("checkpoint", "r")
    assert [path.name for path in (project / ".git").rglob("*")] == ["hooks"]


def test_no_name_of_a_run_leads_a_mirror_into_git(project):
    (project / ".git").mkdir()
    settings = Settings(mirror=holdfast.settings.values.MirrorSettings(form="json", location="{root}/{issue}"))
    with holdfast.open(settings=settings) as store:
        assert store.run("issue-.git").checkpoint(state=1).saved
        assert store.run("issue-7").checkpoint(state=1).saved
    assert (project / "7" / "index.json").is_file()
    assert not list((project / ".git").iterdir())


@pytest.mark.parametrize("location", ["readable", "{root}/readable", "../{run}", "{run}/{unknown}", "{run"])
def test_a_mirror_that_cannot_be_is_refused_when_the_store_is_opened(project, location):
    (project / "holdfast.yaml").write_text(f"mirror: {{form: yaml, location: '{location}'}}\n")
    with pytest.raises((UsageError, holdfast.SettingsUntrusted)):
        holdfast.open()


def test_a_mirror_that_fails_leaves_a_stored_checkpoint_stored(project):
    (project / "holdfast.yaml").write_text("mirror: {form: yaml, location: 'readable/{run}'}\n")
    (project / "readable").write_text("no folder")
    with holdfast.open() as store:
        run = store.run("r")
        with pytest.warns(UserWarning, match="is stored, its mirror is not"):
            run.checkpoint(state=1)
        made = run.checkpoint(state=2)  # where warnings are errors, as here
        assert store.get(made.id).section("state") == 2
        run.close()


@pytest.mark.parametrize("name", PRESETS)
def test_a_repository_may_name_a_preset_because_it_may_say_all_that_is_in_it(project, name):
    assert wishes_of({"preset": name}, project) == []
    assert wishes_of(PRESETS[name], project) == []
    (project / "holdfast.yaml").write_text(f"preset: {name}\n")
    holdfast.open().close()
