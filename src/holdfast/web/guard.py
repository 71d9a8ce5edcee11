"""The guard before every request: Host, token, Origin, size, and the headers that every answer has.

The token is in a header and not in a cookie: a cookie is sent to every port of the host, so another user's server on
this machine could collect it. A page gets the token for a code that works once, for a minute: the code stands on a
command line that others can see.
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 1 << 20
SESSION = "/api/session"
_CODE_LIVES_S = 60.0
_MOST_CODES = 16
_SAFE = ("GET", "HEAD")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
    " 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Sessions:
    """One token for as long as the server lives, and codes that give it away once each."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._token = secrets.token_urlsafe(32)
        self._clock = clock
        self._codes: dict[str, float] = {}

    def new_code(self) -> str:
        """Return a code that can be exchanged for the token once, within a minute."""
        code = secrets.token_urlsafe(16)
        while len(self._codes) >= _MOST_CODES:
            del self._codes[next(iter(self._codes))]
        self._codes[code] = self._clock() + _CODE_LIVES_S
        return code

    def exchange(self, code: str) -> str | None:
        """Return the token for a code, and forget the code; None if it was used, is too old, or never was."""
        found = next((one for one in self._codes if hmac.compare_digest(one.encode(), code.encode())), None)
        if found is None:
            return None
        return self._token if self._codes.pop(found) >= self._clock() else None

    def knows(self, authorization: str) -> bool:
        """Tell whether a header carries the token; takes the same time whatever it carries."""
        scheme, _, token = authorization.partition(" ")
        is_right = hmac.compare_digest(token.strip().encode(), self._token.encode())
        return is_right and scheme.lower() == "holdfast"


class Guard:
    """An ASGI app before another one; what it lets pass came from our own page, or from whoever holds the token.

    `hosts` are the values that the Host header may have. Without `sessions` somebody else's authentication stands
    before this app; Host, Origin and size are looked at all the same.
    """

    def __init__(
        self, app: App, *, hosts: Callable[[], frozenset[str]], sessions: Sessions | None, writes: bool = False
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._sessions = sessions
        self._writes = writes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        path = _path(scope)
        is_api = path.startswith("/api")
        headers = _Headers(scope)
        guarded = _with_headers(send, no_store=is_api)
        refusal = self._refusal(scope, path, headers)
        if refusal is not None:
            await _answer(guarded, *refusal)
            return
        await self._app(scope, _bounded(receive), guarded)

    def _refusal(self, scope: Scope, path: str, headers: _Headers) -> tuple[int, str, str] | None:
        hosts = headers.all(b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts():
            return 421, "WrongHost", "this server answers only to its own address on this machine"
        if scope["method"] not in _SAFE:
            refusal = self._unsafe(scope, path, headers, hosts[0])
            if refusal is not None:
                return refusal
        if self._sessions is not None and path.startswith("/api") and path != SESSION:
            given = headers.all(b"authorization")
            if len(given) != 1 or not self._sessions.knows(given[0]):
                return 401, "NoToken", "open the page with the address that `holdfast ui` prints"
        if not self._writes and scope["method"] not in _SAFE and path != SESSION and not _only_plans(path):
            return 403, "ReadOnly", "this page only looks: start `holdfast ui --write` to change something"
        return None

    def _unsafe(self, scope: Scope, path: str, headers: _Headers, host: str) -> tuple[int, str, str] | None:
        if scope["method"] != "POST" or not path.startswith("/api/"):
            return 405, "MethodRefused", "use GET, or POST to the API"
        ours = {f"{scheme}://{host.lower()}" for scheme in ("http", "https")}
        if [one.lower() for one in headers.all(b"origin")] not in [[one] for one in ours]:
            return 403, "ForeignOrigin", "this request came from another page"
        if headers.all(b"sec-fetch-site") != ["same-origin"]:
            return 403, "ForeignOrigin", "this request came from another page"
        kind = headers.all(b"content-type")
        is_json = len(kind) == 1 and kind[0].partition(";")[0].strip().lower() == "application/json"
        if not is_json or headers.all(b"content-encoding"):
            return 415, "NotJson", "send application/json, not compressed"
        lengths = headers.all(b"content-length")
        if lengths and (not lengths[0].isdigit() or int(lengths[0]) > MAX_BODY_BYTES):
            return 413, "TooLarge", f"a request has at most {MAX_BODY_BYTES:,} bytes"
        return None


def _only_plans(path: str) -> bool:
    """Tell whether a POST changes nothing: making a plan, or asking what a retention rule would do."""
    return path in ("/api/plans", "/api/prune", "/api/verify")


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path") or "") or "/"


class _Headers:
    def __init__(self, scope: Scope) -> None:
        self._headers: list[tuple[bytes, bytes]] = list(scope["headers"])

    def all(self, name: bytes) -> list[str]:
        """Return every value of a header: one that is there twice is not to be trusted."""
        return [value.decode("latin-1") for key, value in self._headers if key.lower() == name]


def _bounded(receive: Receive) -> Receive:
    """Return a receive that ends the request where its body is larger than announced, or than it may be."""
    seen = 0

    async def read() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > MAX_BODY_BYTES:
                return {"type": "http.disconnect"}
        return message

    return read


def _with_headers(send: Send, *, no_store: bool) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [*_HEADERS, *([(b"cache-control", b"no-store")] if no_store else [])]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return answer


async def _answer(send: Send, status: int, kind: str, sentence: str) -> None:
    body = msgspec.json.encode({"error": kind, "sentence": sentence, "hint": None, "command": None})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
