"""Runs git to read, never to write: no hooks, monitors, filters, locks, network or inherited settings of a caller."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUIET = (
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    f"core.hooksPath={os.devnull}",
    "core.pager=cat",
    "core.sshCommand=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "diff.external=",
    "credential.helper=",
)
_PASSED = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SYSTEMROOT")  # where git is, and the user's ignore rules
_TIMEOUT_S = 120


class GitFailed(Exception):
    """Git is missing or refused; the argument is what it said."""


def is_installed() -> bool:
    """Return whether there is a git to run."""
    return shutil.which("git") is not None


def scrubbed(directory: str) -> dict[str, str]:
    """Return an environment in which git sees no variable of ours and looks for no repository above this directory."""
    return {name: os.environ[name] for name in _PASSED if name in os.environ} | {
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CEILING_DIRECTORIES": os.path.dirname(directory),  # noqa: PTH120
    }


def run(
    directory: str,
    *arguments: str,
    settings: Sequence[str] = (),
    data: bytes | None = None,
    environment: dict[str, str] | None = None,
) -> bytes:
    """Return what git prints; GitFailed if it is missing, fails or takes too long."""
    command = ["git", "--no-optional-locks", "--no-pager", "--literal-pathspecs"]
    for setting in (*_QUIET, *settings):
        command += ["-c", setting]
    try:
        done = subprocess.run(  # noqa: S603 - fixed command, no shell
            [*command, *arguments],
            cwd=directory,
            env=scrubbed(directory) | (environment or {}),
            input=data if data is not None else b"",
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise GitFailed("git is not installed") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitFailed(f"git could not be run: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitFailed(said[0] if said else f"git {arguments[0]} ended with {done.returncode}")
    return done.stdout


def without_filters(directory: str) -> list[str]:
    """Return the settings that switch every configured content filter off: they are commands, and named by the tree."""
    try:
        listed = run(directory, "config", "--null", "--name-only", "--get-regexp", r"^filter\..*")
    except GitFailed:
        return []  # no filter is configured
    settings: list[str] = []
    drivers = {key.split(".", 1)[1].rpartition(".")[0] for key in listed.decode("utf-8", "replace").split("\0") if key}
    for driver in sorted(drivers):
        if "=" in driver or "\n" in driver:
            raise GitFailed(f"the content filter {driver!r} cannot be switched off")
        settings += [f"filter.{driver}.{part}" for part in ("clean=", "smudge=", "process=", "required=false")]
    return settings
