"""The one place that starts git, without letting it near a repository's own settings.

Git is given a directory that we made: our configuration, HEAD and refs as we read them, and the objects by reference.
Nothing that a repository can ship (configuration, hooks, filters, attributes, monitors, includes) is there to obey.
A capture runs it only to pack a history, a restore only to index that pack in a repository that it makes itself, a
patch only to make trees and commits. Refs, HEAD and indexes are read and written natively.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from contextlib import contextmanager
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from holdfast.home import in_home
from holdfast.workspace.descriptors import open_below, read_open, stat_below
from holdfast.workspace.gitdir import GitDirectory, GitFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "GitFailed",
    "environment",
    "finish",
    "is_installed",
    "read_user_file",
    "run",
    "shadow",
    "start",
    "user_ignore_file",
    "users_environment",
    "write_pack",
]

_PASSED = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SYSTEMROOT")  # where git and the user's own settings are
_TIMEOUT_S = 120
_PACK_TIMEOUT_S = 600
_STEP = 256 * 1024
_CONFIG = """[core]
\trepositoryformatversion = 1
\tbare = true
\tcommitGraph = false
\tmultiPackIndex = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[protocol]
\tallow = never
"""
_SAFE = (
    "--no-optional-locks", "--no-pager",
    *(word for setting in (
        "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null", "gc.auto=0",
        "maintenance.auto=false", "submodule.recurse=false", "fetch.recurseSubmodules=false", "protocol.allow=never",
    ) for word in ("-c", setting)),
)  # fmt: skip
_FAN_OUT = re.compile("[0-9a-f]{2}|pack|info")
_BORROWED = (b"objects/info/alternates", b"objects/info/http-alternates")
_OBJECTS = re.compile(rb"(?:[0-9a-f]{40}(?:[0-9a-f]{24})?\n)*")


def is_installed() -> bool:
    """Return whether there is a git to run."""
    return shutil.which("git") is not None


def start(arguments: Sequence[str], cwd: str, settings: Mapping[str, str], **streams: Any) -> subprocess.Popen[bytes]:
    """Start git: no hook, monitor, attribute, pager, submodule or protocol but what the environment allows."""
    return subprocess.Popen(["git", *_SAFE, *arguments], cwd=cwd, env=settings, **streams)  # noqa: S603, S607 - no shell


@contextmanager
def shadow(directory: GitDirectory) -> Iterator[Callable[..., bytes]]:
    """Give a way to call git on a repository's objects, in a git directory of our own; new objects go to the old."""
    with TemporaryDirectory(prefix="holdfast-git-") as place:
        _fill(place, directory)
        settings = environment(place) | {"GIT_OBJECT_DIRECTORY": _objects(directory)}

        def ask(*arguments: str, given: bytes = b"", variables: Mapping[str, str] | None = None) -> bytes:
            return _ask(place, arguments, settings | dict(variables or {}), given)

        yield ask


def run(worktree: str, *arguments: str) -> bytes:
    """Return what git prints about a work tree's history; GitFailed if it cannot be asked, fails or takes too long.

    Only for commands that read refs and commits: there is neither an index nor a work tree where it runs.
    """
    try:
        with GitDirectory.open(worktree) as directory, shadow(directory) as ask:
            return ask(*arguments)
    except OSError as error:
        raise GitFailed(f"git could not be run: {os.strerror(error.errno or 0)}") from error


def write_pack(directory: GitDirectory, wanted: bytes, file: IO[bytes], limit: int) -> bool:
    """Write a pack of the objects that these lines name, as for `rev-list`; False if it is larger than the limit."""
    line = ("pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset")
    try:
        with TemporaryDirectory(prefix="holdfast-git-") as place, TemporaryFile() as said:
            _fill(place, directory)
            settings = environment(place) | {"GIT_OBJECT_DIRECTORY": _objects(directory)}
            with TemporaryFile() as asked:
                asked.write(wanted)
                asked.seek(0)
                child = start(line, place, settings, stdin=asked, stdout=subprocess.PIPE, stderr=said)
            with child:
                assert child.stdout is not None
                size, until = 0, time.monotonic() + _PACK_TIMEOUT_S
                while data := child.stdout.read(_STEP):
                    size += len(data)
                    if size > limit or time.monotonic() > until:
                        child.kill()
                        break
                    file.write(data)
            if size > limit:
                return False
            file.flush()
            if child.returncode:
                said.seek(0)
                first = said.read(4096).decode("utf-8", "replace").strip().partition("\n")[0]
                raise GitFailed(first or f"git pack-objects ended with {child.returncode}")
            return True
    except FileNotFoundError as error:
        raise GitFailed("git is not installed") from error
    except OSError as error:
        raise GitFailed(f"git could not be run: {os.strerror(error.errno or 0)}") from error


