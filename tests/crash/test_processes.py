"""Many processes on one store: nobody is turned away, nobody is overwritten, nobody's chunks are swept."""

from __future__ import annotations

import os
import random
import signal
import stat
import threading
import time
from contextlib import closing
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import pytest

from crash.children import Child, scratch
from holdfast.engine import Holdfast
from holdfast.errors import HeadMoved, StoreBusy
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.contract import Line, chunk_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PROCESSES = 16


@pytest.fixture
def path() -> Iterator[Path]:
    with scratch() as folder:
        yield folder / "store" / "holdfast.db"


def _together(works: list[Callable[[Any], None]]) -> list[list[Any]]:
    """Run functions in children that begin at the same moment; return what each reported."""
    gate, release = os.pipe()

    def behind_the_gate(work: Callable[[Any], None]) -> Callable[[Any], None]:
        def begin(report: Callable[[Any], None]) -> None:
            os.close(release)
            os.read(gate, 1)  # returns when the parent closes its end
            work(report)

        return begin

    children = [Child(behind_the_gate(work)) for work in works]
    os.close(gate)
    os.close(release)
    ended = [child.join() for child in children]
    for end in ended:
        assert (end.signal, end.code) == (0, 0), end.reports[-1:]
    return [end.reports for end in ended]


def _state(run: str, number: int) -> dict[str, Any]:
    return {"number": number, "own": random.Random(f"{run}{number // 3}").randbytes(3_000), "shared": "x" * 5_000}


def _check_run(hf: Holdfast, run: str, ids: list[str]) -> None:
    found = hf.checkpoints(run, archived=True)
    assert [cp.id for cp in reversed(found)] == ids
    for number, cp in enumerate(reversed(found)):
        assert cp.section("state") == _state(run, number)


def test_16_processes_write_16_runs_at_once_and_all_is_kept(path: Path) -> None:
    """Proves D10: also that no busy error reaches a caller."""

    def writer(run: str) -> Callable[[Any], None]:
        def work(report: Callable[[Any], None]) -> None:
            with Holdfast(SQLiteStore(path)) as hf:
                handle = hf.run(run)
                for number in range(20):
                    report(handle.checkpoint(state=_state(run, number)).id)

        return work

    runs = [f"run-{number}" for number in range(_PROCESSES)]
    reports = _together([writer(run) for run in runs])
    with Holdfast(SQLiteStore(path)) as hf:
        assert sorted(run.id for run in hf.runs()) == sorted(runs)
        for run, ids in zip(runs, reports, strict=True):
            assert len(ids) == 20
            _check_run(hf, run, ids)
        assert hf.verify().sound
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}-heads"}


def test_16_processes_open_a_store_that_is_not_there_yet_at_the_same_moment() -> None:
    """Proves D10: the first to come makes it, the others use it; many times over, since it is a race."""
    for _ in range(15):
        with scratch() as folder:
            path = folder / "not" / "yet" / "holdfast.db"

            def work(report: Callable[[Any], None], path: Path = path) -> None:
                with Holdfast(SQLiteStore(path)) as hf:
                    report(hf.run(f"run-{os.getpid()}").checkpoint(state={"pid": os.getpid()}).id)

            reports = _together([work] * _PROCESSES)
            with Holdfast(SQLiteStore(path)) as hf:
                assert sorted(hf.latest(run.id).id for run in hf.runs()) == sorted(ids[0] for ids in reports)
                assert hf.verify().sound


def test_opening_and_closing_beside_each_other_turns_nobody_away(path: Path) -> None:
    """Proves D10: the last to close folds the log away while others are opening."""

    def work(report: Callable[[Any], None]) -> None:
        for number in range(25):
            with Holdfast(SQLiteStore(path)) as hf:
                run = f"run-{os.getpid()}"
                report(hf.run(run).checkpoint(state=_state(run, number)).id)

    reports = _together([work] * 4)
    with Holdfast(SQLiteStore(path)) as hf:
        assert sorted(cp.id for run in hf.runs() for cp in hf.checkpoints(run.id)) == sorted(chain(*reports))
        assert hf.verify().sound


