"""An errno at every storage call: a typed error, nothing lost, nothing half written, and the same object continues."""

from __future__ import annotations

import errno
import os
import random
import resource
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import holdfast
from crash.children import Child, sampled, scratch, spread
from crash.privileges import give_up_privileges
from crash.workload import STEPS, Play, check_whole, everything, models
from holdfast.errors import HoldfastError, StoreError, StoreFull, StoreUnavailable
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.faults import Call, Fault, FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_CODES = {
    "create": (errno.EACCES, errno.ENOSPC),
    "make folder": (errno.EACCES, errno.ENOSPC, errno.EROFS),
    "write": (errno.ENOSPC, errno.EIO),
}


class _Point(NamedTuple):
    fault: Fault
    operation: str
    neighbour: bool = False
    reads: bool = False


def _met(*, reads: bool = False) -> list[Call]:
    with scratch() as folder:
        disk = FaultyDisk(folder, reads=reads)
        met: list[Call] = []
        meet = disk.meet
        disk.meet = lambda call: (met.append(call), meet(call))[1]  # type: ignore[method-assign]
        with disk:
            _finish(Play(folder / "new" / "holdfast.db", vfs=disk.vfs), 0)
        return met if reads else [call for call in met if call.operation != "read"]


def _points(**options: Any) -> list[_Point]:
    return [
        _Point(Fault(at=number, kind="errno", code=code), call.operation, **options)
        for number, call in enumerate(_met(reads=options.get("reads", False)))
        for code in _CODES.get(call.operation, (errno.EIO,))
    ]


def _finish(play: Play, start: int) -> None:
    for number in range(start, len(STEPS)):
        play.do(number)


def _continues(point: _Point) -> str | None:
    """Play the workload with one fault in it, repeating the step that it hit; return the error's name."""
    met = None
    with scratch() as folder:
        disk = FaultyDisk(folder, reads=point.reads)
        disk.arm(point.fault)
        neighbour = None
        with disk:
            play = Play(folder / "new" / "holdfast.db", vfs=disk.vfs)
            for number in range(len(STEPS)):
                try:
                    play.do(number)
                except HoldfastError as error:
                    assert met is None, "a fault that comes once is met once"
                    met = type(error).__name__
                    _check_refusal(play, number, disk, error)
                    disk.arm(None)
                    if not _is_done(play, number):
                        play.do(number)
                if point.neighbour and neighbour is None:
                    neighbour = SQLiteStore(play.path)
        assert disk.struck or point.neighbour
        if neighbour is not None:
            neighbour.close()
        assert check_whole(play.path) == models()[-1]
    return met


def _is_done(play: Play, number: int) -> bool:
    """Tell whether a step that raised had its effect: the deletion was committed, giving back the space failed."""
    if number == len(STEPS) - 1:
        return True
    return number > 0 and everything(play.hf) == models()[number] != models()[number - 1]


def _check_refusal(play: Play, number: int, disk: FaultyDisk, error: HoldfastError) -> None:
    assert isinstance(error, StoreError), error
    assert len(str(error)) > 20
    if number == len(STEPS) - 1:
        return
    assert disk.fault is not None
    assert disk.struck is not None
    if disk.fault.code == errno.ENOSPC and disk.struck.operation in ("write", "make folder"):
        assert isinstance(error, StoreFull), error
    if number == 0:
        return
    held = everything(play.hf)
    if STEPS[number] in _ATOMIC:
        assert held == models()[number - 1], "what was refused is not there"
    else:
        assert held in (models()[number - 1], models()[number])
    assert play.hf.verify().sound


_ATOMIC = {STEPS[number] for number in (1, 2, 3, 4, 5, 6, 7, 9, 13)}  # one transaction each


def test_an_errno_at_any_storage_call_is_typed_and_the_same_object_goes_on() -> None:
    """Proves D11, A10."""
    models()
    points = _points()
    assert len(points) > 600
    points = sampled(points, 250)
    found = spread(points, _continues)
    assert len(found) == len(points)
    assert {"StoreFull", "StoreUnavailable"} <= set(found)
    assert found.count(None) < len(points) / 3, "most faults reach the caller; those in a fold of the log need not"


def test_an_errno_while_another_connection_keeps_the_log_alive_leaves_no_refused_commit() -> None:
    """Proves D10, D11: the refused frames stay in the log, and are overwritten, not replayed."""
    models()
    points = sampled(_points(neighbour=True), 150)
    assert len(spread(points, _continues)) == len(points)


def test_a_read_that_fails_is_typed_and_the_same_object_goes_on() -> None:
    """Proves D11."""
    models()
    points = [point for point in _points(reads=True) if point.operation == "read"]
    points = sampled(points, 120)
    assert len(spread(points, _continues)) == len(points)


