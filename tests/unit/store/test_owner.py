"""Advice about a lock that is kept for too long: it names the process that has it, and never another."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest

from holdfast.store.owner import lock_advice

HOLD = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
# Two new file systems count their inodes from the same number, so that the files made first have the same one.
TWO_DISKS = """
set -e
mkdir one two
mount -t tmpfs none one
mount -t tmpfs none two
touch one/file two/file
echo mounted
exec "$0" ask.py
"""
ASK = f"""
import os, subprocess, sys
from holdfast.store.owner import lock_advice
assert os.stat("one/file").st_ino == os.stat("two/file").st_ino
held = subprocess.Popen([sys.executable, "-c", {HOLD!r}, "one/file"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
held.stdout.readline()
print(*(f"kill -9 {{held.pid}}" in lock_advice(f"{{folder}}/file") for folder in ("one", "two")))
held.communicate(b"\\n")
"""


@contextmanager
def holder(file):
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process.pid
        process.communicate(b"\n")


def test_the_process_that_holds_the_lock_is_named(tmp_path):
    for name in ("locked", "free"):
        (tmp_path / name).touch()
    with holder(tmp_path / "locked") as pid:
        assert f"kill -9 {pid}" in lock_advice(tmp_path / "locked")
        assert "kill" not in lock_advice(tmp_path / "free")


def test_a_lock_on_a_file_of_another_disk_with_the_same_inode_is_not_meant(tmp_path):
    (tmp_path / "ask.py").write_text(ASK)
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", TWO_DISKS, sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    if "mounted" not in done.stdout:
        pytest.skip(f"no file system can be mounted here: {done.stderr}")
    assert done.stdout.split() == ["mounted", "True", "False"], done
