import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

import holdfast
from holdfast import EffectUncertain, RunClosed, RunWaiting, StepTimeout, UsageError, ValueRefused
from holdfast.model.triggers import Trigger


class Worker:
    """Counts what it really does."""

    def __init__(self):
        self.done = []

    def double(self, number):
        self.done.append(number)
        return {"doubled": 2 * number}

    def fail(self, error, times=1):
        self.done.append("fail")
        if len(self.done) <= times:
            raise error
        return "at last"


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def work():
    return Worker()


def opened(place, **options):
    return holdfast.open(place, interval_s=None, **options)


def test_a_step_is_done_once_over_all_lives_of_the_run(place, work):
    """Proves D8."""
    for _ in range(3):
        with opened(place) as hf, hf.run("r") as run:
            assert [run.step(f"act-{i}", work.double, i) for i in range(5)] == [{"doubled": 2 * i} for i in range(5)]
    assert work.done == [0, 1, 2, 3, 4]


def test_a_result_is_stored_before_the_step_returns(place, work):
    with opened(place) as hf, hf.run("r") as run:
        run.step("a", work.double, 1)
        head = hf.latest("r")
        assert (head.trigger, head.number) == ("state_transition", 2)  # in the journal: no checkpoint is taken for it
        assert head.summary.steps == 1
        assert head.section("steps")[0]["result"] == {"doubled": 2}


def test_what_the_caller_does_with_a_result_does_not_change_the_record(place, work):
    with opened(place) as hf, hf.run("r") as run:
        run.step("a", work.double, 1)["doubled"] = "changed"
        run.step("b", work.double, 2)
        assert hf.latest("r").section("steps")[0]["result"] == {"doubled": 2}


def test_the_same_name_again_is_the_next_call_of_that_name(place, work):
    for _ in range(2):
        with opened(place) as hf, hf.run("r") as run:
            assert [run.step("a", work.double, i)["doubled"] for i in range(3)] == [0, 2, 4]
            assert [line["step"] for line in hf.latest("r").calls] == ["a", "a#2", "a#3"]
    assert work.done == [0, 1, 2]


def test_the_same_name_twice_at_once_is_refused(place):
    begun, over = threading.Event(), threading.Event()

    def wait():
        begun.set()
        over.wait(10)

    with opened(place) as hf, hf.run("r") as run:
        thread = threading.Thread(target=run.step, args=("a", wait))
        thread.start()
        begun.wait(10)
        with pytest.raises(UsageError, match="under way already"):
            run.step("a", wait)
        over.set()
        thread.join()


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201, None, 3])
def test_a_step_needs_a_name(place, work, name):
    with opened(place) as hf, hf.run("r") as run:
        with pytest.raises(UsageError, match="not a valid name for a step"):
            run.step(name, work.double, 1)
        assert work.done == []


def test_other_arguments_another_version_or_a_captured_value_make_it_other_work(place, work):
    """Proves F1: a kept result holds while its inputs are the same; the journal says why it does not."""

    def ask(prompt, **options):
        with opened(place) as hf, hf.run("r") as run:
            run.step("a", lambda: work.done.append(prompt), **options)
            return [line["why"] for line in run.recorder.journal() if line["kind"] == "call outdated"]

    assert [ask("one"), ask("one"), ask("two")] == [[], [], ["its inputs changed"]]
    ask("two", version="2")
    ask("two", version="2")
    assert work.done == ["one", "two", "two"]


def test_a_function_of_another_name_is_the_same_work(place, work):
    for function in (work.double, lambda number: {"doubled": 2 * number}):
        with opened(place) as hf, hf.run("r") as run:
            assert run.step("a", function, 1) == {"doubled": 2}
    assert work.done == [1]


def test_a_step_is_done_again_when_a_result_that_it_depends_on_is_another(place, work):
    """Proves F1: and an equal result makes nothing run again."""

    def life(given, result):
        with opened(place) as hf, hf.run("r") as run:
            run.step("plan", lambda: (work.done.append("plan"), result)[1], version=given)
            run.step("build", lambda: work.done.append("build"), after=["plan"])

    for given, result in (("1", "x"), ("1", "x"), ("2", "x"), ("3", "y")):
        life(given, result)
    assert work.done == ["plan", "build", "plan", "plan", "build"]


