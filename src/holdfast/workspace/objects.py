"""Git's objects, loose and packed, read without git: every size is bounded and every object has to have its name.

Objects that a repository borrows from another one (`objects/info/alternates`) are not looked for: a path in it would
lead out of the repository.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat as modes
import zlib
from typing import TYPE_CHECKING, NamedTuple

from holdfast.workspace.descriptors import OPEN_FILE, open_below, read_below, stat_below
from holdfast.workspace.gitdir import GitFailed, make_above, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from holdfast.workspace.gitdir import GitDirectory

MAX_OBJECT_BYTES = 64 * 1024 * 1024
_MAX_PACKS = 2_000
_MAX_DELTAS = 4_096
_MAX_TAGS = 8
_MAX_WORK_BYTES = 4 * 1024**3  # unpacked for one look at a repository: a hostile one ends here, in seconds
_KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFS_DELTA, _REF_DELTA = 6, 7
_STEP = 64 * 1024


class ObjectTooLarge(GitFailed):
    """An object has more bytes than the caller wants."""

    def __init__(self, size: int) -> None:
        super().__init__(f"an object of {size:,} bytes is too large to be read")


class TreeEntry(NamedTuple):
    """One name in a tree."""

    name: bytes
    mode: int
    object: str


class GitCommit(NamedTuple):
    """What is read of a commit."""

    tree: str
    parents: tuple[str, ...]
    time: int


class Objects:
    """The objects of one repository; to be closed."""

    def __init__(self, directory: GitDirectory) -> None:
        self._common = directory.common
        self._digest = hashlib.sha256 if directory.facts.sha256 else hashlib.sha1
        self.width = 32 if directory.facts.sha256 else 20
        self._packs: list[_Pack] | None = None
        self._work = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pack in self._packs or ():
            pack.close()

    def name(self, kind: str, data: bytes) -> str:
        """Return the name that these bytes have."""
        return self._digest(b"%s %d\0" % (kind.encode(), len(data)) + data).hexdigest()

    def blob_digest(self, size: int) -> hashlib._Hash:
        """Return a digest to be fed with a blob's bytes."""
        return self._digest(b"blob %d\0" % size)

    def get(self, name: str, limit: int = MAX_OBJECT_BYTES) -> tuple[str, bytes] | None:
        """Return an object's kind and bytes, None if it is not in this repository; GitFailed if it is damaged."""
        found = self._get(name, limit)
        if found is not None and self.name(*found) != name:
            raise GitFailed(f"object {name} is damaged")
        return found

    def has(self, name: str) -> bool:
        """Return whether an object is in this repository."""
        status = stat_below(self._common, _loose_path(name))
        return (status is not None and modes.S_ISREG(status.st_mode)) or self._find(name) is not None

    def commit(self, name: str) -> GitCommit | None:
        """Return a commit, None if there is no such one."""
        found = self.get(name)
        if found is None or found[0] != "commit":
            return None
        tree, parents, time = "", [], 0
        for line in found[1].split(b"\n\n", 1)[0].split(b"\n"):
            key, _, value = line.partition(b" ")
            if key == b"tree":
                tree = value.decode("ascii", "replace")
            elif key == b"parent":
                parents.append(value.decode("ascii", "replace"))
            elif key == b"committer":
                digits = value.rpartition(b"> ")[2].split(b" ")[0]
                time = int(digits) if digits.isdigit() and len(digits) < 16 else 0  # noqa: PLR2004
        return GitCommit(tree, tuple(parents), time)

    def peeled(self, name: str) -> str:
        """Return what a tag names, or the name itself if it is not one of a tag."""
        for _ in range(_MAX_TAGS):
            found = self.get(name)
            if found is None or found[0] != "tag" or not found[1].startswith(b"object "):
                break
            name = found[1][7 : 7 + 2 * self.width].decode("ascii", "replace")
        return name

    def tree(self, name: str) -> list[TreeEntry]:
        """Return the entries of a tree; GitFailed if it is not here."""
        found = self.get(name)
        if found is None or found[0] != "tree":
            raise GitFailed(f"tree {name} is not in this repository")
        data, position, entries = found[1], 0, []
        while position < len(data):
            space, end = data.find(b" ", position), data.find(b"\0", position)
            if not position < space < end or end + self.width >= len(data) + 1:
                raise GitFailed(f"tree {name} is damaged")
            try:
                mode = int(data[position:space], 8)
            except ValueError:
                raise GitFailed(f"tree {name} is damaged") from None
            position = end + 1 + self.width
            entries.append(TreeEntry(data[space + 1 : end], mode, data[end + 1 : position].hex()))
        return entries

    def put_blob(self, data: bytes) -> str:
        """Write a blob as a loose object, durable when this returns; nothing is done if it is here already."""
        name = self.name("blob", data)
        if self.has(name):
            return name
        place = b"objects/" + name[:2].encode()
        make_above(self._common, place + b"/x")
        directory = open_below(self._common, place)
        beside = b"tmp_obj_" + secrets.token_hex(8).encode()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(beside, flags, 0o444, dir_fd=directory)
            try:
                write_all(handle, zlib.compress(b"blob %d\0" % len(data) + data))
                os.fsync(handle)
            finally:
                os.close(handle)
            os.rename(beside, name[2:].encode(), src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)
        finally:
            os.close(directory)
        return name

    def _get(self, name: str, limit: int) -> tuple[str, bytes] | None:
        loose = read_below(self._common, _loose_path(name), MAX_OBJECT_BYTES)
        if loose is not None:
            return _loose_object(name, loose, limit)
        found = self._find(name)
        if found is None:
            return None
        return self._packed(*found, limit)

    def _count(self, size: int) -> None:
        self._work += size
        if self._work > _MAX_WORK_BYTES:
            raise GitFailed("its objects take more work to unpack than a repository should")

    def _find(self, name: str) -> tuple[_Pack, int] | None:
        try:
            wanted = bytes.fromhex(name)
        except ValueError:
            return None
        if len(wanted) != self.width:
            return None
        if self._packs is None:
            self._packs = list(_open_packs(self._common, self.width))
        for pack in self._packs:
            offset = pack.offset(wanted)
            if offset is not None:
                return pack, offset
        return None

    def _packed(self, pack: _Pack, offset: int, limit: int) -> tuple[str, bytes]:
        """Return an object of a pack: the bases are followed down, then their differences applied upwards."""
        deltas: list[bytes] = []
        held = 0
        while True:
            kind, size, position = pack.header(offset)
            if size > limit or held > 4 * MAX_OBJECT_BYTES:
                raise ObjectTooLarge(size)
            self._count(size)
            if kind == _OFS_DELTA:
                back, position = pack.back(position)
                base = offset - back
                if not 0 < base < offset:
                    raise GitFailed("a pack is damaged")
            elif kind == _REF_DELTA:
                found = pack.offset(pack.read(position, self.width))
                if found is None or len(deltas) > _MAX_DELTAS:
                    raise GitFailed("a pack is damaged")
                base, position = found, position + self.width
            elif kind in _KINDS:
                data = pack.inflate(position, size)
                break
            else:
                raise GitFailed("a pack is damaged")
            deltas.append(pack.inflate(position, size))
            held += size
            offset = base
            if len(deltas) > _MAX_DELTAS:
                raise GitFailed("a pack is damaged")
        for delta in reversed(deltas):
            data = _patched(data, delta, limit)
            self._count(len(data))
        return _KINDS[kind], data


