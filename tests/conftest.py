"""What every test starts from."""

import os
import shutil
import signal
import tempfile

import pytest

pytest.register_assert_rewrite("holdfast.testing.contract")  # before any test has imported it

_CACHE = "TEST_CACHE_OF_HOLDFAST"


def pytest_configure(config):
    """Keep what is cached and set for a user in a folder of the tests' own, and hear signals as at a terminal.

    Bytecode is kept there, too: a process that compiles the package again needs six times the CPU, and no folder that a
    test looks at gets a `__pycache__`.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(config.rootpath / ".pytest_cache" / "bytecode"))
    if _CACHE not in os.environ:
        os.environ[_CACHE] = os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="holdfast-cache-")
        os.environ["XDG_STATE_HOME"] = os.environ[_CACHE]
        os.environ["XDG_CONFIG_HOME"] = os.path.join(os.environ[_CACHE], "config")  # noqa: PTH118
    _hear_signals()


def pytest_unconfigure():
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ[_CACHE], ignore_errors=True)


def _hear_signals():
    """Hear signals as a program at a terminal does: a shell starts what runs in the background deaf to Ctrl+C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is signal.SIG_IGN:
            signal.signal(name, signal.SIG_DFL)
