"""How a run stands is its newest checkpoint and what the journal has since."""

import os
import signal

import apsw
import pytest

import holdfast
from crash.children import Child
from holdfast.errors import IntegrityError


@pytest.fixture
def place(tmp_path):
    return tmp_path / "s"


def killed(place, work):
    def life(report):
        with holdfast.open(place) as hf, hf.run("r") as run:
            work(run)
            os.kill(os.getpid(), signal.SIGKILL)

    assert Child(life).join().signal == signal.SIGKILL


def query(place, text, *values):
    connection = apsw.Connection(str(next(place.glob("*.db"))))
    try:
        return connection.execute(text, values).fetchall()
    finally:
        connection.close()


def test_steps_since_the_newest_checkpoint_are_kept_however_the_run_is_resumed(place):
    """Proves D8: by running the program again, and by a recovery."""
    killed(place, lambda run: [run.step(f"s{number}", lambda: "done") for number in range(3)])
    with holdfast.open(place) as hf:
        assert [record["step"] for record in hf.latest("r").log("steps")] == ["s0", "s1", "s2"]
        assert hf.latest("r").summary.steps == 3
        assert hf.recover("r").success
        ran = []
        with hf.run("r") as run:
            for number in range(3):
                run.step(f"s{number}", lambda: ran.append(1) or "again")
        assert ran == []


def test_a_checkpoint_of_a_handle_that_looks_at_nothing_keeps_what_the_journal_has(place):
    killed(place, lambda run: run.step("one", lambda: "done"))
    with holdfast.open(place) as hf:
        made = hf.run("r").checkpoint(state="by hand")
        assert [record["step"] for record in made.log("steps")] == ["one"]


def test_with_the_newest_checkpoint_damaged_the_journal_gives_what_it_had(place):
    """Proves X3."""
    killed(place, lambda run: (run.step("one", lambda: 1), run.checkpoint(state=1), run.step("two", lambda: 2)))
    with holdfast.open(place) as hf:
        head = hf.latest("r").id
    query(place, "UPDATE checkpoint SET value = zeroblob(20) WHERE id = ?", head)
    with holdfast.open(place) as hf:
        found = hf.latest("r", sound=True)
        assert [record["step"] for record in found.log("steps")] == ["one", "two"]
        assert len(found.skipped) == 1
        assert hf.recover("r").success
        ran = []
        with hf.run("r") as run:
            run.step("one", lambda: ran.append(1))
            run.step("two", lambda: ran.append(2))
        assert ran == []


def test_a_flipped_bit_in_the_journal_is_found_and_said(place):
    """Proves X3."""
    killed(place, lambda run: [run.step(f"s{number}", lambda: "done") for number in range(3)])
    [[value]] = query(place, "SELECT value FROM record ORDER BY n DESC LIMIT 1 OFFSET 1")
    query(place, "UPDATE record SET value = ? WHERE value = ?", bytes([*value[:-1], value[-1] ^ 1]), value)
    with holdfast.open(place) as hf:
        with pytest.raises(IntegrityError):
            hf.latest("r")
        assert not hf.verify().sound


def test_a_record_that_is_cut_from_the_journal_is_found(place):
    killed(place, lambda run: [run.step(f"s{number}", lambda: "done") for number in range(3)])
    query(place, "DELETE FROM record WHERE n = (SELECT max(n) FROM record)")
    with holdfast.open(place) as hf:
        with pytest.raises(IntegrityError):
            hf.latest("r")
        assert not hf.verify().sound


def test_an_answer_is_not_delivered_again_after_going_back(place):
    with holdfast.open(place) as hf:
        before = hf.run("r").checkpoint(state=1)
        with pytest.raises(holdfast.RunWaiting), hf.run("r", waiting="leave") as run:
            run.approve("Deploy?")
        hf.control.answer("r", "approve")
        with hf.run("r", waiting="leave") as run:
            assert run.approve("Deploy?").approved
        assert hf.recover(before.id).success
        with pytest.raises(holdfast.RunWaiting), hf.run("r", waiting="leave") as run:
            run.approve("Deploy?")


def test_a_result_that_is_too_large_for_a_row_comes_back_whole(place):
    large = "".join(chr(97 + number % 26) for number in range(700_000))
    killed(place, lambda run: run.step("large", lambda: (large, [])[0], version="1"))
    with holdfast.open(place) as hf:
        hf.prune()
        with hf.run("r") as run:
            assert run.step("large", lambda: (large, ["again"])[0], version="1") == large
        assert hf.verify().sound


def test_numbers_are_never_used_twice(place):
    with holdfast.open(place) as hf:
        run = hf.run("r")
        first = run.checkpoint(state=1)
        run.log("l").extend([1, 2, 3])
        last = hf.store.line("r").number
        hf.recover(first.id)
        hf.run("r").log("l").append(4)
        line = hf.store.line("r")
        assert line.number > last
        assert line.ranges[-1][0] > last


def test_closing_an_entered_run_leaves_nothing_behind(place):
    """Proves E6 in part: a notebook that closes its run lets others have it."""
    import threading  # noqa: PLC0415

    before = {thread.name for thread in threading.enumerate()}
    hf = holdfast.open(place)
    run = hf.run("r")
    run.__enter__()
    run.step("one", lambda: 1)
    run.close()
    assert {thread.name for thread in threading.enumerate()} <= before
    with holdfast.open(place) as other, other.run("r") as again:
        assert again.step("one", lambda: 2) == 1
    hf.close()


def test_what_a_recovery_changed_is_not_guessed_when_its_checkpoint_is_damaged(place):
    """Proves X3: the journal does not tell what going back changed, so it is not applied to what was before."""
    states = {"states": ["draft", "review", "done"]}
    with holdfast.open(place) as hf:
        with hf.run("r") as run:
            machine = run.machine(**states)
            machine.to("review")
            run.step("one", lambda: 1)
            machine.to("done")
        assert hf.recover("r", reset_to="draft").success
        with hf.run("r") as run:
            run.switch(all=False)
            run.machine(**states).to("review")
        assert hf.latest("r").section("workflow").current_state == "review"
        broken = hf.checkpoints("r")[0]
        assert broken.trigger == "recovery"
    query(place, "UPDATE checkpoint SET value = zeroblob(20) WHERE id = ?", broken.id)
    with holdfast.open(place) as hf:
        found = hf.latest("r", sound=True)
        assert found.section("workflow") == hf.get(found.id).section("workflow")
        assert found.number == hf.get(found.id).number


def test_a_part_that_is_given_by_hand_is_in_the_journal_whole_the_next_time(place):
    def work(run):
        run.agents.register("coder", lambda task: f"did {task}")
        run.agents.call("coder", "a", task="a")
        run.checkpoint(agents=[{"id": "other", "status": "pending"}])
        run.switch(all=False)
        run.agents.call("coder", "b", task="b")

    killed(place, work)
    with holdfast.open(place) as hf:
        (coder,) = hf.latest("r").section("agents")
        assert (coder.id, sorted(coder.tasks)) == ("coder", ["a", "b"])
