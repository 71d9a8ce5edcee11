"""A run with its files: captured in one place, mailed as one file, carried on in another."""

from __future__ import annotations

import random
import shutil
from contextlib import closing

import pytest

import holdfast
from holdfast.store.files import FilesStore
from postgres_server import shared_server
from unit.workspace.kit import seen, write


@pytest.fixture
def database():
    url = shared_server().database()
    yield url
    shared_server().drop(url)


def test_a_run_from_sqlite_is_exported_imported_into_postgres_and_recovered_into_an_empty_directory(tmp_path, database):
    """Proves A15, E5, X1."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    big = random.Random(9).randbytes(3_000_000)
    write(work, {"a": "one\n", "d": {"e": "two\n"}, "void": {}, "l": ("a",)})
    (work / "big").write_bytes(big)
    with holdfast.open(tmp_path / "here.db") as hf:
        run = hf.run("issue-42", workspace=work)
        run.checkpoint(state={"step": 1})
        write(work, {"a": "changed\n"})
        shutil.rmtree(work / "d")
        last = run.checkpoint(state={"step": 2}, label="done")
        run.close()
        hf.export(tmp_path / "run.holdfast", "issue-42")
    wanted = {path: found for path, found in seen(work).items() if ".holdfast" not in str(path)}
    shutil.rmtree(work)
    elsewhere.mkdir()
    with holdfast.open(database) as hf:
        hf.import_from(tmp_path / "run.holdfast")
        assert hf.latest("issue-42").id == last.id
        assert hf.latest("issue-42").section("state") == {"step": 2}
        assert hf.verify().sound
        run = hf.run("issue-42", workspace=elsewhere)
        run.workspace.restore(run.workspace.plan(hf.latest("issue-42"), into=elsewhere))
        assert {path: found for path, found in seen(elsewhere).items() if ".holdfast" not in str(path)} == wanted
        assert run.checkpoint(state={"step": 3}).parent
        run.close()


def test_a_workspace_survives_the_files_store(tmp_path):
    """Proves C11: files of the workspace are chunks beside the documents."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for folder in (work, elsewhere):
        folder.mkdir()
    write(work, {"a": "one\n", "d": {"e": "two\n"}})
    wanted = seen(work)
    with closing(FilesStore(tmp_path / "store")) as store:
        hf = holdfast.Holdfast(store)
        run = hf.run("issue-42", workspace=work)
        run.checkpoint(state={"step": 1})
        other = hf.run("issue-42", workspace=elsewhere)
        other.workspace.restore(other.workspace.plan(hf.latest("issue-42"), into=elsewhere))
        assert {path: found for path, found in seen(elsewhere).items() if ".holdfast" not in str(path)} == wanted
        assert hf.verify().sound
