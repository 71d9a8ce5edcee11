"""LangGraph's own tests with HoldfastSaver in the place of its savers on SQLite and PostgreSQL: a plugin of pytest.

`make test-langgraph LANGGRAPH=checkout` runs them in a checkout of LangGraph's repository. Loaded before their
conftest, it replaces what that takes its savers from; only tests of those savers are run, and none that need Redis.
With `HOLDFAST_THEIRS=1` SqliteSaver stays in its place, to compare with.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import tests.conftest_checkpointer as given  # of LangGraph

from holdfast.adapters.langgraph import HoldfastSaver

IS_THEIRS = os.environ.get("HOLDFAST_THEIRS") == "1"
SQLITE = ("sqlite", "sqlite_aes", "sqlite_aio")
POSTGRES = () if IS_THEIRS else ("postgres", "postgres_aio")
KEY = b"1234567890123456"


@contextmanager
def _place(kind):
    if kind in SQLITE:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "threads.db"
        return
    from postgres_server import shared_server  # noqa: PLC0415 - a server is started for it

    url = shared_server().database()
    yield url
    shared_server().drop(url)


@contextmanager
def _saver(kind):
    with _place(kind) as place, HoldfastSaver.open(place) as saver:
        if kind == "sqlite_aes":
            saver.serde = given.EncryptedSerializer.from_pycryptodome_aes(key=KEY)
        yield saver


def _asynchronous(kind):
    @asynccontextmanager
    async def opened():
        with _saver(kind) as saver:
            yield saver

    return opened


if not IS_THEIRS:
    for one in (*SQLITE, *POSTGRES):
        made = _asynchronous(one) if one.endswith("_aio") else lambda kind=one: _saver(kind)
        setattr(given, f"_checkpointer_{one}", made)


def pytest_collection_modifyitems(config, items):
    """Keep the tests that use one of these savers."""

    def is_ours(item):
        chosen = item.callspec.params if hasattr(item, "callspec") else {}
        saver = chosen.get("sync_checkpointer") or chosen.get("async_checkpointer")
        others = (chosen.get(name) for name in ("cache", "sync_store", "async_store"))
        return saver in (*SQLITE, *POSTGRES) and not any(str(one).startswith(("redis", "postgres")) for one in others)

    kept = [item for item in items if is_ours(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
