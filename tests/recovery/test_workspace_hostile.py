"""Hostile manifests are refused as a whole before the first write; links planted in the target lead nowhere."""

# ruff: noqa: PTH104, PTH108, PTH115, PTH211 - names are bytes here

from __future__ import annotations

import json
import os
import random
import signal
import stat
import threading
from contextlib import suppress

import ormsgpack
import pytest

from holdfast.encode.chunks import ChunkWriter
from holdfast.encode.compress import Compressor
from holdfast.encode.tree import LEAF, NODE, Ref
from holdfast.errors import HoldfastError, IntegrityError, LimitExceeded, RestoreConflict, RestoreRefused
from holdfast.workspace import plan as plans
from holdfast.workspace.decide import Decisions
from holdfast.workspace.ops import FileOps
from holdfast.workspace.options import WorkspaceOptions
from holdfast.workspace.position import NO_REPOSITORY
from holdfast.workspace.restore import apply, recover_interrupted
from holdfast.workspace.skips import NO_SKIPS
from holdfast.workspace.snapshot import Snapshot
from holdfast.workspace.tree import walk
from unit.workspace.kit import Box, seen, write

TREES = 250 if os.environ.get("HOLDFAST_TORTURE") else 50
RACES = 400 if os.environ.get("HOLDFAST_TORTURE") else 60
FILE, DIRECTORY, LINK = 0, 1, 2


