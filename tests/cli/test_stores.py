"""Stores: verify, copy, export, import, store migrate and keys."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import yaml

import holdfast


def test_verify_is_silent_about_nothing(hf, story):
    done = hf("verify")
    assert done.code == 0
    assert done.out.startswith("Sound: 1 run, 3 checkpoints, ")
    assert hf("verify", "--json").json["sound"] is True


def test_verify_names_damage_and_exits_with_5(hf, story):
    connection = apsw.Connection(str(story / ".holdfast" / "holdfast.db"))
    connection.execute("UPDATE chunk SET data = x'00' WHERE n = (SELECT min(n) FROM chunk)")
    connection.close()
    done = hf("verify")
    assert done.code == 5
    assert "issue-42" in done.out
    faults = hf("verify", "--json")
    assert (faults.code, faults.json["sound"]) == (5, False)
    assert faults.json["faults"][0]["kind"] == "chunk"


def test_verify_against_a_remembered_head(hf, story):
    head = hf("show", "issue-42", "--json").json["id"]
    assert hf("verify", "--remembered", f"issue-42={head}").code == 0
    assert hf("verify", "--remembered", f"issue-42=cp_{'0' * 32}").code == 5
    assert hf("verify", "--remembered", "issue-42").code == 2


def test_runs_are_copied_exported_and_imported(hf, story, tmp_path):
    assert hf("copy", ".holdfast", tmp_path / "other").code == 0
    assert hf("ls", "--store", tmp_path / "other", "--json").json["runs"][0]["id"] == "issue-42"
    again = hf("copy", ".holdfast", tmp_path / "other", "issue-42", "--json").json["runs"]
    assert again[0]["present"] == 3
    assert hf("export", "issue-42", "-o", tmp_path / "run.holdfast").code == 0
    assert hf("export", "issue-42", "-o", tmp_path / "run.holdfast").code == 2
    assert hf("import", tmp_path / "run.holdfast", "--store", tmp_path / "third").code == 0
    assert hf("cat", "issue-42:a.txt", "--store", tmp_path / "third").out == "three\n"


def test_what_cannot_be_copied_is_said(hf, story, tmp_path):
    assert hf("copy", tmp_path / "none", tmp_path / "other").code == 3
    assert hf("copy", ".holdfast", "ftp://host/x").code == 2
    assert hf("export", "issue-43", "-o", tmp_path / "x").code == 3
    assert hf("import", tmp_path / "none.holdfast").code == 3
    (tmp_path / "junk").write_bytes(b"junk" * 500)
    assert hf("import", tmp_path / "junk", "--store", tmp_path / "third").code in (5, 6)


def test_a_store_of_files_is_like_any_other(hf, project, tmp_path):
    place = f"file://{tmp_path}/files"
    assert hf("ls", "--store", place).code == 3
    assert hf("checkpoint", "r", "--reason", "first", "--label", "one", "--store", place).code == 0
    assert "first" in hf("ls", "--store", place).out
    assert "(one)" in hf("log", "r", "--store", place).out
    assert hf("show", "one", "--store", place, "--json").json["seq"] == 1
    assert hf("verify", "--store", place).code == 0
    for bad in ("nothing://x", "file://host/x", "sqlite://x", f"{place}?form=json"):
        assert hf("ls", "--store", bad).code == 2


@pytest.mark.parametrize("store", ["", "location: file://{root}/files\n"])
def test_every_command_takes_the_name_of_a_document_in_the_mirror(hf, project, store):
    """Proves C1, C11: with or without its suffix and its folder; a deleted checkpoint's document goes with it."""
    (project / "holdfast.yaml").write_text(store + "mirror: {form: yaml, location: 'readable/{run}'}\n")
    for number in range(3):
        (project / "state.json").write_text(f'{{"step": {number}}}')
        assert hf("checkpoint", "r", "--state", "state.json").code == 0
    first = hf("show", "r@1", "--json").json["id"]
    index = yaml.safe_load((project / "readable" / "r" / "index.yaml").read_text())
    path = Path("readable/r", next(one["file"] for one in index["checkpoints"] if one["id"] == first))
    for name in (path, path.name, path.stem, f"r:{path.name}"):
        assert hf("show", name, "--json").json["id"] == first, name
    assert hf("diff", path, "r@2").code == 0
    assert hf("fork", path.stem, "other").code == 0
    assert hf("resume", path.name, "-y").code == 14  # put back; its program continues it
    assert hf("show", "r", "state", "--json").json["sections"]["state"] == {"step": 0}
    assert hf("show", "manual-20300101T120000000Z-1f2e3d4c.yaml").code == 3
    second = hf("show", "r@2", "--json").json["id"]
    assert hf("delete", "r@2", "-y").code == 0
    assert second not in (project / "readable" / "r" / "index.yaml").read_text()
    documents = (project / "readable" / "r").glob("*-*.yaml")
    assert not any(yaml.safe_load(one.read_text())["id"] == second for one in documents)
    assert hf("delete", "--run", "r", "-y").code == 0
    assert not list((project / "readable" / "r").iterdir())


