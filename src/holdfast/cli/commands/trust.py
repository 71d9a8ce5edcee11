"""Allow what this project's settings ask for and a repository may not say by itself.

A holdfast.yaml that came with a cloned repository could send state elsewhere, switch redaction off or name keys. What
it asks for is listed; it is followed only after this command, in this folder, and for these very values.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.output import Paint
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--show", action="store_true", help="only list what the settings ask for")
    choice.add_argument("--remove", action="store_true", help="no longer trust the settings of this project")


def execute(arguments: Namespace, session: Session) -> int:
    """Trust, show or forget."""
    from holdfast.cli.place import find_project  # noqa: PLC0415 - without the store, whose settings may not be usable
    from holdfast.settings.file import project_wishes  # noqa: PLC0415
    from holdfast.settings.trust import distrust, is_trusted, trust  # noqa: PLC0415

    out = session.out
    file = find_project(Path.cwd()).settings_file
    if file is None:
        raise NotFound("settings file", str(Path.cwd()), "`holdfast init` writes one")
    if arguments.remove:
        distrust(file)
        out.document({"file": str(file), "wishes": [], "trusted": False})
        out.note(f"{file} is not trusted now.")
        return 0
    wishes = project_wishes(file)
    if not arguments.show and wishes:
        trust(wishes, file)
    trusted = not wishes or is_trusted(wishes, file)
    out.document({"file": str(file), "wishes": [str(wish) for wish in wishes], "trusted": trusted})
    for wish in wishes:
        out.line(Paint("trusted " if trusted else "refused ", "green" if trusted else "yellow"), str(wish))
    if not wishes:
        out.note(f"{file} asks for nothing that needs trust.")
    elif not trusted:
        out.note("Allow it with `holdfast trust`, or remove these lines.")
    return 0
