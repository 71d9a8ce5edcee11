"""Questions to a person; without one, the safe choice, and it is said which."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO, TypeVar

from holdfast.cli.output import Paint, is_terminal
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.cli.output import Output

T = TypeVar("T")

YES_AND_NO = {"y": "approve", "yes": "approve", "n": "reject", "no": "reject"}
"""What people type, and the answer that they mean where a question has it."""


class Prompt:
    """Asks on standard error and reads standard input."""

    def __init__(self, out: Output, stdin: TextIO | None, *, yes: bool = False) -> None:
        self._out = out
        self._stdin = stdin
        self._yes = yes
        self.can_ask = is_terminal(stdin) and not out.json

    def agreed(self, question: str, *, safe: str = "nothing is done") -> bool:
        """Return whether the person says yes; --yes answers before anybody is asked, silence is a no."""
        return self._said(question, f"{safe}; --yes agrees beforehand", safe, silence=False)

    def confirmed(self, question: str, *, unasked: str) -> bool:
        """Return whether the person does not say no: for questions where continuing is the safe choice."""
        return self._said(question, unasked, unasked, silence=True)

    def _said(self, question: str, without: str, closed: str, *, silence: bool) -> bool:
        if self._yes:
            return True
        if not self.can_ask:
            self._out.note(f"{question} There is no terminal to ask on, so {without}.")
            return silence
        while True:
            answer = _lower(self._answer(f"{question} [{'Y/n' if silence else 'y/N'}] ", closed))
            if not answer:
                return silence
            if answer in ("y", "yes", "n", "no"):
                return answer[0] == "y"
            self._out.note("Please answer y or n.")

    def choose(
        self,
        question: str,
        options: Sequence[tuple[str, str]],
        *,
        safe: str,
        agreed: str | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> str:
        """Return one of (name, meaning) options; the safe one if nobody can be asked, or the terminal is closed.

        With --yes it is the `agreed` one, if there is one: what cannot be agreed to beforehand is still asked. Of
        `aliases` those count whose option there is.
        """
        meaning = dict(options)
        if self._yes and agreed is not None:
            return agreed
        if not self.can_ask:
            self._out.note(f"{question} There is no terminal to ask on, so the safe choice is taken: {meaning[safe]}.")
            return safe
        for name, text in options:
            self._out.note("  ", Paint(name, "bold"), f"  {text}")
        while True:
            answer = _lower(self._answer(f"{question} [{safe}] ", meaning[safe]))
            if not answer:
                return safe
            meant = (aliases or {}).get(answer)
            if meant in meaning:
                return str(meant)
            fitting = [name for name in meaning if name.startswith(answer)]
            if answer in meaning or len(fitting) == 1:
                return answer if answer in meaning else fitting[0]
            self._out.note(f"Please answer one of {', '.join(meaning)}.")

    def parsed(self, prompt: str, parse: Callable[[str], T]) -> T | None:
        """Return what the person types, read by a function that refuses with UsageError; None if they type nothing."""
        while True:
            answer = self._answer(prompt, None)
            if not answer:
                return None
            try:
                return parse(answer)
            except UsageError as error:
                self._out.note(str(error))

    def line(self, prompt: str) -> str | None:
        """Return one line that the person types, None when the terminal is closed."""
        return self._answer(prompt, None)

    def _answer(self, prompt: str, safe: str | None) -> str | None:
        self._out.stdout.flush()
        self._out.stderr.write(self._out.render((prompt,), colours=False))
        self._out.stderr.flush()
        try:
            line = self._stdin.readline() if self._stdin is not None else ""
        except (OSError, ValueError):  # the terminal went away
            line = ""
        if not line:
            if safe is not None:
                self._tell_closed(safe)
            return None
        return line.strip()

    def _tell_closed(self, safe: str) -> None:
        try:
            self._out.stderr.write("\n")
            self._out.note(f"The terminal was closed in the middle of a question, so the safe choice is taken: {safe}.")
        except OSError:
            pass  # nobody is there to read it


def _lower(answer: str | None) -> str | None:
    return answer.lower() if answer is not None else None
