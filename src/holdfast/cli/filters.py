"""Filters of lists on the command line, as `hf.runs` and `hf.checkpoints` take them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.cli.times import parse_span
from holdfast.errors import UsageError
from holdfast.lazy import lazily

with lazily():  # lists without attributes do without
    from holdfast.cli import json_values

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser


def add_filters(parser: CommandParser, *, prefix: str, text: str) -> None:
    """Let the line say which rows of a list are wanted."""
    parser.add_argument("--key", metavar="KEY", help="only what has this key")
    add_attribute(parser, "only what has this attribute; may be repeated")
    parser.add_argument("--prefix", metavar="TEXT", help=prefix)
    parser.add_argument("--text", metavar="TEXT", help=text)
    parser.add_argument(
        "--since", metavar="TIME", help="only from this time on: 2026-11-18, 2026-11-18T12:00, or 2d ago"
    )
    parser.add_argument("--until", metavar="TIME", help="only before this time, likewise")


def add_attribute(parser: CommandParser, text: str) -> None:
    """Let the line give attributes."""
    parser.add_argument("--attribute", metavar="NAME=VALUE", action="append", default=[], help=text)


def filters_of(arguments: Namespace, now: datetime, *names: str) -> dict[str, Any]:
    """Return the filters that a line gives, those of the command beside those of every list."""
    given = {name: getattr(arguments, name) for name in (*names, "key", "prefix", "text")}
    given |= {name: _time(name, getattr(arguments, name), now) for name in ("since", "until")}
    given["attributes"] = attributes_of(arguments.attribute) or None
    return {name: value for name, value in given.items() if value is not None}


def attributes_of(words: list[str]) -> dict[str, Any]:
    """Return attributes: a number, true, false and null are what they are in JSON, all else is text."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--attribute {word}: give NAME=VALUE")
        parsed = json_values.value_or_text(value)
        found[name] = parsed if parsed is None or isinstance(parsed, (bool, int, float, str)) else value
    return found


def _time(name: str, text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return at if at.tzinfo is not None else at.astimezone().astimezone(UTC)
    try:
        return now - parse_span(text)
    except (UsageError, OverflowError):
        raise UsageError(
            f"--{name} {text}: give a time such as 2026-11-18T12:00, or how long ago: 30m, 12h, 7d"
        ) from None
