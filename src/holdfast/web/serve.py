"""Serving the page on this machine: one port of the loopback interface, until it is stopped."""

from __future__ import annotations

import contextlib
import resource
import socket
from typing import TYPE_CHECKING

import uvicorn

from holdfast.errors import UsageError
from holdfast.web.app import create_app
from holdfast.web.guard import Sessions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.engine import Holdfast

_LOOPBACK = "127.0.0.1"
_BACKLOG = 1024


def serve(
    open_one: Callable[[bool], Holdfast],
    *,
    port: int,
    writes: bool,
    workspace: Path | None,
    user: str,
    ready: Callable[[str], None],
) -> None:
    """Serve until interrupted; `ready` is told the address, with its code, once it answers."""
    sessions = Sessions()
    listener = _listener(port)
    port = listener.getsockname()[1]
    hosts = frozenset(f"{name}:{port}" for name in (_LOOPBACK, "localhost", "[::1]"))
    app = create_app(open_one, hosts=lambda: hosts, sessions=sessions, writes=writes, workspace=workspace, user=user)
    # Idle connections cost a descriptor each; a thousand of them must not keep a request out.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    config = uvicorn.Config(
        app,
        lifespan="on",
        loop="asyncio",
        http="h11",
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(f"http://{_LOOPBACK}:{port}/#code={sessions.new_code()}")

    with contextlib.suppress(KeyboardInterrupt):
        Server(config).run(sockets=[listener])


def _listener(port: int) -> socket.socket:
    # The protocol is named so that asyncio sends answers at once: else each waits 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise UsageError(f"port {port} cannot be used ({error.strerror}): leave --port out for any") from error
    listener.set_inheritable(False)
    return listener
