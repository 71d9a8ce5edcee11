"""A sweep beside a run that is deleted and begun again under the same name."""

from holdfast import Holdfast
from holdfast.retain.sweep import sweep
from holdfast.store.sqlite import SQLiteStore


def test_a_sweep_takes_nothing_from_a_run_that_was_begun_again_meanwhile(tmp_path, monkeypatch):
    """Proves D10: what was worked out for the old run is not carried out on the new one."""
    store = SQLiteStore(tmp_path / "holdfast.db")
    with Holdfast(store) as hf:
        run = hf.run("r")
        old = run.checkpoint(state="the same content" * 10)
        for number in range(5):
            run.checkpoint(state=number)
        store.delete("r", [old.id])
        release = store.release

        def begin_again_first(*arguments, **options):
            monkeypatch.setattr(store, "release", release)
            hf.delete_run("r")
            again = hf.run("r")
            again.checkpoint(state="the same content" * 10)
            again.checkpoint(state=1)
            return release(*arguments, **options)

        monkeypatch.setattr(store, "release", begin_again_first)
        sweep(store, "r")
        assert [row.section("state") for row in hf.checkpoints("r")] == [1, "the same content" * 10]
        assert hf.verify().sound
