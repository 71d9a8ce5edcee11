"""Files of a run beside shadow git, as multiples of an `os.scandir` + stat walk over the same tree in the same run.

Nothing is removed before the last measurement: ext4 without a journal steps over every inode that was freed in the last
minutes, so that a restore after `rm -r` measured the removing.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from benchmarks.processes import run_process, stored_bytes
from benchmarks.table import Row, Scale
from benchmarks.turns import Laps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REACH = {
    "first snapshot": (14, 16),
    "nothing changed": (0.6, None),
    "ten changed": (0.7, None),
    "the same in a new process": (2, None),
    "full restore, durable, plan included": (13, None),
}
AGAIN = """
import sys
import holdfast
with holdfast.open(sys.argv[1], interval_s=None) as hf:
    hf.run("files", workspace=sys.argv[2]).checkpoint(state=1)
"""


def make_tree(root: Path, files: int) -> None:
    """Files of log-normal size, median 4 KB, one in 5,000 of 1 to 5 MB; contents are slices of Python's own library."""
    rand = random.Random(7)
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*/*.py"))
    library = b"".join(path.read_bytes() for path in sources if "site-packages" not in path.parts)
    for number in range(files):
        path = _place(root, number)
        if number % 25 == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        size = min(int(rand.lognormvariate(8.3, 1.2)), 400_000)
        if number % 5000 == 7:
            size = rand.randint(1 << 20, 5 << 20)
        start = rand.randrange(len(library) - size)
        path.write_bytes(library[start : start + size])


def _place(root: Path, number: int) -> Path:
    return root / f"pkg{number // 2500}" / f"mod{number // 250 % 10}" / f"dir{number // 25}" / f"file{number % 25}.py"


def _edit_ten(root: Path, files: int, seed: int) -> None:
    for number in random.Random(seed).sample([n for n in range(files) if n % 5000 != 7], 10):
        path = _place(root, number)
        lines = path.read_bytes().split(b"\n")
        lines.insert(len(lines) // 2, b"# one more line")
        path.write_bytes(b"\n".join(lines))


def _walk(root: str) -> int:
    """The floor: list every directory, stat every entry."""
    count, stack = 0, [root]
    while stack:
        with os.scandir(stack.pop()) as items:
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    stack.append(item.path)
                item.stat(follow_symlinks=False)
                count += 1
    return count


class _Beside:
    """Times calls, each between two walks; the quicker walk is the floor."""

    def __init__(self, tree: Path) -> None:
        self.tree = str(tree)
        self.walks = Laps()
        self.wall: dict[str, list[float]] = {}
        self.cpu: dict[str, list[float]] = {}
        _walk(self.tree)

    def lap(self, name: str, call: Callable[[], object]) -> None:
        laps = Laps()
        self.walks.lap(_walk, self.tree)
        laps.lap(call)
        self.walks.lap(_walk, self.tree)
        self.wall.setdefault(name, []).append(laps.wall[0] / min(self.walks.wall[-2:]))
        self.cpu.setdefault(name, []).append(laps.cpu[0] / min(self.walks.cpu[-2:]))


def rows(scale: Scale) -> Iterator[Row]:
    """Yield the rows of one tree: ours, with shadow git beside them."""
    files = scale.of(20_000, 100)
    with tempfile.TemporaryDirectory(dir=scale.workdir) as name:
        folder = Path(name)
        tree = folder / "tree"
        make_tree(tree, files)
        git = _git(folder, tree, files)
        ours = _Beside(tree)
        (folder / "store").mkdir()
        place = folder / "store" / "store.db"
        with holdfast.open(place, interval_s=None) as hf:
            run = hf.run("files", workspace=tree)
            ours.lap("first snapshot", lambda: run.checkpoint(state=1))
            while_open = stored_bytes(folder / "store")
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            time.sleep(0.15)  # what is younger than the clock's grain is read again
            run.checkpoint(state=1)
            for turn in range(3):
                ours.lap("nothing changed", lambda: run.checkpoint(state=1))
                _edit_ten(tree, files, turn)
                ours.lap("ten changed", lambda: run.checkpoint(state=1))
            head = run.head
            ours.lap(
                "full restore, durable, plan included",
                lambda: run.workspace.restore(run.workspace.plan(head, into=folder / "out")),
            )
        closed = stored_bytes(folder / "store")
        ours.lap("the same in a new process", lambda: run_process("-c", AGAIN, str(place), str(tree)))
    for name, (wall, cpu) in REACH.items():
        measure = f"{files:,} files: {name}"
        took = ours.wall[name]
        peers = f"shadow git {git.wall[name][0]:.1f} ×" if name in git.wall else ""
        floor = f"a walk, {ours.walks.ms:.0f} ms"
        middle = statistics.median(took)
        yield Row(measure, "wall", middle, "×", wall, min(took), max(took), floor=floor, peers=peers)
        if name != "the same in a new process":  # its CPU time is that of a child
            yield Row(measure, "CPU", statistics.median(ours.cpu[name]), "×", cpu)
    yield Row(f"{files:,} files: disk with the first snapshot open", "÷ closed", while_open / closed, "×", 1.2)
    yield Row(f"{files:,} files: memory at the peak", "resident", peak, "MB")


def _git(folder: Path, tree: Path, files: int) -> _Beside:
    """As the coding assistants do it: a repository of their own, `add -A` and `commit`."""
    shadow = folder / "shadow"
    base = ["git", f"--git-dir={shadow}", f"--work-tree={tree}", "-c", "user.name=x", "-c", "user.email=x@x"]
    base += ["-c", "commit.gpgsign=false", "-c", "gc.auto=0"]
    subprocess.run(["git", "init", "-q", "--bare", str(shadow)], check=True)

    def snap() -> None:
        subprocess.run([*base, "add", "-A"], check=True, capture_output=True)
        subprocess.run([*base, "commit", "-q", "--allow-empty", "-m", "x"], check=True, capture_output=True)

    def restore() -> None:
        target = folder / "git-out"
        target.mkdir()
        command = ["git", f"--git-dir={shadow}", f"--work-tree={target}", "checkout", "-q", "HEAD", "--", "."]
        subprocess.run(command, check=True)

    beside = _Beside(tree)
    beside.lap("first snapshot", snap)
    beside.lap("nothing changed", snap)
    beside.lap("the same in a new process", snap)
    _edit_ten(tree, files, 99)
    beside.lap("ten changed", snap)
    beside.lap("full restore, durable, plan included", restore)
    return beside
