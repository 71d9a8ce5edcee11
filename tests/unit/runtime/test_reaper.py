import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BEGIN = """
import os, signal, sys, threading
from holdfast.runtime.command import Command
from holdfast.runtime.reaper import reaper

def start(*fifos):
    begun = threading.Semaphore(0)
    for fifo in fifos:
        command = Command(f"exec 9>{fifo}; echo begun; ( exec sleep 1000 ) & exec sleep 1000")
        told = dict(on_output=lambda _stream, _text: begun.release())
        threading.Thread(target=command.run, kwargs=told, daemon=True).start()
    for _ in fifos:
        begun.acquire()

"""


@pytest.fixture
def fifos(tmp_path):
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        os.mkfifo(path)
    return paths


def ended_with_the_process(program, fifos):
    """Run a program until it says that it is ready, kill it, and return when nobody of its commands is left."""
    parent = subprocess.Popen([sys.executable, "-c", BEGIN + program, *map(str, fifos)], stdout=subprocess.PIPE)
    with fifos[0].open("rb") as first, fifos[1].open("rb") as second, parent:
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        parent.wait()
        assert (first.read(), second.read()) == (b"", b"")  # until the last of each group has let go


def is_there(process):
    """Tell whether a process runs; one that has ended and is not reaped does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_all_commands_of_a_killed_process_end_with_it(fifos):
    """Proves D8: nothing continues writing behind the back of the next process."""
    ended_with_the_process("start(*sys.argv[1:])\nprint('ready', flush=True)\nsignal.pause()", fifos)


def test_a_command_is_asked_to_end_before_it_is_killed(tmp_path, fifos):
    """As git does, which takes its locks away."""
    lock = tmp_path / "lock"
    program = f"""
start(sys.argv[1])
command = "exec 9>" + sys.argv[2] + "; touch {lock}; trap 'rm {lock}; exit' TERM; echo begun; sleep 1000 & wait"
told = dict(on_output=lambda _stream, _text: print("ready", flush=True))
threading.Thread(target=Command(command).run, kwargs=told, daemon=True).start()
signal.pause()
"""
    ended_with_the_process(program, fifos)
    assert not lock.exists()


def test_a_warden_that_was_killed_is_replaced_and_told_of_what_runs(fifos):
    program = """
start(sys.argv[1])
lost = reaper._process
lost.kill()
lost.wait()
start(sys.argv[2])
assert reaper._process is not lost
print("ready", flush=True)
signal.pause()
"""
    ended_with_the_process(program, fifos)


def test_a_forked_process_has_a_warden_of_its_own_and_does_not_keep_the_first(fifos):
    program = """
start(*sys.argv[1:])
if os.fork() == 0:
    assert Command("echo fine").run().stdout == "fine\\n"
    print("ready", flush=True)
    os.close(1)
    signal.alarm(60)
signal.pause()
"""
    ended_with_the_process(program, fifos)


def test_the_warden_of_a_process_that_ends_is_gone():
    program = """
assert Command("true").run().succeeded
print(reaper._process.pid)
"""
    done = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=True)
    assert not is_there(int(done.stdout))
    assert done.stderr == ""


def test_a_command_that_ends_after_the_warden_writes_to_no_stranger():
    program = """
start_, done = threading.Event(), []
told = dict(on_output=lambda _stream, _text: start_.set())
thread = threading.Thread(target=lambda: done.append(Command("echo begun; exec sleep 60").run(**told)))
thread.start()
start_.wait()
reaper.leave()
thread.join()
print(done[0].problem)
"""
    done = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("it was killed by signal SIGTERM (begun)\n", "")


def test_a_group_that_has_ended_is_not_killed_later():
    program = """
import subprocess
quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
strangers = [subprocess.Popen(["sleep", "60"], start_new_session=True, **quiet) for _ in range(3)]
assert Command("true").run().succeeded
for stranger in strangers:
    reaper.begun(stranger.pid)
for stranger in strangers[:2]:
    reaper.ended(stranger.pid)
print(*(stranger.pid for stranger in strangers), reaper._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=False)
    *strangers, reaper = map(int, done.stdout.split())
    deadline = time.monotonic() + 30
    while (is_there(reaper) or is_there(strangers[2])) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [is_there(stranger) for stranger in strangers] == [True, True, False]
    for stranger in strangers[:2]:
        os.kill(stranger, signal.SIGKILL)


def test_a_command_begins_when_what_comes_before_it_is_done(tmp_path):
    program = f"""
from pathlib import Path
place = Path({str(tmp_path)!r})
print(Command(f"cat {{place}}/stored").run(before=lambda: (place / "stored").write_text("before")).stdout)
"""
    done = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=True)
    assert done.stdout == "before\n"


def test_a_process_that_dies_before_its_command_may_begin_leaves_none(tmp_path):
    """Proves D8: the shell stands ready by then, and ends by itself."""
    program = f"""
def die():
    os.kill(os.getpid(), signal.SIGKILL)
Command("touch {tmp_path}/begun; exec sleep 60").run(before=die)
"""
    done = subprocess.run([sys.executable, "-c", BEGIN + program], check=False, timeout=60, capture_output=True)
    assert done.returncode == -signal.SIGKILL  # and its output was closed, by the shell too
    assert not (tmp_path / "begun").exists()