class _Pack:
    """One pack file with its index of names."""

    def __init__(self, index: int, data: int, width: int) -> None:
        self._index = index
        self._data = data
        self._width = width
        head = _pread(index, 8 + 1024, 0)
        if head[:8] != b"\xfftOc\0\0\0\2":
            raise GitFailed("a pack has an index of a form that is not read")
        self._fan = [int.from_bytes(head[8 + 4 * i : 12 + 4 * i], "big") for i in range(256)]
        if sorted(self._fan) != self._fan:
            raise GitFailed("a pack's index is damaged")
        self._names = 8 + 1024
        self._offsets = self._names + self._fan[255] * (width + 4)
        self._far = self._offsets + self._fan[255] * 4

    def close(self) -> None:
        os.close(self._index)
        os.close(self._data)

    def offset(self, name: bytes) -> int | None:
        """Return where an object begins, None if it is not in this pack."""
        low, high = self._fan[name[0] - 1] if name[0] else 0, self._fan[name[0]]
        while low < high:
            middle = (low + high) // 2
            found = os.pread(self._index, self._width, self._names + middle * self._width)
            if found == name:
                near = int.from_bytes(_pread(self._index, 4, self._offsets + 4 * middle), "big")
                if near < 1 << 31:
                    return near
                return int.from_bytes(_pread(self._index, 8, self._far + 8 * (near - (1 << 31))), "big")
            low, high = (middle + 1, high) if found < name else (low, middle)
        return None

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the pack."""
        return _pread(self._data, size, position)

    def header(self, offset: int) -> tuple[int, int, int]:
        """Return an object's kind, its size, and where its bytes begin."""
        data = os.pread(self._data, 16, offset) if offset < 1 << 62 else b""
        size, shift = 0, 4
        for position, byte in enumerate(data):
            if not position:
                size = byte & 15
            else:
                size |= (byte & 127) << shift
                shift += 7
            if byte < 128:  # noqa: PLR2004
                return data[0] >> 4 & 7, size, offset + position + 1
        raise GitFailed("a pack is damaged")

    def back(self, position: int) -> tuple[int, int]:
        """Return how far before it an object's base lies, and where its bytes begin."""
        distance = -1
        for index, byte in enumerate(os.pread(self._data, 16, position)):
            distance = (distance + 1) << 7 | byte & 127
            if byte < 128:  # noqa: PLR2004
                return distance, position + index + 1
        raise GitFailed("a pack is damaged")

    def inflate(self, position: int, size: int) -> bytes:
        """Return the bytes that are packed here, which have to be as many as was said."""
        stream, parts, left = zlib.decompressobj(), [], size
        try:
            while not stream.eof:
                packed = stream.unconsumed_tail or os.pread(self._data, _STEP, position)
                if not stream.unconsumed_tail:
                    position += len(packed)
                if not packed:
                    break
                part = stream.decompress(packed, left + 1)
                left -= len(part)
                parts.append(part)
                if left < 0:
                    break
        except zlib.error as error:
            raise GitFailed(f"a pack is damaged ({error})") from error
        if left:
            raise GitFailed("a pack is damaged")
        return b"".join(parts)


