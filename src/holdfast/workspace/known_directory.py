"""What is known of a directory from the last scan: enough to see by `stat` alone that nothing in it changed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from holdfast.workspace.contents import KEY
from holdfast.workspace.directory import DIRECTORY, Entry, decode
from holdfast.workspace.paths import join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.encode.chunks import ChunkReader
    from holdfast.encode.tree import Ref
    from holdfast.workspace.skips import Skips

Outcome = Entry | str  # what was captured, or why nothing was


class DirectoryDetails(NamedTuple):
    """The part of a known directory that an unchanged one does not need."""

    entries: list[Outcome]
    pieces: dict[bytes, tuple[bytes, ...]]
    left_out: dict[bytes, str]


@dataclass(slots=True)
class DirectoryDraft:
    """A directory while it is captured.

    `stamps` holds None for a file that must be read again next time, and `key` is None when the directory must be
    listed again.
    """

    key: tuple[int, ...] | None = None
    mode: int = 0o755
    token: bytes = b""
    names: list[bytes] = field(default_factory=list)
    stamps: list[int | None] = field(default_factory=list)
    entries: list[Outcome] = field(default_factory=list)
    pieces: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    children: dict[bytes, Known | str] = field(default_factory=dict)
    left_out: dict[bytes, str] = field(default_factory=dict)
    ignore_files: tuple[bytes, ...] = ()
    has_git: bool = False

    @classmethod
    def of(cls, known: Known) -> DirectoryDraft:
        """Return a draft that starts as what is known."""
        return cls(
            key=known.key,
            mode=known.mode,
            token=known.token,
            names=known.names,
            stamps=known.stamps,
            entries=known.entries,
            pieces=known.pieces,
            children=known.children,
            left_out=known.left_out,
            ignore_files=known.ignore_files,
            has_git=known.has_git,
        )

    def captured(self) -> list[Entry]:
        """Return the directory's entries in the order of their names."""
        entries = [entry for entry in self.entries if type(entry) is Entry]
        if self.children:
            entries += [
                Entry(name, DIRECTORY, child.mode, child.ref)
                for name, child in self.children.items()
                if type(child) is Known
            ]
            entries.sort()
        return entries

    def reasons(self) -> Iterator[tuple[bytes, str]]:
        """Yield the names that were not captured, with the reason."""
        yield from self.left_out.items()
        for name, entry in zip(self.names, self.entries, strict=True):
            if type(entry) is str:
                yield name, entry
        for name, child in self.children.items():
            if type(child) is str:
                yield name, child

    def own_totals(self) -> tuple[int, int]:
        """Return the number of files and their bytes, without those of directories below."""
        sizes = [entry.ref.size for entry in self.entries if type(entry) is Entry and entry.ref is not None]
        return len(self.entries), sum(sizes)

    def same(self, known: Known) -> bool:
        """Return whether nothing differs from what is known, children included by identity."""
        return (
            self.key == known.key
            and self.mode == known.mode
            and self.token == known.token
            and self.stamps == known.stamps
            and self.entries == known.entries
            and list(self.children) == list(known.children)
            and all(child is known.children[name] for name, child in self.children.items())
            and self.left_out == known.left_out
        )


