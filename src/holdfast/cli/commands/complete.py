"""Offer the words that may come next on a line: commands, options, runs, checkpoints with their labels."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.cli.ids import Short
from holdfast.cli.parser import GLOBALS, split_globals
from holdfast.cli.table import BY_NAME, COMMANDS
from holdfast.cli.times import number
from holdfast.errors import HoldfastError, InvalidId, NotFound
from holdfast.model.ids import check_run_id
from holdfast.model.sections import WORKSPACE

if TYPE_CHECKING:
    from argparse import Action, Namespace
    from collections.abc import Iterator

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.model.checkpoint import CheckpointRecord

_RUNS = 200
_CHECKPOINTS = 30
_LABELS = 500

Offer = tuple[str, str]


def configure(parser: CommandParser) -> None:
    parser.add_argument("words", nargs="*", help="the words so far; the last is the one to complete")


def execute(arguments: Namespace, session: Session) -> int:
    """Print a line for each offer: the word, a tab, what it is. Silent whatever goes wrong: a person is typing."""
    try:
        words = arguments.words
        given, _ = split_globals([word for word in words[:-1] if word != "--"])
        session.options.store = given.store or session.options.store
        for word, meaning in offers(words, session):
            session.out.stdout.write(f"{_flat(word)}\t{_flat(meaning)}\n")
    except (HoldfastError, OSError):
        return 0
    return 0


def offers(words: list[str], session: Session) -> Iterator[Offer]:
    """Yield what fits the last word."""
    *before, current = words or [""]
    _, before = split_globals([*before, ""] if before and before[-1] in ("--store", "-C") else before)
    fitting = (offer for offer in _all(before, current, session) if offer[0].startswith(current))
    yield from fitting


def _all(before: list[str], current: str, session: Session) -> Iterator[Offer]:
    if not before:
        yield from ((one.name, one.help) for one in COMMANDS if one.group)
        return
    if before[0] not in BY_NAME:
        return
    from holdfast.cli.main import make_parser  # noqa: PLC0415

    parser, depth = make_parser(BY_NAME[before[0]]), 1
    while parser.parts:
        if len(before) == depth:
            yield from ((name, part.description or "") for name, part in parser.parts.items())
            return
        if before[depth] not in parser.parts:
            return
        parser, depth = parser.parts[before[depth]], depth + 1
    if current.startswith("-"):
        yield from _options(parser)
        return
    option = _option(parser, before[-1])
    if option is not None:
        yield from _offers(option, current, session, [])
        return
    if before[0] in ("phase", "replan"):
        yield from _phases(session)
        return
    words = _positional_words(parser, before[depth:])
    action = _action_at(parser, len(words))
    if action is not None:
        yield from _offers(action, current, session, words)


def _option(parser: CommandParser, word: str) -> Action | None:
    """Return the option that a word is and whose value comes next, None if it is none or takes none."""
    return next((one for one in parser.arguments if word in one.option_strings and one.nargs != 0), None)


def _positional_words(parser: CommandParser, words: list[str]) -> list[str]:
    """Return the words that are neither options nor their values."""
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if not word.startswith("-") and _option(parser, before) is None]


def _action_at(parser: CommandParser, index: int) -> Action | None:
    """Return which argument the next word is for: the last may take several."""
    positional = [action for action in parser.arguments if not action.option_strings]
    if index < len(positional):
        return positional[index]
    return positional[-1] if positional and positional[-1].nargs in ("*", "+") else None


def _options(parser: CommandParser) -> Iterator[Offer]:
    for action in parser.arguments:
        yield from ((name, action.help or "") for name in action.option_strings if name.startswith("--"))
    for names, _, text in GLOBALS:
        yield from ((name, text) for name in names.split(", "))


def _offers(action: Action, current: str, session: Session, words: list[str]) -> Iterator[Offer]:
    """Yield what may stand where the help says RUN, CHECKPOINT and the like; files are left to the shell."""
    kind = str(action.metavar)
    if action.choices:
        yield from ((str(choice), "") for choice in action.choices)
    elif kind in ("CHECKPOINT", "CHECKPOINT:PATH", "RUN|CHECKPOINT"):
        yield from _checkpoints(current, session, path=kind == "CHECKPOINT:PATH")
    elif kind == "RUN":
        yield from _runs(session)
    elif kind == "SECTION" and words:
        yield from ((name, "section") for name in session.find(words[0]).sections if name not in words)


def _phases(session: Session) -> Iterator[Offer]:
    """Yield the phases of the run that a script is at, those to be done first."""
    from argparse import Namespace  # noqa: PLC0415

    from holdfast.cli import phase_book, script  # noqa: PLC0415

    book = script.book_of(session.hf.latest(script.meant_run(session, Namespace(run=None)), required=True))
    left = phase_book.left(book)
    for name in [*left, *(one for one in book.order if one not in left)]:
        state = book.phases.get(name)
        yield name, (state.label or state.status) if state is not None else ""


def _runs(session: Session) -> Iterator[Offer]:
    for run in session.hf.runs(limit=_RUNS):
        yield run.id, number(run.checkpoints, "checkpoint")


def _checkpoints(current: str, session: Session, *, path: bool) -> Iterator[Offer]:
    store = session.hf.store
    run, colon, _ = current.rpartition(":")
    if colon:
        with suppress(NotFound, InvalidId):  # a label, or RUN@7
            labelled = [one for one in store.checkpoints(check_run_id(run), limit=_LABELS) if one.marks.label]
            yield from ((f"{run}:{one.marks.label}", _meaning(one)) for one in labelled)
    if path and colon:
        checkpoint = session.find(run)
        if WORKSPACE in checkpoint.sections:
            yield from ((f"{run}:{one.path}", "") for one in checkpoint.files() if one.kind == "file")
    if colon:
        return
    run, at, _ = current.rpartition("@")
    if at:
        yield from ((f"{run}@{one.envelope.seq}", _meaning(one)) for one in store.checkpoints(run, limit=_CHECKPOINTS))
        return
    yield from _runs(session)
    short = Short()
    for record in session.hf.runs(limit=_CHECKPOINTS):
        for one in store.checkpoints(record.id, limit=_CHECKPOINTS):
            if one.marks.label:
                yield one.marks.label, f"{one.envelope.run}@{one.envelope.seq}"
            if current:
                yield short(one.envelope.id), _meaning(one)


def _meaning(one: CheckpointRecord) -> str:
    label = f"({one.marks.label}) " if one.marks.label else ""
    return f"{label}{one.envelope.run}@{one.envelope.seq} {one.envelope.trigger} {one.envelope.reason}"


def _flat(text: str) -> str:
    from holdfast.cli.escape import safe_line  # noqa: PLC0415

    return safe_line(text)