def test_the_schema_is_up_to_date(hf, story):
    assert hf("store", "migrate").out == "The schema is up to date.\n"
    assert hf("store").code == 2
    assert hf("store", "key").code == 2


def test_keys_are_made_added_and_removed(hf, project):
    made = hf("store", "key", "new", "one.key", "--json").json
    assert (project / "one.key").stat().st_mode & 0o777 == 0o600
    assert hf("store", "key", "new", "one.key").code == 2
    (project / "holdfast.yaml").write_text("encryption: {key_file: one.key}\n")
    assert hf("trust").code == 0
    assert hf("checkpoint", "r").code == 0
    assert hf("store", "key", "ls", "--json").json["keys"] == [made["key"]]
    hf("store", "key", "new", "two.key")
    assert len(hf("store", "key", "add", "two.key", "--json").json["keys"]) == 2
    assert hf("store", "key", "remove", made["key"]).code == 12
    other = hf("store", "key", "ls", "--json").json["keys"][1]
    asked = hf("store", "key", "remove", other)
    assert "settings" not in asked.err, "another key than the one that is used"
    removed = hf("store", "key", "remove", made["key"], "--yes")
    assert removed.code == 0
    assert "Your settings name key" in removed.err
    assert hf("ls").code == 2, "the settings name the key that was removed"
    (project / "holdfast.yaml").write_text("encryption: {key_file: two.key}\n")
    assert hf("trust").code == 0
    assert hf("log", "r").code == 0
    assert hf("store", "key", "remove", "two.key", "--yes").code != 0, "the last key stays"


def test_a_list_of_an_encrypted_store_needs_its_key(hf, project):
    """Lists go by without the engine, but not by the key."""
    hf("store", "key", "new", "one.key")
    (project / "holdfast.yaml").write_text("encryption: {key_file: one.key}\n")
    assert hf("trust").code == 0
    hf("checkpoint", "r", "--reason", "hidden")
    assert "hidden" in hf("ls").out
    (project / "holdfast.yaml").unlink()
    refused = hf("ls")
    assert refused.code == 2
    assert "hidden" not in refused.out


def test_the_projects_key_is_for_the_projects_store(hf, project, tmp_path):
    other = holdfast.open(tmp_path / "plain")
    other.run("r").checkpoint()
    other.close()
    hf("store", "key", "new", "one.key")
    (project / "holdfast.yaml").write_text("encryption: {key_file: one.key}\n")
    assert hf("trust").code == 0
    assert hf("checkpoint", "mine").code == 0
    assert hf("copy", tmp_path / "plain", tmp_path / "copy").code == 0
    assert hf("copy", ".holdfast", tmp_path / "mine").code == 0
    assert hf("ls", "-C", tmp_path, "--store", tmp_path / "mine").code == 2, "the copy is locked like the original"


def test_a_store_without_keys_says_so(hf, story):
    assert "no keys" in hf("store", "key", "ls").err
    (story / "k").write_text(holdfast.generate_key())
    assert hf("store", "key", "add", "k").code == 2
    assert hf("store", "key", "add", "none").code == 2


def test_a_relative_key_file_counts_from_the_project(hf, project, monkeypatch):
    hf("store", "key", "new", "one.key")
    (project / "holdfast.yaml").write_text("encryption: {key_file: one.key}\n")
    assert hf("trust").code == 0
    hf("checkpoint", "r")
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    assert hf("log", "r").code == 0


def test_a_plain_store_is_copied_into_the_projects_encrypted_one(hf, project):
    hf("checkpoint", "x", "--store", "plain")
    hf("store", "key", "new", "k")
    (project / "holdfast.yaml").write_text("encryption: {key_file: k}\nlocation: enc\n")
    assert hf("trust").code == 0
    assert hf("copy", "plain", "enc").code == 0
    assert hf("checkpoint", "y").code == 0
    assert hf("copy", "plain", "enc", "--json").json["runs"][0]["present"] == 1
    assert {run["id"] for run in hf("ls", "--json").json["runs"]} == {"x", "y"}
    assert hf("verify").code == 0
    told = hf("copy", "enc", "other")
    assert "the same key opens it" in told.err


_LOOKING = """
import sys
from crash.privileges import give_up_privileges
from holdfast.cli.main import main
give_up_privileges()
sys.exit(main(sys.argv[1:]))
"""


