"""How far long work has come: a bar on a terminal, a line now and then elsewhere, nothing with --quiet or --json."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from holdfast.cli.escape import safe_line
from holdfast.cli.output import is_terminal
from holdfast.lazy import lazily

with lazily():  # only a terminal has a size
    import shutil

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from holdfast.cli.output import Output

_REDRAW_S = 0.1
_PATIENCE_S = 0.4  # short work shows nothing at all
_LINE_S = 10.0
_BAR = 24


class ProgressBar:
    """One piece of work under way; `update` may be called as often as the work likes."""

    def __init__(self, out: Output, title: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._title = title
        self._monotonic = monotonic
        self._silent = out.quiet or out.json
        self._bar = is_terminal(out.stderr) and out.environment.get("TERM", "") not in ("", "dumb")
        now = monotonic()
        self._due = now + (_PATIENCE_S if self._bar else _LINE_S)
        self._drawn = False

    def update(self, done: int, total: int | None = None, what: str = "") -> None:
        """Say how much is done, of how much if that is known."""
        if self._silent or self._monotonic() < self._due:
            return
        self._due = self._monotonic() + (_REDRAW_S if self._bar else _LINE_S)
        text = self.text(done, total, what)
        if self._bar:
            room = shutil.get_terminal_size().columns - 1
            self._out.stderr.write(f"\r{text[:room]}\x1b[K")
            self._drawn = True
        else:
            self._out.stderr.write(text + "\n")
        self._out.stderr.flush()

    def text(self, done: int, total: int | None, what: str) -> str:
        """Return the line for a position."""
        name = safe_line(f"{self._title} {what}".rstrip())
        if not total:
            return f"{name}: {done:,}"
        share = min(1.0, done / total)
        filled = int(share * _BAR)
        return f"{name} [{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%} ({done:,} of {total:,})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            self._out.stderr.write("\r\x1b[K")
            self._out.stderr.flush()