def test_what_is_called_inside_a_step_is_kept_when_that_is_interrupted_and_not_when_its_inputs_change(place, work):
    class Died(BaseException):
        """The process is gone."""

    def life(given, end):
        def outer(number):
            run.step("inner", work.double, 7)
            end(number)

        with opened(place) as hf, hf.run("r") as run:
            run.step("outer", outer, given)

    def die(_number):
        raise Died

    with pytest.raises(Died):
        life(1, die)
    life(1, str)
    assert work.done == [7]
    life(2, str)
    assert work.done == [7, 7]


def test_what_a_long_step_yields_is_kept_until_its_end(place):
    """Proves E6: an interrupted step continues from what it had come to."""

    def count(stop):
        number = (holdfast.current_step().progress or 0) + 1
        while number <= 4:
            if number == stop:
                raise Kill
            yield number
            number += 1
        return f"until {number}"

    def life(stop):
        with opened(place) as hf, hf.run("r") as run:
            return run.step("count", partial(count, stop), version="1")

    with pytest.raises(Kill):
        life(3)
    with opened(place) as hf:
        lines = hf.internals.present_of("r").calls
    assert [(line["event"], line["result"]) for line in lines] == [("progress", 1), ("progress", 2)]
    assert life(None) == "until 5"


def test_arguments_that_cannot_be_stored_stand_for_their_type(place, work):
    for _ in range(2):
        with opened(place) as hf, hf.run("r") as run:
            assert run.step("a", lambda _: work.double(1), threading.Lock()) == {"doubled": 2}
    assert work.done == [1]


def test_an_error_is_recorded_with_message_code_and_stack_and_the_step_is_done_again(place, work):
    """Proves D4."""
    with opened(place) as hf, hf.run("r") as run:
        with pytest.raises(KeyError):
            run.step("a", work.fail, KeyError("gone"))
        record = hf.latest("r").section("steps")[-1]
        assert record["event"] == "failed"
        assert record["error"]["code"] == "KeyError"
        assert "gone" in record["error"]["message"]
        assert "work.fail" in record["error"]["stack"] or "in fail" in record["error"]["stack"]
    with opened(place) as hf, hf.run("r") as run:
        assert run.step("a", work.fail, KeyError("gone")) == "at last"


class RateLimitError(Exception):
    retry_after = 0.01


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), RateLimitError()])
def test_transient_errors_are_retried(place, work, error):
    """Proves B8."""
    with opened(place) as hf, hf.run("r") as run:
        assert run.step("a", lambda: work.fail(error, 2), retries=2, backoff=0.001) == "at last"
        assert run.calls.record("a")["attempts"] == 3
        assert [line["kind"] for line in run.recorder.journal()] == ["retry", "retry"]


def test_other_errors_are_not_retried_unless_asked(place, work):
    with opened(place) as hf, hf.run("r") as run:
        with pytest.raises(ValueError, match="no"):
            run.step("a", lambda: work.fail(ValueError("no")), retries=5, backoff=0)
        assert len(work.done) == 1
        assert run.step("a", lambda: work.fail(ValueError("no"), 2), retries=5, backoff=0, retry_on=ValueError)
    with opened(place) as hf, hf.run("r2") as run:
        work.done.clear()
        predicate = lambda error: "no" in str(error)  # noqa: E731
        assert run.step("a", lambda: work.fail(ValueError("no"), 1), retries=1, backoff=0, retry_on=predicate)


def test_a_step_that_takes_too_long_is_given_up(place):
    over = threading.Event()
    with opened(place) as hf, hf.run("r") as run:
        with pytest.raises(StepTimeout):
            run.step("slow", over.wait, timeout_s=0.05)
        assert run.calls.record("slow")["event"] == "failed"
        over.set()


