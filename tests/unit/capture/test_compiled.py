"""Compiled patterns are kept between processes, and only this user's own are loaded."""

import os
import stat
import subprocess
import sys

import pytest

from holdfast.capture import compiled, scan
from holdfast.capture.secret_keys import SECRET_KEYS

hyperscan = pytest.importorskip("hyperscan")
CLEAN, SUSPECT = b"nothing to see here", b"the key AKIAIOSFODNN7EXAMPLE is old"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the cache's folder, which nothing has written to yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scan.make_scan.cache_clear()
    yield tmp_path / "cache" / "holdfast"
    scan.make_scan.cache_clear()


@pytest.fixture
def compilations(monkeypatch):
    """Count how often something is compiled."""
    made = []

    class Counting(hyperscan.Database):
        def compile(self, *args, **named):
            made.append(1)
            return super().compile(*args, **named)

    monkeypatch.setattr(hyperscan, "Database", Counting)
    return made


def look():
    """Scan as a new process would, and check the answers."""
    scan.make_scan.cache_clear()
    look = scan.make_scan(SECRET_KEYS, ())
    assert (look(CLEAN), look(SUSPECT)) == (False, True)


def only_file(cache):
    [path] = cache.iterdir()
    return path


def test_what_was_compiled_is_loaded_the_next_time(cache, compilations):
    look()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(cache).stat().st_mode) == 0o600
    look()
    look()
    assert len(compilations) == 1


def test_other_patterns_are_compiled_of_their_own(cache, compilations):
    look()
    scan.make_scan(SECRET_KEYS, ("BADGE-[0-9]{6}",))
    scan.make_scan((*SECRET_KEYS, "note"), ())
    assert len(compilations) == len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("change", ["version", "library"])
def test_another_version_of_rules_or_library_compiles_again(cache, compilations, monkeypatch, change):
    look()
    if change == "version":
        monkeypatch.setattr(scan, "VERSION", "2099.1")
    else:
        monkeypatch.setattr(hyperscan, "__version__", "99")
    look()
    assert len(compilations) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda data: data[:10],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
        lambda data: bytes(len(data)),
        lambda data: os.urandom(len(data)),
    ],
    ids=["empty", "head", "cut", "longer", "a bit", "zeros", "noise"],
)
def test_a_damaged_file_is_compiled_again_and_replaced(cache, compilations, damage):
    look()
    path = only_file(cache)
    sound = path.read_bytes()
    path.write_bytes(damage(sound))
    look()
    assert len(compilations) == 2
    assert path.read_bytes() == sound
    look()
    assert len(compilations) == 2


def test_the_file_of_other_patterns_under_this_name_is_not_loaded(cache, compilations):
    look()
    mine = only_file(cache)
    scan.make_scan((), ("zzz",))
    [other] = set(cache.iterdir()) - {mine}
    mine.write_bytes(other.read_bytes())
    look()
    assert len(compilations) == 3


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_can_write_is_not_loaded(cache, compilations, mode):
    look()
    only_file(cache).chmod(mode)
    look()
    assert len(compilations) == 2


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
def test_a_folder_that_others_can_write_is_not_used(cache, compilations, mode):
    look()
    cache.chmod(mode)
    look()
    look()
    assert len(compilations) == 3


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_belongs_to_another_user_is_not_loaded(cache, compilations, monkeypatch, what):
    look()
    real, own = os.fstat, os.geteuid()

    def foreign(descriptor):
        given = list(real(descriptor))
        if stat.S_ISDIR(given[0]) == (what == "folder"):
            given[4] = own + 1
        return os.stat_result(given)

    monkeypatch.setattr(compiled.os, "fstat", foreign)
    look()
    assert len(compilations) == 2


@pytest.mark.parametrize("what", ["link", "folder", "fifo"])
def test_what_is_no_file_is_not_read(cache, compilations, tmp_path, what):
    look()
    path = only_file(cache)
    moved = path.rename(tmp_path / "moved")
    if what == "link":
        path.symlink_to(moved)
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path, 0o600)
    look()
    assert len(compilations) == 2


def test_a_folder_that_is_a_link_is_not_used(cache, compilations, tmp_path):
    look()
    cache.rename(tmp_path / "elsewhere")
    cache.symlink_to(tmp_path / "elsewhere")
    look()
    assert len(compilations) == 2


@pytest.mark.parametrize("place", ["/proc/none", "/dev/null", "relative", ""])
def test_without_a_place_to_write_it_works_all_the_same(cache, compilations, monkeypatch, tmp_path, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    look()
    look()
    assert len(compilations) == 2
    assert list(tmp_path.iterdir()) == []


def test_old_files_are_removed(cache):
    for number in range(compiled.KEPT + 5):
        scan.make_scan((), (f"pattern{number}",))
    assert len(list(cache.iterdir())) == compiled.KEPT


def test_a_second_process_does_not_compile(cache):
    script = """
import time
import hyperscan
from holdfast.capture import scan
from holdfast.capture.secret_keys import SECRET_KEYS
begun = time.process_time()
scan.make_scan(SECRET_KEYS, ())
print(time.process_time() - begun)
"""
    command = [sys.executable, "-c", script]
    first, *later = (
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)
    )
    assert min(later) < first / 4
