"""Stores: verify, copy, export, import, store migrate and keys."""

from __future__ import annotations

import apsw

import holdfast
from holdfast.cli.session import HIDDEN_RUNS, KEYS_RUN
from holdfast.runtime.inbox import INBOXES
from holdfast.transfer.keys import KEYS_RUN as REAL_KEYS_RUN


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


def test_a_store_of_readable_files_is_like_any_other(hf, project, tmp_path):
    place = f"file://{tmp_path}/files?form=json"
    assert hf("ls", "--store", place).code == 3
    assert hf("checkpoint", "r", "--reason", "first", "--label", "one", "--store", place).code == 0
    assert "first" in hf("ls", "--store", place).out
    assert "(one)" in hf("log", "r", "--store", place).out
    assert hf("show", "one", "--store", place, "--json").json["seq"] == 1
    assert hf("verify", "--store", place).code == 0
    for bad in ("nothing://x", "file://host/x", "sqlite://x"):
        assert hf("ls", "--store", bad).code == 2


def test_the_schema_is_up_to_date(hf, story):
    assert hf("store", "migrate").out == "The schema is up to date.\n"
    assert hf("store").code == 2
    assert hf("store", "key").code == 2


def test_keys_are_made_added_and_removed(hf, project):
    made = hf("store", "key", "new", "one.key", "--json").json
    assert (project / "one.key").stat().st_mode & 0o777 == 0o600
    assert hf("store", "key", "new", "one.key").code == 2
    (project / "holdfast.yaml").write_text("encryption: {key_file: one.key}\n")
    assert hf("checkpoint", "r").code == 0
    assert hf("store", "key", "ls", "--json").json["keys"] == [made["key"]]
    hf("store", "key", "new", "two.key")
    assert len(hf("store", "key", "add", "two.key", "--json").json["keys"]) == 2
    assert hf("store", "key", "remove", made["key"]).code == 12
    assert hf("store", "key", "remove", made["key"], "--yes").code == 0
    assert hf("ls").code == 2, "the settings name the key that was removed"
    (project / "holdfast.yaml").write_text("encryption: {key_file: two.key}\n")
    assert hf("log", "r").code == 0
    assert hf("store", "key", "remove", "two.key", "--yes").code != 0, "the last key stays"


def test_a_list_of_an_encrypted_store_needs_its_key(hf, project):
    """Lists go by without the engine, but not by the key."""
    hf("store", "key", "new", "one.key")
    (project / "holdfast.yaml").write_text("encryption: {key_file: one.key}\n")
    hf("checkpoint", "r", "--reason", "hidden")
    assert "hidden" in hf("ls").out
    (project / "holdfast.yaml").unlink()
    refused = hf("ls")
    assert refused.code == 2
    assert "hidden" not in refused.out
    assert KEYS_RUN == REAL_KEYS_RUN
    assert INBOXES.startswith(HIDDEN_RUNS)


def test_the_projects_key_is_for_the_projects_store(hf, project, tmp_path):
    other = holdfast.open(tmp_path / "plain")
    other.run("r").checkpoint()
    other.close()
    hf("store", "key", "new", "one.key")
    (project / "holdfast.yaml").write_text("encryption: {key_file: one.key}\n")
    assert hf("checkpoint", "mine").code == 0
    assert hf("copy", tmp_path / "plain", tmp_path / "copy").code == 0
    assert hf("copy", ".holdfast", tmp_path / "mine").code == 0
    assert hf("ls", "-C", tmp_path, "--store", tmp_path / "mine").code == 2, "the copy is locked like the original"


def test_a_store_without_keys_says_so(hf, story):
    assert "no keys" in hf("store", "key", "ls").err
    (story / "k").write_text(holdfast.generate_key())
    assert hf("store", "key", "add", "k").code == 2
    assert hf("store", "key", "add", "none").code in (3, 6)


def test_a_relative_key_file_counts_from_the_project(hf, project, monkeypatch):
    hf("store", "key", "new", "one.key")
    (project / "holdfast.yaml").write_text("encryption: {key_file: one.key}\n")
    hf("checkpoint", "r")
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    assert hf("log", "r").code == 0
