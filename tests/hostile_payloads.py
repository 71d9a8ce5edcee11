"""Payloads that nobody wrote with Holdfast, in a store of any kind, read by all that reads; a child process.

`python hostile_payloads.py URL FOLDER FIRST COUNT`: prints one line of JSON with what was read, what was refused, what
else was raised, what ran, what was touched outside, and the most memory taken. Payload N is the same on every machine.
"""

import importlib
import json
import os
import pkgutil
import random
import re
import struct
import sys
import warnings
from contextlib import suppress
from itertools import chain
from pathlib import Path

import msgspec
import ormsgpack
import zstandard

import holdfast
from holdfast import HoldfastError, Settings
from holdfast.encode.chunks import Chunk
from holdfast.encode.footprint import footprint
from holdfast.encode.plain import plain
from holdfast.encode.tree import LEAF, NODE, Ref, chunk_id, encode_node
from holdfast.journal.call_record import CallRecord, encode_call
from holdfast.model.checkpoint import Marks, SectionRecord
from holdfast.model.sections import SECTION_TYPES
from holdfast.store import tables as t
from holdfast.store.codec import RowCodec, _place
from holdfast.store.commit import IN_CHUNKS, Commit, Draft
from holdfast.store.medium import StaleError
from holdfast.testing.contract import Line

MB = 1 << 20
RUNS = ("base", "other")
FORBIDDEN = {
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn",
    "ctypes.dlopen", "webbrowser.open", "marshal.loads", "pickle.find_class",
}  # fmt: skip
OF_FILES = {"os.remove", "os.rename", "os.rmdir", "os.chmod", "os.link", "os.symlink", "shutil.rmtree", "os.mkdir"}
WORDS = (
    "canary_module.fire", "canary_module.Canary", "os.system", "builtins.eval", "subprocess.Popen", "holdfast.Kept",
    "holdfast.Redacted", "holdfast.Secret", "pathlib.Path", "__class__", "__reduce__", "py/object", "lc",
    "!!python/name:os.system",
    "cos\nsystem\n(S'true'\ntR.", "../../../../canary", "/canary", "..\\..\\canary", "Europe/../../../canary", "canary",
    "base", "state", "", "\0", "\x1b[2J", "a" * 5_000, "%s%n", "'; DROP TABLE run; --", "{project:>3000000000}",
    "latest",
)  # fmt: skip
KINDS = ("saved", "appended", "started", "done", "failed", "skipped", "withdrawn", "voided", "progress", "x", "")
PATHS = ("call:work", "log:said", "note", "", "call:", "said", "a/b", "../x")
SECTIONS = (*SECTION_TYPES, "state", "mine", "flow", "recovery", "workspace", "steps", "journal")


def text(chance):
    return chance.choice(WORDS)


