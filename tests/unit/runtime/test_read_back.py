import msgspec
import pytest

import holdfast
from holdfast import Holdfast, UnprotectedWarning
from holdfast.store.memory import MemoryStore


class Forgetful(MemoryStore):
    """A store that acknowledges commits and flips a byte of what it keeps."""

    damages = False

    def write(self, commit):
        if self.damages:
            chunks = [chunk._replace(data=bytes([chunk.data[0] ^ 1]) + chunk.data[1:]) for chunk in commit.chunks]
            commit = msgspec.structs.replace(commit, chunks=chunks)
        return super().write(commit)


def test_a_phase_is_read_back_before_the_next_one_starts():
    """Proves B2."""
    store = Forgetful()
    with Holdfast(store) as hf, hf.run("r") as run:
        with run.phase("plan"):
            run.step("think", lambda: "plan " * 100)
        assert run.protection.since is None
        phase = run.phase("build")
        phase.__enter__()
        store.damages = True
        with pytest.warns(UnprotectedWarning, match="read back"):
            phase.__exit__(None, None, None)
        assert run.protection.since is not None
        store.damages = False
        assert not hf.verify().sound
        assert run.checkpoint(state="whole again").saved
        assert run.protection.since is None
        assert hf.verify().sound  # what was stored wrongly is stored again, not referred to


def test_a_read_back_that_fails_stops_the_run_where_the_settings_say_so(tmp_path):
    store = Forgetful()
    settings = holdfast.Settings(on_checkpoint_failure="stop")
    with Holdfast(store, settings=settings) as hf:
        run = hf.run("r")
        phase = run.phase("plan")
        phase.__enter__()
        store.damages = True
        with pytest.raises(holdfast.RunStopped, match="read back"):
            phase.__exit__(None, None, None)
