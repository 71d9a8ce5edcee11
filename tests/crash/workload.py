"""The workload of the crash tests: one store's life in numbered steps, with the same ids every time it is played."""

from __future__ import annotations

import hashlib
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import apsw

from crash.children import scratch
from holdfast.encode.tree import Ref
from holdfast.engine import Holdfast
from holdfast.model.checkpoint import Marks
from holdfast.retain.sweep import sweep
from holdfast.store.reach import Reach
from holdfast.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.run import Run

_START = 1_750_000_000.0


class Play:
    """One performance of the workload on a store file."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.number = 0
        self._options = options
        self._drawn = 0
        self._runs: dict[str, Run] = {}
        self.holdfast: Holdfast | None = None

    def do(self, number: int) -> None:
        """Play one step; a step that failed may be played again."""
        self.number, self._drawn = number, 0
        STEPS[number](self)

    def open(self) -> None:
        store = SQLiteStore(self.path, **self._options)
        self.holdfast = _unredacted(Holdfast(store, clock=self._clock, entropy=self._entropy))

    def close(self) -> None:
        self.hf.close()

    def save(self, run: str, **given: Any) -> None:
        if run not in self._runs:
            self._runs[run] = self.hf.run(run)
        self._runs[run].checkpoint(reason=f"step {self.number}", **given)

    def forget_runs(self) -> None:
        """Open the runs again, at the heads that the store knows."""
        self._runs.clear()

    def taken_at(self, step: int) -> str:
        """Return the checkpoint of run a that a step took."""
        return next(cp.id for cp in self.hf.checkpoints("a") if cp.reason == f"step {step}")

    @property
    def hf(self) -> Holdfast:
        assert self.holdfast is not None
        return self.holdfast

    def _clock(self) -> float:
        return _START + self.number

    def _entropy(self, size: int) -> bytes:
        self._drawn += 1
        return hashlib.sha256(f"{self.number} {self._drawn}".encode()).digest()[:size]


def _unredacted(hf: Holdfast) -> Holdfast:
    """Switch off the search for secrets: without its native library it costs twenty times the rest of the workload."""
    hf.internals.rules = None
    return hf


def _messages(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": Random(index).randbytes(1_200)} for index in range(count)]


STEPS: tuple[Callable[[Play], object], ...] = (
    Play.open,
    lambda play: play.save("a", state={"messages": _messages(2)}, sections={"notes": ["one", "two"]}),
    lambda play: play.save("a", state={"messages": _messages(8)}),
    lambda play: play.save("a", state={"messages": _messages(60)}),
    lambda play: play.save("a", sections={"mine": {1: "a", "b": (1, 2)}}),
    lambda play: play.save("b", state={"messages": _messages(8)}, pinned=True, label="kept"),
    lambda play: play.hf.store.mark(play.taken_at(2), Marks(label="good", pinned=True)),
    lambda play: play.save("b", state={"messages": _messages(20)}),
    lambda play: play.hf.delete(play.taken_at(3)),
    lambda play: play.save("a", state={"messages": _messages(62)}, drop=["mine"]),
    lambda play: play.hf.prune("a", keep=1),
    lambda play: play.hf.delete_run("b"),
    lambda play: play.hf.store.reclaim(),
    lambda play: play.save("a", state={"messages": _messages(5)}),
    Play.close,
)


def everything(holdfast: Holdfast) -> dict[str, list[Any]]:
    """Read all that a store holds."""
    return {
        run.id: [
            (cp.id, cp.seq, cp.parent, cp.trigger, cp.reason, cp.status, cp.label, cp.pinned, cp.created_at.isoformat(),
             {name: cp.section(name) for name in cp.sections})
            for cp in holdfast.checkpoints(run.id)
        ]
        for run in holdfast.runs()
    }  # fmt: skip


@cache
def models() -> tuple[dict[str, list[Any]], ...]:
    """Return what the store holds after each step when nothing goes wrong."""
    found = []
    with scratch() as folder:
        play = Play(folder / "holdfast.db")
        for number in range(len(STEPS)):
            play.do(number)
            if number < len(STEPS) - 1:
                found.append(everything(play.hf))
        with Holdfast(SQLiteStore(play.path)) as reopened:
            found.append(everything(reopened))
    return tuple(found)


def check_whole(path: Path) -> dict[str, list[Any]]:
    """Open a store after a crash, check that it is sound, continues and keeps no rest; return what it held."""
    with _unredacted(Holdfast(SQLiteStore(path))) as hf:
        held = everything(hf)
        report = hf.verify()
        assert report.sound, report.faults
        check_bookkeeping(path)
        for run in ("a", "new"):
            taken = hf.run(run).checkpoint(state={"messages": _messages(9), "after": run})
            assert hf.latest(run).id == taken.id
            assert hf.latest(run, sound=True).section("state")["after"] == run
            sweep(hf.store, run)
        if "b" in held:
            sweep(hf.store, "b")
        needed = {
            Ref(section.kind, section.size, section.root)
            for run in hf.runs()
            for cp in hf.checkpoints(run.id)
            for section in cp.record.envelope.sections
        }
        reach = Reach(hf.store)
        reach.add(needed)
        assert set(hf.store.chunk_ids()) == reach.seen, "chunks are left that nothing needs"
        assert hf.verify().sound
    assert {file.name for file in path.parent.iterdir()} <= {path.name, f"{path.name}-heads"}, "files are left behind"
    return held


def check_bookkeeping(path: Path) -> None:
    """Look behind the store: each chunk is held, each hold has its chunk and its run."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    loose = connection.execute(
        "SELECT (SELECT count(*) FROM chunk WHERE n NOT IN (SELECT chunk FROM hold)), "
        "(SELECT count(*) FROM hold WHERE chunk NOT IN (SELECT n FROM chunk) OR run NOT IN (SELECT n FROM run)), "
        "(SELECT count(*) FROM checkpoint WHERE run NOT IN (SELECT id FROM run)), "
        "(SELECT count(*) FROM tombstone WHERE run NOT IN (SELECT id FROM run))"
    ).fetchall()
    connection.close()
    assert loose == [(0, 0, 0, 0)], "half-written rows"
