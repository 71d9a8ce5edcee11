"""Hostile repositories: whatever one ships, nothing of it is run and nothing outside of it is read or written.

Each case is a repository with a few traps out of the lists below, captured twice, gone back to and asked about. The
kernel reports every opening of a file in the directory outside; a marker tells that a command was run.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import struct
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.encode.tree import LEAF, NODE, Ref
from holdfast.errors import HoldfastError
from holdfast.workspace import git as history
from holdfast.workspace.checkout import checkout
from holdfast.workspace.decide import Decisions
from holdfast.workspace.restore import recover_interrupted
from unit.workspace.kit import Box, git, repository, seen, write

CASES = 240
SECRET = b"canary-7d1f-private-key"
_IN_OPEN, _IN_MODIFY, _IN_CREATE, _IN_DELETE = 0x20, 0x02, 0x100, 0x200


class Watch:
    """Counts what is opened, made or changed in some directories, by whichever process."""

    def __init__(self, *places: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._handle >= 0
        for place in places:
            for directory, _, _ in os.walk(place):
                mask = _IN_OPEN | _IN_MODIFY | _IN_CREATE | _IN_DELETE
                assert self._libc.inotify_add_watch(self._handle, os.fsencode(directory), mask) >= 0

    def close(self) -> None:
        os.close(self._handle)

    def events(self) -> list[str]:
        found: list[str] = []
        with suppress(BlockingIOError):
            while data := os.read(self._handle, 65536):
                position = 0
                while position < len(data):
                    _, mask, _, size = struct.unpack_from("iIII", data, position)
                    name = data[position + 16 : position + 16 + size].rstrip(b"\0")
                    position += 16 + size
                    if not mask & 0x40000000 or mask & ~(0x40000000 | _IN_OPEN):  # directories are only opened
                        found.append(f"{mask:x} {name.decode('utf-8', 'replace')}")
        return found


class Scene:
    """One hostile repository on its way: where its traps may lead, and what they would leave."""

    def __init__(self, chance: random.Random, root: Path, outside: Path, marker: Path) -> None:
        self.chance = chance
        self.root = root
        self.dot = root / ".git"
        self.outside = outside
        self.command = f"touch {marker}; cat"

    def config(self, text: bytes) -> None:
        place = self.dot / "config"
        if place.is_file() and not place.is_symlink():
            place.write_bytes(place.read_bytes() + b"\n" + text.replace(b"CMD", self.command.encode()) + b"\n")

    def attribute(self, value: bytes) -> None:
        place = self.chance.choice((self.root / ".gitattributes", self.dot / "info/attributes"))
        if not os.path.lexists(place):
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(b"")
        if place.is_file() and not place.is_symlink():
            place.write_bytes(place.read_bytes() + b"* " + value + b"\n")

    def link(self, name: str, target: Path) -> None:
        self.clear(name)
        (self.dot / name).symlink_to(target)

    def pipe(self, place: Path) -> None:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place)

    def clear(self, name: str) -> None:
        place = self.dot / name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)


DRIVERS = [b"\xff", b"a=b", b"\xc3\x28", b"x.y.z", b" ", b"clean", "\u202e".encode(), b"a/b", b"-c", b"lfs", b"A" * 300]


def filters(scene: Scene) -> None:
    name = scene.chance.choice(DRIVERS)
    part = scene.chance.choice((b"clean", b"smudge", b"process"))
    scene.config(b'[filter "' + name + b'"]\n\t' + part + b' = "CMD"\n\trequired = true')
    scene.attribute(b"filter=" + name)


def textconv(scene: Scene) -> None:
    key = scene.chance.choice((b"textconv", b"command"))
    scene.config(b'[diff "evil"]\n\t' + key + b' = "CMD"\n\tcachetextconv = true\n[diff]\n\texternal = "CMD"')
    scene.attribute(b"diff=evil merge=evil")
    scene.config(b'[merge "evil"]\n\tdriver = "CMD"')


def monitor(scene: Scene) -> None:
    scene.config(b'[core]\n\tfsmonitor = "CMD"\n\tuntrackedCache = true\n\tfsmonitorHookVersion = 1')


def commands(scene: Scene) -> None:
    names = (b"sshCommand", b"pager", b"editor", b"askPass", b"gitProxy", b"alternateRefsCommand")
    scene.config(b"[core]\n\t" + scene.chance.choice(names) + b' = "CMD"')
    scene.config(b'[credential]\n\thelper = "!CMD"\n[gpg]\n\tprogram = "CMD"\n[alias]\n\tstatus = "!CMD"')
    scene.config(
        b'[uploadpack]\n\tpackObjectsHook = "CMD"\n[remote "origin"]\n\turl = ext::sh -c CMD\n\tpromisor = true'
    )
    scene.config(b"[extensions]\n\tpartialClone = origin")


def hooks(scene: Scene) -> None:
    place = scene.chance.choice((scene.dot / "hooks", scene.root / "my-hooks"))
    place.mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit", "fsmonitor-watchman"):
        (place / name).write_text(f"#!/bin/sh\n{scene.command}\n")
        (place / name).chmod(0o755)
    scene.config(b"[core]\n\thooksPath = " + os.fsencode(place))


def includes(scene: Scene) -> None:
    target = scene.chance.choice((scene.root / "shipped.config", scene.outside / "config"))
    if target.parent == scene.root and not os.path.lexists(target):
        target.write_bytes(b'[core]\n\tfsmonitor = "%s"\n' % scene.command.encode())
    condition = scene.chance.choice((b"[include]", b'[includeIf "gitdir:**"]', b'[includeIf "onbranch:**"]'))
    scene.config(condition + b"\n\tpath = " + os.fsencode(target))
    scene.config(b"[core]\n\texcludesFile = " + os.fsencode(scene.outside / "ignore"))
    scene.config(b"[core]\n\tattributesFile = " + os.fsencode(scene.outside / "attributes"))


def worktree_config(scene: Scene) -> None:
    scene.config(b"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true")
    text = b'[core]\n\tfsmonitor = "%s"\n\tworktree = %s\n' % (scene.command.encode(), os.fsencode(scene.outside))
    (scene.dot / "config.worktree").write_bytes(text)


def elsewhere(scene: Scene) -> None:
    scene.config(b"[core]\n\tworktree = " + os.fsencode(scene.outside))
    scene.config(b"[core]\n\tbare = true") if scene.chance.random() < 0.5 else None


STATE = ("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "AUTO_MERGE", "BISECT_LOG")
FILES = (
    "HEAD",
    "index",
    "packed-refs",
    "config",
    "info/exclude",
    "refs/heads/main",
    "shallow",
    "commondir",
    "ORIG_HEAD",
)


def state_links(scene: Scene) -> None:
    scene.link("MERGE_HEAD", scene.outside / "secret")
    for name in scene.chance.sample(STATE, 3):
        scene.link(name, scene.outside / scene.chance.choice(("secret", "missing")))


def file_links(scene: Scene) -> None:
    scene.link(scene.chance.choice(FILES), scene.outside / scene.chance.choice(("secret", "repo/.git/HEAD", "missing")))


def directory_links(scene: Scene) -> None:
    name = scene.chance.choice(
        ("objects", "refs", "refs/heads", "objects/pack", "info", "logs", "logs/refs", "objects/info")
    )
    scene.link(name, scene.outside / "repo/.git" / name)


def fan_out_links(scene: Scene) -> None:
    for item in list((scene.dot / "objects").glob("??"))[:5]:
        scene.link(f"objects/{item.name}", scene.outside / "repo/.git/objects")


def pipes(scene: Scene) -> None:
    choices = [scene.dot / name for name in (*FILES, *STATE, "objects/info/alternates", "gitdir")]
    choices += [
        scene.root / name for name in (".gitignore", ".gitattributes", ".holdfastignore", "tracked", ".gitmodules")
    ]
    for place in scene.chance.sample(choices, 2):
        scene.pipe(place)


def alternates(scene: Scene) -> None:
    """The index stages a blob that only another repository has."""
    (scene.dot / "objects/info").mkdir(parents=True, exist_ok=True)
    target = os.fsencode(scene.outside / "repo/.git/objects")
    (scene.dot / "objects/info/alternates").unlink(missing_ok=True)
    (scene.dot / "objects/info/alternates").write_bytes(target + b"\n")
    (scene.dot / "index").unlink(missing_ok=True)
    shutil.copy(scene.outside / "repo/.git/index", scene.dot / "index")


def git_file(scene: Scene) -> None:
    places = (scene.outside / "repo/.git", scene.root / "inner/.git", scene.outside / "repo/.git/modules/sub")
    target = scene.chance.choice(places)
    kept = scene.root / "inner"
    kept.mkdir(exist_ok=True)
    shutil.move(scene.dot, kept / ".git")
    scene.dot.write_bytes(b"gitdir: " + os.fsencode(target) + b"\n")
    scene.dot = kept / ".git"


def git_link(scene: Scene) -> None:
    shutil.rmtree(scene.dot) if scene.dot.is_dir() else scene.dot.unlink()
    scene.dot.symlink_to(scene.outside / "repo/.git")


def common_directory(scene: Scene) -> None:
    if not os.path.lexists(scene.dot / "commondir"):
        (scene.dot / "commondir").write_bytes(os.fsencode(scene.outside / "repo/.git") + b"\n")
    (scene.dot / "gitdir").unlink(missing_ok=True)
    (scene.dot / "gitdir").write_bytes(os.fsencode(scene.root / ".git") + b"\n")


def nested(scene: Scene) -> None:
    """A repository below, or what a submodule's would be, with a trap of its own."""
    below = scene.root / scene.chance.choice(("sub", "vendor/lib"))
    shutil.rmtree(below, ignore_errors=True)
    shutil.copytree(scene.outside.parent / "template", below)
    inner = Scene(scene.chance, below, scene.outside, Path())
    inner.command = scene.command
    scene.chance.choice(SIMPLE)(inner)