def test_a_result_that_cannot_be_stored_is_named_and_not_lost(place, work):
    made = []

    def make():
        made.append(threading.Lock())
        return {"plan": {"lock": made[-1]}}

    with opened(place) as hf, hf.run("r") as run:
        with pytest.raises(ValueRefused, match=r"plan\.lock.*store=") as refused:
            run.step("a", make)
        assert "step a" in refused.value.path
        assert run.calls.unstored("a") == {"plan": {"lock": made[0]}}
        assert run.step("a", make, store=sorted) == {"plan": {"lock": made[0]}}
    with opened(place) as hf, hf.run("r") as run:
        assert run.step("a", make) == ["plan"]
    assert len(made) == 1


class Kill(BaseException):
    """Ends a process of the run without a word, as a kill would."""


def killed_in_effect(place, work, **options):
    """Leave a step with an effect begun and without an end."""
    hf = opened(place)
    run = hf.run("r")
    seen = []

    def effect(idempotency_key):
        seen.append(idempotency_key)
        work.done.append("effect")
        raise Kill

    with pytest.raises(Kill):
        run.step("pay", effect, effect="charge the card", **options)
    hf.close()
    return seen[0], effect


def test_an_unknown_outcome_is_asked_about_and_the_answer_may_skip_it(place, work):
    """Proves A16."""
    _, effect = killed_in_effect(place, work)
    with opened(place) as hf:
        with pytest.raises(RunWaiting), hf.run("r", waiting="leave") as run:
            run.step("pay", effect, effect="charge the card")
        [wait] = hf.control.waiting("r")
        assert wait.kind == "uncertain"
        assert "charge the card" in wait.question
        hf.control.answer("r", "skip", by="ann", value={"paid": True})
        with hf.run("r", waiting="leave") as run:
            assert run.step("pay", effect, effect="charge the card") == {"paid": True}
    with opened(place) as hf, hf.run("r") as run:
        assert run.step("pay", effect, effect="charge the card") == {"paid": True}
    assert work.done == ["effect"]


def test_an_answer_to_stop_is_for_one_life_and_the_next_asks_anew(place, work):
    _, effect = killed_in_effect(place, work)
    with opened(place) as hf:
        for _ in range(2):
            with pytest.raises(RunWaiting), hf.run("r", waiting="leave") as run:
                run.step("pay", effect, effect="charge the card")
            hf.control.answer("r", "stop", by="ann")
            with pytest.raises(EffectUncertain, match="charge the card"), hf.run("r", waiting="leave") as run:
                run.step("pay", effect, effect="charge the card")
    assert work.done == ["effect"]


def test_a_retry_of_an_unknown_outcome_has_the_same_key(place, work):
    key, effect = killed_in_effect(place, work, on_unknown="retry")
    again = []

    def effect(idempotency_key):  # noqa: F811 - the same function in the next process of the program
        again.append((idempotency_key, holdfast.current_step()))
        return "paid"

    with opened(place) as hf, hf.run("r") as run:
        assert run.step("pay", effect, effect="charge the card") == "paid"
    assert again[0][0] == key
    assert again[0][1].key == key
    assert again[0][1].name == "pay"


def test_a_step_may_say_that_an_unknown_outcome_is_skipped(place, work):
    _, effect = killed_in_effect(place, work, on_unknown="skip")
    with opened(place) as hf, hf.run("r") as run:
        assert run.step("pay", effect, effect="charge the card") is None
    assert work.done == ["effect"]


def test_parallel_steps_are_each_kept_and_share_commits(place, work):
    with opened(place) as hf, hf.run("r") as run:
        calls = {f"p{i}": (lambda i=i: work.double(i)) for i in range(40)}
        assert run.parallel(calls, limit=8) == {f"p{i}": {"doubled": 2 * i} for i in range(40)}
        assert hf.latest("r").summary.steps == 40
    with opened(place) as hf, hf.run("r") as run:
        run.parallel(calls, limit=8)
    assert sorted(work.done) == list(range(40))


def test_parallel_steps_all_settle_before_a_failure_is_raised(place, work):
    def fail():
        raise ValueError("no")

    with opened(place) as hf, hf.run("r") as run:
        with pytest.raises(ValueError, match="no"):
            run.parallel({"bad": fail, **{f"p{i}": (lambda i=i: work.double(i)) for i in range(10)}}, limit=2)
        assert sorted(work.done) == list(range(10))
        with pytest.raises(ExceptionGroup):
            run.parallel({"bad1": fail, "bad2": fail})