class Known:
    """One directory as it was captured; never changed afterwards, so that several snapshots share what they can."""

    __slots__ = (
        "_details",
        "children",
        "directories",
        "files",
        "has_git",
        "ignore_files",
        "is_bare",
        "is_plain",
        "key",
        "mode",
        "names",
        "nodes",
        "own_bytes",
        "own_files",
        "ref",
        "size_bytes",
        "skips",
        "stamps",
        "token",
    )

    def __init__(
        self,
        draft: DirectoryDraft,
        ref: Ref,
        nodes: frozenset[bytes],
        skips: Skips,
        *,
        details: Callable[[], DirectoryDetails] | None = None,
        own: tuple[int, int] | None = None,
    ) -> None:
        self.key = draft.key
        self.mode = draft.mode
        self.token = draft.token
        self.names = draft.names
        self.stamps = draft.stamps
        self._details: DirectoryDetails | Callable[[], DirectoryDetails] = details or DirectoryDetails(
            draft.entries, draft.pieces, draft.left_out
        )
        self.children = draft.children
        self.ignore_files = draft.ignore_files
        self.has_git = draft.has_git
        self.ref = ref
        self.nodes = nodes
        self.skips = skips
        self.is_plain = self.is_bare = not draft.ignore_files and not draft.has_git
        # bare: nor is there an ignore file or a repository anywhere below
        self.own_files, self.own_bytes = own or draft.own_totals()
        self.files, self.size_bytes, self.directories = self.own_files, self.own_bytes, 1
        for child in draft.children.values():
            if type(child) is Known:
                self.files += child.files
                self.size_bytes += child.size_bytes
                self.directories += child.directories
                self.is_bare = self.is_bare and child.is_bare

    @property
    def details(self) -> DirectoryDetails:
        """Return what is needed only when something changed; a stored one is decoded at the first call."""
        if not isinstance(self._details, DirectoryDetails):
            self._details = self._details()
        return self._details

    @property
    def entries(self) -> list[Outcome]:
        """Return what came of each name, in the order of the names."""
        return self.details.entries

    @property
    def pieces(self) -> dict[bytes, tuple[bytes, ...]]:
        """Return the names of the leaves of each file that was cut."""
        return self.details.pieces

    @property
    def left_out(self) -> dict[bytes, str]:
        """Return why names of this directory were not captured."""
        return self.details.left_out

    def unlisted(self) -> Known:
        """Return the same without its key, so that the directory is listed again."""
        draft = DirectoryDraft.of(self)
        draft.key = None
        return Known(draft, self.ref, self.nodes, self.skips)


def missing(known: Known, place: bytes, path: bytes = b"") -> Iterator[bytes]:
    """Yield what was captured of a directory and is not there any more: one `lstat` where no name came or went.

    Of a directory that is gone its own path is yielded, and nothing below it.
    """
    try:
        status = os.lstat(place)
        if not stat.S_ISDIR(status.st_mode):
            yield path
            return
        if KEY(status) != known.key:
            present = frozenset(os.listdir(place))  # noqa: PTH208 - bytes
            yield from (join(path, name) for name in known.names if name not in present)
    except FileNotFoundError:
        yield path
        return
    except OSError:
        return
    for name, child in known.children.items():
        if type(child) is Known:
            yield from missing(child, os.path.join(place, name), join(path, name))  # noqa: PTH118 - bytes


def changed_directories(old: Known, new: Known, path: bytes = b"") -> Iterator[bytes]:
    """Yield the directories that a scan found to hold something else than they were known to."""
    if new is old or (new.ref, new.mode) == (old.ref, old.mode):
        return
    yield path
    for name, child in new.children.items():
        before = old.children.get(name)
        if type(child) is Known and type(before) is Known:
            yield from changed_directories(before, child, join(path, name))


def stored_part(known: Known, stored: Ref | None, reader: ChunkReader, path: bytes = b"") -> tuple[Known, list[bytes]]:
    """Return what a scan found that a stored tree holds as well, and the directories of which it does not hold all.

    A scan that only looked stored nothing: what is left out here is read again by the next capture.
    """
    if known.ref == stored:
        return known, []
    before = {entry.name: entry for entry in decode([stored], reader)[0]} if stored is not None else {}
    kept = [
        (name, mark, entry)
        for name, mark, entry in zip(known.names, known.stamps, known.entries, strict=True)
        if type(entry) is str or ((same := before.get(name)) is not None and same[1:5] == entry[1:5])
    ]
    children: dict[bytes, Known | str] = {}
    changed = [path]
    for name, child in known.children.items():
        if type(child) is Known:
            below = before.get(name)
            ref = below.ref if below is not None and below.kind == DIRECTORY else None
            children[name], more = stored_part(child, ref, reader, join(path, name))
            changed += more
        else:
            children[name] = child
    names = [name for name, _, _ in kept]
    draft = replace(
        DirectoryDraft.of(known),
        key=None,
        mode=-1,  # as no directory has: what is not stored is never taken for the same
        names=names,
        stamps=[mark for _, mark, _ in kept],
        entries=[entry for _, _, entry in kept],
        pieces={name: known.pieces[name] for name in names if name in known.pieces},
        children=children,
    )
    return Known(draft, known.ref, frozenset(), known.skips), changed
