"""What every test starts from."""

import signal


def pytest_configure():
    """Hear signals as a program at a terminal does: a shell starts what runs in the background deaf to Ctrl+C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is signal.SIG_IGN:
            signal.signal(name, signal.SIG_DFL)
