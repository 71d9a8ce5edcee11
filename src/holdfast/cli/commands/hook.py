"""Take a checkpoint at an event of a coding assistant, which is read from standard input; the answer is JSON.

An assistant calls it by itself once `holdfast hook install NAME` has added it to the assistant's own configuration
(claude, codex, gemini, cursor or opencode). It never blocks the assistant: what goes wrong is told in its answer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.hook.dialects import DIALECTS
from holdfast.hook.event import MAX_BYTES, EventInvalid, HookEvent, read_event
from holdfast.hook.glance import needs_nothing

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.hook.session import HookPlace
    from holdfast.settings.values import Settings

_STORE = "HOLDFAST_STORE"


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "--from", dest="assistant", metavar="NAME", choices=tuple(DIALECTS), help="the assistant; else its event tells"
    )
    parser.add_argument("what", nargs="?", choices=("install", "status"), help="add it to an assistant, or look")
    parser.add_argument("name", nargs="?", metavar="NAME", choices=tuple(DIALECTS), help="the assistant to add it to")
    parser.add_argument("--user", action="store_true", help="for all projects: in the home directory's settings")
    parser.add_argument("--command", metavar="LINE", help="how the assistant calls it (this program, `hook`)")


def execute(arguments: Namespace, session: Session) -> int:
    """Handle an event, install or look."""
    if arguments.what is None:
        return answer(_read_input(), arguments.assistant, session.options.store)
    from holdfast.cli.hooks import install, status  # noqa: PLC0415 - an event does without

    return install(arguments, session) if arguments.what == "install" else status(session)


def answered(words: list[str]) -> int | None:
    """Handle an event without loading the command line; None if the words ask for something else."""
    named = words[1:] == [] or (len(words) == 3 and words[1] == "--from" and words[2] in DIALECTS)  # noqa: PLR2004
    return answer(_read_input(), words[2] if words[2:] else None, None) if named else None


def answer(data: bytes, assistant: str | None, store: str | None) -> int:
    """Handle one event, and write the answer; the assistant is never stopped."""
    event: HookEvent | None = None
    reply: dict[str, Any] = {}
    try:
        event = read_event(data, assistant)
        named = store or os.environ.get(_STORE) or None
        if not needs_nothing(event, named):
            from holdfast.hook.session import handle  # noqa: PLC0415 - nothing changed at most events

            reply = handle(event, place_of(event.cwd, store).for_hooks()).document(event)
    except EventInvalid as error:
        reply = {"systemMessage": f"Holdfast: {error}; nothing was captured."}
    except Exception as error:  # noqa: BLE001 - see above
        told = f"Holdfast: nothing was captured ({type(error).__name__}: {str(error)[:300]})."
        reply = {"systemMessage" if event is None else str(event.dialect.message[0]): told}
    sys.stdout.write(json.dumps(reply) + "\n")
    return 0


class ProjectPlace(NamedTuple):
    """The project that a directory is in: its folder, its store, and what names the store from outside."""

    root: Path
    url: str
    settings: Settings | None
    named_store: str | None

    def for_hooks(self) -> HookPlace:
        """Return it as hooks use it."""
        from pathlib import Path  # noqa: PLC0415 - a glance does without

        from holdfast.cli.place import local_path  # noqa: PLC0415
        from holdfast.engine import open as open_holdfast  # noqa: PLC0415
        from holdfast.hook.session import HookPlace  # noqa: PLC0415
        from holdfast.settings.values import Settings  # noqa: PLC0415
        from holdfast.workspace.git import user_ignore_file  # noqa: PLC0415

        file = local_path(self.url)
        watched: list[str] = []
        if file is not None and file.suffix == ".db":
            watched = [str(file), f"{file}-wal", user_ignore_file()]
            watched += [str(Path.home() / name) for name in (".gitconfig", ".config/git/config")]
        settings = self.settings or Settings()
        return HookPlace(
            self.root, lambda: open_holdfast(self.url, settings=settings, reveal=False), self.named_store, watched
        )


def place_of(directory: str, store: str | None) -> ProjectPlace:
    """Return the project that a directory is in; one that is not begun is its work tree, else the directory itself."""
    from pathlib import Path  # noqa: PLC0415 - a glance does without

    from holdfast.cli.place import find_place  # noqa: PLC0415

    cwd = Path(directory or ".").absolute()
    place = find_place(store, cwd, os.environ)
    root = place.project.root if place.project.is_begun else _top(cwd)
    url = place.url if place.project.is_begun or place.is_named else str(root / ".holdfast")
    return ProjectPlace(root, url, place.settings, store or os.environ.get(_STORE) or None)


def _top(cwd: Path) -> Path:
    """Return the work tree that a directory is in, else the directory."""
    return next((one for one in (cwd, *cwd.parents) if (one / ".git").exists()), cwd)


def _read_input() -> bytes:
    return b"" if sys.stdin is None else sys.stdin.buffer.read(MAX_BYTES + 1)