def test_of_two_writers_on_one_run_one_wins_each_time_and_nothing_is_overwritten(path: Path) -> None:
    """Proves D10, threat 16."""

    def work(report: Callable[[Any], None]) -> None:
        with Holdfast(SQLiteStore(path)) as hf:
            run = hf.run("a")
            for number in range(40):
                try:
                    report(["kept", run.checkpoint(state={"by": os.getpid(), "number": number}).id])
                except HeadMoved:
                    report(["moved", None])
                    run = hf.run("a")

    reports = _together([work, work])
    kept = [report[1] for child in reports for report in child if report[0] == "kept"]
    with Holdfast(SQLiteStore(path)) as hf:
        found = hf.checkpoints("a", archived=True)
        assert sorted(cp.id for cp in found) == sorted(kept)
        assert [cp.seq for cp in found] == list(range(len(kept), 0, -1))
        assert all(child.parent == parent.id for child, parent in pairwise(found))
        assert hf.verify().sound


def test_a_stale_writer_gets_head_moved_and_changes_nothing(path: Path) -> None:
    """Proves D10, threat 16: without any race."""
    with Holdfast(SQLiteStore(path)) as hf:
        slow, fast = hf.run("a"), hf.run("a")
        first = fast.checkpoint(state=1)
        with pytest.raises(HeadMoved) as caught:
            slow.checkpoint(state=2)
        assert (caught.value.expected, caught.value.actual) == (None, first.id)
        assert [cp.section("state") for cp in hf.checkpoints("a")] == [1]
        slow.recorder.reload()
        slow.checkpoint(state=3)
        assert [cp.section("state") for cp in hf.checkpoints("a")] == [3, 1]
        assert hf.verify().sound


def _writer_of_shared_states(path: Path, run: str) -> Callable[[Any], None]:
    def work(report: Callable[[Any], None]) -> None:
        with Holdfast(SQLiteStore(path)) as hf:
            handle = hf.run(run)
            for number in range(40):
                report(handle.checkpoint(state=_state("all", number)).id)

    return work


def _sweeper(path: Path, pruned: tuple[str, ...]) -> Callable[[Any], None]:
    """Take checkpoints with the same chunks and delete them, and prune the writers' runs."""

    def work(report: Callable[[Any], None]) -> None:
        with Holdfast(SQLiteStore(path)) as hf:
            for number in range(40):
                hf.run("swept").checkpoint(state=_state("all", number))
                if number % 10 == 9:
                    hf.delete_run("swept")
                elif number % 3 == 2:
                    hf.prune("swept", keep=1)
                for run in pruned:
                    if hf.has(run):
                        report(list(hf.prune(run, keep=5)))

    return work


def test_deleting_and_pruning_beside_writers_takes_nothing_that_is_needed(path: Path) -> None:
    """Proves D10: chunks are shared between runs, so each sweep could take another's."""
    runs = ("w0", "w1")
    works = [*(_writer_of_shared_states(path, run) for run in runs), _sweeper(path, runs)]
    first, second, pruned = _together(works)
    gone = set(chain(*pruned))
    with Holdfast(SQLiteStore(path)) as hf:
        report = hf.verify()
        assert report.sound, report.faults
        for run, ids in zip(runs, (first, second), strict=True):
            assert [cp.id for cp in reversed(hf.checkpoints(run))] == [name for name in ids if name not in gone]
            for cp in hf.checkpoints(run):
                assert cp.section("state") == _state("all", ids.index(cp.id))
        assert len(gone) > 20


def test_a_killed_writer_leaves_the_others_undisturbed(path: Path) -> None:
    """Proves D10: whatever it held is free again, and what it had acknowledged is there."""

    def victim(report: Callable[[Any], None]) -> None:
        with Holdfast(SQLiteStore(path)) as hf:
            run = hf.run(f"victim-{os.getpid()}")
            number = 0
            while True:
                report([run.id, run.checkpoint(state=_state(run.id, number)).id])
                number += 1

    with Holdfast(SQLiteStore(path)):
        pass
    victims = [Child(victim) for _ in range(3)]
    with Holdfast(SQLiteStore(path)) as hf:
        run = hf.run("survivor")
        ids = []
        for number, child in enumerate(victims):
            ids += [run.checkpoint(state=_state("survivor", 3 * number + more)).id for more in range(3)]
            while not any(record.id == f"victim-{child.pid}" for record in hf.runs()):
                time.sleep(0.01)
            os.kill(child.pid, signal.SIGKILL)
        ended = [child.join() for child in victims]
        _check_run(hf, "survivor", ids)
        for child, end in zip(victims, ended, strict=True):
            assert end.signal == signal.SIGKILL
            acknowledged = [report[1] for report in end.reports]  # none, if it was killed before its first report
            found = [cp.id for cp in reversed(hf.checkpoints(f"victim-{child.pid}", archived=True))]
            assert found[: len(acknowledged)] == acknowledged
            assert len(found) - len(acknowledged) <= 1
        assert hf.verify().sound


