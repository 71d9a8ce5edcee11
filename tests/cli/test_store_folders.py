"""A files store that came with a repository writes, replaces and deletes nothing outside of itself."""

from __future__ import annotations

import subprocess

import pytest

import holdfast
from holdfast.errors import StoreUnavailable


@pytest.mark.parametrize("place", ["tmp", "chunks", "runs", "witness", "wakes"])
def test_a_cloned_store_with_a_link_is_refused(hf, project, tmp_path, place):
    """THREATS: a repository names a store inside the project, in which a folder leads elsewhere."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "id_ed25519").write_text("key")
    (victim / "a").write_text("mine")
    (project / "st").mkdir()
    (project / "st" / place).symlink_to(victim)
    (project / "holdfast.yaml").write_text('location: "file:///{root}/st"\n')
    (project / "work.txt").write_text("work")
    for words in (["checkpoint", "a", "--workspace"], ["guard", "--", "true"], ["delete", "--run", "a", "--yes"]):
        done = hf(*words)
        assert done.code == 6, done
        assert f"st/{place} is a link, which is not followed" in done.err
    assert {one.name: one.read_text() for one in victim.iterdir()} == {"id_ed25519": "key", "a": "mine"}


@pytest.mark.parametrize("place", ["chunks/{chunk}", "runs/{run}"])
def test_a_link_one_folder_below_is_refused_too(tmp_path, place):
    store, victim = tmp_path / "store", tmp_path / "victim"
    with holdfast.open(store.as_uri()) as hf:
        hf.run("r").checkpoint(state="x" * 5000)
    chunk = next(one for one in (store / "chunks").iterdir())
    run = next(one for one in (store / "runs").iterdir())
    chosen = store / place.format(chunk=chunk.name, run=run.name)
    subprocess.run(["mv", chosen, victim], check=True)
    chosen.symlink_to(victim)
    before = sorted(one.name for one in victim.iterdir())
    with pytest.raises(StoreUnavailable, match="is a link, which is not followed"):
        holdfast.open(store.as_uri())
    assert sorted(one.name for one in victim.iterdir()) == before


def test_a_folder_that_everybody_can_write_to_is_refused(tmp_path):
    with holdfast.open((tmp_path / "store").as_uri()) as hf:
        hf.run("r").checkpoint(state=1)
    (tmp_path / "store" / "runs").chmod(0o777)
    with pytest.raises(StoreUnavailable, match="everybody can write"):
        holdfast.open((tmp_path / "store").as_uri())
