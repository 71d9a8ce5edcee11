"""The git directory of one work tree, read and written without git.

Nothing in a repository is trusted: no command of it is run, its configuration is not obeyed, and no link, pipe or
path in it leads out of it. A `.git` file is followed only to a directory that names this work tree in return, which a
repository that was cloned or unpacked cannot make another one do.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat as modes
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.lazy import pattern
from holdfast.workspace.contents import KEY
from holdfast.workspace.descriptors import (
    OPEN_DIRECTORY,
    open_below,
    open_parent_below,
    read_below,
    stat_below,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

_MAX_SMALL = 64 * 1024
_MAX_CONFIG = 256 * 1024
_MAX_REFS = 16 * 1024 * 1024  # 200,000 refs
_MAX_LISTED = 200_000
_MAX_LEVELS = 32
_SYMBOLIC = 5
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_MARK = b"held by holdfast\n"
_LEFTOVER = pattern(rb"holdfast-[0-9a-f]{16}\.lock")
_OBJECT = pattern(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PER_WORKTREE = (b"refs/bisect/", b"refs/worktree/", b"refs/rewritten/")
_SECTION = pattern(rb'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\](.*)', re.DOTALL)


class GitFailed(Exception):
    """A repository cannot be read or written; the argument says why."""


class GitFacts(NamedTuple):
    """All that is taken from a repository's own configuration: what its bytes mean, never what to do."""

    sha256: bool = False
    modes_count: bool = True
    worktree: bytes | None = None
    settings: tuple[tuple[bytes, bytes], ...] = ()
    """Every line of it, as `section.name` or `section.sub.name` and its value; never obeyed as a whole."""


