"""Hostile documents and hostile things in the place of documents: refused with a type, within time and memory."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import holdfast
from holdfast import HoldfastError, Settings

TESTS = Path(__file__).parents[1]
SECRET = b"-----A PRIVATE FILE-----\n" * 40


def test_any_document_is_read_or_refused_within_512_mb():
    """Threats 8, issue 18.4: over 1,000 documents of up to a megabyte, through every reader there is."""
    done = subprocess.run(
        [sys.executable, str(TESTS / "hostile_documents.py")], capture_output=True, check=True, timeout=300
    )
    found = json.loads(done.stdout)
    assert found["other"] == []
    assert found["slow"] == []
    assert found["read"] + found["refused"] >= 1_000
    assert found["peak_mb"] < 512


def link(place, outside):
    place.symlink_to(outside / "secret")


def dangling(place, outside):
    place.symlink_to(outside / "made")


def pipe(place, _outside):
    os.mkfifo(place)


def folder(place, _outside):
    place.mkdir()


def sparse(place, _outside):
    with place.open("wb") as file:
        file.truncate(3 << 30)


def endless(place, _outside):
    place.symlink_to("/dev/zero")


def empty(place, _outside):
    place.touch()


THINGS = [link, dangling, pipe, folder, sparse, endless, empty]
PLACES = [
    "holdfast.yaml", "holdfast.yml", "pyproject.toml", ".holdfast", ".holdfast/holdfast.db",
    ".holdfast/holdfast.db-heads", ".holdfast/holdfast.db-wal", ".holdfast/holdfast.db-shm", ".holdfast/current-run",
    ".holdfast/.gitignore", ".holdfast/cache", ".holdfast/readable", ".holdfast/readable/run",
    ".holdfast/readable/run/index.json", ".holdfast/readable/run/latest", ".gitignore", ".holdfastignore",
    ".git", ".git/HEAD", ".git/index", ".git/MERGE_MSG",
]  # fmt: skip


@contextmanager
def alarmed():
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)


def seen(outside):
    return {path.relative_to(outside): (path.read_bytes() if path.is_file() else None) for path in outside.rglob("*")}


def use(root):
    """Work in a folder as a program does: whatever is refused is refused with a type."""
    with suppress(HoldfastError):
        holdfast.open().close()
    settings = Settings(mirror=holdfast.settings.values.MirrorSettings(form="json"))
    with suppress(HoldfastError), holdfast.open(root / ".holdfast", settings=settings) as hf:
        for number in range(2):
            with suppress(HoldfastError), hf.run("run", workspace=root) as run:
                run.checkpoint(state={"n": number})
        with suppress(HoldfastError):
            hf.latest("run", required=True).section("state")
            hf.plan("run")
        hf.verify()
    with suppress(HoldfastError):
        holdfast.load_flow(root / "holdfast.yaml")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)
def test_a_thing_in_the_place_of_a_file_is_neither_followed_nor_waited_for(thing, place, tmp_path, monkeypatch):
    """Threats 6 and 7: what a repository or a shared folder may hold where a program looks for its files."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (root / place).parent.mkdir(parents=True)
    (root / "a.txt").write_text("a")
    thing(root / place, outside)
    before = seen(outside)
    monkeypatch.chdir(root)
    with alarmed():
        use(root)
    assert seen(outside) == before
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 30:
            assert SECRET not in path.read_bytes(), path


def test_a_store_in_a_folder_that_others_can_write_is_refused(tmp_path):
    """Threats 17, issue 18.7."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for url in (shared / "x.db", shared, f"file://{shared}"):
        with pytest.raises(holdfast.StoreUnavailable, match="chmod o-w"):
            holdfast.open(url, settings=Settings())
    assert list(shared.iterdir()) == []
    shared.chmod(0o755)
    holdfast.open(shared, settings=Settings()).close()
    assert (shared / "holdfast.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_store_in_another_user_s_folder_is_refused(tmp_path):
    """Threats 17, issue 18.7."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    for url in (theirs / "x.db", theirs, f"file://{theirs}"):
        with pytest.raises(holdfast.StoreUnavailable, match="65534"):
            holdfast.open(url, settings=Settings())


@pytest.mark.parametrize("text", [
    b"*a" * 40 + b"*b", b"**/a/" * 60 + b"b", b"[a-z]*" * 40 + b"!", b"**/*a*a*a*a/" * 12 + b"**/b", b"*?" * 60 + b"-",
    b"x" * (1 << 20), b"?" * (1 << 20),
])  # fmt: skip
def test_an_ignore_pattern_of_a_repository_takes_no_exponential_time(text, tmp_path):
    """Threats 8: a pattern and a name of 200 letters hung the capture."""
    root = tmp_path / "root"
    deep = root.joinpath(*["a"] * 60)
    deep.mkdir(parents=True)
    (deep / ("a" * 200)).touch()
    (root / ".gitignore").write_bytes(text + b"\n")
    with alarmed(), holdfast.open("memory:", settings=Settings()) as hf:
        assert len(hf.run("run", workspace=root).checkpoint().files()) >= 2