def looking(*words):
    return subprocess.run(
        [sys.executable, "-c", _LOOKING, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def read_only(story):
    """The story's store, which nobody may write."""
    folder = story / ".holdfast"
    (folder / "holdfast.db").chmod(0o400)
    folder.chmod(0o500)
    yield story
    folder.chmod(0o700)
    (folder / "holdfast.db").chmod(0o600)


def test_a_store_that_cannot_be_written_can_be_looked_at(read_only, tmp_path):
    for words in (
        ["ls"],
        ["log", "issue-42"],
        ["show", "issue-42"],
        ["files", "issue-42"],
        ["cat", "issue-42:a.txt"],
        ["diff", "issue-42@1"],
        ["status", "issue-42"],
        ["stats"],
        ["verify"],
        ["copy", ".holdfast", tmp_path / "other"],
        ["export", "issue-42", "-o", tmp_path / "run.hfx"],
        ["restore", "issue-42@1", "--into", tmp_path / "back", "--yes"],
    ):
        done = looking(*words)
        assert done.returncode == 0, (words, done.stderr)
    assert (tmp_path / "back" / "a.txt").read_text() == "one\n"
    for words in (["checkpoint", "issue-42"], ["label", "issue-42", "x"], ["delete", "--run", "issue-42", "--yes"]):
        done = looking(*words)
        assert done.returncode == 6, (words, done.stdout)
        assert "cannot be written" in done.stderr


def test_commits_in_a_log_that_cannot_be_read_are_not_passed_over(story):
    folder = story / ".holdfast"
    (folder / "holdfast.db-wal").write_bytes(b"not in the file yet")
    folder.chmod(0o500)
    try:
        done = looking("ls")
        assert done.returncode == 6
        assert "copy both to another place" in done.stderr
    finally:
        folder.chmod(0o700)


def test_an_import_leaves_nothing_beside_the_file(hf, story, tmp_path):
    hf("export", "issue-42", "-o", tmp_path / "e.hfx")
    assert hf("import", tmp_path / "e.hfx", "--store", tmp_path / "target").code == 0
    assert [one.name for one in tmp_path.glob("e.hfx*")] == ["e.hfx"]


def test_an_import_that_meets_damage_says_what_is_there_by_now(hf, project, tmp_path):
    with holdfast.open() as store:
        run = store.run("r")
        for number in range(3):
            run.checkpoint(state={"text": f"{number}" * 100})
        store.transfer.export(tmp_path / "e.hfx", "r")
    connection = apsw.Connection(str(tmp_path / "e.hfx"))
    connection.execute("UPDATE chunk SET data = x'00' WHERE n = (SELECT max(n) FROM chunk)")
    connection.close()
    done = hf("import", tmp_path / "e.hfx", "--store", tmp_path / "target")
    assert done.code == 5
    assert f"the copy of run 'r' stopped here, the checkpoints before this one are in sqlite://{tmp_path}" in done.err
    assert hf("ls", "--store", tmp_path / "target", "--json").json["runs"][0]["checkpoints"] == 2


def test_an_import_that_locks_an_empty_store_says_with_which_key(hf, project, tmp_path):
    hf("store", "key", "new", "k")
    (project / "holdfast.yaml").write_text("encryption: {key_file: k}\n")
    assert hf("trust").code == 0
    hf("checkpoint", "x")
    hf("export", "x", "-o", tmp_path / "e.hfx")
    (project / "holdfast.yaml").write_text("location: other\n")
    refused = hf("import", tmp_path / "e.hfx")
    assert refused.code == 2
    assert "--key-file FILE" in refused.err
    done = hf("import", tmp_path / "e.hfx", "--key-file", "k")
    assert done.code == 0
    assert "encryption: {key_file: k}" in done.err
    asked = hf("ls")
    assert asked.code == 2
    assert "encryption: {key_file: FILE}" in asked.err


def test_a_key_that_is_not_there_is_not_asked_about(hf, project):
    hf("store", "key", "new", "one.key")
    (project / "holdfast.yaml").write_text("encryption: {key_file: one.key}\n")
    assert hf("trust").code == 0
    hf("checkpoint", "r")
    done = hf("store", "key", "remove", "nope", terminal=True, stdin=b"y\n")
    assert done.code == 3
    assert "?" not in done.err


@pytest.mark.parametrize("content", [b"", b"hello\n", bytes(range(256)) * 20])
def test_a_file_that_is_no_export_is_named_as_that(hf, project, content):
    (project / "junk").write_bytes(content)
    said = hf("import", "junk")
    assert said.code == 5
    assert "holdfast export" in said.err


def test_a_new_start_where_an_encrypted_store_was_is_said_explicitly(hf, project):
    hf("store", "key", "new", "own.key")
    (project / "holdfast.yaml").write_text("encryption: {key_file: own.key}\n")
    assert hf("trust").code == 0
    assert hf("store", "key", "forget").code == 0, "nothing is remembered yet"
    assert hf("checkpoint", "run").code == 0
    shutil.rmtree(project / ".holdfast")
    refused = hf("checkpoint", "run")
    assert refused.code != 0
    assert "holdfast store key forget" in refused.err
    (project / "holdfast.yaml").unlink()
    assert hf("ls").code != 0, "nor is it taken for one without a key"
    assert hf("store", "key", "forget").code != 0, "nobody agreed"
    assert hf("store", "key", "forget", "--yes").code == 0
    assert hf("ls").code == 0
