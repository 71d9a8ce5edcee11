"""A disk that refuses, at every storage call of every operation, once and from then on.

Each operation begins on a copy of one prepared store. What it raises is a typed error; where it returns, what it did is
there after the store was opened again; and what was acknowledged before is there in any case.
"""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from crash.children import TORTURE, scratch, spread
from holdfast.engine import Holdfast
from holdfast.errors import HoldfastError
from holdfast.recovery.result import RecoveryResult
from holdfast.store.commit import Commit, Draft
from holdfast.store.repair import Repair
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.faults import Fault, FaultyDisk
from holdfast.verify.check import Report
from holdfast.verify.rebuild import rebuild

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_CODES = {
    "create": (errno.EACCES, errno.EMFILE, errno.ENOSPC),
    "make folder": (errno.EACCES, errno.ENOSPC, errno.EROFS),
    "write": (errno.ENOSPC, errno.EIO),
    "read": (errno.EIO,),
}
_KEPT = 3
"""Checkpoints that every run of the prepared store has."""


class Operation(NamedTuple):
    """Something to do to a store, and how to tell from a store that was opened again that it was done."""

    do: Callable[[Holdfast, Path], Any]
    is_done: Callable[[Holdfast, Path], bool]


def _bundle(folder: Path) -> Path:
    return folder / "bundle.holdfast"


def _copied(hf: Holdfast, folder: Path) -> Any:
    with Holdfast(SQLiteStore(folder / "copy.db")) as target:
        return hf.transfer.copy_to(target, "a")


def _is_copied(_hf: Holdfast, folder: Path) -> bool:
    with Holdfast(SQLiteStore(folder / "copy.db")) as target:
        return len(target.checkpoints("a")) >= _KEPT and target.verify().sound


def _is_in_bundle(_hf: Holdfast, folder: Path) -> bool:
    with Holdfast(SQLiteStore(folder / "from-bundle.db")) as target:
        target.transfer.import_from(_bundle(folder))
        return len(target.checkpoints("b")) >= _KEPT


def _states(hf: Holdfast, run: str) -> list[Any]:
    return [one.section("state") for one in hf.checkpoints(run, archived=True) if "state" in one.sections]


OPERATIONS = {
    "checkpoint": Operation(
        lambda hf, _: hf.run("a").checkpoint(state={"new": "x" * 9000}),
        lambda hf, _: any("new" in one for one in _states(hf, "a")),
    ),
    "append": Operation(
        lambda hf, _: hf.store.write(Commit(run="c", records=[Draft("k", "path", 0.0)] * 5)),
        lambda hf, _: hf.store.line("c").number >= 6,  # type: ignore[union-attr]
    ),
    "message": Operation(lambda hf, _: hf.control.signal("a", "go"), lambda hf, _: len(hf.store.inbox("a")) > 0),
    "pin": Operation(
        lambda hf, _: hf.mark(hf.checkpoints("a")[-1].id, pinned=True), lambda hf, _: hf.checkpoints("a")[-1].pinned
    ),
    "recover": Operation(
        lambda hf, _: hf.recover("a@1"), lambda hf, _: hf.latest("a").section("state") == {"run": "a", "n": 0}
    ),
    "undo": Operation(
        lambda hf, _: hf.undo("went_back"), lambda hf, _: hf.latest("went_back").section("state")["n"] == _KEPT - 1
    ),
    "fork": Operation(lambda hf, _: hf.fork("a@2", "forked"), lambda hf, _: hf.has("forked")),
    "start fresh": Operation(
        lambda hf, _: hf.recovery.start_fresh("a"), lambda hf, _: "state" not in hf.latest("a").sections
    ),
    "prune": Operation(lambda hf, _: hf.prune("b", keep=1), lambda hf, _: len(hf.checkpoints("b")) == 1),
    "delete run": Operation(lambda hf, _: hf.delete_run("b"), lambda hf, _: not hf.has("b")),
    "verify": Operation(lambda hf, _: hf.verify(), lambda *_: True),
    "repair": Operation(
        lambda hf, _: [rebuild(hf.store, run) for run in ("a", *Repair(hf.store).damaged_runs())],
        lambda hf, _: hf.verify().sound,
    ),
    "export": Operation(lambda hf, folder: hf.transfer.export(_bundle(folder), "b"), _is_in_bundle),
    "import": Operation(
        lambda hf, folder: hf.transfer.import_from(folder / "given.holdfast"),
        lambda hf, _: len(hf.checkpoints("given")) == 1,
    ),
    "copy": Operation(_copied, _is_copied),
}
_MAY_SHORTEN = {"prune": "b", "delete run": "b"}


