import contextvars
import threading

import pytest

from holdfast.runtime.threads import run_in_threads


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_every_call_is_made_once(limit):
    made = []
    run_in_threads([lambda i=i: made.append(i) for i in range(20)], limit)
    assert sorted(made) == list(range(20))


def test_after_an_error_what_is_under_way_ends_and_no_more_is_begun():
    began, go_on, made = threading.Event(), threading.Event(), []

    def slow():
        began.set()
        go_on.wait(10)
        made.append("slow")

    def fails():
        began.wait(10)
        go_on.set()
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        run_in_threads([slow, fails], 2)
    assert made == ["slow"]
    made.clear()
    with pytest.raises(ValueError, match="first"):
        run_in_threads([fails, lambda: made.append("later")], 1)
    assert made == []


def test_calls_see_the_context_of_their_caller():
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("outer")
    seen = []
    run_in_threads([lambda: seen.append(variable.get())] * 3, 2)
    assert seen == ["outer"] * 3


def test_what_is_no_exception_is_raised_too():
    def leave():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_threads([leave, leave], 2)
