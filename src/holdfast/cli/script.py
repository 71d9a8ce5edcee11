"""What the commands for shell scripts share: which run they mean, its phases, and one durable change of them."""

from __future__ import annotations

import os
import shlex
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.errors import CommandInvalid
from holdfast.documents import is_moving
from holdfast.encode.documents import read_regular
from holdfast.errors import DocumentInvalid, IntegrityError, InvalidId, LeaseHeld, NotFound, UsageError
from holdfast.lazy import lazily
from holdfast.model.sections import Phases
from holdfast.own_folder import write_whole
from holdfast.store.open import FOLDER

with lazily():  # only two projects in one store need it
    import hashlib

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.run import Run

_CURRENT = "current-run"
_MOST_NAMED = 5
_PATIENCE_S = 5.0  # commands hold a run for milliseconds, so several at once all get their turn
_LOOK_EVERY_S = 0.03
_OF_POSITIONS = "@#~:"
_WORKSPACE = "workspace"  # in the phases' metadata: the directory whose files go into each checkpoint


def add_run_option(parser: CommandParser) -> None:
    """Let a command name its run."""
    parser.add_argument(
        "--run", metavar="RUN", help="the run; otherwise HOLDFAST_RUN, or the one that was begun or forked into here"
    )


def remember(session: Session, run: str) -> None:
    """Let the commands that follow here mean this run."""
    folder = session.place.project.root / FOLDER
    try:
        write_whole(folder / _CURRENT, f"{run}\n".encode())
    except OSError as error:
        raise UsageError(f"{error.filename} {error.strerror}") from None


def meant_run(session: Session, arguments: Namespace, *, or_only: bool = False) -> str:
    """Return the run that a script means, or the only one that there is; CommandInvalid says how to name one."""
    return _named_run(session, arguments) or _only_run(session, or_only=or_only)


def add_meant_run(parser: CommandParser) -> None:
    """Let a command that changes a run take it, or find it by itself."""
    told = "the run; otherwise HOLDFAST_RUN, the one begun here, or the one that this directory was forked for"
    parser.add_argument("run", metavar="RUN", nargs="?", help=told)


def add_shown_run(parser: CommandParser, *, metavar: str = "RUN", more: str = "") -> None:
    """Let a command that only looks take a run, or find it by itself."""
    told = f"the run{more}; otherwise HOLDFAST_RUN, the one begun here or forked into here, or the one that moved last"
    parser.add_argument("run", metavar=metavar, nargs="?", help=told)


def spec_or_last(session: Session, spec: str | None) -> str:
    """Return what is to be looked at: the checkpoint that is named, otherwise the newest of the run that moved last."""
    return shown_run(session) if spec is None else spec


def shown_run(session: Session, arguments: Namespace | None = None) -> str:
    """Return the run that is to be looked at: the one that is meant, otherwise the one that moved last, and say so."""
    named = _named_run(session, arguments)
    if named is not None:
        return named
    runs = session.hf.runs(limit=2)
    if not runs:
        raise NotFound("run", "", "the store is empty")
    if len(runs) > 1:
        session.out.note(f"The run that moved last is {runs[0].id}.")
    return runs[0].id


def shown(session: Session, arguments: Namespace) -> tuple[Checkpoint, bool]:
    """Return how a run stands that is to be looked at, or how it stood at the named checkpoint; whether it is now."""
    try:
        return head_of(session, shown_run(session, arguments)), True
    except (NotFound, InvalidId):
        if arguments.run is None or not set(arguments.run) & set(_OF_POSITIONS):
            raise
        return session.find(arguments.run), False


def _named_run(session: Session, arguments: Namespace | None) -> str | None:
    named = (arguments is not None and arguments.run) or session.out.environment.get("HOLDFAST_RUN")
    if not named:
        project = session.place.project
        try:
            named = read_regular(project.root / FOLDER / _CURRENT, limit=1024).decode().strip()
        except (OSError, ValueError, DocumentInvalid):
            named = project.run if project.store is not None and session.place.is_at(str(project.store)) else None
    return session.run_id(named) if named else None


