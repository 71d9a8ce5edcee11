"""A signal while a run is entered: the error is the signal's own, and nothing stays behind."""

import threading

import pytest

import holdfast


@pytest.mark.parametrize("interrupted", ["holdfast-timers", "holdfast-leases", "holdfast-retention"])
def test_ctrl_c_while_a_run_is_entered_leaves_no_lease_and_no_thread(tmp_path, monkeypatch, interrupted):
    """Proves C10: the thread may be starting when the signal arrives."""
    started = threading.Thread.start

    def start(thread):
        if thread.name == interrupted:
            raise KeyboardInterrupt
        started(thread)

    before = set(threading.enumerate())
    with holdfast.open(tmp_path / "store") as hf:
        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt), hf.run("r"):
            pytest.fail("it was entered")
        monkeypatch.undo()
        left = {thread.name for thread in set(threading.enumerate()) - before}
        assert not left & {"holdfast-timers", "holdfast-leases", "holdfast-retention"}
        with hf.run("r") as run:  # its lease was given back
            run.checkpoint(state=1)
