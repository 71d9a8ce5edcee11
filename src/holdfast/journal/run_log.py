"""Logs of a run: growing collections whose items are journal records, so that adding one costs what is added.

An item's record holds its ordinal, so the length is known from the newest one, and a process that only appends reads
nothing else. Going back takes a log to where it was; what came later stays in the segment that was left.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, overload

import msgspec

from holdfast.errors import IntegrityError, UsageError
from holdfast.journal.entry import APPENDED, body_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.encode.values import Packer
    from holdfast.store.store import Store
    from holdfast.store.tables import LineRow, Record

_LONGEST_NAME = 200
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, bytes]).decode


def path_of(log: str) -> str:
    """Return the path of a log's records."""
    if not isinstance(log, str) or not log.strip() or len(log) > _LONGEST_NAME or not log.isprintable():
        raise UsageError(f"{log!r:.80} is not a valid name for a log: use 1 to {_LONGEST_NAME} printable characters")
    return f"log:{log}"


def is_log_item(record: Record) -> bool:
    """Tell whether a record is an item of a log."""
    return record.kind == APPENDED and record.path.startswith("log:")


def item_body(ordinal: int, packed: bytes) -> bytes:
    """Return the body of an item's record."""
    return _encode((ordinal, packed))


class LogItems:
    """The items of a log at one place of a line, for reading."""

    def __init__(self, store: Store, packer: Packer, log: str, line: Callable[[], LineRow | None]) -> None:
        self.name = log
        self._store = store
        self._packer = packer
        self._path = path_of(log)
        self._line = line

    def __len__(self) -> int:
        line = self._line()
        newest = None if line is None else self._store.journal.newest(line, self._path)
        return 0 if newest is None else self._ordinal(newest)[0] + 1

    def __iter__(self) -> Iterator[Any]:
        return (self._item(record) for record in self._records())

    def __reversed__(self) -> Iterator[Any]:
        return (self._item(record) for record in self._records(reverse=True))

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        """Return an item, or those of a slice; the end of a long log is read from its end."""
        size = len(self)
        if isinstance(place, slice):
            start, stop, step = place.indices(size)
            if step != 1:
                return list(self)[place]
            if size - start < stop:  # nearer to the end
                found = list(
                    islice((self._item(one) for one in self._records(reverse=True)), size - stop, size - start)
                )
                return found[::-1]
            return list(islice(iter(self), start, stop))
        index = place + size if place < 0 else place
        if not 0 <= index < size:
            raise IndexError(f"log {self.name!r} has {size} items, and none at {place}")
        return self[index : index + 1][0]

    def _records(self, *, reverse: bool = False) -> Iterator[Record]:
        line = self._line()
        return iter(()) if line is None else self._store.journal.of_path(line, self._path, reverse=reverse)

    def _item(self, record: Record) -> Any:
        return self._packer.unpack(self._ordinal(record)[1], f"log {self.name}")

    def _ordinal(self, record: Record) -> tuple[int, bytes]:
        try:
            return _decode(body_of(record, self._store))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise IntegrityError(f"item #{record.number} of log {self.name!r} cannot be decoded ({error})") from error


class RunLog(LogItems):
    """A log of a run that is open for writing: every item is durable when `append` returns."""

    def __init__(
        self,
        store: Store,
        packer: Packer,
        log: str,
        line: Callable[[], LineRow | None],
        add: Callable[[str, str, Sequence[bytes], Callable[[], int]], None],
    ) -> None:
        super().__init__(store, packer, log, line)
        self._add = add

    def append(self, item: Any) -> None:
        """Add one item; ValueRefused names what cannot be stored."""
        self.extend((item,))

    def extend(self, items: Iterable[Any]) -> None:
        """Add items in one commit: all of them or none."""
        begin = getattr(self._packer, "begin", None)
        if begin is not None:
            begin(self.name)
        packed = [self._packer.pack_bounded(item, f"{self.name}[{number}]") for number, item in enumerate(items)]
        if packed:
            self._add(APPENDED, self._path, packed, self.__len__)