def _open_packs(common: int, width: int) -> Iterator[_Pack]:
    try:
        directory = open_below(common, b"objects/pack")
    except OSError:
        return
    try:
        names = sorted(map(os.fsencode, os.listdir(directory)))  # noqa: PTH208 - a descriptor
        indexes = [name for name in names if name.startswith(b"pack-") and name.endswith(b".idx")]
        if len(indexes) > _MAX_PACKS:
            raise GitFailed(f"it has more than {_MAX_PACKS:,} packs: git gc puts them together")
        for name in indexes:
            pack = _open_pack(directory, name, width)
            if pack is not None:
                yield pack
    finally:
        os.close(directory)


def _open_pack(directory: int, name: bytes, width: int) -> _Pack | None:
    """Open a pack by the name of its index, None if one of the two files is missing, a link or special."""
    opened: list[int] = []
    try:
        opened.append(os.open(name, OPEN_FILE, dir_fd=directory))
        opened.append(os.open(name[:-4] + b".pack", OPEN_FILE, dir_fd=directory))
        if all(modes.S_ISREG(os.fstat(handle).st_mode) for handle in opened):
            return _Pack(opened[0], opened[1], width)
    except OSError:
        pass
    except GitFailed:
        _close(opened)
        raise
    _close(opened)
    return None


def _close(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)


def _loose_path(name: str) -> bytes:
    return f"objects/{name[:2]}/{name[2:]}".encode("ascii", "replace")


def _loose_object(name: str, packed: bytes, limit: int) -> tuple[str, bytes]:
    stream = zlib.decompressobj()
    try:
        head = stream.decompress(packed, 64)
        kind, _, rest = head.partition(b" ")
        digits, end, begun = rest.partition(b"\0")
        if kind.decode("ascii", "replace") not in _KINDS.values() or not digits.isdigit() or not end:
            raise GitFailed(f"object {name} is damaged")
        size = int(digits)
        if size > limit:
            raise ObjectTooLarge(size)
        if len(begun) > size:
            raise GitFailed(f"object {name} is damaged")
        data = begun + stream.decompress(stream.unconsumed_tail, size - len(begun) + 1)
    except zlib.error as error:
        raise GitFailed(f"object {name} is damaged ({error})") from error
    if len(data) != size:
        raise GitFailed(f"object {name} is damaged")
    return kind.decode(), data


def _patched(base: bytes, delta: bytes, limit: int) -> bytes:
    """Return what a difference makes of its base."""
    try:
        from_size, position = _varint(delta, 0)
        to_size, position = _varint(delta, position)
        if from_size != len(base):
            raise GitFailed("a pack is damaged")
        if to_size > limit:
            raise ObjectTooLarge(to_size)
        parts, made = [], 0
        while position < len(delta):
            code = delta[position]
            position += 1
            if code & 128:
                where, position = _bytes_of(delta, position, code, 4)
                size, position = _bytes_of(delta, position, code >> 4 & 7, 3)
                part = base[where : where + (size or 0x10000)]
            else:
                part = delta[position : position + code]
                position += code
            made += len(part)
            if not part or made > to_size:
                raise GitFailed("a pack is damaged")
            parts.append(part)
    except IndexError:
        raise GitFailed("a pack is damaged") from None
    if made != to_size:
        raise GitFailed("a pack is damaged")
    return b"".join(parts)


def _bytes_of(delta: bytes, position: int, present: int, count: int) -> tuple[int, int]:
    """Return a number of which only those bytes are written that are not zero."""
    value = 0
    for bit in range(count):
        if present >> bit & 1:
            value |= delta[position] << 8 * bit
            position += 1
    return value, position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:  # noqa: PLR2004
            return value, position
        if shift > 63:  # noqa: PLR2004
            raise GitFailed("a pack is damaged")


def _pread(handle: int, size: int, position: int) -> bytes:
    data = os.pread(handle, size, position) if position < 1 << 62 else b""
    if len(data) != size:
        raise GitFailed("a pack is damaged")
    return data
