"""Installing hooks into assistants, and looking where they are installed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.errors import CommandInvalid, Declined
from holdfast.cli.output import Cell, Paint
from holdfast.hook.dialects import DIALECTS
from holdfast.hook.glance import FOLDER, read_state
from holdfast.hook.install import installed_events, plan_install
from holdfast.own_folder import names_in

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.session import Session
    from holdfast.hook.dialects import Dialect


def install(arguments: Namespace, session: Session) -> int:
    """Show the change to an assistant's configuration, ask, and write it."""
    out = session.out
    if arguments.name is None:
        raise CommandInvalid(f"install for which assistant? Name one of {', '.join(DIALECTS)}")
    dialect = DIALECTS[arguments.name]
    file = _settings_file(dialect, session, for_user=arguments.user)
    if not arguments.user:
        _check_inside(file, session.root)
    change = plan_install(dialect, file, arguments.command or f"{_program()} hook")
    out.document({"assistant": dialect.name, "file": str(change.file), "changed": change.is_needed})
    if not change.is_needed:
        out.note(f"{change.file} has it already.")
        return 0
    if not out.json:
        out.block(change.diff())
    if not dialect.tried:
        out.warn(f"the hooks for {dialect.title} follow its documentation; they were not tried with the program itself")
    if not session.ask.agreed(f"Write this to {change.file}?"):
        raise Declined
    change.write()
    out.note(f"Written. {dialect.title} reads it when its next session starts, and may ask you to trust it.")
    return 0


def _settings_file(dialect: Dialect, session: Session, *, for_user: bool) -> Path:
    """Return the file in which an assistant is told to call us, here or in all projects of this user."""
    return Path.home() / (dialect.home_config or dialect.config) if for_user else session.root / dialect.config


def _check_inside(file: Path, root: Path) -> None:
    """Refuse a file that a link of the project puts somewhere else: a repository may have brought the link."""
    leads_to = file.resolve()
    if leads_to != root.resolve() / file.relative_to(root):
        raise CommandInvalid(f"{file} leads to {leads_to} over a link: delete the link, or install with --user")


def status(session: Session) -> int:
    """Tell which assistants call us, and which sessions are protected."""
    out = session.out
    found: list[dict[str, Any]] = []
    for dialect in DIALECTS.values():
        for where in ("project", "user"):
            file = _settings_file(dialect, session, for_user=where == "user")
            events = installed_events(dialect, file)
            if events:
                missing = [name for name in dialect.events if name not in events]
                found.append({"assistant": dialect.name, "where": where, "file": str(file), "missing": missing})
    sessions = [_session_row(session.root / FOLDER / name) for name in _session_files(session.root / FOLDER)]
    out.document({"installed": found, "sessions": sessions})
    out.table(
        [
            [Cell.of(one["assistant"]), Cell.of(one["where"]), Cell.of(_missing(one["missing"])), Cell.of(one["file"])]
            for one in found
        ]
    )
    if not found:
        out.note(f"No assistant calls Holdfast here; `holdfast hook install NAME` adds it ({', '.join(DIALECTS)}).")
    out.table([[Cell.of(one["run"]), Cell.of(Paint(*_painted(one["unprotected"])))] for one in sessions])
    return 0


def _session_files(folder: Path) -> list[str]:
    try:
        return [name for name in names_in(folder) if name.endswith(".json")]
    except OSError as error:
        raise CommandInvalid(f"{error.filename} {error.strerror}") from None


def _missing(events: list[str]) -> str:
    return f"without {', '.join(events)}: install again" if events else "all events"


def _session_row(file: Path) -> dict[str, Any]:
    state = read_state(str(file))
    lost = state.get("unprotected")
    return {"run": file.stem, "unprotected": lost if isinstance(lost, dict) else None}


def _painted(lost: object) -> tuple[str, str]:
    if isinstance(lost, dict):
        return f"unprotected since {lost.get('since')}: {lost.get('why')}", "red"
    return "protected", "green"


def _program() -> str:
    """Return how this program is called: by its own path, so that an assistant's environment does not matter."""
    return (
        shlex.quote(str(Path(sys.argv[0]).absolute())) if Path(sys.argv[0]).name in ("holdfast", "hold") else "holdfast"
    )
