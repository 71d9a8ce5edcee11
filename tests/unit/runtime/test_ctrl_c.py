"""Ctrl+C while several calls run at once."""

import subprocess
import sys

import pytest

WORK = """
import signal, threading, time
from holdfast.runtime.threads import run_in_order, run_in_threads

def work(*_):
    time.sleep(1)  # the main thread waits by now
    # Python's own handler runs in the main thread, which a signal to another thread does not wake.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    threading.Event().wait(60)
    return True

try:
    {call}
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    "call",
    ["run_in_threads([work, work], 2)", "run_in_order({'one': (), 'two': ()}, work, limit=2)"],
    ids=["calls", "tasks"],
)
def test_ctrl_c_that_another_thread_received_ends_the_wait(call):
    child = subprocess.run(
        [sys.executable, "-c", WORK.format(call=call)], capture_output=True, text=True, timeout=30, check=False
    )
    assert child.stdout.startswith("interrupted"), child.stderr
