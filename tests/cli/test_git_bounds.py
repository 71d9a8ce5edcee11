"""A repository whose files are far too large: bounded memory, a checkpoint of the files, and a word about git."""

import hashlib
import re
import struct
import subprocess
import sys
import zlib

import pytest

import holdfast
from holdfast import Settings

MB = 1 << 20


def git(place, *words):
    done = subprocess.run(["git", "-C", place, *words], capture_output=True, check=True)
    return done.stdout.decode().strip()


def loose(project, kind, data):
    """Write an object, and return its name."""
    whole = f"{kind} {len(data)}\0".encode() + data
    name = hashlib.sha1(whole).hexdigest()
    place = project / ".git" / "objects" / name[:2]
    place.mkdir(exist_ok=True)
    (place / name[2:]).write_bytes(zlib.compress(whole))
    return name


def tree_bomb(project, levels):
    """Return a tree of 2**levels paths, each as long as the levels together."""
    name, mode = loose(project, "blob", b"x"), b"100644"
    for _ in range(levels):
        entries = (mode + b" " + bytes([first]) + b"n" * 254 + b"\0" + bytes.fromhex(name) for first in b"ab")
        name, mode = loose(project, "tree", b"".join(entries)), b"40000"
    return name


def sparse_file(place, size):
    with place.open("wb") as file:
        file.truncate(size)


def index_of(*entries, version=2):
    """Return an index of (mode, object, flags, path bytes as the version writes them)."""
    parts = [struct.pack(">4sII", b"DIRC", version, len(entries))]
    for mode, name, path in entries:
        line = bytes(24) + mode.to_bytes(4, "big") + bytes(12) + bytes.fromhex(name)
        line += min(len(path), 0xFFF).to_bytes(2, "big") + path
        parts.append(line if version == 4 else line + b"\0" * (8 - len(line) % 8))
    return b"".join(parts) + bytes(20)


def huge_index(project):
    sparse_file(project / ".git" / "index", 3 << 30)


def large_index(project):
    count = 91 * MB // 72
    (project / ".git" / "index").write_bytes(index_of(*[(0o100644, "11" * 20, b"%06x" % n) for n in range(count)]))


def huge_refs(project):
    git(project, "pack-refs", "--all")
    sparse_file(project / ".git" / "packed-refs", 3 << 30)


def large_refs(project):
    head = git(project, "rev-parse", "HEAD")
    git(project, "pack-refs", "--all")
    lines = "".join(f"{head} refs/heads/b{n}\n" for n in range(91 * MB // 60))
    (project / ".git" / "packed-refs").write_text(lines)


def bomb_of_trees(project):
    commit = f"tree {tree_bomb(project, 17)}\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\nx\n"
    (project / ".git" / "refs" / "heads" / "main").write_text(loose(project, "commit", commit.encode()) + "\n")


def bomb_of_a_sparse_index(project):
    tree = tree_bomb(project, 10)
    folders = [(0o040000, tree, b"%04x/" % n) for n in range(2_000)]
    (project / ".git" / "index").write_bytes(index_of(*folders))


def bomb_of_shared_beginnings(project):
    entries = [(0o100644, "11" * 20, b"\0" + b"p" * 4000 + b"\0")]
    entries += [(0o100644, "11" * 20, b"\4%04x\0" % n) for n in range(200_000)]
    (project / ".git" / "index").write_bytes(index_of(*entries, version=4))


def bomb_of_noted_trees(project):
    noted = b"\x000 4000\n" + bytes(20)
    for n in range(15):
        noted += b"%02d" % n + b"n" * 253 + b"\x000 1\n" + bytes(20)
    noted += b"x\x000 900000\n" + bytes(20)
    noted += b"".join(b"%06x\x000 0\n" % n + bytes(20) for n in range(900_000))
    index = index_of()[:-20] + b"TREE" + len(noted).to_bytes(4, "big") + noted + bytes(20)
    (project / ".git" / "index").write_bytes(index)


ATTACKS = [
    huge_index, large_index, huge_refs, large_refs, bomb_of_trees, bomb_of_a_sparse_index, bomb_of_shared_beginnings,
    bomb_of_noted_trees,
]  # fmt: skip


@pytest.fixture
def repository(project):
    git(project, "init", "-q", "-b", "main")
    (project / "one.txt").write_text("one\n")
    git(project, "add", ".")
    git(project, "-c", "user.name=n", "-c", "user.email=e@e", "commit", "-qm", "c")
    return project


_TAKEN = """
import sys
from holdfast.cli.main import main
code = main(["checkpoint", "r", "--workspace"])
print(open("/proc/self/status").read(), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_git_files_beyond_all_measure_take_bounded_memory_and_are_told(hf, repository, attack):
    attack(repository)
    done = subprocess.run([sys.executable, "-c", _TAKEN], cwd=repository, capture_output=True, timeout=300, check=False)
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert "git in the workspace is not captured" in said
    assert int(re.search(r"VmHWM:\s*(\d+) kB", said)[1]) < 512 * 1024
    assert "one.txt" in hf("files", "r").out.split()
    assert "git: its" in hf("files", "r", "--left-out").out
    assert hf("status", "r", "--json").json["protection"]["git"] is False


def test_a_program_is_told_of_git_that_could_not_be_captured_once(repository, caplog):
    huge_index(repository)
    with holdfast.open(settings=Settings()) as hf:
        run = hf.run("r", workspace=repository)
        taken = [run.checkpoint(state=n).not_captured.problems for n in range(3)]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "index has 3,221,225,472 bytes" in caplog.text
    assert [[skip.path for skip in one] for one in taken] == [[b".git"]] * 3


def test_a_repository_that_is_captured_is_not_spoken_of(hf, repository):
    done = hf("checkpoint", "r", "--workspace")
    assert "git" not in done.err
    assert hf("files", "r", "--left-out").out == ""


def test_thousands_of_staged_files_are_captured_and_come_back(hf, repository):
    """They did not fit into one chunk, and no checkpoint could be taken."""
    for n in range(9_000):
        (repository / f"a_name_that_is_long_enough_to_need_more_than_one_chunk_{n:05}_{'n' * 100}.txt").write_text(
            str(n)
        )
    git(repository, "add", "-A")
    before = git(repository, "ls-files", "-s")
    assert hf("checkpoint", "r", "--workspace").code == 0
    assert hf("verify").code == 0
    git(repository, "reset", "-q", "--hard")
    assert git(repository, "ls-files", "-s") != before
    assert hf("checkpoint", "other", "--workspace").code == 0
    assert hf("restore", "r", "--exact", "--git", "--yes").code == 0
    assert git(repository, "ls-files", "-s") == before