@pytest.mark.parametrize("first_to_close", ["parent", "child"])
def test_a_store_that_is_open_across_a_fork_works_on_both_sides(path: Path, first_to_close: str) -> None:
    """Proves D10: neither side's closing takes the log from under the other."""
    to_child, to_parent = os.pipe(), os.pipe()
    hf = Holdfast(SQLiteStore(path))
    before = hf.run("parent").checkpoint(state=_state("parent", 0)).id

    def work(report: Callable[[Any], None]) -> None:
        run = hf.run("child")
        for number in range(3):
            report(run.checkpoint(state=_state("child", number)).id)
        assert hf.latest("parent").id == before
        if first_to_close == "child":
            hf.close()
        os.write(to_parent[1], b"x")
        os.read(to_child[0], 1)
        if first_to_close == "parent":
            for number in range(3, 6):
                report(run.checkpoint(state=_state("child", number)).id)
            hf.close()

    child = Child(work)
    os.read(to_parent[0], 1)
    run = hf.run("parent")
    ids = [before, *(run.checkpoint(state=_state("parent", number)).id for number in range(1, 4))]
    if first_to_close == "parent":
        hf.close()
    os.write(to_child[1], b"x")
    ended = child.join()
    assert ended.code == 0, ended.reports[-1]
    if first_to_close == "child":
        ids += [run.checkpoint(state=_state("parent", number)).id for number in range(4, 6)]
        hf.close()
    for descriptor in (*to_child, *to_parent):
        os.close(descriptor)
    with Holdfast(SQLiteStore(path)) as reopened:
        _check_run(reopened, "parent", ids)
        _check_run(reopened, "child", ended.reports)
        assert reopened.verify().sound


def test_a_fork_while_another_thread_writes_leaves_both_sides_usable(path: Path) -> None:
    """Proves D10: a lock or a transaction that is held at the moment of the fork is not inherited."""
    with Holdfast(SQLiteStore(path)) as hf:
        stop = threading.Event()
        ids: list[str] = []

        def write() -> None:
            run = hf.run("parent")
            while not stop.is_set():
                ids.append(run.checkpoint(state=_state("parent", len(ids))).id)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            ended = []
            for number in range(10):
                name = f"child-{number}"

                def work(report: Callable[[Any], None], name: str = name) -> None:
                    signal.alarm(60)  # an inherited lock would hang here for ever
                    report(hf.run(name).checkpoint(state=_state(name, 0)).id)
                    hf.close()

                ended.append((name, Child(work).join()))
        finally:
            stop.set()
            writer.join()
        _check_run(hf, "parent", ids)
        for name, end in ended:
            assert (end.signal, end.code) == (0, 0), end.reports
            _check_run(hf, name, end.reports)
        assert hf.verify().sound


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o177, 0o777])
def test_files_are_0600_and_folders_0700_whatever_the_umask(mask: int) -> None:
    """Proves D10, threat 17."""

    def work(report: Callable[[Any], None]) -> None:
        with scratch() as folder:
            os.umask(mask)
            with Holdfast(SQLiteStore(folder / "one" / "two" / "holdfast.db")) as hf:
                hf.run("a").checkpoint(state=1)
                modes = {str(file.relative_to(folder)): stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*")}
            report(modes)

    ended = Child(work).join()
    assert ended.code == 0, ended.reports
    names = [f"one/two/holdfast.db{end}" for end in ("", "-heads", "-shm", "-wal")]
    assert ended.reports == [{"one": 0o700, "one/two": 0o700, **dict.fromkeys(names, 0o600)}]


def test_a_process_that_is_stopped_inside_a_transaction_is_named_to_those_who_wait(monkeypatch) -> None:
    """Proves D11: who waits is told whom to end, and all continues when it is."""
    monkeypatch.setattr("holdfast.store.sqlite_file.BUSY_TIMEOUT_MS", 200)
    with scratch() as folder:
        path = folder / "holdfast.db"
        with closing(SQLiteStore(path)) as store:
            Line(store).commit(chunk_of("one"))

        def live(_report: Callable[[Any], None]) -> None:
            with SQLiteStore(path).medium.write():
                os.kill(os.getpid(), signal.SIGSTOP)

        child = Child(live)
        os.waitpid(child.pid, os.WUNTRACED)
        with closing(SQLiteStore(path)) as store:
            with pytest.raises(StoreBusy, match=rf"process {child.pid}, which is stopped.*kill -9 {child.pid}"):
                store.leases.take("run", owner="other", ttl_s=5)
            assert store.run("run").last_seq == 1
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            assert store.leases.take("run", owner="other", ttl_s=5).token == 1
