"""The command line on a store of many machines."""

from __future__ import annotations

import pytest

from postgres_server import shared_server


@pytest.fixture
def database():
    made = shared_server().database()
    yield made
    shared_server().drop(made)


def test_every_look_works_on_postgresql(hf, project, database, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", database)
    (project / "a.txt").write_text("one\n")
    assert hf("ls").code == 0
    assert hf("checkpoint", "r", "--reason", "first", "--workspace", "--label", "one").code == 0
    (project / "a.txt").write_text("two\n")
    assert hf("checkpoint", "r", "--workspace").code == 0
    assert hf("ls", "--json").json["runs"][0]["checkpoints"] == 2
    assert len(hf("log", "r").out.splitlines()) == 2
    assert hf("cat", "one:a.txt").out == "one\n"
    assert hf("restore", "one", "--yes").code == 0
    assert (project / "a.txt").read_text() == "one\n"
    assert hf("fork", "one", "other").code == 0
    assert hf("verify").code == 0
    assert hf("doctor").code == 0
    assert hf("copy", database, project / "copy", "r").code == 0
    assert not (project / ".holdfast" / "holdfast.db").exists()


def test_a_password_is_never_shown(hf, project):
    url = "postgresql://me:hunter2hunter2@127.0.0.1:1/nowhere?connect_timeout=1"
    for words in (["ls"], ["stats"], ["doctor"], ["verify", "--debug"], ["ls", "--json"]):
        done = hf(*words, "--store", url)
        assert done.code != 0
        assert "hunter2" not in done.out + done.err, words
