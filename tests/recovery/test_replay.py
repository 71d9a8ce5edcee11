"""Replay: a run stepped through by its record, and a program held against it."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Divergence, NotFound, ReplayEnded
from holdfast.recovery.replay import Replay


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    return root


CALLS = []


def ask(question):
    CALLS.append(question)
    return {"answer": question.upper()}


def write(path, text):
    CALLS.append(text)
    path.write_text(text)
    return text


def explode():
    raise ValueError("too hot")


def record(hf, project, *, fails=False):
    """Run four steps, two of which write files."""
    CALLS.clear()
    with hf.run("r", workspace=project) as run:
        run.switch(step_complete=True)
        run.checkpoint(state="begun")
        first = run.step("ask", ask, "what")
        run.step("write-1", write, project / "one.txt", first["answer"], wrote_files=True)
        run.step("write-2", write, project / "two.txt", "second", wrote_files=True)
        if fails:
            with pytest.raises(ValueError, match="too hot"):
                run.step("explode", explode)
        else:
            run.step("last", ask, "end")
            run.complete()


def test_it_goes_forwards_and_backwards_with_results_and_nothing_is_called(hf, project):
    """Proves A16, A12."""
    record(hf, project)
    calls = list(CALLS)
    replay = hf.replay("r")
    assert (replay.position, replay.step, len(replay)) == (0, None, 4)
    assert replay.next().result == {"answer": "WHAT"}
    assert replay.next().step == "write-1"
    assert replay.back().step == "ask"
    assert replay.to("last").number == 4
    with pytest.raises(ReplayEnded, match=r"replay\.fork"):
        replay.next()
    assert replay.to(0) is None
    assert replay.back() is None
    assert [step.step for step in replay.steps] == ["ask", "write-1", "write-2", "last"]
    assert calls == CALLS


def test_state_and_files_are_those_of_each_point(hf, project):
    """Proves A16, X1."""
    record(hf, project)
    replay = hf.replay("r")
    assert "state" not in replay.state  # the run was entered, and nothing more
    assert replay.files == []
    replay.to("write-1")
    assert replay.state["state"] == "begun"
    assert [file.path for file in replay.files] == ["one.txt"]
    assert replay.read("one.txt") == b"WHAT"
    assert replay.note is None
    replay.to("write-2")
    assert [file.path for file in replay.files] == ["one.txt", "two.txt"]
    assert len(replay.state["steps"]) == 3


def test_where_checkpoints_are_gone_the_journal_leads_there_and_it_is_said_whose_files_are_shown(hf, project):
    record(hf, project)
    replay = hf.replay("r")
    replay.to("write-1")
    exact = replay.point
    hf.delete(exact.checkpoint)
    replay = hf.replay("r")
    replay.to("write-1")
    assert replay.point.seq < exact.seq
    assert replay.point.place == replay.step.place
    assert f"those of r@{replay.point.seq}" in replay.note
    assert replay.files == []
    assert [call["step"] for call in replay.state["steps"]] == ["ask", "write-1"]
    replay.to("ask")
    assert replay.note is None


def test_a_line_that_was_left_is_not_shown(hf, project):
    record(hf, project)
    hf.recover(hf.replay("r").point.checkpoint, files=False)
    with hf.run("r") as run:
        run.step("other", ask, "way")
    replay = hf.replay("r")
    assert [step.step for step in replay.steps] == ["other"]
    replay.next()
    assert replay.state["steps"][0]["step"] == "other"


def test_a_program_gets_recorded_results_and_its_functions_are_not_called(hf, project):
    """Proves A16."""
    record(hf, project)
    calls = list(CALLS)
    run = hf.replay("r").run()
    assert run.step("ask", ask, "what") == {"answer": "WHAT"}
    assert run.step("write-2", write, project / "two.txt", "second", wrote_files=True) == "second"
    assert run.step("write-1", write, project / "one.txt", "WHAT", retries=3) == "WHAT"
    assert run.step("last", ask, "end") == {"answer": "END"}
    with pytest.raises(ReplayEnded):
        run.step("new", ask, "more")
    assert calls == CALLS


def test_a_result_that_the_program_changes_is_whole_the_next_time(hf, project):
    record(hf, project)
    replay = hf.replay("r")
    replay.run().step("ask", ask, "what")["answer"] = "spoiled"
    assert replay.run().step("ask", ask, "what") == {"answer": "WHAT"}
    replay.next().result["answer"] = "spoiled"
    assert replay.step.result == {"answer": "WHAT"}


def test_a_program_that_does_another_thing_is_told_which_step_expected_got(hf, project):
    """Proves A16: divergence is detected and shown."""
    record(hf, project)
    run = hf.replay("r").run()
    with pytest.raises(Divergence) as found:
        run.step("asks", ask, "what")
    assert (found.value.step, "'ask'" in found.value.expected, "asks" in found.value.got) == ("asks", True, True)
    with pytest.raises(Divergence, match="other arguments"):
        run.step("ask", ask, "who")
    with pytest.raises(Divergence) as found:
        run.step("ask", explode)
    assert "ask" in found.value.expected
    assert "explode" in found.value.got


def test_a_step_that_failed_ends_the_record_with_what_it_said(hf, project):
    record(hf, project, fails=True)
    replay = hf.replay("r")
    assert replay.to("explode").error == "too hot"
    run = replay.run()
    with pytest.raises(ReplayEnded) as found:
        run.step("explode", explode)
    assert "too hot" in found.value.__notes__[0]


def test_going_on_live_is_a_fork_of_that_point(hf, project):
    """Proves A16, X5."""
    record(hf, project)
    replay = hf.replay("r")
    replay.to("write-1")
    fork = replay.fork("again")
    assert fork.run == "again"
    CALLS.clear()
    with hf.run("again", workspace=project) as run:
        assert run.step("ask", ask, "what") == {"answer": "WHAT"}
        run.step("write-1", write, project / "one.txt", "WHAT")
        run.step("write-2", write, project / "two.txt", "other")
    assert CALLS == ["other"]
    assert len(hf.replay("r")) == 4


def test_a_step_or_run_that_is_not_there_is_said(hf, project):
    record(hf, project)
    replay = hf.replay("r")
    for step in ("nobody", 9):
        with pytest.raises(NotFound):
            replay.to(step)
    with pytest.raises(NotFound):
        hf.replay("nobody")


def test_a_run_without_steps_has_one_point(hf):
    hf.run("plain").checkpoint(state=1)
    replay = hf.replay("plain")
    assert len(replay) == 0
    assert replay.state == {"state": 1}


class Moment(int):
    """A time whose comparisons are counted."""

    compared = 0

    def _count(name):  # noqa: N805
        def compare(self, other):
            Moment.compared += 1
            return getattr(int, name)(self, other)

        return compare

    __lt__, __le__, __gt__, __ge__ = map(_count, ("__lt__", "__le__", "__gt__", "__ge__"))


def test_the_events_of_many_steps_are_found_without_going_through_all_of_them_for_each():
    size = 500
    records = [{"step": f"s{i}", "event": "done", "at": Moment(10 * i)} for i in range(size)]
    journal = [{"kind": "answered", "what": str(at), "at": Moment(at)} for at in range(-5, 10 * size, 5)]
    Moment.compared = 0
    steps = Replay("r", records, None, journal=journal).steps
    assert Moment.compared < 100 * size
    assert [one.events for one in steps[:2]] == [("answered -5", "answered 0"), ("answered 5", "answered 10")]
    last = 10 * (size - 1)
    assert steps[-1].events == tuple(f"answered {at}" for at in (last - 5, last, last + 5))
