"""The command line on a store of many machines."""

from __future__ import annotations

from urllib.parse import urlsplit
from uuid import uuid4

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


def test_a_role_is_bound_to_a_tenant_and_the_doctor_says_who_is_not(hf, project, database):
    """Proves E7: set up by a superuser, used by a login that owns nothing."""
    name, role = urlsplit(database).path[1:], f"cli_{uuid4().hex[:8]}"
    owner = shared_server().url(name, "postgres") + "&tenant=acme"
    done = hf("store", "role", role, "--store", owner, "--json")
    assert (done.code, done.json["role"], done.json["tenant"], done.json["created"]) == (0, role, "acme", True)
    assert hf("store", "role", role, "--store", owner).code == 0
    mine = shared_server().url(name, role) + "&tenant=acme"
    assert hf("checkpoint", "r", "--store", mine).code == 0
    assert "superuser" in hf("doctor", "--store", owner).out
    assert "role" not in [one["check"] for one in hf("doctor", "--store", mine, "--json").json["findings"]]
    other = mine.replace("acme", "other")
    assert hf("ls", "--store", other, "--json").json["runs"] == []
    refused = hf("checkpoint", "r", "--store", other)
    assert refused.code != 0
    assert "tenant" in refused.err
    assert hf("store", "role", role, "--store", project / "local.db").code == 2