def index_paths(scene: Scene) -> None:
    """An index of which one path leads out."""
    place = scene.dot / "index"
    if place.is_file() and not place.is_symlink():
        data = place.read_bytes().replace(
            b"tracked", scene.chance.choice((b"../outs", b".git/ab", b"/etc/ab", b"a//./bc"))
        )
        place.write_bytes(data[:-20] + bytes(20))


def garbage(scene: Scene) -> None:
    for name in scene.chance.sample(FILES, 2):
        place = scene.dot / name
        if place.is_file() and not place.is_symlink():
            data = bytearray(place.read_bytes() or b"x")
            for _ in range(scene.chance.randrange(1, 20)):
                data[scene.chance.randrange(len(data))] = scene.chance.randrange(256)
            place.write_bytes(data * scene.chance.choice((1, 1, 3)))


def bad_refs(scene: Scene) -> None:
    place = scene.dot / "HEAD"
    if not place.is_symlink() and not place.is_fifo():
        target = scene.chance.choice(
            ("../../../outside/secret", "refs/../../../secret", "refs/heads/a.lock", "/etc/passwd")
        )
        place.write_text(f"ref: {target}\n")


def shipped_journal(scene: Scene) -> None:
    work = scene.root / f".holdfast/restore-{scene.chance.randrange(99)}"
    for name in ("new", "old"):
        (work / name).mkdir(parents=True, exist_ok=True)
    (work / "new/1").write_text(scene.command)
    place = scene.chance.choice(("planted", "dir", "tracked"))
    moves = [
        {"do": "put", "path": place, "slot": 1, "expect": {"kind": "file", "mode": 420}},
        {"do": "chmod", "path": "dir", "mode": 0o7777},
        {"do": "take", "path": "tracked", "slot": 9},
    ]
    if scene.chance.random() < 0.3:
        os.mkfifo(work / "journal")
    else:
        (work / "journal").write_text(
            json.dumps({"plan": "x", "moves": moves[: scene.chance.randrange(1, 4)], "format": 1})
        )


