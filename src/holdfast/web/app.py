"""The ASGI app: routes, threads, answers; the guard stands before it."""

from __future__ import annotations

import asyncio
import functools
import html
import json
import re
import shlex
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast.errors import (
    Conflict,
    HoldfastError,
    IntegrityError,
    InvalidId,
    LeaseHeld,
    NotFound,
    StoreError,
    UsageError,
)
from holdfast.version import __version__
from holdfast.web import handlers
from holdfast.web.feed import PageFeed
from holdfast.web.guard import SESSION, Guard
from holdfast.web.overview import Overview
from holdfast.web.planbook import PlanBook
from holdfast.web.site import Handles, PageRequest, RequestRefused, Site
from holdfast.web.storage import Storage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from starlette.requests import Request

    from holdfast.engine import Holdfast
    from holdfast.web.guard import App, Sessions

MAX_ANSWER_BYTES = 1 << 20
MAX_REQUESTS = 64
MAX_STREAMS = 64
_STATIC = Path(__file__).parent / "static"
_FILES = {"app.js": "text/javascript", "app.css": "text/css", "icon.svg": "image/svg+xml", "NOTICES.txt": "text/plain"}
_VIEWS = re.compile(r"/|/approvals|/storage|/compare|/(?:r|c|plan)/.+")


def create_app(
    open_one: Callable[[bool], Holdfast],
    *,
    hosts: Collection[str] | Callable[[], frozenset[str]],
    sessions: Sessions | None = None,
    writes: bool = False,
    workspace: str | Path | None = None,
    user: str = "",
) -> App:
    """Return the ASGI app of a store, to be mounted into a service of one's own, behind its own authentication.

    `open_one` opens the store: it is given whether the handle has to write, and is called a few times, as a handle
    serves one thread at a time. `hosts` are the values that the Host header may have, such as "example.org:8443".
    Without `sessions`, whoever reaches this app may see everything in the store, and with `writes` change it.
    """
    site = Site(Handles(open_one), writes=writes, workspace=Path(workspace) if workspace else None, user=user)
    page = Page(site, sessions)
    allowed = hosts if callable(hosts) else functools.partial(frozenset, {host.lower() for host in hosts})
    return Guard(page.app, hosts=allowed, sessions=sessions, writes=writes)


