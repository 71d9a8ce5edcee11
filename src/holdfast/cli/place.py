"""Where the project is, and with it the store: here, or the nearest folder above that is ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from holdfast.errors import NotFound
from holdfast.settings.environment import config_folder
from holdfast.store.open import FILE, FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.settings.values import Settings

_SETTINGS = ("holdfast.yaml", "holdfast.yml", "pyproject.toml")  # as in settings.file, which is loaded where one is


class Project(NamedTuple):
    """A folder with settings or a store, or the present one if there is none."""

    root: Path
    settings_file: Path | None
    has_store: bool
    store: Path | None = None
    """The folder of the store, where it lies elsewhere: of a fork's directory."""
    run: str | None = None
    """The run that this directory was made for, by a fork."""

    @property
    def is_begun(self) -> bool:
        """Whether somebody began a project here."""
        return self.settings_file is not None or self.has_store or self.store is not None


class NoStore(NotFound):
    """There is no store here, nor above."""

    def sentence(self) -> str:
        """Say how to begin."""
        return (
            f"there is no store in {self.name}, nor in a folder above it. Begin one here with `holdfast init`, or name "
            "one with --store URL"
        )


def find_project(start: Path) -> Project:
    """Return the nearest folder, from here up, that has settings or a store; those above must be the user's own."""
    home = Path.home()
    for folder in (start, *start.parents):
        if folder != start and folder in (home, folder.parent):
            break
        settings = _settings_in(folder)
        store = folder / FOLDER
        has_store = (store / FILE).is_file()
        linked = _linked(folder) if not has_store else None
        if linked is not None:
            return Project(folder, settings or _settings_in(linked[0].parent), has_store, *linked)
        found = settings or (store if has_store else None)
        if found is not None and (folder == start or found.lstat().st_uid == os.getuid()):
            return Project(folder, settings, has_store)
    return Project(start, None, has_store=False)


def _linked(folder: Path) -> tuple[Path, str] | None:
    if not os.path.lexists(folder / FOLDER / "store.link"):
        return None
    from holdfast.workspace.stamp import linked_store  # noqa: PLC0415 - only in a fork's directory

    return linked_store(folder.resolve())


def _settings_in(folder: Path) -> Path | None:
    """Return the settings file of a folder; the code that reads settings is loaded only where there may be one."""
    if not any(os.path.lexists(folder / name) for name in _SETTINGS):
        return None
    from holdfast.settings.file import find_settings  # noqa: PLC0415

    return find_settings(folder)


class StorePlace(NamedTuple):
    """A store and the settings that it is opened with; None are the defaults."""

    project: Project
    url: str
    settings: Settings | None
    is_named: bool = False

    def is_at(self, url: str) -> bool:
        """Tell whether a path or URL means this store."""
        return url == self.url or (local_path(url) is not None and local_path(url) == local_path(self.url))

    @property
    def is_there(self) -> bool:
        """Whether opening it makes no new one, as far as its name tells."""
        folder = local_path(self.url)
        return folder is None or folder.exists()

    def check_is_there(self) -> None:
        """Raise NoStore if opening it would make a new one that nobody asked for."""
        folder = local_path(self.url)
        if folder is None or self.is_there:
            return
        if self.is_named:
            raise NotFound("store", self.url, "`holdfast checkpoint RUN` with the same --store begins one")
        if self.project.settings_file is None:
            raise NoStore("store", str(folder.parent if folder.name != FILE else folder.parent.parent))


def find_place(
    store: str | None, start: Path, environment: Mapping[str, str], *, reads_settings: bool = True
) -> StorePlace:
    """Return the store that is meant: named on the line, in HOLDFAST_STORE, in the settings, or the project's own."""
    project = find_project(start)
    if not reads_settings:
        project = project._replace(settings_file=None)
    named = store or environment.get("HOLDFAST_STORE") or None
    if project.store is not None and named is None and not project.store.exists():
        raise NotFound(
            "store",
            str(project.store),
            f"{project.root} is the directory of run {project.run!r}, whose project was moved or deleted: name the "
            f"store where it is now, --store URL; or delete {FOLDER}/store.link here to begin another store",
        )
    own = str(project.store or project.root / FOLDER)
    folder = config_folder()
    if project.settings_file is None and (folder is None or not (folder / "holdfast.yaml").exists()):
        return StorePlace(project, named or own, None, named is not None)
    from holdfast.settings.file import located, project_settings  # noqa: PLC0415

    is_located = named is not None or project.store is not None
    settings = project_settings(project.settings_file, is_located=is_located)
    url = named or (own if project.store else None) or located(settings, project.settings_file) or own
    return StorePlace(project, url, settings, named is not None)


def local_path(url: str) -> Path | None:
    """Return what must be on this disk for a store to be there; None if that cannot be told from its name."""
    parts = urlsplit(url) if ":" in url.partition("/")[0] else None
    if parts is None:
        path = Path(url).absolute()
    elif parts.scheme in ("sqlite", "file") and parts.netloc in ("", "localhost"):
        path = Path(unquote(parts.path))
    else:
        return None
    return path if (parts is not None and parts.scheme == "file") or path.suffix == ".db" else path / FILE