def value(chance, depth=0):  # noqa: C901, PLR0912 - a row of shapes
    """Return the bytes of a value, sound or not."""
    kind = chance.randrange(19 if depth < 6 else 9)
    if kind == 0:
        return bytes((chance.randrange(256),))
    if kind == 1:
        return ormsgpack.packb(text(chance))
    if kind == 2:
        return ormsgpack.packb(chance.choice([0, -1, 1 << 63, 1e308, float("nan"), float("inf"), None, True, 1 << 40]))
    if kind == 3:
        return b"\xc4\x08" + chance.randbytes(8)
    if kind == 4:
        return b"\xa5" + chance.randbytes(5)
    if kind == 5:
        return chance.choice([b"\xdb", b"\xc6", b"\xdd", b"\xdf", b"\xc9"]) + chance.choice(
            [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\1\0"]
        )
    if kind == 6:
        return ext(chance.choice([8, 10, 13, 15]), chance.randbytes(chance.choice([0, 1, 16, 40])))
    if kind == 7:
        return ext(9, ormsgpack.packb(chance.choice(["1e999999999", "NaN", "sNaN", "1" * 4_000, "x", "-0", "1E+999"])))
    if kind == 8:
        return ext(chance.choice([4, 5, 6]), ormsgpack.packb(chance.choice([
            ["2024-01-01T00:00:00", chance.choice([text(chance), 10**18, -(10**15), 3.5, None]), chance.choice([0, 9])],
            "2024-13-45", ["x"], [], "0001-01-01", ["9999-12-31T23:59:59", -(10**11), 1],
        ])))  # fmt: skip
    parts = [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind in (9, 10):
        return bytes((0x90 | chance.choice([len(parts), len(parts), 15]),)) + b"".join(parts)
    if kind in (11, 12, 13):
        keys = [ormsgpack.packb(text(chance)) for _ in parts]
        if chance.random() < 0.2:
            keys = [value(chance, 9) for _ in parts]
        pairs = [key + one for key, one in zip(keys, parts, strict=True)]
        return bytes((0x80 | len(pairs),)) + b"".join(pairs)
    inner = bytes((0x90 | len(parts),)) + b"".join(parts)
    if kind == 14:
        return ext(14, b"\x92" + ormsgpack.packb(text(chance)) + (inner if chance.random() < 0.5 else value(chance, 9)))
    if kind == 15:
        return ext(chance.choice([1, 2, 3, 7, 11, 12]), inner)
    if kind == 16:
        return ext(chance.randrange(256), value(chance, depth + 1))
    if kind == 17:
        return ext(11, ormsgpack.packb([chance.choice(["PosixPath", "WindowsPath", "x", "PurePath"]), text(chance)]))
    return chance.choice([b"\x91", b"\x81\xa1a"]) * chance.choice([90, 500, 3_000, 100_000]) + b"\xc0"


def ext(code, data):
    return b"\xc9" + struct.pack(">I", len(data)) + bytes((code,)) + data


def entry(chance):
    """Return the body of a record: an entry, a call, an item, or anything."""
    pick = chance.randrange(5)
    if pick == 0:
        notes = [value(chance) for _ in range(chance.randrange(3))]
        parts = [[chance.choice(SECTIONS), value(chance), chance.choice(["set", "append", "drop", "x"]), value(chance)]]
        return msgspec.msgpack.encode([text(chance), text(chance), None, notes, parts, chance.random() < 0.5])
    if pick == 1:
        return msgspec.msgpack.encode([chance.randrange(5), value(chance)])
    if pick == 2:
        fields = {"kind": text(chance), "key": text(chance), "result": value(chance), "error": value(chance)}
        return msgspec.msgpack.encode(fields)
    if pick == 3:
        return msgspec.msgpack.encode([text(chance), None, value(chance), value(chance), 1, 2, None, [], {}])
    return value(chance)


def flipped(cell, chance):
    if isinstance(cell, bytes) and cell:
        at = chance.randrange(len(cell))
        return cell[:at] + bytes((cell[at] ^ 1 << chance.randrange(8),)) + cell[at + 1 :]
    if isinstance(cell, str) and cell:
        at = chance.randrange(len(cell))
        return cell[:at] + chance.choice("aZ0/_.") + cell[at + 1 :]
    if isinstance(cell, (bool, str, bytes)) or cell is None:
        return cell
    if isinstance(cell, int):
        return chance.choice([cell + 1, 0, -1, (1 << 63) - 1, cell ^ 1 << chance.randrange(40)])
    return chance.choice([1e300, -1e300, cell + 1])


class Payloads:
    """Puts one payload after another into a store, and takes it out again."""

    def __init__(self, hf):
        self.hf, self.store, self.medium = hf, hf.store, hf.store.medium
        self.rows = {}
        with self.medium.read() as reader:
            for table in t.TABLES:
                self.rows[table] = [one for one in reader.scan(table) if one[0] != "keys"]

    def put(self, number):
        """Put payload `number` in; return the runs to look at, and what takes it out again."""
        chance = random.Random(f"payload {number}")
        return (self.section, self.records, self.inbox, self.sealed_row, self.altered_row, self.node)[number % 6](
            chance, f"h{number}"
        )

    def section(self, chance, run):
        data = value(chance)
        if chance.random() < 0.3:
            data += chance.choice([b"\xc0", b"more", b"\xc1"])
        names = [chance.choice(SECTIONS) for _ in range(2)]
        self._commit(run, names, LEAF, data)
        return self._own(run)

    def node(self, chance, run):
        entries = [value(chance) for _ in range(3)]
        data = chance.choice([b"".join(entries), msgspec.msgpack.encode(entries), chance.randbytes(200), b""])
        self._commit(run, [chance.choice(SECTIONS)], NODE, data, size=chance.choice([0, 1, 100, 1 << 40, len(data)]))
        return self._own(run)

    def _commit(self, run, names, kind, data, size=None):
        codec, stored = 0, data
        chunk = Chunk(chunk_id(kind, data), codec, len(data), stored)
        sections = tuple(
            SectionRecord(name, kind, chunk.id, len(data) if size is None else size) for name in dict.fromkeys(names)
        )
        self.store.commit(Line(self.store, run).envelope((), sections=sections), Marks(), [chunk], expected_head=None)

    def records(self, chance, run):
        drafts = [
            Draft(chance.choice(KINDS), chance.choice(PATHS), chance.choice([1.0, 0.0, 4e9]), entry(chance))
            for _ in range(3)
        ]
        self._commit(run, ["state"], LEAF, b"\x01")
        self.store.write(Commit(run=run, records=drafts))
        return self._own(run)

    def inbox(self, chance, run):
        self._commit(run, ["state"], LEAF, b"\x01")
        for _ in range(3):
            self.store.post(run, chance.choice(["signal", "answer", "cancel", "pause", "resume", "x"]), value(chance))
        return self._own(run)

    def _own(self, run):
        return (run,), lambda: self.store.delete_run(run)

    def sealed_row(self, chance, _run):
        """Put a value into a row with the seal that anybody can compute without a key."""
        table = chance.choice([one for one in t.TABLES if self.rows[one]])
        row = chance.choice(self.rows[table])
        key = row[: len(table.key)]
        data = value(chance)
        packed = chance.choice([b"\0" + data, b"\1" + zstandard.ZstdCompressor().compress(data), data])
        seal = RowCodec()._seal(_place(table, key), packed)
        return self._replace(table, row, (*row[:-2], packed, seal))

    def altered_row(self, chance, _run):
        table = chance.choice([one for one in t.TABLES if self.rows[one]])
        row = chance.choice(self.rows[table])
        at = chance.randrange(len(table.key), len(row))
        return self._replace(table, row, (*row[:at], flipped(row[at], chance), *row[at + 1 :]))

    def _replace(self, table, row, new):
        self._put(table, new)
        return RUNS, lambda: self._put(table, row)

    def _put(self, table, row):
        with self.medium.write() as transaction:
            transaction.put(table, row)


def base(hf):
    """Make runs with something in every table."""
    for name in RUNS:
        with hf.run(name) as run:
            run.checkpoint(state={"n": 1}, label="one")
            run.step("work", lambda: {"said": [1, 2]})
            run.log("said").append({"text": "x"})
            run.checkpoint(state={"n": 2})
        hf.control.signal(name, "go", {"a": 1})
        hf.store.leases.end(hf.store.leases.take(name, owner="me", ttl_s=5))
        hf.checkpoints(name)


def looks(hf, run):
    """Yield everything that reads a run."""
    yield hf.runs
    yield lambda: hf.checkpoints(run)
    yield lambda: hf.control.waiting(run)
    yield lambda: hf.plan(run)
    yield lambda: hf.find(run)

    def latest():
        there = hf.latest(run)
        told = [there.summary, there.recovery, there.redacted, repr(there), there.sections]
        for name in there.sections:
            with suppress(HoldfastError):
                plain(there.section(name))
                told.append(name)
        return told

    yield latest
    yield lambda: hf.latest(run).calls
    yield lambda: hf.latest(run).notes
    yield lambda: list(hf.latest(run).log("said"))

    def resume():
        with hf.run(run) as opened:
            opened.step("work", lambda: 1)
            opened.checkpoint(state={"n": 3})

    yield resume


class Watch:
    """What the process did that it must not."""

    def __init__(self, folder, canary):
        self.folder, self.canary, self.is_on, self.seen = folder, canary, False, []
        sys.addaudithook(self.heard)

    def heard(self, event, arguments):
        if not self.is_on:
            return
        if event in FORBIDDEN or (event in OF_FILES and not self._is_own(arguments)):
            self.seen.append(f"{event} {arguments!r:.120}")
        elif event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            writes = isinstance(arguments[2], int) and arguments[2] & (
                os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
            )
            if path.startswith(self.canary) or (writes and not path.startswith((self.folder, "/dev/null", "/dev/shm"))):
                self.seen.append(f"open {path}")

    def _is_own(self, arguments):
        """A store writes and removes its own files, by descriptor, by name below one, or by their path."""
        paths = [os.fsdecode(one) for one in arguments if isinstance(one, (str, bytes))]
        return all("/" not in path or path.startswith(self.folder) for path in paths)


def bombs():
    """Yield a name and packed bytes of up to 60 MB that shrink to less than a megabyte."""
    most = 60 * MB
    yield "texts of two", b"\xdd" + struct.pack(">I", most // 3) + b"\xa2ab" * (most // 3)
    yield "empty maps", b"\xdd" + struct.pack(">I", most) + b"\x80" * most
    yield "empty lists", b"\xdd" + struct.pack(">I", most) + b"\x90" * most
    yield "maps of one", b"\xdd" + struct.pack(">I", most // 3) + b"\x81\xa0\xc0" * (most // 3)
    yield "nothing", b"\xdd" + struct.pack(">I", most) + b"\xc0" * most
    yield "numbers", b"\xdd" + struct.pack(">I", most // 3) + b"\xcd\x04\x01" * (most // 3)
    yield "floats", b"\xdd" + struct.pack(">I", most // 9) + b"\xcb" + b"\x3f\xf8\0\0\0\0\0\0\xcb" * (most // 9)
    yield (
        "a text with a wide character",
        b"\xdb" + struct.pack(">I", most + 4) + b"a" * most + "\U0001f600".encode(),
    )
    yield "a text", b"\xdb" + struct.pack(">I", most) + b"a" * most
    yield "bytes", b"\xc6" + struct.pack(">I", most) + bytes(most)
    for name, code, data in (
        ("decimals", 9, b"\xa11"), ("tuples", 1, b"\x90"), ("sets", 2, b"\x90"),
        ("paths", 11, b"\x92\xa9PosixPath\xa1a"), ("times", 7, b"\x93\0\0\0"),
        ("dates", 5, b"\xaa2024-01-01"), ("maps", 12, b"\x90"),
    ):  # fmt: skip
        one = b"\xc7" + bytes((len(data), code)) + data
        yield name, b"\xdd" + struct.pack(">I", most // len(one)) + one * (most // len(one))
    keys = b"".join(b"\xa4%04x\xc0" % number for number in range(60_000))
    yield "keys", b"\xdd" + struct.pack(">I", 5) + (b"\xdf" + struct.pack(">I", 60_000) + keys) * 5
    numbers = b"".join(b"\xce" + struct.pack(">I", number << 8) for number in range(100_000))
    yield "sets of numbers", b"\x94" + ext(2, b"\xdd" + struct.pack(">I", 100_000) + numbers) * 4


def fitting():
    """Yield as much of each bomb as is still read: what is allowed stays within bounds, too."""
    for name, unit in (
        ("empty maps", b"\x80"), ("maps of one", b"\x81\xa0\xc0"), ("nothing", b"\xc0"), ("texts", b"\xa2ab"),
        ("numbers", b"\xcd\x04\x01"), ("tuples", b"\xc7\x01\x01\x90"), ("sets", b"\xc7\x01\x02\x90"),
        ("decimals", b"\xc7\x02\x09\xa11"), ("paths", b"\xc7\x0d\x0b\x92\xa9PosixPath\xa1a"),
    ):  # fmt: skip
        each = footprint(unit * 1_000, 1 << 60) / 1_000
        count = min(int(0.99 * 3 * 64 * MB / each), 60 * MB // len(unit))
        yield f"{name} that pass", b"\xdd" + struct.pack(">I", count) + unit * count


def in_chunks(data):
    """Return a value's chunks in order."""
    packer = zstandard.ZstdCompressor(level=3)
    pieces = [data[start : start + MB] for start in range(0, len(data), MB)]
    return [Chunk(chunk_id(LEAF, piece), 1, len(piece), packer.compress(piece)) for piece in pieces]


def as_section(hf, run, data):
    chunks = in_chunks(data)
    node, size = encode_node([Ref(LEAF, chunk.size, chunk.id) for chunk in chunks])
    root = Chunk(chunk_id(NODE, node), 0, len(node), node)
    held = [*{chunk.id: chunk for chunk in chunks}.values(), root]
    assert sum(len(chunk.data) for chunk in held) < MB
    sections = (SectionRecord("state", NODE, root.id, size),)
    hf.store.commit(Line(hf.store, run).envelope((), sections=sections), Marks(), held, expected_head=None)


def as_result(hf, run, data):
    chunks = in_chunks(encode_call(CallRecord(kind="step", at=1.0, identity="x", result=data)))
    held = {chunk.id: chunk for chunk in chunks}.values()
    record = Draft("done", "call:work", 1.0, b"", IN_CHUNKS, tuple(chunk.id for chunk in chunks))
    tiny = Chunk(chunk_id(LEAF, b"\x01"), 0, 1, b"\x01")
    sections = (SectionRecord("state", LEAF, tiny.id, 1),)
    hf.store.commit(Line(hf.store, run).envelope((), sections=sections), Marks(), [tiny], expected_head=None)
    hf.store.write(Commit(run=run, records=[record], chunks=held))


def _state(checkpoint):
    return checkpoint.section("state")


def _calls(checkpoint):
    return plain(checkpoint.calls)


def drop_bombs(hf, every):
    """Store every n-th bomb as a section and as the result of a call; read it; return what was read and refused."""
    done = {"read": 0, "refused": 0, "other": []}
    for number, (name, data) in enumerate(chain(bombs(), fitting())):
        if number % every:
            continue
        for put in (as_section, as_result):
            run = f"{put.__name__}{number}"
            put(hf, run, data)
            for look in (_state, _calls):
                try:
                    look(hf.latest(run))
                    done["read"] += 1
                except HoldfastError:
                    done["refused"] += 1
                except BaseException as error:  # noqa: BLE001 - that there is none is the claim
                    done["other"].append(f"{name}: {type(error).__name__}")
            hf.store.delete_run(run)
        sys.stderr.write(f"{name}: {peak_mb()} MB\n")
    return done


def peak_mb():
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024


def tried(done, what, look):
    """Call something: it reads, or is refused with a type."""
    try:
        look()
        done["read"] += 1
    except HoldfastError:
        done["refused"] += 1
    except BaseException as error:  # noqa: BLE001 - that there is none is the claim
        done["other"].append(f"{what}: {type(error).__name__} {str(error)[:120]}")


def attack(hf, watch, first, count):
    """Put payloads in, read everything after each, and return what came of it."""
    done = {"read": 0, "refused": 0, "other": []}
    payloads = Payloads(hf)
    for number in range(first, first + count):
        try:
            runs, take_out = payloads.put(number)
        except (HoldfastError, StaleError):
            done["refused"] += 1
            continue
        watch.is_on = True
        for run in runs:
            for look in looks(hf, run):
                tried(done, f"payload {number}", look)
        if number % 20 == 0:
            tried(done, f"payload {number}, verify", hf.verify)
        watch.is_on = False
        for _ in range(2):
            with suppress(HoldfastError):
                take_out()
                break
    return done


def load_everything():
    """Import what is loaded at first use, so that only what data causes is seen as code that is loaded."""
    for package in ("capture", "encode", "journal", "model", "recovery", "runtime", "store", "verify", "workspace"):
        for module in pkgutil.iter_modules(importlib.import_module(f"holdfast.{package}").__path__):
            with suppress(ImportError):
                importlib.import_module(f"holdfast.{package}.{module.name}")


def main(url, folder, first, count):
    warnings.simplefilter("ignore")
    canary = Path(folder) / "canary"
    canary.mkdir()
    (canary / "canary").write_text("a private file")
    (canary / "canary_module.py").write_text("raise SystemExit('it was imported')\n")
    sys.path.insert(0, str(canary))
    options = {"durability": "process"} if not url.startswith(("memory", "file")) else {}
    with holdfast.open(url, settings=Settings(), **options) as hf:
        if first < 0:
            done = drop_bombs(hf, count)
        else:
            base(hf)
            for look in looks(hf, "base"):
                look()
            load_everything()
            watch = Watch(os.path.realpath(folder), os.path.realpath(canary))
            done = attack(hf, watch, first, count)
            done |= {"seen": watch.seen, "imported": "canary_module" in sys.modules}
        sys.stdout.write(json.dumps({**done, "peak_mb": peak_mb()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
