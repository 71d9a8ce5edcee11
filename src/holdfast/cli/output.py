"""What a command says: lines, tables and JSON documents on standard output, notes and warnings on standard error.

Text that was stored goes through `escape`; only `raw` writes bytes as they are.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from holdfast.cli.escape import safe, safe_line
from holdfast.lazy import lazily

with lazily():  # only a terminal has a size
    import shutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_CODES = {
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "dim": "2",
    "bold": "1",
}
_NARROWEST = 20
_GAP = "  "


class Paint(NamedTuple):
    """Text in a colour, if there are colours."""

    text: str
    colour: str


Part = str | Paint


class Cell(NamedTuple):
    """One field of a table; `right` sets numbers under each other."""

    parts: tuple[Part, ...]
    right: bool = False

    @classmethod
    def of(cls, *parts: Part, right: bool = False) -> Cell:
        """Make a cell of parts."""
        return cls(parts, right)


def wants_colour(stream: TextIO, environment: Mapping[str, str], *, no_color: bool) -> bool:
    """Tell whether a stream is a terminal that shows colours, and nobody asked for none."""
    if no_color or environment.get("NO_COLOR") or environment.get("TERM", "") in ("", "dumb"):
        return False
    return is_terminal(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Tell whether a person is at the other end."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


class Output:
    """The two streams of a command, and how it may use them."""

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        *,
        json: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        no_color: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.environment = os.environ if environment is None else environment
        self.stdout = stdout
        self.stderr = stderr
        self.json = json
        self.quiet = quiet
        self.verbose = verbose
        self.colours = wants_colour(stdout, self.environment, no_color=no_color)
        self.error_colours = wants_colour(stderr, self.environment, no_color=no_color)
        self.interactive = is_terminal(stdout) and not json
        self.warnings: list[str] = []
        self._carried = 0  # so many of the warnings are in the document
        self._paging = False

    @property
    def width(self) -> int | None:
        """How wide a line may be; None in a pipe, where nothing is cut off."""
        return max(_NARROWEST, shutil.get_terminal_size().columns) if self.interactive else None

    def line(self, *parts: Part) -> None:
        """Write one line of text; nothing in JSON mode, where the document is all there is."""
        if not self.json:
            self._write(self.render(parts, self.colours).rstrip(" ") + "\n")

    def block(self, text: str) -> None:
        """Write text of several lines, made harmless."""
        if not self.json:
            self._write(safe(text if text.endswith("\n") else text + "\n"))

    def fact(self, name: str, *parts: Part) -> None:
        """Write a named value; names stand under each other."""
        self.line(Paint(f"{name:<11}", "dim"), " ", *parts)

    def table(self, rows: Sequence[Sequence[Cell | str]], header: Sequence[str] = ()) -> None:
        """Write rows under each other; on a terminal the last column is cut where the line ends."""
        if self.json or not rows:
            return
        cells = [[cell if isinstance(cell, Cell) else Cell.of(cell) for cell in row] for row in rows]
        if header:
            titles = [Cell.of(Paint(title, "dim"), right=cells[0][i].right) for i, title in enumerate(header)]
            cells.insert(0, titles)
        widths = [max(columns(_plain(row[i].parts)) for row in cells) for i in range(len(cells[0]))]
        for row in cells:
            self._write(self._row(row, widths) + "\n")

    def document(self, value: Any) -> None:
        """Write the one JSON document of this call; nothing unless it was asked for."""
        if not self.json:
            return
        import json  # noqa: PLC0415 - only calls with --json pay for loading it

        if self.warnings and isinstance(value, dict):
            value = {**value, "warnings": self.warnings}
            self._carried = len(self.warnings)
        self._write(json.dumps(value, indent=2, allow_nan=False) + "\n")  # ASCII only: nothing to escape is left

    def raw(self, data: bytes) -> None:
        """Write bytes exactly as they are."""
        self.stdout.flush()
        binary = getattr(self.stdout, "buffer", None)
        if binary is None:
            self._write(data.decode("utf-8", "replace"))
            return
        binary.write(data)
        binary.flush()

    def note(self, *parts: Part) -> None:
        """Tell a person what happened, on standard error; not with --quiet or --json."""
        if not (self.quiet or self.json):
            self._tell(parts)

    def detail(self, *parts: Part) -> None:
        """Tell more, with --verbose only."""
        if self.verbose:
            self.note(*parts)

    def warn(self, text: str) -> None:
        """Warn on standard error, also with --quiet; with --json see `finish`. Calls are named as commands."""
        from holdfast.cli.errors import told_text  # noqa: PLC0415 - few commands warn

        text = told_text(text)
        if text in self.warnings:
            return
        self.warnings.append(text)
        if not self.json:
            self._tell((Paint("warning: ", "yellow"), text))

    def fail(self, text: str, *, trace: str = "") -> None:
        """Say what went wrong, on standard error."""
        if trace:
            self.stderr.write(safe(trace))
        first, *others = text.split("\n")
        self._tell((Paint("holdfast: ", "red"), first))
        for line in others:
            self._tell((line,))

    def finish(self) -> None:
        """With --json, warn on standard error of what no document carried: there was none, or it was written before."""
        for text in self.warnings[self._carried :] if self.json else ():
            self._tell((Paint("warning: ", "yellow"), text))
        self._carried = len(self.warnings)

    def flush(self) -> None:
        """Hand everything over, so that a closed pipe shows now."""
        self.stdout.flush()
        self.stderr.flush()

    @contextmanager
    def paged(self) -> Iterator[None]:
        """Show what is written in the block page by page, if a person is there and it is longer than the screen."""
        if not self.interactive or self._paging:
            yield
            return
        from holdfast.cli.pager import start_pager  # noqa: PLC0415 - only on a terminal

        pager = start_pager(self.environment)
        if pager is None or pager.stdin is None:
            yield
            return
        before, self.stdout, self._paging = self.stdout, pager.stdin, True
        try:
            yield
            pager.stdin.flush()
        except BrokenPipeError:
            pass  # the person has seen enough
        finally:
            self.stdout, self._paging = before, False
            pager.finish()

    def render(self, parts: Sequence[Part], colours: bool) -> str:  # noqa: FBT001 - private in all but name
        """Return parts as one safe line, with colours or without."""
        return "".join(_painted(part, colours) for part in parts)

    def _row(self, row: Sequence[Cell], widths: Sequence[int]) -> str:
        shown, used = [], 0
        for i, cell in enumerate(row):
            length = columns(_plain(cell.parts))
            is_last = i == len(row) - 1
            parts = cell.parts
            if is_last and self.width is not None and used + length > self.width:
                parts, length = _cut(parts, max(self.width - used, 1)), 0
            space = " " * (widths[i] - length)
            text = self.render(parts, self.colours)
            shown.append(space + text if cell.right else text if is_last else text + space)
            used += widths[i] + len(_GAP)
        return _GAP.join(shown).rstrip()

    def _tell(self, parts: Sequence[Part]) -> None:
        self.stdout.flush()  # so that both streams read in order on one terminal
        self.stderr.write(self.render(parts, self.error_colours) + "\n")

    def _write(self, text: str) -> None:
        self.stdout.write(text)


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415 - plain text does not need it

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def _plain(parts: Sequence[Part]) -> str:
    return "".join(safe_line(part if isinstance(part, str) else part.text) for part in parts)


def _painted(part: Part, colours: bool) -> str:  # noqa: FBT001
    if isinstance(part, str):
        return safe_line(part)
    text = safe_line(part.text)
    code = _CODES.get(part.colour, "")
    return f"\x1b[{code}m{text}\x1b[0m" if colours and code and text else text


def _cut(parts: Sequence[Part], room: int) -> tuple[Part, ...]:
    """Return parts shortened to a width, with dots where something is left out."""
    cut: list[Part] = []
    for part in parts:
        text = safe_line(part if isinstance(part, str) else part.text)
        if columns(text) <= room:
            room -= columns(text)
        else:
            while text and columns(text) > max(room - 3, 0):
                text = text[:-1]
            text, room = text + "..."[: max(room, 0)], 0
        cut.append(text if isinstance(part, str) else Paint(text, part.colour))
        if not room:
            break
    return tuple(cut)
