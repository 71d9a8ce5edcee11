"""Counts what is asked of a store's medium: every row, scan and chunk look-up, in reads and in transactions."""

from __future__ import annotations

from contextlib import contextmanager


class Calls:
    """How often it was asked."""

    count = 0


@contextmanager
def counted(medium):
    """Count the look-ups of a block."""
    calls = Calls()
    real = {name: getattr(medium, name) for name in ("read", "write") if hasattr(medium, name)}

    def wrapped(begin):
        @contextmanager
        def opened(**given):
            with begin(**given) as reader:
                yield _Counting(reader, calls)

        return opened

    for name, begin in real.items():
        setattr(medium, name, wrapped(begin))
    try:
        yield calls
    finally:
        for name, begin in real.items():
            setattr(medium, name, begin)


class _Counting:
    def __init__(self, reader, calls):
        self._reader = reader
        self._calls = calls

    def __getattr__(self, name):
        found = getattr(self._reader, name)
        if name not in ("get", "scan", "fetch", "held"):
            return found

        def call(*given, **named):
            self._calls.count += 1
            return found(*given, **named)

        return call
