"""The workload "conversation": a state that grows by one 2 KB message a step.

Everything is made up front from a seed, so that neither its cost nor its memory counts
for the store under measurement, and two subjects save exactly the same values.
"""

from __future__ import annotations

import random
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

State = dict[str, Any]

VOCABULARY_WORDS = 20_000
MESSAGE_CHARS = 2_000
CONTEXT_ENTRIES = 80
CONTEXT_ENTRY_CHARS = 200
CONTEXT_CHANGE_EVERY = 2
STARTED_AT = 1_790_000_000.0


class Step(NamedTuple):
    """What one step adds: a message and, on some steps, one changed context entry."""

    number: int
    message: dict[str, Any]
    change: dict[str, dict[str, Any]]


class Writer:
    """Text of random words, frequent ones more often, as prose has them."""

    def __init__(self, seed: int) -> None:
        """Make a vocabulary that depends on the seed alone."""
        self._random = random.Random(seed)
        letters = "etaoinshrdlcumwfgypbvk"
        letter_weights = [1 / (rank + 3) for rank in range(len(letters))]
        self._words = [
            "".join(self._random.choices(letters, letter_weights, k=self._random.randint(2, 11)))
            for _ in range(VOCABULARY_WORDS)
        ]
        self._weights = list(accumulate(1 / (rank + 10) for rank in range(VOCABULARY_WORDS)))

    def text(self, chars: int) -> str:
        """Return prose-like text of exactly this many characters."""
        words = self._random.choices(self._words, cum_weights=self._weights, k=chars // 3)
        return " ".join(words)[:chars].ljust(chars, ".")

    def token(self) -> str:
        """Return an identifier that does not compress."""
        return f"{self._random.getrandbits(64):016x}"

    def pick(self, keys: list[str]) -> str:
        """Return one of the keys."""
        return self._random.choice(keys)


class Conversation:
    """A conversation of a fixed number of steps, and the live state it goes through."""

    def __init__(self, steps: int, *, seed: int = 20_261_115, chars: int = MESSAGE_CHARS) -> None:
        """Write every message, so many characters each, and every context change."""
        writer = Writer(seed)
        self._context = {f"entry-{number:03d}": _context_entry(writer, revision=0) for number in range(CONTEXT_ENTRIES)}
        self._steps = [_step(writer, number, list(self._context), chars) for number in range(steps)]
        self.state: State = {"messages": [], "context": dict(self._context)}

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._steps)

    @property
    def initial_context(self) -> dict[str, dict[str, Any]]:
        """The context before the first step."""
        return dict(self._context)

    def advance(self) -> Iterator[Step]:
        """Move the live state on by one step at a time, in place, as an agent does."""
        for step in self._steps:
            self.state["messages"].append(step.message)
            self.state["context"].update(step.change)
            yield step

    def state_after(self, steps: int) -> State:
        """Return the state as it was after so many steps."""
        context = self.initial_context
        for step in self._steps[:steps]:
            context.update(step.change)
        return {"messages": [step.message for step in self._steps[:steps]], "context": context}

    def unique_bytes(self) -> int:
        """Return the size of what is new in all steps together: messages and context changes."""
        parts: list[Any] = [self._context, *(step.message for step in self._steps)]
        parts += [step.change for step in self._steps if step.change]
        return sum(len(encode(part)) for part in parts)


def encode(value: object) -> bytes:
    """Return the value as MessagePack, the yardstick for sizes and for decoding alone."""
    return msgspec.msgpack.encode(value)


def decode(data: bytes) -> State:
    """Return the state that `encode` was given."""
    return msgspec.msgpack.decode(data, type=dict[str, Any])


def _context_entry(writer: Writer, *, revision: int) -> dict[str, Any]:
    return {
        "text": writer.text(CONTEXT_ENTRY_CHARS),
        "source": writer.token(),
        "revision": revision,
    }


def _step(writer: Writer, number: int, context_keys: list[str], chars: int) -> Step:
    message = {
        "role": ("user", "assistant", "tool")[number % 3],
        "content": writer.text(chars),
        "id": f"msg_{writer.token()}",
        "created_at": STARTED_AT + number * 7.25,
        "tokens": 420 + number % 97,
    }
    change = {}
    if number % CONTEXT_CHANGE_EVERY == 0:
        change[writer.pick(context_keys)] = _context_entry(writer, revision=number)
    return Step(number, message, change)