def test_a_disk_that_stays_broken_loses_nothing_and_is_usable_once_mended() -> None:
    """Proves D11."""
    models()

    def check(point: _Point) -> None:
        fault = Fault(at=point.fault.at, kind="errno", code=point.fault.code, lasting=True)
        with scratch() as folder:
            disk = FaultyDisk(folder)
            disk.arm(fault)
            with disk:
                play = Play(folder / "new" / "holdfast.db", vfs=disk.vfs)
                number = 0
                try:
                    for number in range(len(STEPS)):
                        play.do(number)
                except HoldfastError:
                    for _ in range(3 if number < len(STEPS) - 1 else 0):
                        with pytest.raises(StoreError):
                            play.save("other", state={}) if number else play.do(0)
                    disk.arm(None)
                    # A commit whose log could be neither synced nor folded in may turn up whole: the head tells.
                    play.forget_runs()
                    if not _is_done(play, number):
                        play.do(number)
                    _finish(play, number + 1)
            disk.arm(None)
            assert check_whole(play.path) == models()[-1]

    points = sampled(_points(), 100)
    spread(points, check)


def _fill(hf: holdfast.Holdfast, chances: int = 400) -> tuple[int, HoldfastError]:
    """Take checkpoints until one is refused; return how many were taken and the error."""
    run = hf.run("a")
    for number in range(chances):
        try:
            run.checkpoint(state={"number": number, "data": random.Random(number).randbytes(20_000)})
        except HoldfastError as error:
            return number, error
    raise AssertionError("nothing was ever refused")


def _check_filled(hf: holdfast.Holdfast, taken: int) -> None:
    numbers = [cp.section("state")["number"] for cp in hf.checkpoints("a")]
    assert numbers == list(reversed(range(taken)))
    assert hf.verify().sound


def test_a_file_size_limit_refuses_and_leaves_what_was_there() -> None:
    """Proves D11: the operating system itself refuses the write."""

    def work(report: Callable[[Any], None]) -> None:
        with scratch() as folder, holdfast.open(folder) as hf:
            unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, unlimited[1]))
            taken, error = _fill(hf)
            assert isinstance(error, StoreError), error
            assert taken > 3
            _check_filled(hf, taken)
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            hf.run("a").checkpoint(state={"number": taken})
            _check_filled(hf, taken + 1)

    ended = Child(work).join()
    assert ended.code == 0, ended.reports


def test_a_full_disk_is_named_as_such_and_the_same_object_goes_on_when_there_is_room() -> None:
    """Proves D11: a real full file system."""
    with scratch() as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=2m", "holdfast-test", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("mounting a small file system needs root")
        try:
            ballast = folder / "ballast"
            ballast.write_bytes(bytes(600_000))
            with holdfast.open(folder / "store") as hf:
                taken, error = _fill(hf)
                assert isinstance(error, StoreFull), error
                _check_filled(hf, taken)
                with pytest.raises(StoreFull):
                    hf.run("a").checkpoint(state={"data": random.Random(0).randbytes(2_000_000)})
                ballast.unlink()
                hf.run("a").checkpoint(state={"number": taken})
                _check_filled(hf, taken + 1)
            with holdfast.open(folder / "store") as hf:
                _check_filled(hf, taken + 1)
        finally:
            subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode"), [(0o600, 0o500), (0o400, 0o700), (0o400, 0o500), (0o000, 0o700), (0o600, 0o000)]
)
def test_a_store_that_may_not_be_written_is_refused_with_a_typed_error_and_stays_as_it_was(
    file_mode: int, folder_mode: int
) -> None:
    """Proves D11."""

    def work(report: Callable[[Any], None]) -> None:
        give_up_privileges()
        with scratch() as folder:
            _check_locked_store(folder / "store", file_mode, folder_mode)

    ended = Child(work).join()
    assert ended.code == 0, ended.reports[-1]["traceback"]


def _check_locked_store(folder: Path, file_mode: int, folder_mode: int) -> None:
    with holdfast.open(folder) as hf:
        hf.run("a").checkpoint(state={"number": 0})
    (folder / "holdfast.db").chmod(file_mode)
    folder.chmod(folder_mode)
    try:
        with pytest.raises(StoreUnavailable), holdfast.open(folder) as hf:
            hf.run("a").checkpoint(state={"number": 1})
        if file_mode & 0o400 and folder_mode & 0o100:
            with holdfast.open(folder, read_only=True) as hf:
                _check_filled(hf, 1)
                with pytest.raises(StoreUnavailable):
                    hf.run("a").checkpoint(state={"number": 1})
        else:
            with pytest.raises(StoreUnavailable):
                holdfast.open(folder, read_only=True)
    finally:
        folder.chmod(0o700)
        (folder / "holdfast.db").chmod(0o600)
    with holdfast.open(folder) as hf:
        _check_filled(hf, 1)
    assert {file.name for file in folder.iterdir()} == {"holdfast.db", "holdfast.db-heads"}


def test_a_store_cannot_begin_in_a_folder_that_may_not_be_written() -> None:
    """Proves D11."""

    def work(report: Callable[[Any], None]) -> None:
        give_up_privileges()
        with scratch() as folder:
            folder.chmod(0o500)
            for place in (folder, folder / "below", folder / "below" / "that"):
                with pytest.raises(StoreUnavailable, match="choose another place"):
                    holdfast.open(place)
            assert not list(folder.iterdir())
            folder.chmod(0o700)

    ended = Child(work).join()
    assert ended.code == 0, ended.reports[-1]["traceback"]