class GitDirectory:
    """An open git directory; `own` belongs to the work tree, `common` is shared with others (often the same)."""

    def __init__(self, worktree: int, own: int, common: int) -> None:
        self.worktree = worktree
        self.own = own
        self.common = common
        self.place = ""  # the path of the common directory, where its path was asked for
        self.facts = GitFacts()
        self._packed: bytes | None = None

    @classmethod
    def open(cls, root: str, path: bytes = b"") -> Self:
        """Open the git directory of the work tree at `path` below `root`; GitFailed if there is none to be trusted."""
        try:
            handle = os.open(root, OPEN_DIRECTORY)
        except OSError as error:
            raise GitFailed(f"its directory cannot be opened: {os.strerror(error.errno or 0)}") from error
        try:
            opened = cls.open_in(handle, path)
        finally:
            os.close(handle)
        opened.place = _place(os.path.join(os.fsencode(root), path), opened)  # noqa: PTH118
        return opened

    @classmethod
    def open_in(cls, directory: int, path: bytes) -> Self:
        """Open the git directory of the work tree at `path` below an open directory."""
        handles: list[int] = []
        try:
            handles.append(open_below(directory, path))
            handles.append(_own(handles[0]))
            handles.append(_common(handles[1]))
            opened = cls(*handles)
            opened.facts = _facts(opened.common)
        except OSError as error:
            _close(handles)
            raise GitFailed(f"its .git cannot be read: {os.strerror(error.errno or 0)}") from error
        except BaseException:
            _close(handles)
            raise
        return opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _close([self.worktree, self.own, self.common])

    def read(self, name: bytes, limit: int = _MAX_SMALL) -> bytes | None:
        """Return a small file of this work tree's own directory; None if there is none."""
        return read_below(self.own, name, limit)

    def read_whole(self, name: bytes, limit: int, *, shared: bool = False) -> bytes | None:
        """Return all of a file, None if there is none; GitFailed, before it is read, if it is larger than `limit`."""
        directory = self.common if shared else self.own
        status = stat_below(directory, name)
        if status is not None and status.st_size > limit:
            raise GitFailed(f"its {os.fsdecode(name)} has {status.st_size:,} bytes; at most {limit:,} are read")
        data = read_below(directory, name, limit + 1)
        if data is not None and len(data) > limit:
            raise GitFailed(f"its {os.fsdecode(name)} grew beyond {limit:,} bytes, the most that are read")
        return data

    def stat(self, name: bytes) -> os.stat_result | None:
        """Return the status of a name in this work tree's own directory, None if there is none."""
        return stat_below(self.own, name)

    def keys(self, names: tuple[bytes, ...]) -> tuple[tuple[int, ...] | None, ...]:
        """Return what changes when one of these files, or the branch that HEAD names, is written."""
        shared = (b"packed-refs", b"reftable/tables.list", b"info/exclude")
        found = [*(self.stat(name) for name in names), *(stat_below(self.common, name) for name in shared)]
        target = self.head_target()
        if target is not None:
            found.append(stat_below(self._holder(target), target))
        return tuple(None if status is None else KEY(status) for status in found)

    def head_target(self) -> bytes | None:
        """Return the ref that HEAD names, None if it names a commit; GitFailed if it is neither."""
        content = self.read(b"HEAD")
        if content is None:
            raise GitFailed("its HEAD cannot be read")
        target = _symbolic(content)
        if target is None and not _OBJECT.fullmatch(content.rstrip(b"\n")):
            raise GitFailed("its HEAD names neither a branch nor a commit")
        if target == b"refs/heads/.invalid":
            raise GitFailed("it keeps its refs as a reftable, which is not read")
        return target

    def resolve(self, name: bytes) -> str | None:
        """Return the object that HEAD or a ref names, None if there is no such ref."""
        for _ in range(_SYMBOLIC):
            if name != b"HEAD" and not is_ref(name):
                return None
            content = read_below(self._holder(name), name, _MAX_SMALL)
            if content is None:
                return self._from_packed(name)
            target = _symbolic(content)
            if target is None:
                value = content.split(b"\n")[0].strip()
                return value.decode() if _OBJECT.fullmatch(value) else None
            name = target
        return None

    def refs(self) -> dict[bytes, str]:
        """Return every ref and the object it names, HEAD not among them."""
        found = {name: value.decode() for value, name in _packed_lines(self._packed_refs())}
        is_linked = not os.path.samestat(os.fstat(self.own), os.fstat(self.common))
        own = [name for name in _files_below(self.own, b"refs") if name.startswith(_PER_WORKTREE)] if is_linked else []
        for name in (*_files_below(self.common, b"refs"), *own):
            value = self.resolve(name)
            if value is not None:
                found[name] = value
        return found

    def can_make(self, ref: bytes) -> bool:
        """Tell whether a ref could be new: no other has its name, lies below it or is a directory above it."""
        below = ref + b"/"
        return is_ref(ref) and not any(below.startswith(name + b"/") or name.startswith(below) for name in self.refs())

    def other_heads(self) -> set[bytes]:
        """Return the refs that the HEAD of another work tree of this repository names."""
        heads: list[bytes | None] = []
        if not os.path.samestat(os.fstat(self.own), os.fstat(self.common)):
            heads.append(read_below(self.common, b"HEAD", _MAX_SMALL))
        try:
            handle = open_below(self.common, b"worktrees")
        except OSError:
            handle = None
        if handle is not None:
            try:
                for name in map(os.fsencode, os.listdir(handle)):  # noqa: PTH208 - a descriptor
                    status = stat_below(handle, name)
                    if status is not None and not os.path.samestat(status, os.fstat(self.own)):
                        heads.append(read_below(handle, name + b"/HEAD", _MAX_SMALL))
            finally:
                os.close(handle)
        return {target for head in heads if head is not None and (target := _symbolic(head)) is not None}

    def write(self, name: bytes, content: bytes, *, shared: bool = False, old: str | None = None) -> None:
        """Replace a file as git does: `name.lock` is made, written, synced and renamed; Conflict if it is there.

        With `old` it is a ref that must still name this object ("" for none) once the lock is held.
        """
        with self.locked(name, shared=shared) as put:
            if old is not None and (self.resolve(name) or "") != old:
                raise GitFailed(f"{os.fsdecode(name)} was moved by another git")
            put(content)

    @contextmanager
    def locked(self, name: bytes, *, shared: bool = False) -> Iterator[Callable[..., None]]:
        """Hold the lock file that git uses; what is given replaces the file, which stays as it is if not called.

        A second argument names another file beside it, which only those who hold this lock write. The lock says that it
        is ours, and its process holds it open: one that a killed process of ours left is removed by the next that needs
        it. One that git made never is.
        """
        directory = self.common if shared else self.own
        make_above(directory, name)
        parent, leaf = open_parent_below(directory, name)
        new = b"holdfast-" + secrets.token_hex(8).encode()
        try:
            with _held(self.own, new + b".lock", parent, leaf + b".lock"):

                def put(content: bytes, beside: bytes = leaf) -> None:
                    handle = os.open(new, _CREATE, 0o666, dir_fd=self.own)
                    try:
                        write_all(handle, content)
                        os.fsync(handle)
                    finally:
                        os.close(handle)
                    os.rename(new, beside, src_dir_fd=self.own, dst_dir_fd=parent)
                    os.fsync(parent)

                yield put
        finally:
            os.close(parent)

    def remove(self, name: bytes) -> None:
        """Remove a file of this work tree's own directory, if it is there; a power loss does not undo that."""
        try:
            parent, leaf = open_parent_below(self.own, name)
        except FileNotFoundError:
            return
        try:
            os.unlink(leaf, dir_fd=parent)
            os.fsync(parent)
        except FileNotFoundError:
            return
        finally:
            os.close(parent)

    def names(self, path: bytes) -> list[bytes]:
        """Return the regular files right in a directory of this work tree's own; none if there is no such directory."""
        try:
            handle = open_below(self.own, path)
        except OSError:
            return []
        try:
            with os.scandir(handle) as items:
                return sorted(os.fsencode(item.name) for item in items if item.is_file(follow_symlinks=False))
        finally:
            os.close(handle)

    def is_left(self) -> bool:
        """Tell whether a file of ours is in this work tree's own directory: of a process at work, or killed."""
        return any(name.startswith("holdfast-") for name in os.listdir(self.own))  # noqa: PTH208 - a descriptor

    def append(self, name: bytes, line: bytes, *, shared: bool = False) -> None:
        """Add a line to a log, if there is one."""
        try:
            parent, leaf = open_parent_below(self.common if shared else self.own, name)
        except OSError:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            handle = os.open(leaf, flags, dir_fd=parent)
        except OSError:
            return
        finally:
            os.close(parent)
        try:
            if modes.S_ISREG(os.fstat(handle).st_mode):
                write_all(handle, line)
        finally:
            os.close(handle)

    def _holder(self, name: bytes) -> int:
        """Return the directory that a ref lies in."""
        return self.own if name == b"HEAD" or name.startswith(_PER_WORKTREE) else self.common

    def _packed_refs(self) -> bytes:
        if self._packed is None:
            self._packed = self.read_whole(b"packed-refs", _MAX_REFS, shared=True) or b""
        return self._packed

    def _from_packed(self, name: bytes) -> str | None:
        packed = b"\n" + self._packed_refs()
        end = packed.find(b" " + name + b"\n")
        if end < 0:
            return None
        value = packed[packed.rfind(b"\n", 0, end) + 1 : end]
        return value.decode() if _OBJECT.fullmatch(value) else None


