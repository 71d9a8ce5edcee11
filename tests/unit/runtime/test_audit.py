import pytest

import holdfast


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store.db"


def work(seconds=0.0):
    return seconds


def life(place, *, fails):
    with holdfast.open(place, interval_s=None) as hf, hf.run("r") as run:
        run.agents.register("coder", lambda _: {"usage": {"input_tokens": 70, "output_tokens": 30}, "text": "x"})
        with run.phase("plan"):
            run.step("think", work)
            run.agents.call("coder", "write", task="code")
        if fails:
            raise OSError("the network is gone")
        run.step("new in the second process", work)
        run.complete("done")


def test_the_trail_says_what_happened_when_and_how_long_it_took(place):
    """Proves B9."""
    with pytest.raises(OSError, match="network"):
        life(place, fails=True)
    life(place, fails=False)
    with holdfast.open(place) as hf:
        events = hf.events("r")
    assert [event.at for event in events] == sorted(event.at for event in events)
    kinds = [event.kind for event in events]
    for kind in ("phase_transition", "step done", "agent_complete", "phase_complete", "resumed", "completed"):
        assert kind in kinds
    assert kinds.count("step done") == 2
    done = next(event for event in events if event.kind == "step done")
    assert (done.what, done.phase) == ("think", "plan")
    assert done.duration_s >= 0
    carried = next(event for event in events if event.kind == "resumed")
    assert "failed" in carried.what


def test_an_agent_called_inside_a_step_is_saved_once(place):
    """Proves B9."""
    for _ in range(2):
        with holdfast.open(place, interval_s=None) as hf, hf.run("r") as run:
            run.agents.register("coder", lambda _: {"usage": {"input_tokens": 70, "output_tokens": 30}, "text": "x"})
            run.step("code", lambda run=run: run.agents.call("coder", "write", task="code"))
            run.agents.call("coder", "test", task="test")
    with holdfast.open(place) as hf:
        saved = hf.recovery.savings("r")
    assert (saved.steps, saved.tokens) == (2, 200)


def test_a_resume_tells_what_it_saved(place):
    """Proves B9."""
    with pytest.raises(OSError, match="network"):
        life(place, fails=True)
    with holdfast.open(place) as hf:
        assert hf.recovery.savings("r").resumes == 0
    life(place, fails=False)
    with holdfast.open(place) as hf:
        saved = hf.recovery.savings("r")
    assert (saved.resumes, saved.steps, saved.tokens) == (1, 2, 100)
    assert saved.seconds >= 0
