"""Workspace snapshots beside shadow git, restic and borg, as ratios to an `os.scandir` + stat walk in the same run.

Nothing is removed before the last measurement: ext4 without a journal steps over every inode that was freed in the last
minutes, so that a restore after `rm -r` measured the removing. For the same reason wait six minutes between two runs.

python -m benchmarks.workspace --files 10000
python -m benchmarks.workspace --files 50000 --rounds 3 --peers git,restic,borg
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from holdfast.encode.chunks import Chunk, ChunkReader
from holdfast.encode.compress import Compressor
from holdfast.workspace import snapshot
from holdfast.workspace.planning import plan_restore
from holdfast.workspace.restore import apply
from holdfast.workspace.spill import SpillingWriter
from holdfast.workspace.workspace import Workspace

TARGETS = {  # at 50,000 files
    "first": 18,
    "unchanged": 0.8,
    "ten changed": 0.9,
    "new process": 2.5,
    "restore ten": 2,
    "full restore": 10,
}


def make_tree(root: Path, files: int, seed: int = 7) -> None:
    """Files of log-normal size, median 4 KB, one in 5,000 of 1 to 5 MB; contents are slices of Python's own library."""
    rand = random.Random(seed)
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*/*.py"))
    library = b"".join(path.read_bytes() for path in sources if "site-packages" not in path.parts)
    for number in range(files):
        place = root / f"pkg{number // 2500}" / f"mod{number // 250 % 10}" / f"dir{number // 25}"
        if number % 25 == 0:
            place.mkdir(parents=True, exist_ok=True)
        size = min(int(rand.lognormvariate(8.3, 1.2)), 400_000)
        if number % 5000 == 7:
            size = rand.randint(1 << 20, 5 << 20)
        start = rand.randrange(len(library) - size)
        (place / f"file{number % 25}.py").write_bytes(library[start : start + size])


def walk(root: str) -> int:
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


def copy(source: str, target: str) -> None:
    """The floor of a full restore: every file read and written with the fewest calls, its mode and time set."""
    Path(target).mkdir()
    with os.scandir(source) as items:
        for item in items:
            place = f"{target}/{item.name}"
            if item.is_dir(follow_symlinks=False):
                copy(item.path, place)
                continue
            handle = os.open(item.path, os.O_RDONLY)
            status = os.fstat(handle)
            data = os.read(handle, status.st_size)
            os.close(handle)
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(handle, data)
            os.fchmod(handle, status.st_mode & 0o777)
            os.utime(handle, ns=(status.st_mtime_ns, status.st_mtime_ns))
            os.close(handle)


def timed(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def edit_ten(root: Path, files: int, seed: int) -> None:
    rand = random.Random(seed)
    for number in rand.sample([n for n in range(files) if n % 5000 != 7], 10):
        path = (
            root / f"pkg{number // 2500}" / f"mod{number // 250 % 10}" / f"dir{number // 25}" / f"file{number % 25}.py"
        )
        lines = path.read_bytes().split(b"\n")
        lines.insert(len(lines) // 2, b"# one more line")
        path.write_bytes(b"\n".join(lines))


class PackFile:
    """The plainest durable store: chunks appended to one file, synced at each commit; an index in memory."""

    def __init__(self, place: Path) -> None:
        self._file = place.open("wb+")
        self._index: dict[bytes, tuple[int, int, int, int]] = {}
        self._end = 0
        self.reader = ChunkReader(self.fetch)

    @property
    def stored_bytes(self) -> int:
        return self._end + len(self._index) * 60

    def commit(self, chunks) -> None:
        for chunk in chunks.values():
            if chunk.id not in self._index:
                self._file.write(chunk.data)
                self._index[chunk.id] = (self._end, len(chunk.data), chunk.codec, chunk.size)
                self._end += len(chunk.data)
        self._file.flush()
        os.fsync(self._file.fileno())

    def fetch(self, ids):
        found = {}
        for name in ids:
            offset, length, codec, size = self._index[name]
            found[name] = Chunk(name, codec, size, os.pread(self._file.fileno(), length, offset))
        return found


class Holdfast:
    def __init__(self, tree: Path, scratch: Path) -> None:
        self.tree = tree
        self.store = PackFile(scratch / "holdfast.pack")
        self.workspace = Workspace(tree)
        self.last: snapshot.Snapshot | None = None
        self.cache = scratch / "cache"
        self.section = None

    def capture(self) -> None:
        with SpillingWriter(Compressor().quick()) as writer:
            self.last = self.workspace.capture(writer, self.last)
            self.section = snapshot.store(writer, self.last)
            writer.finish()
            if writer.chunks:
                self.store.commit(writer.chunks)

    def restore(self, wanted, target: Path | None = None) -> None:
        workspace = self.workspace if target is None else Workspace(target)
        plan = plan_restore(
            self.store.reader,
            workspace,
            wanted,
            last=self.last if target is None else None,
            in_place=target is None,
        )
        report = apply(plan, self.store.reader, durable=target is None)
        assert report.verified


def in_process(tree: Path, work: Path, files: int, rounds: int) -> dict[str, float]:
    """Holdfast in a process that stays open; ratios to walks beside each measurement."""
    figures: dict[str, list[float]] = {}

    def measure(name: str, call) -> None:
        before = timed(lambda: walk(str(tree)))
        cpu = time.process_time()
        took = timed(call)
        cpu = time.process_time() - cpu
        after = time.process_time()
        floor = min(before, timed(lambda: walk(str(tree))))
        figures.setdefault(name, []).append(took / floor)
        # On a shared machine only the processor time says what the work itself costs.
        figures.setdefault(f"{name}, cpu", []).append(cpu / (time.process_time() - after))

    walk(str(tree))
    for number in range(rounds):
        scratch = Path(mkdtemp(dir=work))
        subject = Holdfast(tree, scratch)
        measure("first", subject.capture)
        figures.setdefault("peak MB", []).append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        figures.setdefault("stored MB", []).append(subject.store.stored_bytes / 1e6)
        time.sleep(0.15)
        subject.capture()
        for _ in range(3):
            measure("unchanged", subject.capture)
        wanted = subject.last
        for turn in range(3):
            edit_ten(tree, files, number * 10 + turn)
            size = subject.store.stored_bytes
            measure("ten changed", subject.capture)
            figures.setdefault("growth of ten KB", []).append((subject.store.stored_bytes - size) / 1000)
        before_ten = subject.last
        edit_ten(tree, files, number * 10 + 5)
        subject.capture()
        measure("restore ten", partial(subject.restore, before_ten))
        time.sleep(0.15)
        subject.capture()
        scratch.joinpath("out").mkdir()
        measure("full restore", partial(subject.restore, wanted, scratch / "out"))
        measure("bare copy", partial(copy, str(tree), str(scratch / "copy")))
        subject.cache.write_bytes(subject.workspace.dump_cache(subject.last))
        scratch.joinpath("snapshot").write_text(json.dumps(_flat(subject.last)))
        measure("new process", partial(_new_process, tree, scratch))
    return {name: statistics.median(values) for name, values in figures.items()}


def _flat(taken: snapshot.Snapshot) -> list:
    """A snapshot's node as JSON, for the child process."""
    return [
        part.hex() if isinstance(part, bytes) else [part.kind, part.size, part.id.hex()] for part in taken.entries()
    ]


def _new_process(tree: Path, scratch: Path) -> None:
    subprocess.run([sys.executable, "-m", "benchmarks.workspace_child", str(tree), str(scratch)], check=True)


def _run(*command: str, **environment: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})


def shadow_git(tree: Path, scratch: Path) -> dict:
    """As the coding assistants do it: a repository of their own, `add -A` and `commit`."""
    base = [
        "git",
        f"--git-dir={scratch / 'shadow'}",
        f"--work-tree={tree}",
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@x",
    ]
    base += ["-c", "commit.gpgsign=false", "-c", "gc.auto=0"]
    _run("git", "init", "-q", "--bare", str(scratch / "shadow"))

    def snap() -> None:
        _run(*base, "add", "-A")
        _run(*base, "commit", "-q", "--allow-empty", "-m", "x")

    def restore(target: Path) -> None:
        target.mkdir()
        _run("git", f"--git-dir={scratch / 'shadow'}", f"--work-tree={target}", "checkout", "-q", "HEAD", "--", ".")

    return {"snap": snap, "restore": restore, "store": scratch / "shadow"}


def restic(tree: Path, scratch: Path) -> dict:
    environment = {"RESTIC_PASSWORD": "x", "RESTIC_CACHE_DIR": str(scratch / "rcache")}
    _run("restic", "init", "-q", "-r", str(scratch / "restic"), **environment)
    return {
        "snap": lambda: _run("restic", "-q", "-r", str(scratch / "restic"), "backup", str(tree), **environment),
        "restore": lambda target: _run(
            "restic", "-q", "-r", str(scratch / "restic"), "restore", "latest", "--target", str(target), **environment
        ),
        "store": scratch / "restic",
    }


def borg(tree: Path, scratch: Path) -> dict:
    environment = {"BORG_BASE_DIR": str(scratch / "bbase"), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
    _run("borg", "init", "-e", "none", str(scratch / "borg"), **environment)
    numbers = iter(range(1000))

    def restore(target: Path) -> None:
        target.mkdir()
        subprocess.run(
            ["borg", "extract", f"{scratch / 'borg'}::s0"], cwd=target, check=True, env={**os.environ, **environment}
        )

    return {
        "snap": lambda: _run("borg", "create", f"{scratch / 'borg'}::s{next(numbers)}", str(tree), **environment),
        "restore": restore,
        "store": scratch / "borg",
    }


PEERS = {"git": shadow_git, "restic": restic, "borg": borg}


def measure_peer(make, tree: Path, work: Path, files: int) -> dict[str, float]:
    scratch = Path(mkdtemp(dir=work))
    peer = make(tree, scratch)
    floor = min(timed(lambda: walk(str(tree))) for _ in range(3))
    figures = {"first": timed(peer["snap"]) / floor}
    figures["stored MB"] = sum(p.lstat().st_blocks for p in peer["store"].rglob("*")) * 512 / 1e6
    figures["unchanged"] = timed(peer["snap"]) / floor
    edit_ten(tree, files, 99)
    figures["ten changed"] = timed(peer["snap"]) / floor
    figures["full restore"] = timed(lambda: peer["restore"](scratch / "out")) / floor
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peers", default="git")
    parser.add_argument("--tree", type=Path, help="where the tree lies, or will lie for the next run too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    place = options.tree or Path(mkdtemp(prefix="holdfast-bench-"))
    tree = place / f"tree{options.files}"
    if not tree.exists():
        make_tree(tree, options.files)
    work = Path(mkdtemp(dir=place))
    results = {"holdfast": in_process(tree, work, options.files, options.rounds)}
    for name in filter(None, options.peers.split(",")):
        results[name] = measure_peer(PEERS[name], tree, work, options.files)
    names = list(dict.fromkeys(name for figures in results.values() for name in figures))
    print(f"{options.files} files; times as ratios to a walk".ljust(20))
    print(f"{'':18}" + "".join(f"{subject:>12}" for subject in results) + f"{'target':>10}")
    for name in names:
        row = "".join(f"{figures[name]:12.2f}" if name in figures else f"{'-':>12}" for figures in results.values())
        print(f"{name:18}{row}{TARGETS.get(name, ''):>10}")
    if options.json:
        options.json.write_text(json.dumps({"files": options.files, "results": results}, indent=2))
    shutil.rmtree(work if options.tree else place)


if __name__ == "__main__":
    main()
