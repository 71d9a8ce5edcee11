"""Check this machine and this project, and say what to do about each thing that is not as it should be."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.cli.errors import told
from holdfast.cli.output import Cell, Paint
from holdfast.cli.times import age, size
from holdfast.documents import is_moving
from holdfast.errors import HoldfastError
from holdfast.version import __version__

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session

Grade = Literal["ok", "note", "bad"]
_COLOURS = {"ok": "green", "note": "yellow", "bad": "red"}
_EXTRAS = (
    ("lz4", "lz4", "lz4 compression"),
    ("crypto", "cryptography", "encrypted stores"),
    ("postgres", "psycopg", "PostgreSQL"),
    ("objects", "obstore", "object storage"),
    ("web", "starlette", "holdfast ui"),
    ("mcp", "mcp", "MCP clients"),
    ("otel", "opentelemetry", "traces and metrics"),
)
_LITTLE_SPACE = 1_000_000_000
_NO_SPACE = 100_000_000
_LOOKED_AT = 200  # of the runs begun last
_CHECKED_WHOLE = 5_000  # checkpoints: what is checked in a fraction of a second
_EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)


class DoctorFinding(NamedTuple):
    """What one check found, and what to do about it."""

    check: str
    grade: Grade
    detail: str
    advice: str = ""


def configure(parser: CommandParser) -> None:
    """Say what the command takes: nothing of its own."""


def execute(arguments: Namespace, session: Session) -> int:  # noqa: ARG001 - takes nothing
    """Run every check."""
    out = session.out
    found = [one for check in CHECKS for one in _guarded(check, session)]
    findings = list({(one.grade, one.detail): one for one in reversed(found)}.values())[::-1]  # one cause stops several
    out.document({"healthy": not _bad(findings), "findings": [one._asdict() for one in findings]})
    rows = [
        [Cell.of(Paint(f"{one.grade:<4}", _COLOURS[one.grade])), Cell.of(one.check), Cell.of(one.detail)]
        for one in findings
    ]
    out.table(rows)
    advice = [one for one in findings if one.advice]
    if advice:
        out.line()
    for one in advice:
        out.line(Paint(f"{one.check}: ", "bold"), one.advice)
    return 1 if _bad(findings) else 0


def _bad(findings: list[DoctorFinding]) -> bool:
    return any(one.grade == "bad" for one in findings)


def _guarded(check: Callable[[Session], Iterator[DoctorFinding]], session: Session) -> Iterator[DoctorFinding]:
    try:
        yield from check(session)
    except HoldfastError as error:
        yield DoctorFinding(check.__name__.strip("_"), "bad", told(error))
    except OSError as error:
        yield DoctorFinding(check.__name__.strip("_"), "bad", f"{error.filename or ''}: {error.strerror}")


def _program(session: Session) -> Iterator[DoctorFinding]:  # noqa: ARG001 - all checks are called alike
    python = ".".join(map(str, sys.version_info[:3]))
    yield DoctorFinding("program", "ok", f"holdfast {__version__}, Python {python}")


def _sqlite(session: Session) -> Iterator[DoctorFinding]:  # noqa: ARG001
    import apsw  # noqa: PLC0415

    from holdfast.store.sqlite_file import OLDEST_SQLITE  # noqa: PLC0415

    version = apsw.sqlite_lib_version()
    parts = [int(part) for part in version.split(".")]
    is_new = parts[0] * 1_000_000 + parts[1] * 1_000 + parts[2] >= OLDEST_SQLITE
    advice = "" if is_new else "older libraries can corrupt a file that two processes use: pip install -U apsw"
    yield DoctorFinding("sqlite", "ok" if is_new else "bad", version, advice)


def _git(session: Session) -> Iterator[DoctorFinding]:  # noqa: ARG001
    place = shutil.which("git")
    if place is None:
        yield DoctorFinding(
            "git", "note", "not found", "files are captured without it, but not git positions, and no merges"
        )
    else:
        yield DoctorFinding("git", "ok", place)


def _extras(session: Session) -> Iterator[DoctorFinding]:  # noqa: ARG001
    there = [name for name, module, _ in _EXTRAS if find_spec(module)]
    missing = [f"{name} ({use})" for name, _, use in _EXTRAS if name not in there]
    text = f"installed: {', '.join(there) or 'none'}" + (f"; not installed: {', '.join(missing)}" if missing else "")
    yield DoctorFinding("extras", "ok", text, "pip install 'holdfast[NAME]' adds one" if missing else "")


def _settings(session: Session) -> Iterator[DoctorFinding]:
    project = session.place.project
    if project.settings_file is None:
        yield DoctorFinding(
            "settings",
            "ok",
            "none here, so the defaults hold",
            "" if project.is_begun else "`holdfast init` writes a file",
        )
    else:
        yield DoctorFinding("settings", "ok", str(project.settings_file))
        settings = session.place.settings
        if settings is not None and not settings.enabled:
            yield DoctorFinding(
                "settings", "note", "checkpointing is switched off (enabled: false)", "set enabled: true to save again"
            )


def _store(session: Session) -> Iterator[DoctorFinding]:
    from holdfast.cli.place import NoStore  # noqa: PLC0415
    from holdfast.store.inspection import Inspection  # noqa: PLC0415

    try:
        stats = session.hf.stats()
    except NoStore:
        yield DoctorFinding("store", "note", "none here yet", "the first checkpoint makes one")
        return
    runs = f"{stats.runs:,} run{'' if stats.runs == 1 else 's'}"
    yield DoctorFinding("store", "ok", f"{stats.url}: {runs}, {stats.checkpoints:,} checkpoints, {stats.engine}")
    if stats.checkpoints > _CHECKED_WHOLE:
        yield DoctorFinding(
            "store", "note", "too large to be checked here", "`holdfast verify` checks every record and byte"
        )
        problems = []
    else:
        problems = list(Inspection(session.hf.store).check())
    for line in problems[:5]:
        yield DoctorFinding(
            "store", "bad", line, "`holdfast verify` tells what is damaged, `holdfast repair` repairs what it can"
        )
    if session.hf.store.traits.tenants:
        medium: Any = session.hf.store.medium
        problem = medium.role_problem()
        if problem is not None:
            yield DoctorFinding(
                "role", "note", problem, "`holdfast store role NAME` binds one that is for this tenant alone"
            )
    if stats.newest_at is not None and stats.newest_at > session.now() + timedelta(minutes=5):
        when = age(stats.newest_at, session.now())
        yield DoctorFinding(
            "clock",
            "note",
            f"the newest checkpoint is from {when}",
            "order is by number, so nothing is lost; set the clock",
        )


def _recoveries(session: Session) -> Iterator[DoctorFinding]:
    """Look for what a killed restore or recovery left: files and runs do not go together until it is ended."""
    from holdfast.cli.place import NoStore  # noqa: PLC0415
    from holdfast.recovery.files import is_interrupted  # noqa: PLC0415
    from holdfast.recovery.finish import unfinished_runs  # noqa: PLC0415

    try:
        runs = unfinished_runs(session.hf, place=session.root, limit=_LOOKED_AT)
    except NoStore:
        runs = {}
    for run, place in runs.items():
        if is_moving(session.hf.store, run):
            continue
        where = f" --workspace {shlex.quote(place)}" if place and place != os.path.realpath(session.root) else ""
        advice = f"`holdfast resume {run}{where}` finishes or undoes it"
        yield DoctorFinding("recovery", "bad", f"a recovery of {run} was interrupted", advice)
    if not runs and is_interrupted(str(session.root)):
        advice = "the next `holdfast restore` or `holdfast resume` of its run finishes or undoes it"
        yield DoctorFinding("recovery", "bad", f"a restore of files in {session.root} was interrupted", advice)


def _permissions(session: Session) -> Iterator[DoctorFinding]:
    from holdfast.cli.place import local_path  # noqa: PLC0415

    file = local_path(session.place.url)
    if file is None:
        return  # another machine's concern
    if file.exists() and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(file.stat().st_mode)
        yield DoctorFinding("permissions", "note", f"{file} is open to others ({mode:04o})", f"chmod go= '{file}'")
        return
    folder = next(one for one in file.parents if one.exists())
    if os.access(folder, os.W_OK):
        yield DoctorFinding("permissions", "ok", "the store is for its owner only, and its folder can be written")
    else:
        advice = "choose another place with --store, or change its owner"
        yield DoctorFinding("permissions", "bad", f"{folder} cannot be written", advice)


def _space(session: Session) -> Iterator[DoctorFinding]:
    free = shutil.disk_usage(session.place.project.root).free
    grade: Grade = "ok" if free >= _LITTLE_SPACE else "note" if free >= _NO_SPACE else "bad"
    yield DoctorFinding(
        "disk", grade, f"{size(free)} free", "" if grade == "ok" else "free some space, or `holdfast prune`"
    )


def _clock(session: Session) -> Iterator[DoctorFinding]:
    now = session.now()
    if now < _EARLIEST:
        yield DoctorFinding("clock", "bad", f"it says {now:%Y-%m-%d}", "set it: ages and retention go by it")
    else:
        yield DoctorFinding("clock", "ok", f"{now:%Y-%m-%d %H:%M} UTC")


CHECKS = (_program, _sqlite, _git, _extras, _settings, _store, _recoveries, _permissions, _space, _clock)
