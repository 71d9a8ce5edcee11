"""The engine behind a store's queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.worker.port import Engine


def engine_of(session: Session, kind: str | None = None) -> Engine:
    """Return the engine of the store that is meant, by default the settings'; UsageError if workers cannot share it."""
    url = session.place.url
    if not url.startswith(("postgresql:", "postgres:")):
        raise UsageError(
            f"{url} is a store of this machine alone: workers need one that they all reach, --store postgresql://..."
        )
    from holdfast.settings.values import Settings  # noqa: PLC0415 - help does without
    from holdfast.worker.wake import engine_of as engine_of_kind  # noqa: PLC0415

    workers = (session.place.settings or Settings()).workers
    return engine_of_kind(kind or workers.engine, url, workers.temporal)
