"""A terminal for a command that runs below this one: keys go to it, and it has the size of the person's own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import termios
import threading
import tty
from typing import TYPE_CHECKING, Any

from holdfast.runtime.command import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 4096


@contextlib.contextmanager
def pseudo_terminal(keyboard: int) -> Iterator[Terminal]:
    """Yield a new terminal that gets what is typed on another one, until this is left; that one is as before then."""
    master, slave = os.openpty()
    woken, wake = os.pipe()
    _resize(keyboard, master)

    def on_resize(number: int, frame: Any) -> None:  # noqa: ARG001 - the signal's signature
        _resize(keyboard, master)

    before = signal.signal(signal.SIGWINCH, on_resize)
    settings = termios.tcgetattr(keyboard)
    typing = threading.Thread(target=_type, args=(keyboard, master, woken), name="holdfast-keyboard", daemon=True)
    try:
        tty.setraw(keyboard)
        typing.start()
        yield Terminal(master, slave)
    finally:
        os.write(wake, b".")
        typing.join()
        termios.tcsetattr(keyboard, termios.TCSADRAIN, settings)
        signal.signal(signal.SIGWINCH, before)
        for descriptor in (master, woken, wake):
            os.close(descriptor)


def _resize(keyboard: int, master: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(master, termios.TIOCSWINSZ, fcntl.ioctl(keyboard, termios.TIOCGWINSZ, b"\0" * 8))


def _type(keyboard: int, master: int, woken: int) -> None:
    """Hand on what is typed until it is over."""
    while True:
        ready, _, _ = select.select([keyboard, woken], [], [])
        if woken in ready:
            return
        try:
            typed = os.read(keyboard, _BLOCK)
            if not typed:
                return
            os.write(master, typed)
        except OSError:  # the command is over, or the person's terminal is gone
            return
