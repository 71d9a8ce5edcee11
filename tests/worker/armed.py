"""A worker that is killed at its n-th talk with the database: in a claim, a lease, bringing files, a commit, an answer.

KILL_AT=n in the environment; before the talk, or after it where n is odd.
"""

import os
import signal
import sys

import psycopg

_left = int(os.environ["KILL_AT"])
_real = psycopg.Connection.wait


def wait(self, *given, **named):
    global _left  # noqa: PLW0603 - a count of this process
    _left -= 1
    if _left == 0 and int(os.environ["KILL_AT"]) % 2 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = _real(self, *given, **named)
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


psycopg.Connection.wait = wait

from holdfast.cli.main import main  # noqa: E402 - it is armed first

sys.exit(main())
