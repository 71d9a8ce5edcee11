"""One call of the command line: its options, its streams, and the store it works on, opened when it is first needed."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.progress import ProgressBar
from holdfast.errors import UsageError
from holdfast.settings.environment import config_folder

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.ask import Prompt
    from holdfast.cli.output import Output
    from holdfast.cli.parser import Globals
    from holdfast.cli.place import StorePlace
    from holdfast.engine import Holdfast
    from holdfast.settings.values import Settings
    from holdfast.store.store import Store


class Session:
    """What a command works with."""

    def __init__(self, options: Globals, out: Output, ask: Prompt) -> None:
        self.options = options
        self.out = out
        self.ask = ask
        self.reveals = False
        """Whether the command continues a run, so that what redaction took out is given back as the settings say."""
        self.reads_settings = True
        self._opened: list[Holdfast | Store] = []
        self._told: set[str] = set()

    @cached_property
    def place(self) -> StorePlace:
        """Where the store is."""
        from holdfast.cli.place import find_place  # noqa: PLC0415 - commands without a store do without

        return find_place(self.options.store, Path.cwd(), self.out.environment, reads_settings=self.reads_settings)

    @cached_property
    def hf(self) -> Holdfast:
        """The store, which must be there already; one that cannot be written is opened for reading."""
        self.place.check_is_there()
        return self._opened_at(self.place.url, self.place.settings, **_for_reading(self.place.url))

    @cached_property
    def store(self) -> Store:
        """The store alone, for lists: without the engine, unless settings or a key need it."""
        if "hf" in self.__dict__ or self.place.settings is not None:
            return self.hf.store
        from holdfast.store.epoch_memory import EpochMemory  # noqa: PLC0415 - commands without a store do without
        from holdfast.store.keys import has_keys  # noqa: PLC0415

        store = self.bare()
        try:
            memory = EpochMemory.of_user(config_folder())
            is_locked = has_keys(store) or (memory is not None and bool(memory.seen(store.url)))
        except BaseException:
            store.close()
            raise
        if is_locked:
            store.close()
            return self.hf.store
        self._opened.append(store)
        return store

    def bare(self) -> Store:
        """Open the store, which must be there already, as it is stored, without a key; the caller closes it."""
        from holdfast.store.open import open_store  # noqa: PLC0415 - commands without a store do without

        self.place.check_is_there()
        return open_store(self.place.url, **_for_reading(self.place.url))

    def open(self, url: str | None = None, *, to_read: bool = False) -> Holdfast:
        """Open a store, by default the one that is meant; a new one is made where there is none.

        `to_read` opens one that cannot be written, too.
        """
        from holdfast.settings.values import EncryptionSettings, Settings, merged  # noqa: PLC0415

        place = self.place
        if url is None:
            if "hf" not in self.__dict__:
                # one engine a call, whoever asks first
                self.__dict__["hf"] = self._opened_at(place.url, place.settings)
            return self.hf
        settings = place.settings or Settings()
        if not place.is_at(url):
            # the key, and what is kept under it, are for the project's own store
            redaction = merged(settings.redaction, reversible=False)
            settings = merged(settings, encryption=EncryptionSettings(), redaction=redaction)
        return self._opened_at(url, settings, **(_for_reading(url) if to_read else {}))

    def _opened_at(self, url: str, settings: Settings | None, **options: Any) -> Holdfast:
        from holdfast.engine import open as open_holdfast  # noqa: PLC0415 - help and completion do without
        from holdfast.settings.values import Settings  # noqa: PLC0415

        opened = open_holdfast(url, settings=settings or Settings(), reveal=self.reveals, **options)
        self._opened.append(opened)
        return opened

    def find_stored(self, spec: str) -> Checkpoint:
        """Return the checkpoint that a person means, where a position between two of them is not enough."""
        found = self.find(spec)
        if found.records_since and spec == found.place:
            raise UsageError(
                f"{spec} is a position, and no checkpoint stands there: name the one before it, {found.run}@{found.seq}"
            )
        return found

    def handle(self, carried: dict[str, Any] | None = None, **changes: Any) -> Holdfast:
        """Open the store that is meant once more, with some settings changed; the caller closes it.

        `carried` are those that a submitted run brought along.
        """
        from holdfast.engine import open as open_holdfast  # noqa: PLC0415
        from holdfast.settings.carried import with_carried  # noqa: PLC0415
        from holdfast.settings.values import Settings, merged  # noqa: PLC0415

        settings = merged(with_carried(self.place.settings or Settings(), carried or {}), **changes)
        return open_holdfast(self.place.url, settings=settings, reveal=True)

    def find(self, spec: str) -> Checkpoint:
        """Return the checkpoint that a person means; one that is damaged and was passed over is warned about."""
        from holdfast.cli.locate import find  # noqa: PLC0415 - needs the engine

        found = find(self.hf, spec)
        for damage in found.skipped:
            self.out.warn(f"passed over: {damage}")
        return found

    def run_id(self, run: str) -> str:
        """Return the id of a run that is there; NotFound offers the nearest."""
        from holdfast.cli.locate import existing_run  # noqa: PLC0415 - needs the engine

        return existing_run(self.hf, run)

    @property
    def root(self) -> Path:
        """The project's folder, which is also the workspace unless another is named."""
        return Path.cwd() if self.options.store else self.place.project.root

    def directory_of(
        self, run: str, named: str | None = None, *, hf: Holdfast | None = None, reads_only: bool = False
    ) -> Path:
        """Return the directory of a run: the one that is named, the one it worked in last, or the project's folder.

        UsageError if the one it worked in is gone: files of the run are not put into, or taken from, another one that
        nobody named. Who only reads paths of it may do so from the project's folder.
        """
        from holdfast.run_files import directory_of  # noqa: PLC0415 - needs the workspace

        if named is not None:
            return Path(named)
        known = directory_of((hf or self.hf).store, run)
        if known is None or Path(known) == self.root.resolve():
            return self.root
        if not Path(known).is_dir():
            if reads_only:
                return self.root
            raise UsageError(
                f"the directory of run {run!r}, {known}, is gone: make it again, or name one with --workspace DIR"
            )
        if known not in self._told:
            self._told.add(known)
            self.out.note(f"The directory of {run} is {known}.")
        return Path(known)

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC)

    def progress(self, title: str) -> ProgressBar:
        """Return something to tell how far long work has come."""
        return ProgressBar(self.out, title)

    def close(self) -> None:
        """Close what was opened."""
        while self._opened:
            self._opened.pop().close()


def _for_reading(url: str) -> dict[str, Any]:
    """Return the options for a store that is there and may not be writable."""
    from holdfast.cli.place import local_path  # noqa: PLC0415

    file = local_path(url)
    if file is None or not file.is_file():
        return {}
    from holdfast.store.sqlite_file import can_be_written  # noqa: PLC0415 - it is loaded to open the store anyway

    return {} if can_be_written(file) else {"read_only": True}
