"""Power cuts, built from a log of writes and syncs: what was not synced may be lost, torn or kept, in any mixture."""

from __future__ import annotations

import random
import shutil
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pytest

from crash.children import TORTURE, sampled, scratch, spread
from crash.workload import STEPS, Play, check_whole, models
from holdfast.errors import HoldfastError
from holdfast.testing.faults import Call, Fault, FaultyDisk, after_power_loss

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.store.sqlite_file import Durability

_IMAGES = 20 if TORTURE else 3  # of each point


class _Recording(NamedTuple):
    folder: Path
    calls: list[Call]
    acknowledged: list[int]
    """For each number of calls carried out, the last step that had been acknowledged then; -1 for none."""


@cache
def _recorded(durability: Durability, interrupted_at: int | None = None) -> _Recording:
    """Play the workload and keep its calls; `interrupted_at` lets a first attempt to open fail there."""
    with scratch() as folder:
        disk = FaultyDisk(folder, log=True)
        calls = disk.log
        assert calls is not None
        acknowledged: list[int] = []
        with disk:
            if interrupted_at is not None:
                disk.arm(Fault(at=interrupted_at, kind="errno", lasting=True))
                with pytest.raises(HoldfastError):
                    Play(_store_in(folder), vfs=disk.vfs).do(0)
                disk.arm(None)
            play = Play(_store_in(folder), vfs=disk.vfs, durability=durability)
            for number in range(len(STEPS)):
                play.do(number)
                acknowledged.extend([number - 1] * (len(calls) - len(acknowledged)))
        acknowledged.append(len(STEPS) - 1)
        return _Recording(folder, calls, acknowledged)


def _store_in(folder: Path) -> Path:
    return folder / "new" / "folder" / "holdfast.db"


class _Cut(NamedTuple):
    durability: Durability
    point: int
    seed: int
    interrupted_at: int | None = None


def _cuts(durability: Durability, images: int, interrupted_at: int | None = None) -> list[_Cut]:
    calls = _recorded(durability, interrupted_at).calls
    return [_Cut(durability, point, seed, interrupted_at) for point in range(len(calls) + 1) for seed in range(images)]


def _acknowledged_lost(cut: _Cut) -> bool:
    """Build one image, open it, check that it is sound, and tell whether it lacks an acknowledged step."""
    recording = _recorded(cut.durability, cut.interrupted_at)
    with scratch() as parent:
        folder = parent / "image"
        chance = random.Random(f"{cut.point} {cut.seed}")
        after_power_loss(recording.calls[: cut.point], recording.folder, folder, chance)
        path = _store_in(folder)
        if path.parent.exists() and chance.random() < 0.3:
            path.with_name("holdfast.db-shm").write_bytes(chance.randbytes(32_768))  # never synced, so anything
        held = check_whole(path)
        shutil.rmtree(folder)
    done = recording.acknowledged[cut.point]
    expected = [models()[step] if step >= 0 else {} for step in range(done, min(done + 2, len(STEPS)))]
    if held in expected:
        return False
    earlier = [{}, *models()[: max(done, 0)]]
    assert held in earlier, "what is found is what the store held at some moment"
    return True


def test_a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged() -> None:
    """Proves X3, A10: durability="power", the default."""
    models()
    cuts = _cuts("power", _IMAGES)
    assert len(cuts) > 1_000
    cuts = sampled(cuts, 500)
    assert spread(cuts, _acknowledged_lost) == [False] * len(cuts)


def test_a_power_cut_with_durability_process_may_lose_commits_but_never_does_damage() -> None:
    """Proves that the test above can fail, and that the option loses what it says and no more."""
    models()
    lost = spread(sampled(_cuts("process", 2), 400), _acknowledged_lost)
    assert lost.count(True) > 50


def test_a_power_cut_after_a_creation_that_was_cut_short_and_repeated_loses_nothing() -> None:
    """Proves X3: the second process syncs the folders that the first one only made."""
    models()
    first_commit = _recorded("power").acknowledged.index(1)
    cuts = []
    for interrupted_at in range(first_commit):
        try:
            cuts += [cut for cut in _cuts("power", 3, interrupted_at) if 40 < cut.point < 120 or TORTURE]
        except pytest.fail.Exception:
            break  # from here on the store was open, and closing it forgave the fault
    assert len({cut.interrupted_at for cut in cuts}) > 15
    assert not any(spread(sampled(cuts, 250), _acknowledged_lost))