@contextmanager
def _held(own: int, made: bytes, parent: int, lock: bytes) -> Iterator[None]:
    """Make a lock file of ours in one step, so that nobody sees one without its mark, and remove it at the end."""
    _remove_leftovers(own)
    handle = os.open(made, _CREATE, 0o666, dir_fd=own)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        write_all(handle, _LOCK_MARK)
        try:
            if stat_below(parent, lock) is not None:
                _remove_left(parent, lock)
            _place_lock(own, made, parent, lock)
        except FileExistsError as error:
            raise GitFailed(f"another git is at work ({os.fsdecode(lock)} is there)") from error
        try:
            yield
        finally:
            os.unlink(lock, dir_fd=parent)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(made, dir_fd=own)
        os.close(handle)


def _place_lock(own: int, made: bytes, parent: int, lock: bytes) -> None:
    try:
        os.link(made, lock, src_dir_fd=own, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(lock, _CREATE, 0o666, dir_fd=parent))


def _remove_left(parent: int, lock: bytes, marks: tuple[bytes, ...] = (_LOCK_MARK,)) -> bool:
    """Remove a lock that a killed process of ours left; False if it is git's, or its process is at work."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.read(handle, len(_LOCK_MARK) + 1) in marks
        status = stat_below(parent, lock)
        if not is_ours or status is None or not os.path.samestat(status, os.fstat(handle)):
            return False
        os.unlink(lock, dir_fd=parent)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _remove_leftovers(own: int) -> None:
    """Remove what killed processes left beside their locks; what belongs to one at work stays."""
    for name in map(os.fsencode, os.listdir(own)):
        # An empty one is of a process that was killed before it wrote its mark.
        if _LEFTOVER.fullmatch(name) and _remove_left(own, name, (_LOCK_MARK, b"")):
            with suppress(FileNotFoundError):
                os.unlink(name.removesuffix(b".lock"), dir_fd=own)


def is_ref(name: bytes) -> bool:
    """Return whether a name below refs/ is one that git would make: no dots that lead away, no control character."""
    parts = name.split(b"/")
    return (
        len(parts) > 1
        and parts[0] == b"refs"
        and len(name) <= 4096  # noqa: PLR2004
        and all(part and not part.startswith(b".") and not part.endswith(b".lock") for part in parts)
        and b".." not in name
        and not re.search(rb"[\x00-\x20\x7f~^:?*\[\\]", name)
    )


def _place(worktree: bytes, opened: GitDirectory) -> str:
    """Return the path of an open directory that is shared."""
    line = read_below(opened.worktree, b".git", _MAX_SMALL)
    own = os.path.join(worktree, b".git" if line is None else line[8:].rstrip(b"\r\n"))  # noqa: PTH118
    is_own = os.path.samestat(os.fstat(opened.own), os.fstat(opened.common))
    return os.fsdecode(own if is_own else os.path.join(own, b"../.."))  # noqa: PTH118


def _own(worktree: int) -> int:
    """Open the git directory of a work tree, also one that a `.git` file names."""
    status = os.lstat(b".git", dir_fd=worktree)
    if modes.S_ISLNK(status.st_mode):
        raise GitFailed("its .git is a link, which is not followed")
    if modes.S_ISDIR(status.st_mode):
        return os.open(b".git", OPEN_DIRECTORY, dir_fd=worktree)
    line = read_below(worktree, b".git", _MAX_SMALL) or b""
    named = line[8:].rstrip(b"\r\n")
    if not line.startswith(b"gitdir: ") or b"\0" in named:
        raise GitFailed("its .git is neither a directory nor names one")
    above = named.split(b"/")[:-1]
    if b"worktrees" not in above[-1:] and b"modules" not in above:
        raise GitFailed("its .git names a directory that is neither of a linked work tree nor of a submodule")
    own = os.open(named, OPEN_DIRECTORY, dir_fd=worktree)
    if not _names_in_return(own, status):
        os.close(own)
        raise GitFailed("its .git names a directory that does not belong to this work tree")
    return own


def _names_in_return(own: int, file: os.stat_result) -> bool:
    """Return whether a git directory says that it belongs to the work tree with this `.git` file."""
    told = read_below(own, b"gitdir", _MAX_SMALL)
    place = told.rstrip(b"\n") if told is not None else (_facts(own).worktree or b"") + b"/.git"
    try:
        return os.path.samestat(os.stat(place, dir_fd=own, follow_symlinks=False), file)
    except (OSError, ValueError):
        return False


def _common(own: int) -> int:
    """Return the directory that is shared: the one that holds `worktrees/NAME`, which `own` then has to be."""
    told = read_below(own, b"commondir", _MAX_SMALL)
    if told is None:
        return os.dup(own)
    above = os.open(b"../..", OPEN_DIRECTORY, dir_fd=own)
    try:
        place = told.rstrip(b"\n")
        if b"\0" not in place and os.path.samestat(os.stat(place, dir_fd=own), os.fstat(above)):
            return above
    except OSError:
        pass
    os.close(above)
    raise GitFailed("its commondir names a directory that it does not lie in")


def _facts(directory: int) -> GitFacts:
    """Return the facts in a git directory's configuration; includes and everything else in it are not obeyed."""
    settings = read_settings(read_below(directory, b"config", _MAX_CONFIG) or b"")
    found = dict(settings)
    return GitFacts(
        sha256=found.get(b"extensions.objectformat", b"").lower() == b"sha256",
        modes_count=found.get(b"core.filemode", b"true").lower() not in (b"false", b"no", b"off", b"0"),
        worktree=found.get(b"core.worktree") or None,
        settings=settings,
    )


