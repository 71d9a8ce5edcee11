"""Confirmations: what a client asks for waits for a person, in a terminal that the client does not drive.

A request is a file beside the store with what would be done; a person's yes is a second file that names the request's
digest. Both end with the request, after ten minutes, or when it was carried out.
"""

from __future__ import annotations

import hmac
import json
import os
import time
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import NotFound, UsageError
from holdfast.hook.glance import make_folder
from holdfast.own_folder import names_in, remove, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(".holdfast") / "mcp"
LIFETIME_S = 600
_MAX_BYTES = 16 * 1024 * 1024
_DIGITS = 8
_MOST_OPEN = 20


class Pending(NamedTuple):
    """One request: what would be done, in words and as the plan itself."""

    code: str
    kind: str
    run: str
    lines: tuple[str, ...]
    body: str
    made_at: float

    @property
    def digest(self) -> str:
        """The name of this very request."""
        return blake2b(json.dumps(self, ensure_ascii=True).encode(), digest_size=32).hexdigest()


class ConfirmationDesk:
    """Takes requests of one server process, and tells which of them a person has confirmed."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = root / FOLDER
        self._clock = clock
        self._secret = token_bytes(32)
        self._open: dict[str, Pending] = {}

    def ask(self, kind: str, run: str, lines: tuple[str, ...], body: str) -> str:
        """Put a request before a person, and return the token that carries it out once it is confirmed."""
        while len(self._open) >= _MOST_OPEN:
            self._close(next(iter(self._open.values())))
        pending = Pending(token_hex(_DIGITS // 2), kind, run, lines, body, self._clock())
        with _no_link():
            make_folder(str(self._folder))
        _write(self._folder / f"{pending.code}.json", json.dumps(pending._asdict()))
        self._open[pending.code] = pending
        return f"{pending.code}.{self._sealed(pending)}"

    def take(self, token: str) -> Pending:
        """Return the confirmed request of a token, which is used up by it; UsageError says what is missing."""
        code, _, seal = token.partition(".") if isinstance(token, str) else ("", "", "")
        pending = self._open.get(code)
        if pending is None or not hmac.compare_digest(seal.encode(), self._sealed(pending).encode()):
            raise UsageError("this token was not given by this server, or is used up: make a new plan")
        if self._clock() > pending.made_at + LIFETIME_S:
            self._close(pending)
            raise UsageError("this token is older than ten minutes: make a new plan")
        if _read(self._folder / f"{code}.yes") != pending.digest:
            raise UsageError(
                f"a person has not confirmed this yet: `holdfast mcp confirm {code}` in a terminal of their own shows "
                "the plan and asks. Tell them; do not run it yourself"
            )
        self._close(pending)
        return pending

    def _sealed(self, pending: Pending) -> str:
        return hmac.digest(self._secret, pending.digest.encode(), "sha256").hex()

    def _close(self, pending: Pending) -> None:
        self._open.pop(pending.code, None)
        withdraw(self._folder, pending.code)

    def close(self) -> None:
        """Withdraw what nobody confirmed."""
        for pending in list(self._open.values()):
            with suppress(UsageError):  # behind a link by now
                self._close(pending)


def pending_requests(root: Path, now: float) -> list[Pending]:
    """Return what waits for a person, the newest first; what is too old is removed."""
    found = []
    with _no_link():
        files = [root / FOLDER / name for name in names_in(root / FOLDER) if name.endswith(".json")]
    for file in files:
        pending = _pending(file)
        if pending is None or not 0 <= now - pending.made_at <= LIFETIME_S:
            withdraw(file.parent, file.stem)
        else:
            found.append(pending)
    return sorted(found, key=lambda one: -one.made_at)


def find_request(root: Path, code: str | None, now: float) -> Pending:
    """Return the request of a code, or the only one."""
    found = pending_requests(root, now)
    named = [one for one in found if code in (None, one.code)]
    if not named:
        raise NotFound("request", code or "(any)")
    if len(named) > 1:
        codes = ", ".join(one.code for one in named)
        raise UsageError(f"{len(named)} requests wait: name one of {codes}")
    return named[0]


def confirm(root: Path, pending: Pending) -> None:
    """Note a person's yes to exactly this request."""
    _write(root / FOLDER / f"{pending.code}.yes", pending.digest)


def withdraw(folder: Path, code: str) -> None:
    """Remove a request and what was said to it."""
    for ending in ("json", "yes"):
        with _no_link():
            remove(folder / f"{code}.{ending}")


@contextmanager
def _no_link() -> Iterator[None]:
    """Say which folder is a link, or cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{error.filename} {error.strerror}") from None


def _pending(file: Path) -> Pending | None:
    try:
        given: dict[str, Any] = json.loads(_read(file) or "")
        lines = tuple(str(line) for line in given["lines"])
        made = Pending(given["code"], given["kind"], given["run"], lines, given["body"], float(given["made_at"]))
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    is_text = all(isinstance(one, str) for one in (made.code, made.kind, made.run, made.body))
    return made if is_text and made.code == file.stem else None


def _read(file: Path) -> str | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="ascii") as stream:
            return stream.read(_MAX_BYTES)
    except (OSError, UnicodeDecodeError):
        return None


def _write(file: Path, text: str) -> None:
    with _no_link():
        write_whole(file, text.encode("ascii"))
