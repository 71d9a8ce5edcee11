"""Conditions for `when:` and `until:`: comparisons of names and literals with and, or, not. Nothing is called."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    Evaluate = Callable[[Callable[[str], Any]], Any]

_LONGEST = 2000
_DEEPEST = 50
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>-?[0-9]+(?:\.[0-9]+)?(?![\w.]))
  | (?P<text>'[^']*'|"[^"]*")
  | (?P<name>[A-Za-z_][\w-]*(?:\.[\w-]+)*)
  | (?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,)
  )""",
    re.VERBOSE | re.ASCII,
)
_LITERALS = {"true": True, "false": False, "null": None, "none": None}
_WORDS = {"and", "or", "not", "in"}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}


class ConditionError(UsageError):
    """A condition that cannot be read, or that does not fit the values it meets."""


class FlowCondition(NamedTuple):
    """A condition that was read: the names that it uses, and its value once they are known."""

    text: str
    names: tuple[str, ...]
    evaluate: Evaluate

    def holds(self, value_of: Callable[[str], Any]) -> bool:
        """Tell whether the condition is true for these values."""
        try:
            return bool(self.evaluate(value_of))
        except TypeError as error:
            raise ConditionError(f"condition {self.text!r:.200} does not fit its values: {error}") from None


@lru_cache(1024)
def parse_condition(text: str) -> FlowCondition:
    """Read a condition; ConditionError names the place where it stops making sense."""
    if len(text) > _LONGEST:
        raise ConditionError(f"a condition of {len(text):,} characters: at most {_LONGEST:,}")
    parser = _Parser(text)
    evaluate = parser.either(0)
    parser.finish()
    return FlowCondition(text, tuple(dict.fromkeys(parser.names)), evaluate)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._cut()
        self._next = 0
        self.names: list[str] = []

    def either(self, depth: int) -> Evaluate:
        if depth > _DEEPEST:
            raise self._stuck("nested too deeply")
        parts = [self._both(depth)]
        while self._take("or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else lambda value_of: any(part(value_of) for part in parts)

    def finish(self) -> None:
        if self._peek().kind != "end":
            raise self._stuck("and, or or a comparison is expected")

    def _both(self, depth: int) -> Evaluate:
        parts = [self._negated(depth)]
        while self._take("and"):
            parts.append(self._negated(depth))
        return parts[0] if len(parts) == 1 else lambda value_of: all(part(value_of) for part in parts)

    def _negated(self, depth: int) -> Evaluate:
        if self._take("not"):
            if depth > _DEEPEST:
                raise self._stuck("nested too deeply")
            inner = self._negated(depth + 1)
            return lambda value_of: not inner(value_of)
        return self._comparison(depth)

    def _comparison(self, depth: int) -> Evaluate:
        left = self._value(depth)
        sign = self._operator()
        if sign is None:
            return left
        right = self._value(depth)
        if self._operator() is not None:
            raise self._stuck("one comparison at a time: join them with and")
        compare = _COMPARE[sign]
        return lambda value_of: compare(left(value_of), right(value_of))

    def _operator(self) -> str | None:
        token = self._peek()
        if token.text in _COMPARE and token.kind in {"sign", "name"}:
            self._next += 1
            return token.text
        if self._take("not"):
            if not self._take("in"):
                raise self._stuck("in is expected after not")
            return "not in"
        return None

    def _value(self, depth: int) -> Evaluate:
        token = self._peek()
        self._next += 1
        if token.kind == "number":
            number = float(token.text) if "." in token.text else int(token.text)
            return lambda _: number
        if token.kind == "text":
            return lambda _: token.text[1:-1]
        if token.kind == "name" and token.text not in _WORDS:
            return self._named(token.text)
        if token.text == "(" and token.kind == "sign":
            inner = self.either(depth + 1)
            self._expect(")")
            return inner
        if token.text == "[" and token.kind == "sign":
            return self._list(depth)
        self._next -= 1
        raise self._stuck("a name or a value is expected")

    def _named(self, name: str) -> Evaluate:
        if name.lower() in _LITERALS:
            literal = _LITERALS[name.lower()]
            return lambda _: literal
        self.names.append(name)
        return lambda value_of: value_of(name)

    def _list(self, depth: int) -> Evaluate:
        if depth > _DEEPEST:
            raise self._stuck("nested too deeply")
        items: list[Evaluate] = []
        while not self._take("]"):
            items.append(self._value(depth + 1))
            if not self._take(","):
                self._expect("]")
                break
        return lambda value_of: [item(value_of) for item in items]

    def _take(self, text: str) -> bool:
        token = self._peek()
        found = token.text == text and token.kind in {"sign", "name"}
        self._next += found
        return found

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._stuck(f"{text} is expected")

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _cut(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while self._text[at:].strip():
            match = _TOKEN.match(self._text, at)
            if match is None or match.lastgroup is None:
                while self._text[at].isspace():
                    at += 1
                raise ConditionError(f"condition {self._text!r:.200}: {self._text[at]!r} is not understood")
            tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        return [*tokens, _Token("end", "", len(self._text))]

    def _stuck(self, why: str) -> ConditionError:
        token = self._peek()
        place = f"at {token.text!r:.40}" if token.kind != "end" else "at its end"
        return ConditionError(f"condition {self._text!r:.200}, {place}: {why}")