@cache
def _prepared() -> dict[str, bytes]:
    """Return the files of the store that every operation begins with."""
    with scratch() as folder:
        with Holdfast(SQLiteStore(folder / "other.db")) as hf:
            hf.run("given").checkpoint(state={"given": True})
            hf.transfer.export(folder / "given.holdfast", "given")
        with Holdfast(SQLiteStore(folder / "holdfast.db")) as hf:
            for run in ("a", "b", "went_back"):
                for number in range(_KEPT):
                    hf.run(run).checkpoint(state={"run": run, "n": number})
            hf.store.write(Commit(run="c", records=[Draft("k", "path", 0.0)]))
            assert hf.recover("went_back@1").success
        wanted = ("holdfast.db", "holdfast.db-heads", "given.holdfast")
        return {name: (folder / name).read_bytes() for name in wanted}


def _laid_out(folder: Path) -> Path:
    for name, content in _prepared().items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return folder / "holdfast.db"


def _calls(name: str) -> list[str]:
    """Return what an operation asks of the disk, call by call."""
    with scratch() as folder:
        disk = FaultyDisk(folder, reads=True)
        met: list[str] = []
        meet = disk.meet
        with disk, Holdfast(SQLiteStore(_laid_out(folder), vfs=disk.vfs)) as hf:
            disk.meet = lambda call: (met.append(call.operation), meet(call))[1]  # type: ignore[method-assign]
            OPERATIONS[name].do(hf, folder)
            disk.meet = meet  # type: ignore[method-assign]
        disk.close()
        return met


class Point(NamedTuple):
    """One refused call of one operation."""

    name: str
    fault: Fault


def _points(name: str) -> list[Point]:
    return [
        Point(name, Fault(at=number, kind="errno", code=code, lasting=lasting))
        for number, operation in enumerate(_calls(name))
        for code in _CODES.get(operation, (errno.EIO,))
        for lasting in (False, True)
    ]


def _stands(point: Point) -> str:
    """Do an operation on a disk that refuses; return whether it was refused, done, or done at the second attempt."""
    operation = OPERATIONS[point.name]
    with scratch() as folder:
        path = _laid_out(folder)
        disk = FaultyDisk(folder, reads=True)
        try:
            with disk, Holdfast(SQLiteStore(path, vfs=disk.vfs)) as hf:
                disk.arm(point.fault)
                try:
                    found = "refused" if _says_no(operation.do(hf, folder)) else "done"
                except HoldfastError:
                    found = "refused"
                disk.arm(None)
                if found == "refused":
                    with suppress(HoldfastError):  # it may have been done all the same, and says so now
                        operation.do(hf, folder)
        finally:
            disk.close()
        with Holdfast(SQLiteStore(path)) as hf:
            report = hf.verify()
            assert report.sound, report.faults
            for run in ("a", "b", "went_back"):
                if _MAY_SHORTEN.get(point.name) != run:
                    kept = [one for one in _states(hf, run) if one.get("run") == run]
                    assert [one["n"] for one in reversed(kept)][:_KEPT] == list(range(_KEPT)), f"lost of {run}: {kept}"
            assert operation.is_done(hf, folder), found
        return found


def _says_no(said: object) -> bool:
    """Tell whether what an operation returned says that it was not done, or that not all could be read."""
    return (isinstance(said, RecoveryResult) and not said.success) or (isinstance(said, Report) and not said.sound)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_refused_call_of_any_operation_is_typed_and_nothing_is_lost_or_pretended(name: str) -> None:
    """Proves D11, A10: EIO, ENOSPC, EMFILE, EACCES; once, and lasting until somebody makes room."""
    _prepared()
    points = _points(name)
    chosen = points if TORTURE else random.Random(5).sample(points, min(24, len(points)))
    found = spread(chosen, _stands)
    assert len(found) == len(chosen)
    assert "refused" in found, "a disk that refuses is noticed"
    print(f"{name}: {len(points)} refused calls, {len(chosen)} tried, {found.count('refused')} reached the caller")