def read_settings(config: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return the lines of a configuration in order, each with its section; a name without a value is true."""
    found: list[tuple[bytes, bytes]] = []
    section = b""
    for raw_line in config.replace(b"\\\n", b"").split(b"\n"):
        line = raw_line
        head = _SECTION.fullmatch(line)
        if head:
            below = b"" if head[2] is None else b"." + re.sub(rb"\\(.)", rb"\1", head[2])
            section, line = head[1].lower() + below, head[3]
        name, equals, value = line.partition(b"=")
        name = name.strip()
        if name and not name.startswith((b"#", b";")):
            found.append((section + b"." + name.lower(), _unquoted(value) if equals else b"true"))
    return tuple(found)


def _unquoted(value: bytes) -> bytes:
    """Return a value as git reads it: quotes and backslashes resolved, a comment left out."""
    found, kept, is_quoted = bytearray(), 0, False
    characters = iter(value.strip())
    for code in characters:
        if code == ord('"'):
            is_quoted = not is_quoted
        elif code == ord("\\"):
            escaped = next(characters, 0)
            found.append({ord("n"): 10, ord("t"): 9, ord("b"): 8}.get(escaped, escaped))
            kept = len(found)
        elif code in b"#;" and not is_quoted:
            break
        else:
            found.append(code)
        kept = len(found) if is_quoted or code not in b" \t" else kept
    return bytes(found[:kept])


def _symbolic(content: bytes) -> bytes | None:
    if not content.startswith(b"ref:"):
        return None
    name = content[4:].split(b"\n")[0].strip()
    return name if is_ref(name) or name == b"refs/heads/.invalid" else None


def _packed_lines(packed: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in packed.split(b"\n"):
        value, _, name = line.partition(b" ")
        if _OBJECT.fullmatch(value) and is_ref(name):
            yield value, name


def _files_below(directory: int, path: bytes, level: int = 0) -> Iterator[bytes]:
    """Yield the paths of regular files below a directory, up to a bound."""
    try:
        handle = open_below(directory, path)
    except OSError:
        return
    try:
        with os.scandir(handle) as items:
            found = [(os.fsencode(item.name), item.is_dir(follow_symlinks=False)) for item in items]
    finally:
        os.close(handle)
    if level > _MAX_LEVELS or len(found) > _MAX_LISTED:
        raise GitFailed("it has more refs than are read")
    for name, is_directory in sorted(found):
        if is_directory:
            yield from _files_below(directory, path + b"/" + name, level + 1)
        else:
            yield path + b"/" + name


def make_above(directory: int, path: bytes) -> None:
    """Make the directories above a path that are missing."""
    parts = path.split(b"/")[:-1]
    for depth in range(len(parts)):
        parent, name = open_parent_below(directory, b"/".join(parts[: depth + 1]))
        try:
            os.mkdir(name, 0o777, dir_fd=parent)
        except FileExistsError:
            continue
        finally:
            os.close(parent)


def write_all(handle: int, data: bytes) -> None:
    """Write all of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _close(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)