def tree_links(scene: Scene) -> None:
    (scene.root / "a/b").mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (scene.root / "a/b/up").symlink_to("../..")
        (scene.root / "out").symlink_to(scene.chance.choice(("a/b/up/../../outside/secret", str(scene.outside))))
        (scene.root / ".holdfastignore").symlink_to(scene.outside / "ignore")


SIMPLE = [filters, filters, filters, textconv, monitor, commands, hooks, includes, worktree_config, elsewhere]
SIMPLE += [state_links, state_links, file_links, directory_links, fan_out_links, pipes, alternates]
SIMPLE += [common_directory, index_paths, garbage, bad_refs, shipped_journal, tree_links]
LAST = [git_file, git_link, nested]


@pytest.fixture(scope="module")
def template():
    """A plain repository, and one outside with a private file; in memory, where thousands of files cost nothing."""
    with TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as place:
        base = Path(place)
        _fill(base)
        yield base


def _fill(base: Path) -> None:
    repository(base / "template", {"tracked": "1\n", "dir": {"x.txt": "2\n"}, ".gitignore": "*.o\n"})
    shutil.rmtree(base / "template/.git/hooks", ignore_errors=True)
    outside = base / "outside"
    repository(outside / "repo", {"tracked": "other\n", "private": SECRET})
    write(outside / "repo", {"staged": SECRET + b" staged"})
    git(outside / "repo", "add", "-A")
    shutil.copytree(outside / "repo/.git", outside / "repo/.git/modules/sub")
    git(outside / "repo", "config", "-f", ".git/modules/sub/config", "core.worktree", "../../../sub")
    write(outside, {"secret": SECRET, "ignore": "*\n", "config": "[core]\n", "attributes": "* -text\n"})