class Page:
    """The routes over one site."""

    def __init__(self, site: Site, sessions: Sessions | None) -> None:
        self._site = site
        self._sessions = sessions
        overview = Overview()
        self._feed = PageFeed(site, overview)
        self._desk = handlers.Desk(site, overview, self._feed, PlanBook(), Storage())
        self._active = 0
        self._streams = 0
        routes = [
            Route(SESSION, self._session, methods=["POST"]),
            Route("/api/live", self._live),
            Route("/api/c/{spec}/download", self._download),
        ]
        for method, path, handler in handlers.ROUTES:
            routes.append(Route(path, functools.partial(self._serve, handler), methods=[method]))
        routes += [
            Route("/api/{rest:path}", self._nothing),
            Route("/static/{name:path}", self._static),
            Route("/{rest:path}", self._index),
        ]
        self.app = Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._feed.start()
        try:
            yield
        finally:
            await run_in_threadpool(self._feed.stop)
            self._site.handles.close()

    async def _serve(self, handler: handlers.Handler, request: Request) -> Response:
        if self._active >= MAX_REQUESTS:
            return _refusal(503, "Busy", "too many requests at once: try again", None)
        self._active += 1
        try:
            self._feed.start()  # mounted apps have no lifespan of their own
            ask = PageRequest(
                path=dict(request.path_params), query=dict(request.query_params), body=await _body(request)
            )
            return await run_in_threadpool(self._answer, handler, ask)
        except ClientDisconnect:
            return _refusal(413, "TooLarge", "the request is larger than it may be", None)
        except RequestRefused as refused:
            return _refusal(refused.status, refused.kind, str(refused), refused.hint)
        finally:
            self._active -= 1

    def _answer(self, handler: handlers.Handler, ask: PageRequest) -> Response:
        self._feed.wait_ready(10)
        try:
            if handler.writes:
                with self._site.handles.write() as handle:
                    value = handler.call(self._desk, handle, ask)
            else:
                with self._site.handles.read() as handle:
                    value = handler.call(self._desk, handle, ask)
        except RequestRefused as refused:
            return _refusal(refused.status, refused.kind, str(refused), refused.hint)
        except HoldfastError as error:
            return _refusal(_status(error), type(error).__name__, str(error), getattr(error, "hint", None) or None)
        body = encoded(value)
        if len(body) > MAX_ANSWER_BYTES:
            return _refusal(413, "TooLarge", "this is more than a megabyte: ask for a smaller page", None)
        return Response(body, media_type="application/json")

    async def _session(self, request: Request) -> Response:
        if self._sessions is None:
            return _refusal(404, "NotFound", "this page needs no code", None)
        try:
            body = await _body(request)
        except (RequestRefused, ClientDisconnect):
            body = {}
        code = body.get("code")
        token = self._sessions.exchange(code) if isinstance(code, str) else None
        if token is None:
            return _refusal(401, "CodeUsed", "this address was used already: run `holdfast ui` again", None)
        return Response(encoded({"token": token}), media_type="application/json")

    async def _live(self, request: Request) -> Response:
        if self._streams >= MAX_STREAMS:
            return _refusal(503, "Busy", "too many pages are open", None)
        self._feed.start()

        async def stream() -> AsyncIterator[bytes]:
            self._streams += 1
            try:
                async for event in self._feed.stream(request.query_params.get("after", "")):
                    yield event
            finally:
                self._streams -= 1

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def _download(self, request: Request) -> Response:
        spec, path = request.path_params["spec"], request.query_params.get("path", "")
        try:
            size, pieces = await run_in_threadpool(self._opened, spec, path)
        except HoldfastError as error:
            return _refusal(_status(error), type(error).__name__, str(error), None)
        name = path.rpartition("/")[2].encode("utf-8", "surrogateescape")
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(name)}",
            "content-length": str(size),
        }
        return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)

    def _opened(self, spec: str, path: str) -> tuple[int, AsyncIterator[bytes]]:
        from holdfast.web.files import file_bytes  # noqa: PLC0415 - most pages download nothing
        from holdfast.web.site import found  # noqa: PLC0415

        with self._site.handles.read() as handle:
            size, pieces = file_bytes(handle.hf, found(handle, spec).record, path)
            first = next(pieces, b"")

        async def rest() -> AsyncIterator[bytes]:
            yield first
            while piece := await asyncio.to_thread(next, pieces, b""):
                yield piece

        return size, rest()

    async def _nothing(self, _request: Request) -> Response:
        return _refusal(404, "NotFound", "there is nothing here", None)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        path = _STATIC / name
        if name not in _FILES or not path.is_file():
            return Response(status_code=404)
        return Response(path.read_bytes(), media_type=_FILES[name], headers={"cache-control": "no-cache"})

    async def _index(self, request: Request) -> Response:
        """Answer every other address with the page: where one is in it is in the address."""
        if not _VIEWS.fullmatch("/" + request.path_params["rest"]):
            return Response(status_code=404)
        path = _STATIC / "index.html"
        if not path.is_file():
            return Response("The page was not built: run `make web` in the sources.", status_code=500)
        base = str(request.scope.get("root_path") or "")
        text = path.read_text().replace("{{base}}", html.escape(base, quote=True))
        text = text.replace("{{auth}}", "code" if self._sessions is not None else "outside")
        return Response(text.replace("{{version}}", __version__), media_type="text/html; charset=utf-8")


def encoded(value: Any) -> bytes:
    """Return plain data as JSON; names that are not UTF-8 are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")


async def _body(request: Request) -> dict[str, Any]:
    if request.method != "POST":
        return {}
    data = await request.body()
    if not data:
        return {}
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(400, "BadJson", f"this is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RequestRefused(400, "BadJson", "send a JSON object")
    return body


def _status(error: HoldfastError) -> int:
    """Return the status for an error, by what the caller can do about it."""
    if isinstance(error, (NotFound, InvalidId)):
        return 404
    if isinstance(error, LeaseHeld):
        return 423
    if isinstance(error, Conflict):
        return 409
    if isinstance(error, UsageError):
        return 422
    if isinstance(error, (IntegrityError, StoreError)):
        return 500 if isinstance(error, IntegrityError) else 503
    return 409


def _refusal(status: int, kind: str, sentence: str, hint: str | None) -> Response:
    command = next((part for part in sentence.split("`")[1::2] if part.startswith("holdfast ")), None)
    if command is not None:
        command = shlex.join(shlex.split(command)) if command.count("'") % 2 == 0 else command
    body = encoded({"error": kind, "sentence": sentence, "hint": hint, "command": command})
    return Response(body, status_code=status, media_type="application/json")
