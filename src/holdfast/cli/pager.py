"""A pager for output that is longer than the screen: $PAGER, else less; none of it through a shell."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

_LESS = ("less", "-FRX")  # ends by itself if it all fits, shows our colours, leaves the screen as it was


class Pager:
    """A running pager."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.stdin = cast("TextIO | None", process.stdin)

    def finish(self) -> None:
        """Wait until the person has seen enough."""
        try:
            if self.stdin is not None:
                self.stdin.close()
        except BrokenPipeError:
            pass
        while True:
            try:
                self._process.wait()
            except KeyboardInterrupt:
                continue  # the pager handles it itself
            return


def start_pager(environment: Mapping[str, str]) -> Pager | None:
    """Start the person's pager; None if there is none, or it is switched off (PAGER=cat, or empty)."""
    given = environment.get("PAGER")
    try:
        words = tuple(shlex.split(given)) if given is not None else _LESS
    except ValueError:
        words = _LESS
    if not words or words[0] == "cat" or environment.get("TERM", "") in ("", "dumb"):
        return None
    program = shutil.which(words[0], path=environment.get("PATH"))
    if program is None:
        return None
    settings = dict(environment)
    settings.setdefault("LESS", "FRX")
    process = subprocess.Popen(  # noqa: S603 - the person's own choice
        [program, *words[1:]],
        stdin=subprocess.PIPE,
        env=settings,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
    )
    return Pager(process)
