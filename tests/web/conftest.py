"""Stores of every kind with the same story, each behind a real `holdfast ui`."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the page needs the extra `web`")
pytest.importorskip("uvicorn", reason="the page needs the extra `web`")

from web.ui_kit import page, story


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "app"
    place.mkdir()
    return place


@pytest.fixture
def told(folder):
    """A project with a story in a SQLite store."""
    return story(folder)


@pytest.fixture(params=["sqlite", "files", "postgres"])
def anywhere(request, folder, tmp_path):
    """The page over each kind of store, with the same story in it."""
    if request.param == "sqlite":
        story(folder)
        with page(folder, write=True) as ui:
            yield ui
    elif request.param == "files":
        url = f"file://{tmp_path}/store"
        story(folder, url)
        with page(folder, store=url, write=True) as ui:
            yield ui
    else:
        from postgres_server import shared_server  # noqa: PLC0415 - a server is started for it

        url = shared_server().database()
        story(folder, url)
        try:
            with page(folder, store=url, write=True) as ui:
                yield ui
        finally:
            shared_server().drop(url)
