"""Count what is stored: runs, checkpoints, chunks, bytes, and what keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.times import age, moment, size
from holdfast.documents import plain

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    """Say what the command takes: nothing of its own."""


def execute(arguments: Namespace, session: Session) -> int:  # noqa: ARG001 - takes nothing
    hf, out = session.hf, session.out
    stats = hf.stats()
    keys = hf.keys.ids()
    out.document({**plain(stats), "keys": keys})
    out.fact("store", stats.url)
    out.fact("engine", stats.engine)
    out.fact("runs", f"{stats.runs:,}")
    out.fact("checkpoints", f"{stats.checkpoints:,}")
    if stats.oldest_at is not None and stats.newest_at is not None:
        out.fact("oldest", f"{moment(stats.oldest_at)} ({age(stats.oldest_at, session.now())})")
        out.fact("newest", f"{moment(stats.newest_at)} ({age(stats.newest_at, session.now())})")
    out.fact("content", f"{size(stats.chunk_bytes)} in {stats.chunks:,} chunks, {size(stats.stored_bytes)} stored")
    out.fact("on disk", size(stats.file_bytes))
    if keys:
        out.fact("keys", ", ".join(keys))
    return 0