def _only_run(session: Session, *, or_only: bool) -> str:
    runs = session.hf.runs(limit=2) if or_only else []
    if len(runs) == 1:
        return runs[0].id
    if or_only:
        waiting = [run.id for run in session.hf.runs(status="waiting", limit=_MOST_NAMED)]
        named = f"These wait: {', '.join(waiting)}" if waiting else "`holdfast ls` lists them"
        raise CommandInvalid(f"which run? Name one. {named}")
    raise CommandInvalid("no run was begun here: `holdfast begin PLAN.md` begins one, or name it with --run RUN")


def own_run(session: Session, run: str, file: str | Path, project: str | None, *, is_other: bool = False) -> str:
    """Return a run's name, or another one if it belongs to another project in the same store, or is another's.

    A store inside this project is its own, also when both were moved.
    """
    from holdfast.cli.place import local_path  # noqa: PLC0415

    root = session.root.resolve()
    store = local_path(session.place.url)
    is_ours = store is not None and store.resolve().is_relative_to(root)
    if not is_other and (is_ours or project in (None, str(root))):
        return run
    place = Path(os.path.relpath(file, session.root)).as_posix()
    return f"{run}-{hashlib.sha256(f'{root}/{place}'.encode()).hexdigest()[:8]}"


def book_of(checkpoint: Checkpoint | None) -> Phases:
    """Return the phases in a checkpoint; none yet is an empty book."""
    if checkpoint is None or "phases" not in checkpoint.sections:
        return Phases()
    found: Phases = checkpoint.section("phases")
    return found


def head_of(session: Session, run: str) -> Checkpoint:
    """Return how a run stands; a newest checkpoint that is damaged is passed over, and it is said."""
    try:
        return session.hf.latest(run) or session.hf.find(run)
    except IntegrityError as error:
        session.out.warn(str(error))
        return session.hf.find(run)


def start_again(run: str) -> str:
    """Return what to type for a run whose question is answered and that no process moves."""
    return f"`holdfast resume {shlex.quote(run)}` continues it"


def tell_start_again(session: Session, run: str) -> None:
    """Say what continues a run that was just answered, unless a process moves it or it still waits."""
    if not session.hf.control.waiting(run) and not is_moving(session.hf.store, run):
        session.out.note(f"{start_again(run)}.")


def open_run(session: Session, run: str, *, workspace: str | None = None) -> Run:
    """Open a run for one change, with its directory if it has one."""
    hf = session.open()
    if workspace is None and hf.has(run):
        given = book_of(hf.latest(run, required=True)).metadata.get(_WORKSPACE)
        workspace = str(session.root / given) if isinstance(given, str) else None
    return hf.run(run, workspace=workspace, waiting="leave")


@contextmanager
def held(run: Run) -> Iterator[None]:
    """Hold a run's lease for a moment; another command that has it is waited for, a program only for a few seconds."""
    with ExitStack() as stack:
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                stack.enter_context(run.held())
                break
            except LeaseHeld:
                if time.monotonic() > end:
                    raise
                time.sleep(_LOOK_EVERY_S)
        yield


def with_workspace(book: Phases, session: Session, directory: str) -> Phases:
    """Note the directory whose files belong to the run, as seen from the project."""
    import msgspec  # noqa: PLC0415

    place = os.path.relpath(Path(directory).resolve(), session.root)
    return msgspec.structs.replace(book, metadata={**book.metadata, _WORKSPACE: place})


def change(
    run: Run,
    session: Session,
    make: Callable[[Phases, datetime], Phases],
    *,
    trigger: str,
    reason: str,
    phase: str,
    note: str,
    **details: Any,
) -> Phases:
    """Change the phases of a run in one durable checkpoint, with a line in its journal."""
    with held(run):
        run.host.waits.look()  # a pause or a cancellation from outside is taken here
        run.status.set("running")
        book = make(book_of(run.head), session.now())
        run.host.note(note, phase, **details)
        taken = run.checkpoint(trigger=trigger, reason=reason, phase=phase, phases=book)
        if not taken.saved:
            raise UsageError("checkpointing is disabled in the settings (enabled: false), so nothing was saved")
    return book
