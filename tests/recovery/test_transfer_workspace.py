"""A run with its files: captured in one place, mailed as one file, resumed in another."""

from __future__ import annotations

import random
import shutil

import pytest

import holdfast
from store_kit import STORES, open_store_in
from unit.workspace.kit import seen, write


@pytest.fixture(params=STORES)
def target(request, tmp_path):
    with open_store_in(request.param, tmp_path / "target") as store:
        yield holdfast.Holdfast(store)


def test_a_run_from_sqlite_is_exported_imported_anywhere_and_recovered_into_an_empty_directory(tmp_path, target):
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
        hf.transfer.export(tmp_path / "run.holdfast", "issue-42")
    wanted = {path: found for path, found in seen(work).items() if ".holdfast" not in str(path)}
    shutil.rmtree(work)
    elsewhere.mkdir()
    hf = target
    hf.transfer.import_from(tmp_path / "run.holdfast")
    assert hf.latest("issue-42").id == last.id
    assert hf.latest("issue-42").section("state") == {"step": 2}
    assert hf.verify().sound
    run = hf.run("issue-42", workspace=elsewhere)
    run.workspace.restore(run.workspace.plan(hf.latest("issue-42"), into=elsewhere))
    assert {path: found for path, found in seen(elsewhere).items() if ".holdfast" not in str(path)} == wanted
    assert run.checkpoint(state={"step": 3}).parent
    run.close()


def test_a_workspace_survives_every_store(tmp_path, target):
    """Proves C11: files of the workspace are chunks beside the documents."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for folder in (work, elsewhere):
        folder.mkdir()
    write(work, {"a": "one\n", "d": {"e": "two\n"}})
    wanted = seen(work)
    run = target.run("issue-42", workspace=work)
    run.checkpoint(state={"step": 1})
    other = target.run("issue-42", workspace=elsewhere)
    other.workspace.restore(other.workspace.plan(target.latest("issue-42"), into=elsewhere))
    assert {path: found for path, found in seen(elsewhere).items() if ".holdfast" not in str(path)} == wanted
    assert target.verify().sound
