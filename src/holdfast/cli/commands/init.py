"""Begin a project here: write `holdfast.yaml` with comments, and keep the store out of git; nothing is overwritten."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.output import Paint
from holdfast.encode.documents import read_regular
from holdfast.errors import DocumentInvalid, UsageError
from holdfast.store.open import FOLDER

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session

FILE = "holdfast.yaml"
SETTINGS = """\
# Settings of Holdfast. All are optional: what stands here behind a # is the default.
# Arguments in code win over this file, and unknown names are refused.

# location: .holdfast              # the store: a path, or a URL such as postgresql://host/database
# interval_s: 300                  # seconds between regular checkpoints of an open run; null is never
# on_checkpoint_failure: continue  # continue (with a warning), pause (until one succeeds) or stop

# retention:
#   live: 50                       # checkpoints in the daily list; the oldest beyond are archived
#   age_days: 30                   # older ones are deleted; pinned ones stay
#   triggers: {manual: -1}         # how many of a trigger stay; -1 is all

# redaction:
#   more_keys: []                  # values under these keys are kept out, beside the usual ones
#   patterns: {}                   # shapes of secrets, e.g. {badge: "BADGE-[0-9]{6}"}

# encryption:
#   key_file: null                 # `holdfast store key new FILE`, then `holdfast trust`; for a new store
"""

_MAX_BYTES = 1 << 20


def configure(parser: CommandParser) -> None:
    """Say what the command takes: nothing of its own."""


def execute(arguments: Namespace, session: Session) -> int:  # noqa: ARG001 - takes nothing
    out, here = session.out, Path.cwd()
    written: list[str] = []
    has_settings = _has_settings(here)
    if not has_settings:
        with (here / FILE).open("x") as file:
            file.write(SETTINGS)
        written.append(FILE)
    repository = _repository(here)
    if repository is not None and _ignore_store(here):
        written.append(".gitignore")
    out.document({"directory": str(here), "written": written, "git": repository is not None})
    for name in written:
        out.line(Paint("written ", "green"), name)
    if not written:
        out.line("Nothing to do: this project is begun already.")
    out.note(
        "Next: `holdfast checkpoint RUN --workspace` takes a first checkpoint, `holdfast doctor` checks the machine."
    )
    return 0


def _has_settings(folder: Path) -> bool:
    from holdfast.settings.file import find_settings, project_wishes  # noqa: PLC0415

    found = find_settings(folder)
    if found is not None:
        project_wishes(found)  # whether it can be read at all
    return found is not None


def _repository(folder: Path) -> Path | None:
    """Return the folder of the git repository that this one is in."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def _ignore_store(folder: Path) -> bool:
    """Add the store's folder to .gitignore unless it is there; tell whether anything was written."""
    file = folder / ".gitignore"
    try:
        text = os.fsdecode(read_regular(file, limit=_MAX_BYTES)) if os.path.lexists(file) else ""
    except DocumentInvalid as error:  # a repository may have a link there, which would be written through
        raise UsageError(f"{file} {error.detail}: put that right, or add {FOLDER}/ to it yourself") from None
    if any(line.strip().strip("/") == FOLDER for line in text.splitlines()):
        return False
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, 0o666), "ab") as stream:
        stream.write(f"{'' if not text or text.endswith(chr(10)) else chr(10)}{FOLDER}/\n".encode())
    return True
