"""The web page of a store: `holdfast ui`, or an ASGI app to mount into one's own service.

Words. A *site* is one store as the page sees it: handles for reading, one for writing where that was asked for, the
directory that "now" means, and the redaction that runs over everything that leaves. A *guard* stands before all of it.
A *feed* looks for what moved and tells the open pages. A *plan book* keeps the plans that were shown.

Order of work. The guard looks at Host, token, Origin and size; the app finds the route; a handler (a plain function of
the site and what was asked) runs on a thread with a handle of its own and returns plain data; the app encodes it.

Invariants. A GET changes nothing. Without `write` every handle is read-only and every other method is refused. A
recovery is carried out by the digest of a plan that this server made and still has: a plan never comes from the client.
Stored text leaves as text in JSON, redacted again; files leave as attachments. No answer is larger than a megabyte.

Which file for which change
    a new route                     handlers, its answer's type in answers, then `make web` (types of the client)
    who may ask                     guard; reaching the port: serve
    what open pages are told        feed, events
    a recovery from the page        planbook; questions: approvals
    lists and graphs                overview (runs), history and lanes (checkpoints), timeline
    contents                        values, files, messages, comparing, task_output, storage
    what leaves                     site (handles and redaction)
    the client                      web/src in the sources; its build is `make web`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.web.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> object:
    """Load the app when it is first asked for: it needs the extra `web`."""
    if name != "create_app":
        raise AttributeError(f"module 'holdfast.web' has no attribute {name!r}")
    from holdfast.web.app import create_app  # noqa: PLC0415 - needs the extra

    return create_app
