import threading

from holdfast.runtime.stopwatch import Stopwatch, waiting


class Clock:
    """Stands where it is set."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_what_its_thread_waited_is_no_work_also_when_waits_lie_within_each_other():
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now_s = 1.0
    with waiting(clock):
        clock.now_s = 3.0
        with waiting(clock):
            clock.now_s = 6.0
    clock.now_s = 7.0
    assert watch.took_s == 2.0


def test_on_another_thread_the_waits_of_that_one_are_not_taken_off():
    clock = Clock()
    watch = Stopwatch(clock)
    told = []

    def other():
        with waiting(clock):
            clock.now_s = 5.0
        told.append(watch.took_s)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert told == [5.0]
