"""Key of this user, and marks under it: what shows that this user, and no store or repository, named a place.

A store may come from elsewhere, whatever it says. A directory, a file or a command out of one is used unasked only if
it stands under a mark; without, only what the user gives, or the project's folder, is.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from pathlib import Path

from holdfast.errors import RestoreRefused
from holdfast.home import close_to_others, in_home
from holdfast.workspace.descriptors import OPEN_DIRECTORY, read_below, stat_below

_KEY = b"journal.key"


def user_mark(kind: str, *facts: object) -> str:
    """Return the mark under which this user states facts of a kind; empty if the user has nowhere to keep a key."""
    try:
        key = user_key()
    except RestoreRefused:
        return ""
    told = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return hmac.new(key, f"holdfast {kind}\0".encode() + told, hashlib.sha256).hexdigest()[:32]


def is_user_mark(mark: str, kind: str, *facts: object) -> bool:
    """Tell whether this user stated these facts."""
    own = user_mark(kind, *facts)
    return bool(own) and hmac.compare_digest(own.encode(), mark.encode("utf-8", "replace"))


def user_key() -> bytes:
    """Return this user's key, made at the first use; it never lies in a workspace that is captured."""
    home = in_home(".local/state/holdfast")
    passing = os.path.join(tempfile.gettempdir(), f"holdfast-{os.geteuid()}")  # noqa: PTH118 - no home to write to
    places = (passing,) if home is None else (str(home), passing)
    problem: OSError | None = None
    for place in places:
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)  # noqa: PTH103
            if place != passing:  # whatever lies in a folder that all share may be another's
                close_to_others(Path(place))
            handle = os.open(place, OPEN_DIRECTORY)
        except OSError as error:
            problem = error
            continue
        try:
            return _key_in(handle)
        except OSError as error:
            problem = error
        finally:
            os.close(handle)
    reason = os.strerror(problem.errno or 0) if problem else ""
    own = f"; make it yours alone with `sudo chown $USER {home} && chmod go-w {home}`" if home is not None else ""
    raise RestoreRefused(f"this user's key cannot be kept in {' or '.join(map(repr, places))}: {reason}{own}")


def _key_in(directory: int) -> bytes:
    status = os.fstat(directory)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(1, "others may write there")
    known = stat_below(directory, _KEY)
    if known is not None and (known.st_uid != os.geteuid() or known.st_mode & 0o077):
        raise PermissionError(1, "the key there is another's")  # put there while others could write
    key = read_below(directory, _KEY, 64)
    if key is None:
        draft = b"%s.%s" % (_KEY, secrets.token_hex(8).encode())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(draft, flags, 0o600, dir_fd=directory)
        try:
            os.write(handle, secrets.token_bytes(32))
            os.fsync(handle)
        finally:
            os.close(handle)
        try:
            os.link(draft, _KEY, src_dir_fd=directory, dst_dir_fd=directory)  # the first of several processes wins
        except FileExistsError:
            pass
        finally:
            os.unlink(draft, dir_fd=directory)
        os.fsync(directory)
        key = read_below(directory, _KEY, 64)
    if key is None or len(key) != 32:  # noqa: PLR2004
        raise PermissionError(1, "the key there cannot be read")
    return key