def user_ignore_file() -> str:
    """Return where the user's own ignore rules are: as their own git settings say, never as a repository says."""
    settings = environment()
    del settings["GIT_CONFIG_GLOBAL"]
    try:
        named = _ask("/", ("config", "--global", "--type=path", "--get", "core.excludesFile"), settings)
        return os.fsdecode(named.rstrip(b"\n"))
    except GitFailed:
        return str(in_home(".config/git/ignore") or os.devnull)


def read_user_file(place: str, limit: int) -> bytes:
    """Return the bytes of a file that the user's own settings name, nothing if it cannot be read."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    try:
        return read_open(handle, limit) or b""
    except OSError:
        return b""
    finally:
        os.close(handle)


def environment(directory: str = os.devnull) -> dict[str, str]:
    """Return an environment in which git obeys no settings; by default it sees no repository either."""
    return {name: os.environ[name] for name in _PASSED if name in os.environ} | {
        "LC_ALL": "C",
        "GIT_DIR": directory,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def users_environment() -> dict[str, str]:
    """Return the user's own environment and git settings, as fetching with their keys and proxies needs them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_TERMINAL_PROMPT": "0"}


class GitDone(NamedTuple):
    """How a call of git ended."""

    code: int
    out: bytes
    said: str


def finish(
    arguments: Sequence[str], cwd: str, settings: Mapping[str, str], given: bytes = b"", timeout_s: float = _TIMEOUT_S
) -> GitDone:
    """Run git to its end; GitFailed if it cannot be run or takes too long."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        with start(arguments, cwd, settings, **pipes) as child:
            try:
                out, said = child.communicate(given, timeout=timeout_s)
            except BaseException:
                child.kill()
                raise
    except FileNotFoundError as error:
        raise GitFailed("git is not installed") from error
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise GitFailed(f"git could not be run: {error}") from error
    return GitDone(child.returncode, out, said.decode("utf-8", "replace").strip().partition("\n")[0])


def _ask(cwd: str, arguments: tuple[str, ...], settings: Mapping[str, str], given: bytes = b"") -> bytes:
    done = finish(arguments, cwd, settings, given)
    if done.code:
        raise GitFailed(done.said or f"git {arguments[0]} ended with {done.code}")
    return done.out


def _fill(place: str, directory: GitDirectory) -> None:
    """Make a git directory of our own that knows a repository's HEAD and refs."""
    extension = "[extensions]\n\tobjectformat = sha256\n" if directory.facts.sha256 else ""
    target = directory.head_target()
    head = f"{directory.resolve(b'HEAD')}\n".encode() if target is None else b"ref: " + target + b"\n"
    refs = sorted(directory.refs().items())
    packed = b"".join(value.encode() + b" " + name + b"\n" for name, value in refs)
    shallow = directory.read(b"shallow", 16 * 1024 * 1024)
    contents = {"config": (_CONFIG + extension).encode(), "HEAD": head, "packed-refs": packed}
    if shallow and _OBJECTS.fullmatch(shallow):
        contents["shallow"] = shallow
    for name, content in contents.items():
        with open(os.path.join(place, name), "xb") as file:  # noqa: PTH118, PTH123
            file.write(content)
    for name in ("refs", "objects"):
        os.mkdir(os.path.join(place, name))  # noqa: PTH102, PTH118


def _objects(directory: GitDirectory) -> str:
    """Return where a repository's objects are; GitFailed unless they all lie there, in plain files."""
    if any(stat_below(directory.common, name) is not None for name in _BORROWED):
        raise GitFailed("it borrows objects from another repository (objects/info/alternates), which is not followed")
    handle = open_below(directory.common, b"objects")
    try:
        with os.scandir(handle) as items:
            names = [item.name for item in items if _FAN_OUT.fullmatch(item.name)]
        for name in names:
            inside = open_below(handle, os.fsencode(name))
            try:
                with os.scandir(inside) as items:
                    if not all(_is_plain(item) for item in items):
                        raise GitFailed(f"objects/{name} holds links or special files, which are not followed")
            finally:
                os.close(inside)
        place = os.path.join(directory.place, "objects")  # noqa: PTH118
        if not os.path.samestat(os.lstat(place), os.fstat(handle)):
            raise GitFailed("its .git was replaced while it was read")
    finally:
        os.close(handle)
    return place


def _is_plain(item: os.DirEntry[str]) -> bool:
    return item.is_file(follow_symlinks=False) or item.is_dir(follow_symlinks=False)