def test_steps_inside_the_lock_and_on_threads_do_not_wait_for_each_other(place, work):
    with opened(place) as hf, hf.run("r") as run:
        threads = [threading.Thread(target=run.step, args=(f"t{i}", work.double, i), daemon=True) for i in range(8)]
        for thread in threads:
            thread.start()
        for i in range(8):
            with run.lock:
                run.step(f"m{i}", work.double, i)
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    assert len(work.done) == 16


def test_a_closed_run_takes_no_step(place, work):
    with opened(place) as hf:
        with hf.run("r") as run:
            run.step("a", work.double, 1)
        with pytest.raises(RunClosed, match="step 'b' was not done"):
            run.step("b", work.double, 1)
        with pytest.raises(RunClosed):
            run.host.save(Trigger.MANUAL)
    assert work.done == [1]


def test_a_step_says_which_files_it_wrote(place, tmp_path, work):
    directory = tmp_path / "work"
    directory.mkdir()
    with opened(place) as hf, hf.run("r", workspace=directory) as run:
        run.step("a", (directory / "a.txt").write_text, "one", wrote_files=True)
        assert hf.latest("r").read("a.txt") == b"one"


def test_a_failed_phase_may_use_its_step_names_again(place, work):
    with opened(place) as hf, hf.run("r") as run:
        for attempt in range(2):
            try:
                with run.phase("build"):
                    run.step("compile", work.double, 1)
                    if attempt == 0:
                        work.fail(OSError("disk"), 9)
            except OSError:
                continue
        assert run.phases.state("build").status == "completed"
    assert work.done == [1, "fail"]


def test_a_coroutine_function_is_run_to_its_end(place):
    async def ask(goal):
        return f"plan for {goal}"

    with opened(place) as hf, hf.run("r") as run:
        assert run.step("plan", ask, "x") == "plan for x"


def test_a_process_reads_only_the_records_of_the_steps_that_it_calls(place):
    """Proves X2: an open and a kept step cost the same in a run of three and of three hundred steps."""
    for life in range(3):
        with opened(place) as hf, hf.run("r") as run:
            for i in range(life * 100, life * 100 + 100):
                run.step(f"s{i}", lambda i=i: f"result {i}")
            run.checkpoint()
    with opened(place) as hf, hf.run("r") as run:
        assert hf.latest("r").summary.steps == 300
        read = []
        records = hf.store.journal.records
        hf.store.journal.records = lambda *args, **options: read.append(records(*args, **options)) or read[-1]
        assert run.step("s0", lambda i=0: f"new {i}") == "result 0"
        assert run.step("s299", lambda i=299: f"new {i}") == "result 299"
        assert read == []


def test_a_long_pause_outlives_the_process(place, work):
    """Proves E6."""

    class Limited(Exception):
        status_code = 429
        retry_after = 3600

    now = [time.time()]
    hf = opened(place)
    hf.internals.clock = lambda: now[0]
    with pytest.raises(RunWaiting, match="cooldown"), hf.run("r", waiting="leave") as run:
        run.step("ask", lambda: work.fail(Limited(), 1), retries=1)
    [wait] = hf.control.waiting("r")
    assert wait.until == datetime.fromtimestamp(now[0], UTC) + timedelta(seconds=3600)
    now[0] += 3601
    with hf.run("r", waiting="leave") as run:
        assert run.step("ask", lambda: work.fail(Limited(), 1), retries=1) == "at last"
    hf.close()


def test_a_short_pause_that_a_service_asked_for_is_kept_to_over_a_restart(place, work):
    """Proves E6: also in a run that leaves where it waits, it is sat out."""

    class Limited(Exception):
        status_code = 429
        retry_after = 6

    now = [1_900_000_000.0]
    tried_at = []

    def ask():
        tried_at.append(now[0])
        return work.fail(Limited(), 1)

    class Died(BaseException):
        """The end of a process."""

    def die(wait, _reply):
        assert wait.kind == "cooldown"
        raise Died

    hf = opened(place)
    hf.internals.clock = lambda: now[0]
    with pytest.raises(Died), hf.run("r", waiting="leave") as run:  # noqa: PT012 - as above
        run.host.on_wait = die
        run.step("ask", ask, retries=1)

    def pass_time(_wait, reply):
        now[0] += 6 if reply is None else 0

    run = hf.run("r", waiting="leave")
    run.host.on_wait = pass_time
    with run:
        assert run.step("ask", ask, retries=1) == "at last"
    assert tried_at == [1_900_000_000.0, 1_900_000_006.0]
    hf.close()


