"""Streams that tests hand to the command line."""

from __future__ import annotations

import io


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def stream(data: bytes = b"", *, terminal: bool = False) -> io.TextIOWrapper:
    return (Terminal if terminal else io.TextIOWrapper)(io.BytesIO(data), encoding="utf-8")


def text_of(one: io.TextIOWrapper) -> str:
    one.flush()
    return one.buffer.getvalue().decode()
