"""Move a phase of a plan: start, done, fail, skip, retry. Each is a durable checkpoint, and a done one is read back.

A phase that is done already is not started again: `start` exits with 13, so that a script can pass over it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import phase_book, script
from holdfast.cli.commands.begin import status_document
from holdfast.cli.errors import ALREADY_DONE
from holdfast.cli.parser import CommandParser
from holdfast.cli.plan_file import phase_named
from holdfast.cli.times import duration
from holdfast.model.sections import PhaseState

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.session import Session
    from holdfast.model.sections import Phases
    from holdfast.run import Run


def configure(parser: CommandParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=CommandParser)
    for verb, text in (
        ("start", "begin a phase, or resume one that was interrupted; 13 if it is done already"),
        ("done", "a phase is complete"),
        ("fail", "a phase failed; it stays due"),
        ("skip", "leave a phase out"),
        ("retry", "make a phase due again, whatever came of it"),
    ):
        part = parser.parts[verb] = verbs.add_parser(verb, help=text, description=text)
        part.add_argument("name", metavar="NAME", help="the phase: its name, its number in the plan, or how it begins")
        script.add_run_option(part)
    done, fail = parser.parts["done"], parser.parts["fail"]
    done.add_argument(
        "--artifact", metavar="FILE", action="append", default=[], help="a file that it made; may be repeated"
    )
    done.add_argument("--summary", metavar="TEXT", help="what came of it, in short")
    fail.add_argument("--error", metavar="TEXT", default="failed", help="what went wrong")
    fail.add_argument("--code", metavar="CODE", help="the error's code, such as an exit status")
    for verb in ("skip", "retry"):
        parser.parts[verb].add_argument("--reason", metavar="TEXT", default="", help="why")


def execute(arguments: Namespace, session: Session) -> int:
    run = script.open_run(session, script.meant_run(session, arguments))
    book = script.book_of(run.head)
    name = phase_named(arguments.name, book.order, list(book.phases))
    return {"start": _start, "done": _done, "fail": _fail, "skip": _skip, "retry": _retry}[arguments.verb](
        run, name, arguments, session
    )


def _start(run: Run, name: str, arguments: Namespace, session: Session) -> int:  # noqa: ARG001 - all verbs alike
    state = script.book_of(run.head).phases.get(name, PhaseState())
    if state.status in phase_book.SETTLED:
        _say(run, script.book_of(run.head), name, f"{name} is {state.status} already.", session)
        return ALREADY_DONE
    book = script.change(
        run,
        session,
        lambda book, now: phase_book.started(book, name, now),
        trigger="phase_transition",
        reason=f"{name} {'continues' if state.status == 'running' else 'begins'}",
        phase=name,
        note="phase started",
    )
    _say_order(book, name, session)
    attempt = book.phases[name].attempt
    _say(
        run,
        book,
        name,
        f"{name} {'continues' if state.status == 'running' else 'begins'} (attempt {attempt}).",
        session,
    )
    return 0


def _done(run: Run, name: str, arguments: Namespace, session: Session) -> int:
    from holdfast.runtime.artifacts import artifact_of  # noqa: PLC0415 - only with artifacts

    known = script.book_of(run.head)
    if not known.phases.get(name, PhaseState()).attempt:
        session.out.warn(f"{name} was never started, so how long it took is not known: `holdfast phase start {name}`")
    _say_order(known, name, session)
    artifacts = [artifact_of(os.path.normpath(Path.cwd() / file), root=session.root) for file in arguments.artifact]
    book = script.change(
        run,
        session,
        lambda book, now: phase_book.completed(book, name, now, summary=arguments.summary, artifacts=artifacts),
        trigger="phase_complete",
        reason=f"{name} is complete" + (f": {arguments.summary}" if arguments.summary else ""),
        phase=name,
        note="phase completed",
        summary=arguments.summary,
    )
    left = phase_book.left(book)
    took = duration(book.phases[name].duration_s)
    if not left:
        with script.held(run):
            run.complete("all phases are done")
    _say(
        run,
        book,
        name,
        f"{name} is done ({took}). " + (f"Next is {left[0]}." if left else "That was the last one."),
        session,
    )
    return 0


def _fail(run: Run, name: str, arguments: Namespace, session: Session) -> int:
    book = script.change(
        run,
        session,
        lambda book, now: phase_book.failed(book, name, now, arguments.error, code=arguments.code),
        trigger="error_occurred",
        reason=f"{name} failed: {arguments.error}",
        phase=name,
        note="phase failed",
        error=arguments.error,
    )
    choices = f"`holdfast phase start {name}` tries again, `holdfast phase skip {name}` leaves it out"
    _say(run, book, name, f"{name} failed: {arguments.error}. {choices}.", session)
    return 0


def _skip(run: Run, name: str, arguments: Namespace, session: Session) -> int:
    with script.held(run):
        run.host.note("phase skipped", name, reason=arguments.reason)
        run.phases.skip(name, arguments.reason)
        book = run.phases.snapshot()
    _say(run, book, name, f"{name} is {book.phases[name].status}.", session)
    return 0


def _retry(run: Run, name: str, arguments: Namespace, session: Session) -> int:
    with script.held(run):
        run.host.note("phase due again", name, reason=arguments.reason)
        run.phases.retry(name, arguments.reason)
        book = run.phases.snapshot()
    _say(run, book, name, f"{name} is due again.", session)
    return 0


def _say_order(book: Phases, name: str, session: Session) -> None:
    before = phase_book.due_before(book, name)
    if before:
        session.out.warn(
            f"{', '.join(before)} {'is' if len(before) == 1 else 'are'} not done, and before it in the plan"
        )


def _say(run: Run, book: Phases, name: str, text: str, session: Session) -> None:
    session.out.document({"run": run.id, "phase": name, **status_document(book, phase_book.saved_s(book))})
    session.out.note(text)