def test_what_is_no_function_is_refused_as_a_step(place):
    with opened(place) as hf, hf.run("r") as run, pytest.raises(UsageError, match="5 cannot be called"):
        run.step("z", 5)


def test_what_a_caller_does_to_a_kept_result_is_not_stored(place):
    """Proves D8: a list that is worked off is whole again in every later process."""
    found = []
    for life in range(3):
        with opened(place) as hf, hf.run("r") as run:
            items = run.step("plan", lambda: ["a", "b"])
            found.append(list(items))
            items.clear()
            run.step(f"life-{life}", str)
    assert found == [["a", "b"]] * 3


def test_a_store_that_raises_does_not_lose_the_work(place, work):
    with opened(place) as hf, hf.run("r") as run:
        with pytest.raises(KeyError):
            run.step("a", work.double, 1, store=lambda result: result["tripled"])
        assert run.step("a", work.double, 1, store=lambda result: result["doubled"]) == {"doubled": 2}
    assert work.done == [1]


def test_a_step_that_a_pause_kept_from_beginning_is_of_no_unknown_outcome(place, work):
    """Proves D8: the start was stored, and the run left before the work."""
    with opened(place) as hf:
        with pytest.raises(RunWaiting) as waiting, hf.run("r", waiting="leave") as run:  # noqa: PT012 - in two steps
            run.step("first", str)
            hf.control.pause("r")
            time.sleep(0.3)
            run.step("mail", work.double, 1, effect="sends a mail")
        assert (waiting.value.kind, work.done) == ("pause", [])
        hf.control.unpause("r")
        with hf.run("r", waiting="leave") as run:
            assert run.step("mail", work.double, 1, effect="sends a mail") == {"doubled": 2}
    assert work.done == [1]


def test_parts_that_were_looked_at_before_the_block_follow_what_another_process_did(place, work):
    with opened(place) as hf, opened(place) as other:
        run = hf.run("r")
        assert run.calls.record("a") is None
        with other.run("r") as moved:
            moved.step("a", work.double, 1)
        with run:
            assert run.step("a", work.double, 1) == {"doubled": 2}
    assert work.done == [1]


def test_a_result_that_is_too_large_is_refused_and_not_lost(place):
    with opened(place, max_section_bytes=100_000) as hf, hf.run("r") as run:
        with pytest.raises(ValueRefused, match="max_section_bytes"):
            run.step("a", lambda: "x" * 200_000)
        assert run.step("b", lambda: 1) == 1
        assert run.protection.since is None
        assert len(run.step("a", lambda: "x" * 200_000, store=len)) == 200_000
    with opened(place) as hf, hf.run("r") as run:
        assert run.step("a", lambda: "x" * 200_000) == 200_000


def test_a_checkpoint_after_a_large_result_does_not_hold_it_again(place):
    """Proves X2."""
    with opened(place) as hf, hf.run("r") as run:
        run.step("large", lambda: [f"{number:06}" * 10 for number in range(6_000)])
        before = run.checkpoint()
        run.step("small", lambda: 1)
        after = run.checkpoint()
    assert after.summary.steps == 2
    assert max(before.stored_bytes, after.stored_bytes) < 3_000


def test_what_runs_inside_a_step_runs_again_when_what_the_step_follows_has_another_result(place):
    done = []

    def outer():
        return run.step("inner", lambda: done.append("inner"))

    for text in ("one", "one", "two"):
        with opened(place) as hf, hf.run("r") as run:
            run.step("before", lambda text=text: text)
            run.step("outer", outer, after=["before"])
    assert done == ["inner", "inner"]