def _stored(box: Box) -> bytes:
    found = []
    for name in box.store:
        for kind in (LEAF, NODE):
            with suppress(HoldfastError):
                found += box.reader.plain([Ref(kind, 0, name)])
    return b"".join(found)


def _use(root: Path, chance: random.Random) -> Box:
    """Do with a repository what a run does: every error has to be one of ours."""
    options = {"allow_outside_links": chance.random() < 0.2}
    box = Box(root)
    with suppress(HoldfastError):
        recover_interrupted(root)
    with suppress(HoldfastError):
        first = box.capture()
        box.capture()
        with suppress(history.GitFailed):
            history.run(str(root), "rev-list", "--count", "HEAD")
        with suppress(OSError):
            (root / "tracked").unlink(missing_ok=True)
            (root / "tracked").write_text("changed\n")
            (root / "made").write_text("new")
        box.capture()
        with suppress(HoldfastError):
            box.restore(first, Decisions(edits="take", conflicts="take"), **options)
        for position in first.positions[:1]:
            with suppress(HoldfastError):
                checkout(str(root), position, box.reader, safe=box.last.git if box.last else None)
    return box


@pytest.mark.parametrize("part", range(8))
def test_nothing_of_a_hostile_repository_is_run_and_nothing_outside_is_read_or_written(template, part, monkeypatch):
    """THREATS 5, 6 and 7, over generated repositories."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # durability is another test's business
    marker, outside = template / f"ran{part}", template / "outside"
    before = seen(outside), seen(outside / "repo/.git")
    watch = Watch(outside)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    try:
        for case in range(part, CASES, 8):
            chance = random.Random(case)
            root = template / f"r{case}"
            shutil.copytree(template / "template", root)
            scene = Scene(chance, root, outside, marker)
            traps = [SIMPLE[case % len(SIMPLE)], *chance.sample(SIMPLE, chance.randrange(3))]
            traps += [chance.choice(LAST)] if chance.random() < 0.4 else []
            signal.alarm(10)
            for trap in traps:
                with suppress(OSError):  # an earlier trap took its place
                    trap(scene)
            told = f"case {case}: {[trap.__name__ for trap in traps]}"
            watch.events()
            signal.alarm(10)
            box = _use(root, chance)
            signal.alarm(0)
            # Whether a directory that a .git file names belongs to it is asked there, in this one file.
            allowed = {"20 config"} if git_file in traps or nested in traps else set()
            assert set(watch.events()) <= allowed, told
            assert not marker.exists(), told
            assert SECRET not in _stored(box), told
            shutil.rmtree(root)
    finally:
        signal.alarm(0)
        watch.close()
    assert (seen(outside), seen(outside / "repo/.git")) == before


def test_a_racing_swapper_cannot_make_a_capture_read_another_repository(template):
    """Parts of .git are exchanged with links to another repository all the time."""
    root, outside = template / "raced", template / "outside"
    shutil.copytree(template / "template", root)
    write(root, {"new": "1"})
    git(root, "add", "new")
    (root / ".git/MERGE_HEAD").write_text(git(root, "rev-parse", "HEAD"))
    (root / ".git/MERGE_MSG").write_text("mine")
    stop = threading.Event()

    def swap() -> None:
        places = [".git", ".git/MERGE_MSG", ".git/index", ".git/objects", ".git/refs"]
        targets = ["repo/.git", "secret", "repo/.git/index", "repo/.git/objects", "repo/.git/refs"]
        while not stop.is_set():
            for place, target in zip(places, targets, strict=True):
                with suppress(OSError):
                    (root / place).rename(root / "hidden")
                    (root / place).symlink_to(outside / target)
                    (root / place).unlink()
                    (root / "hidden").rename(root / place)

    swapper = threading.Thread(target=swap)
    watch = Watch(outside)
    boxes = [Box(root) for _ in range(100)]
    swapper.start()
    try:
        for box in boxes:
            with suppress(HoldfastError):
                box.capture()
    finally:
        stop.set()
        swapper.join()
    assert watch.events() == []
    watch.close()
    assert all(SECRET not in _stored(box) for box in boxes)
    assert len({box.last.git.head for box in boxes if box.last}) > 1  # some were torn apart, some were not