class Forge:
    """Makes snapshots that no capture would make."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.writer = ChunkWriter(Compressor())

    def file(self, data: bytes = b"evil"):
        return self.writer.leaf(data)

    def directory(self, *entries):
        """Entries are (name, kind, mode, ref or target)."""
        literal = [
            1,
            [name for name, *_ in entries],
            bytes(kind for _, kind, *_ in entries),
            [mode for _, _, mode, _ in entries],
            [0 for _, kind, *_ in entries if kind == FILE],
            [what for _, kind, _, what in entries if kind == LINK],
        ]
        return self.writer.node([ormsgpack.packb(literal), *[what for _, kind, _, what in entries if kind != LINK]])

    def snapshot(self, root) -> Snapshot:
        self.box.store.update(self.writer.chunks)
        return Snapshot(root, 1, 1, 1, NO_SKIPS, (NO_REPOSITORY,))


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path / "w")
    write(made.root, {"kept": "1"})
    return made


HOSTILE = [b"..", b".", b"", b"a/b", b"/etc/x", b"a\0b", b".git", b".GIT", b".git ", b".git.", b"GIT~1", b".holdfast"]
HOSTILE += [".g\u200cit".encode(), b".git::$INDEX_ALLOCATION", b"..\\..\\x", b"\\x", b"C:\\x", b"x" * 256]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_name_that_leads_elsewhere_refuses_the_whole_restore(box, name, kind):
    forge = Forge(box)
    hooks = forge.directory((b"hooks", FILE, 0o755, forge.file()))
    bad = (name, FILE, 0o644, forge.file()) if kind == "file" else (name, DIRECTORY, 0o755, hooks)
    inner = forge.directory(bad)
    root = forge.directory((b"good", FILE, 0o644, forge.file()), (b"sub", DIRECTORY, 0o755, inner))
    before = seen(box.root)
    with pytest.raises(IntegrityError):
        box.plan(forge.snapshot(root))
    assert seen(box.root) == before


@pytest.mark.parametrize("names", [(b"a", b"a"), (b"b", b"a")])
def test_duplicate_and_unordered_names_are_refused(box, names):
    forge = Forge(box)
    root = forge.directory(*[(name, FILE, 0o644, forge.file()) for name in names])
    with pytest.raises(IntegrityError, match="twice or out of order"):
        box.plan(forge.snapshot(root))


def test_a_link_that_leads_out_is_refused_unless_allowed(box):
    forge = Forge(box)
    for target in (b"/etc/passwd", b"../../x", b"d/../../x"):
        snapshot = forge.snapshot(forge.directory((b"l", LINK, 0, target)))
        with pytest.raises(RestoreRefused, match="leads out of the workspace"):
            box.plan(snapshot)
    apply(box.plan(snapshot, allow_outside_links=True), box.reader)
    assert os.readlink(box.root / "l") == "d/../../x"


CHAINS = [
    {b"esc": b"a/b/up/../../out", b"a/b/up": b"../.."},
    {b"esc": b"a/b/up/..", b"a/b/up": b"../.."},
    {b"a/b/one": b"../two", b"a/two": b"../three", b"three": b".."},
    {b"a/b/l": b"../../d/x", b"d": b"a/b/up", b"a/b/up": b"../../.."},
]


def _forged(forge, links):
    """Return a tree of links at any depth."""
    tree: dict[bytes, object] = {}
    for path, target in links.items():
        place = tree
        *above, name = path.split(b"/")
        for part in above:
            place = place.setdefault(part, {})
        place[name] = target
    return _forged_directory(forge, tree)


def _forged_directory(forge, tree):
    entries = [
        (name, LINK, 0, item) if isinstance(item, bytes) else (name, DIRECTORY, 0o755, _forged_directory(forge, item))
        for name, item in sorted(tree.items())
    ]
    return forge.directory(*entries)


@pytest.mark.parametrize("links", CHAINS)
def test_links_that_lead_out_over_each_other_are_refused(box, links):
    forge = Forge(box)
    snapshot = forge.snapshot(_forged(forge, links))
    before = seen(box.root)
    with pytest.raises(RestoreRefused, match="out of the workspace"):
        box.plan(snapshot)
    assert seen(box.root) == before
    apply(box.plan(snapshot, allow_outside_links=True), box.reader)


@pytest.mark.parametrize("first", [b"esc", b"a/b/up"])
def test_a_chain_that_is_restored_in_two_parts_is_refused_with_the_second(box, first):
    forge = Forge(box)
    links = CHAINS[0]
    apply(box.plan(forge.snapshot(_forged(forge, {first: links[first]}))), box.reader)
    box.capture()
    (rest,) = (path for path in links if path != first)
    with pytest.raises(RestoreRefused, match="out of the workspace"):
        box.plan(forge.snapshot(_forged(forge, links)), only=[rest.decode()])


def test_chains_that_stay_inside_and_loops_are_restored(box):
    forge = Forge(box)
    links = {b"a/b/up": b"../..", b"in": b"a/b/up/kept", b"x": b"y", b"y": b"x", b"none": b"a/none/../.."}
    snapshot = forge.snapshot(_forged(forge, links))
    apply(box.plan(snapshot), box.reader)
    assert (box.root / "in").read_text() == "1"


def test_a_link_over_one_that_is_not_captured_is_judged_by_where_that_leads(box, tmp_path):
    write(box.root, {".holdfastignore": "away\n", "away": (str(tmp_path),)})
    box.capture()
    forge = Forge(box)
    with pytest.raises(RestoreRefused, match="out of the workspace"):
        box.plan(forge.snapshot(_forged(forge, {b"l": b"away/x"})))


def _ship(box, name="restore-1", *, mode=0o7777):
    """Put an interrupted restore into the tree, as a repository could."""
    work = box.root / ".holdfast" / name
    write(work, {"new": {"1": "evil"}, "old": {}})
    moves = [
        {"do": "put", "path": ".envrc", "slot": 1, "expect": {"kind": "file", "mode": 0o644}},
        {"do": "chmod", "path": "d", "mode": mode},
    ]
    (work / "journal").write_text(json.dumps({"plan": "x", "moves": moves, "format": 1}))
    return work


@pytest.mark.parametrize("kind", ["journal", "signed", "done", "undone", "fifo", "huge", "link"])
def test_a_journal_that_came_with_the_files_is_not_carried_out(box, kind, tmp_path):
    """Nothing is done, nothing waits, and the error says what to delete."""
    write(box.root, {"d": {"x": "1"}})
    work = _ship(box)
    place = work / "journal"
    if kind == "signed":
        place.write_bytes(os.urandom(32) + place.read_bytes())
    elif kind in ("done", "undone"):
        place.rename(work / kind)
    elif kind == "huge":
        os.truncate(place, 3 * 1024**3)
    elif kind in ("fifo", "link"):
        place.rename(tmp_path / "journal")
        os.mkfifo(place) if kind == "fifo" else place.symlink_to(tmp_path / "journal")
    before = seen(box.root)
    with pytest.raises(RestoreRefused, match=r"delete \.holdfast/restore-1"):
        recover_interrupted(box.root)
    assert seen(box.root) == before


def test_a_journal_of_our_own_is_not_carried_out_under_another_name(box):
    """What a killed restore left here is not to be replayed by copying it into a repository."""
    wanted = box.capture()
    write(box.root, {"kept": "2"})
    box.capture()
    plan = box.plan(wanted)
    child = os.fork()
    if child == 0:

        class Killed(FileOps):
            def place(self, *_):
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            apply(plan, box.reader, ops=Killed())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    (work,) = (box.root / ".holdfast").glob("restore-*")
    work.rename(work.with_name("restore-0"))
    with pytest.raises(RestoreRefused, match="did not begin it"):
        recover_interrupted(box.root)
    work.with_name("restore-0").rename(work)
    assert recover_interrupted(box.root) == ["finished"]
    assert (box.root / "kept").read_text() == "1"


def test_modes_in_a_plan_that_was_edited_are_masked(box):
    forge = Forge(box)
    inner = forge.directory((b"x", FILE, 0o644, forge.file()))
    plan = box.plan(forge.snapshot(forge.directory((b"d", DIRECTORY, 0o755, inner), (b"f", FILE, 0o644, forge.file()))))
    edited = plans.to_json(plan).replace(b'"mode":493', b'"mode":4095').replace(b'"mode":420', b'"mode":2541')
    apply(plans.from_json(edited), box.reader)
    for path in ("d", "d/x", "f"):
        assert (box.root / path).stat().st_mode & 0o7000 == 0


def test_a_tree_of_thousands_of_levels_is_a_typed_error(box):
    forge = Forge(box)
    below = forge.directory()
    for _ in range(3000):
        below = forge.directory((b"a", DIRECTORY, 0o755, below))
    with pytest.raises(LimitExceeded):
        box.plan(forge.snapshot(below))


def test_setuid_setgid_and_sticky_bits_are_dropped(box):
    forge = Forge(box)
    inner = forge.directory((b"su", FILE, 0o6755, forge.file()))
    root = forge.directory((b"d", DIRECTORY, 0o7777, inner), (b"su", FILE, 0o4755, forge.file()))
    apply(box.plan(forge.snapshot(root)), box.reader)
    for path in ("su", "d", "d/su"):
        assert stat.S_IMODE((box.root / path).stat().st_mode) & 0o7000 == 0


def test_a_tree_that_names_one_directory_again_and_again_is_stopped(box):
    forge = Forge(box)
    below = forge.directory()
    for _ in range(30):
        below = forge.directory((b"a", DIRECTORY, 0o755, below), (b"b", DIRECTORY, 0o755, below))
    with pytest.raises(LimitExceeded):
        list(walk(box.reader, forge.snapshot(below).root))


@pytest.mark.parametrize(
    "literal",
    [
        b"\xc1",
        ormsgpack.packb(1),
        ormsgpack.packb([9]),
        ormsgpack.packb([1, ["text"], b"\0", [0], [0], []]),
        ormsgpack.packb([1, [b"a"], b"\0", ["x"], [0], []]),
        ormsgpack.packb([1, [b"a", b"b"], b"\0", [0], [0], []]),
        ormsgpack.packb([1, [b"a"], b"\7", [0], [0], []]),
        ormsgpack.packb([1, [b"a"], b"\2", [0], [], [b""]]),
        ormsgpack.packb([1, [], b"", [], [], [b"x"]]),
    ],
)
def test_a_malformed_directory_is_an_integrity_error(box, literal):
    forge = Forge(box)
    root = forge.writer.node([literal, forge.file()])
    with pytest.raises(IntegrityError):
        box.plan(forge.snapshot(root))


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", ".git/hooks/x", "a/.git/config", ".holdfast/x"])
def test_a_plan_edited_to_name_another_path_is_refused(box, path):
    forge = Forge(box)
    plan = box.plan(forge.snapshot(forge.directory((b"good", FILE, 0o644, forge.file()))))
    with pytest.raises(RestoreRefused):
        plans.from_json(plans.to_json(plan).replace(b'"good"', b'"%s"' % path.encode()))


def test_a_link_planted_before_the_restore_is_replaced_and_never_written_through(box, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    write(box.root, {"d": {"x": "1"}, "f": "2"})
    wanted = box.capture()
    (box.root / "d/x").unlink()
    (box.root / "d").rmdir()
    (box.root / "f").unlink()
    (box.root / "d").symlink_to(outside)
    (box.root / "f").symlink_to(outside / "target")
    box.capture()
    box.restore(wanted)
    assert list(outside.iterdir()) == []
    assert (box.root / "d/x").read_text() == "1"
    assert not (box.root / "f").is_symlink()


def test_a_hard_link_to_a_file_outside_is_replaced_and_never_written_through(box, tmp_path):
    outside = tmp_path / "precious"
    wanted = box.capture()
    outside.write_text("precious")
    (box.root / "kept").unlink()
    (box.root / "kept").hardlink_to(outside)
    box.capture()
    box.restore(wanted)
    assert outside.read_text() == "precious"
    assert (box.root / "kept").read_text() == "1"


def test_a_pipe_in_the_place_of_a_file_is_a_conflict_and_nothing_hangs(box):
    wanted = box.capture()
    write(box.root, {"kept": "changed"})
    box.capture()
    plan = box.plan(wanted)
    (box.root / "kept").unlink()
    os.mkfifo(box.root / "kept")
    with pytest.raises(RestoreConflict):
        apply(plan, box.reader)
    assert stat.S_ISFIFO((box.root / "kept").lstat().st_mode)
    assert [item.action for item in box.plan(wanted).items] == ["conflict"]


def test_the_place_of_our_own_store_is_neither_captured_nor_written(tmp_path):
    box = Box(tmp_path / "w", WorkspaceOptions(store_paths=("data/store",)))
    write(box.root, {"data": {"store": {"holdfast.db": "db"}, "x": "1"}})
    assert box.paths(box.capture()) == ["data/x"]
    forge = Forge(box)
    store = forge.directory((b"store", DIRECTORY, 0o755, forge.directory((b"holdfast.db", FILE, 0o644, forge.file()))))
    with pytest.raises(RestoreRefused, match="where the store lies"):
        box.plan(forge.snapshot(forge.directory((b"data", DIRECTORY, 0o755, store))))


def test_a_home_of_ours_that_is_a_link_is_refused(box, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    wanted = box.capture()
    write(box.root, {"kept": "changed"})
    box.capture()
    plan = box.plan(wanted)
    (box.root / ".holdfast").symlink_to(outside)
    with pytest.raises(RestoreRefused):
        apply(plan, box.reader)
    assert list(outside.iterdir()) == []


def test_a_racing_swapper_cannot_make_it_write_outside(box, tmp_path):
    """THREATS 6: directories of the target are exchanged with links to elsewhere all the time."""
    outside = tmp_path / "outside"
    outside.mkdir()
    write(outside, {"x0": "precious"})
    write(box.root, {"d": {f"x{i}": "wanted" for i in range(20)}})
    wanted = box.capture()
    write(box.root, {"d": {f"x{i}": "changed" for i in range(20)}})
    box.capture()
    stop = threading.Event()
    place = os.fsencode(box.root)

    def swap():
        while not stop.is_set():
            try:
                os.rename(place + b"/d", place + b"/hidden")
                os.symlink(os.fsencode(outside), place + b"/d")
                os.unlink(place + b"/d")
                os.rename(place + b"/hidden", place + b"/d")
            except OSError:
                continue

    swapper = threading.Thread(target=swap)
    plan = box.plan(wanted)
    swapper.start()
    outcomes = set()
    try:
        for _ in range(60):
            try:
                apply(plan, box.reader, durable=False)
                outcomes.add("done")
            except (RestoreConflict, HoldfastError) as error:
                outcomes.add(type(error).__name__)
            assert seen(outside) == {b"x0": ("file", 0o644, b"precious")}
    finally:
        stop.set()
        swapper.join()
    assert outcomes
    recover_interrupted(box.root)
    assert seen(outside) == {b"x0": ("file", 0o644, b"precious")}


TARGETS = [
    b"..",
    b"../outside/secret",
    b"/etc/passwd",
    b"a",
    b"./a",
    b"a/../../outside",
    b"",
    b"\0",
    b"x" * 5_000,
    b"/",
]
NAMES = [
    *HOSTILE,
    b"a",
    b"b",
    b"d",
    b"kept",
    b"A",
    b"x\n",
    b"-rf",
    b"\xff\xfe",
    b"CON",
    b"link",
    b"con.txt",
    b"a" * 255,
]


def forged_tree(forge, chance, depth=0):
    """Return a directory that no capture would make."""
    entries = []
    for _ in range(chance.randrange(1, 5)):
        kind = chance.choice([FILE, FILE, DIRECTORY, LINK, LINK] if depth < 4 else [FILE, LINK])
        name = chance.choice(NAMES if chance.random() < 0.05 else [b"a", b"b", b"d", b"kept", b"link"])
        mode = chance.choice([1 << 40, -1, 0o100644] if chance.random() < 0.02 else [0o644, 0o755, 0o4755, 0o7777, 0])
        what = chance.choice(TARGETS if chance.random() < 0.3 else [b"a", b"kept", b"b/a"])
        if kind == FILE:
            what = forge.file(chance.randbytes(chance.choice([5, 5, 5, 70_000])))
        elif kind == DIRECTORY:
            what = forged_tree(forge, chance, depth + 1)
        if kind != LINK and chance.random() < 0.02:
            what = forge.file(b"a file in the place of a directory") if kind == DIRECTORY else forge.directory()
        entries.append((name, kind, mode, what))
    if chance.random() < 0.95:
        entries = sorted({entry[0]: entry for entry in entries}.values(), key=lambda entry: entry[0])
    return forge.directory(*entries)


def test_a_generated_tree_writes_nothing_outside_and_is_restored_or_refused_with_a_type(tmp_path):
    """Threats 5 and 6: 50 trees, 250 with HOLDFAST_TORTURE; a planted link beside what they name."""
    outside = tmp_path / "outside"
    write(outside, {"secret": "precious"})
    before = seen(outside)
    done = {"restored": 0, "refused": 0}
    for number in range(TREES):
        chance = random.Random(f"tree {number}")
        box = Box(tmp_path / f"w{number}")
        write(box.root, {"kept": "1"})
        (box.root / chance.choice(["a", "b", "link", "d"])).symlink_to(outside)
        forge = Forge(box)
        try:
            snapshot = forge.snapshot(forged_tree(forge, chance))
            allowed = {"allow_outside_links": chance.random() < 0.2}
            box.restore(snapshot, Decisions(edits="take", conflicts="take"), **allowed)
            done["restored"] += 1
        except (HoldfastError, RestoreConflict):
            done["refused"] += 1
        assert seen(outside) == before, number
        for folder, _, names in os.walk(box.root):
            for name in names:
                assert not os.lstat(os.path.join(folder, name)).st_mode & 0o7000, number  # noqa: PTH118
    assert min(done.values()) > TREES // 10


def test_a_racing_swapper_cannot_make_a_capture_read_outside(box, tmp_path):
    """THREATS 7: directories and files of a workspace are exchanged with links to private ones all the time."""
    outside = tmp_path / "outside"
    write(outside, {"x0": "a private text", "deep": {"x1": "a private text"}})
    write(box.root, {"d": {f"x{i}": f"own {i}" for i in range(20)} | {"deep": {"x1": "own"}}, "f": "own"})
    stop = threading.Event()
    place = os.fsencode(box.root)

    def swap():
        while not stop.is_set():
            for name, target in ((b"/d", b""), (b"/d/deep", b"/deep"), (b"/f", b"/x0")):
                try:
                    os.rename(place + name, place + b"/hidden")
                    os.symlink(os.fsencode(outside) + target, place + name)
                    os.unlink(place + name)
                    os.rename(place + b"/hidden", place + name)
                except OSError:
                    continue

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes = set()
    try:
        for _ in range(RACES):
            try:
                box.capture()
                outcomes.add("captured")
            except HoldfastError as error:
                outcomes.add(type(error).__name__)
    finally:
        stop.set()
        swapper.join()
    assert "captured" in outcomes
    stored = b"".join(data for data in _all_leaves(box))
    assert b"own" in stored
    assert b"a private text" not in stored


def _all_leaves(box):
    for name in list(box.store):
        for kind in (LEAF, NODE):
            with suppress(HoldfastError):
                yield from box.reader.plain([Ref(kind, 0, name)])
