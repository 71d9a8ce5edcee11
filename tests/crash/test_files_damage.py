"""Damage to any file of a files store: what is read is what was written or a typed error, and the check names it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
from contextlib import closing
from functools import cache

import pytest

from crash.children import TORTURE, scratch, spread
from crash.files_kit import FACTS, Work, go_on, lost_sections, open_files, picture, wrong
from holdfast.errors import HoldfastError, IntegrityError, NotFound, RunCorrupt
from holdfast.store.commit import Commit, Draft
from holdfast.store.inspection import Inspection
from holdfast.store.repair import Repair
from holdfast.testing.contract import Line, chunk_of

RUNS = ("run", "Other:1", "leased-run")


class Truth:
    """A sound store as the files it consists of, each older copy of them, and all that it holds."""

    def __init__(self):
        self.files = {}
        self.older = {}
        self.ever = {}
        with scratch() as folder, closing(open_files(folder / "s")) as store:
            work = Work(store)
            work.do(lambda _: self.keep(folder / "s", store))
            work.line("leased-run").commit(chunk_of("one"))
            work.records("x", "y", run="leased-run")
            self.keep(folder / "s", store)
            self.picture = picture(store)
            self.records = {run: store.journal.records(store.line(run)) for run in RUNS}
            self.checkpoints = {cp.envelope.id: cp for run in RUNS for cp in store.checkpoints(run)}
            self.runs = {run: store.run(run) for run in RUNS}
            self.inbox = {run: store.inbox(run) for run in RUNS}
            self.accounts = {run: store.accounts(run) for run in RUNS}
            self.held = {run: store.held(run) for run in RUNS}

    def keep(self, folder, store):
        for run in store.runs():
            self.ever.update({cp.envelope.id: cp.envelope for cp in store.checkpoints(run.id)})
        now = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for name, data in self.files.items():
            if now.get(name) != data:
                self.older.setdefault(name, []).append(data)
        self.files = now

    def lay_out(self, folder, **changes):
        for name, data in {**self.files, **changes}.items():
            if data is not None:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.write_bytes(data)


@cache
def truth():
    return Truth()


def is_truth(name):
    """Tell whether a file is one whose damage may cost something: the others are made again from these."""
    return name.endswith("journal.jsonl") or name == "meta.jsonl" or name.startswith("chunks/")


class Examination:
    """Reads all of a damaged store in every way, and notes what is wrong with the answers."""

    def __init__(self, store):
        self.store = store
        self.complaints = []
        self.failed = []
        known = truth()
        listing = self.read("runs", store.runs)
        if listing is not None:
            names = {run.id for run in listing} | {getattr(error, "run", "") for error in listing.damaged}
            if not set(RUNS) <= names:
                self.complaints.append(f"runs are silently missing: {set(RUNS) - names}")
            self.failed += [str(error) for error in listing.damaged]
        for run in RUNS:
            self.same(f"run({run})", lambda run=run: store.run(run), known.runs[run])
            self.same(f"inbox({run})", lambda run=run: store.inbox(run), known.inbox[run])
            self.same(f"accounts({run})", lambda run=run: store.accounts(run), known.accounts[run])
            self.same(f"held({run})", lambda run=run: store.held(run), known.held[run])
            self.same(f"records({run})", lambda run=run: store.journal.records(store.line(run)), known.records[run])
            self.checkpoints(run)
        for name, record in known.checkpoints.items():
            found = self.read(f"checkpoint({name})", lambda name=name: store.checkpoint(name), missing=True)
            if found is not None and found != record and (found.envelope != record.envelope or not self.failed):
                self.complaints.append(f"checkpoint({name}) is another")  # of a damaged run its marks may be old
        for name in FACTS:
            self.same(f"meta({name})", lambda name=name: store.meta(name), known.picture["facts"][name])

    def read(self, what, call, *, missing=False):
        try:
            return call()
        except NotFound as error:
            if not missing:
                self.complaints.append(f"{what} is silently missing: {error}")
        except HoldfastError as error:
            if not isinstance(error, IntegrityError):
                self.complaints.append(f"{what} failed with {error!r}")
            self.failed.append(f"{what}: {error}")
        except Exception as error:  # noqa: BLE001 - the examination is whether such a thing gets out
            self.complaints.append(f"{what} let {error!r} out")
        return None

    def same(self, what, call, expected):
        found = self.read(what, call)
        if found is not None and found != expected:
            self.complaints.append(f"{what} is {found}, not {expected}")

    def checkpoints(self, run):
        listing = self.read(f"checkpoints({run})", lambda: self.store.checkpoints(run))
        if listing is None:
            return
        expected = [cp for cp in truth().checkpoints.values() if cp.envelope.run == run]
        others = [found for found in listing if found not in expected]
        if any(truth().ever.get(found.envelope.id) != found.envelope for found in others):
            self.complaints.append(f"checkpoints({run}) has others")
        if others and not listing.damaged:
            self.complaints.append(f"checkpoints({run}) is silently older")
        if len(listing) < len(expected) and not listing.damaged:
            self.complaints.append(f"checkpoints({run}) is silently shorter")
        self.failed += map(str, listing.damaged)
        for found in listing:
            self.failed += lost_sections(self.store, found)


def examine(changes, *, harmless=False):
    """Lay the store out with changed files, read it, and repair it; return whether anything failed."""
    with scratch() as folder:
        truth().lay_out(folder / "s", **changes)
        with closing(open_files(folder / "s")) as store:
            found = Examination(store)
            told = [*found_by_check(store)]
            assert found.complaints == []
            if harmless:
                assert (found.failed, told) == ([], [])
            if found.failed:
                assert told, f"the check says nothing of {found.failed[:3]}"
            repair(store)
            return bool(found.failed)


def found_by_check(store):
    """Yield what a check of everything finds: rows, logs, chains and chunks."""
    yield from Inspection(store).check()
    yield from Repair(store).damaged_runs()
    for run in store.runs():
        listing = store.checkpoints(run.id)
        yield from map(str, listing.damaged)
        yield from map(str, [step.fault for step in store.journal.walk(store.line(run.id)) if step.fault])
        for checkpoint in listing:
            yield from lost_sections(store, checkpoint)


def repair(store):
    """Rebuild what is damaged: afterwards each run is sound or gone, and can be written."""
    for run in Repair(store).damaged_runs():
        Repair(store).rebuild(run, lambda records: [s.root for cp in records for s in cp.envelope.sections])
    assert Repair(store).damaged_runs() == []
    for run in RUNS:
        line = store.line(run)
        store.write(Commit(run=run, after=line.number if line else 0, records=[Draft("call", "after", 1.0)]))


def positions(size, count):
    chance = random.Random(size)
    ends = {0, size // 2, size - 1} | ({1, size - 2} if size > 2 else set())
    return sorted(ends | {chance.randrange(size) for _ in range(count)})


def test_a_flipped_bit_anywhere_is_found_or_harmless():
    """Proves X3."""

    def check(point):
        name, at = point
        data = bytearray(truth().files[name])
        data[at] ^= 1 << (at % 8)
        return name, examine({name: bytes(data)}, harmless=not is_truth(name))

    count = 2000 if TORTURE else 40
    points = [(name, at) for name, data in truth().files.items() if data for at in positions(len(data), count)]
    assert len(points) > 400
    found = spread(points, check)
    assert all(failed for name, failed in found if is_truth(name)), "damage to the truth was not found"


@pytest.mark.parametrize("harm", ["cut", "zeroed", "half zeroed", "missing", "longer", "empty line", "garbage"])
def test_a_file_that_is_cut_zeroed_missing_or_longer_is_found_or_harmless(harm):
    """Proves X3."""

    def harmed(data, at):
        return {
            "cut": data[:at],
            "zeroed": bytes(len(data)),
            "half zeroed": data[:at] + bytes(len(data) - at),
            "missing": None,
            "longer": data + data[at:],
            "empty line": data + b"\n",
            "garbage": data[:at] + b"\xff\xfe{}[]\n" + data[at:],
        }[harm]

    def check(point):
        name, at = point
        changed = harmed(truth().files[name], at)
        return changed == truth().files[name] or examine({name: changed}, harmless=not is_truth(name))

    places = 200 if TORTURE else 8
    points = [(name, at) for name, data in truth().files.items() for at in positions(len(data) or 1, places)]
    spread(points, check)


def test_an_older_copy_of_any_file_is_found_or_harmless():
    """Proves X3: what was acknowledged since is named as missing, not silently gone."""

    def check(point):
        name, number = point
        # A witness of a run that was deleted and begun again speaks against the log, and one of them is old.
        again = name.startswith("witness/Other")
        examine({name: truth().older[name][number]}, harmless=not is_truth(name) and not again)

    points = [(name, n) for name, olds in truth().older.items() if name in truth().files for n in range(len(olds))]
    assert len(points) > 20
    spread(points, check)


def test_any_file_in_the_place_of_another_is_found_or_harmless():
    """Proves X3: what is read is bound to where it was asked for."""

    def check(point):
        first, second = point
        files = truth().files
        examine({first: files[second]}, harmless=not is_truth(first))
        examine({first: files[second], second: files[first]}, harmless=not (is_truth(first) or is_truth(second)))

    names = sorted(name for name, data in truth().files.items() if data)
    spread([(a, b) for a in names for b in names if a < b], check)


def test_the_newest_lines_cut_off_with_index_and_cache_gone_are_named_with_their_size(tmp_path):
    """Proves X3: the witness remembers how far the log went."""
    with closing(open_files(tmp_path)) as store:
        line = Line(store)
        for number in range(5):
            line.commit(chunk_of(str(number)))
    journal = tmp_path / "runs" / "run" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-2]))
    (tmp_path / "index.jsonl").unlink()
    with closing(open_files(tmp_path)) as store:
        with pytest.raises(RunCorrupt, match=rf"newest 2 lines .* missing \({sum(map(len, lines[-2:])):,} bytes\)"):
            store.run("run")
        listing = store.checkpoints("run")
        assert [record.envelope.seq for record in listing] == [3, 2, 1]
        assert [type(error) for error in listing.damaged] == [RunCorrupt]
        with pytest.raises(RunCorrupt):
            store.leases.take("run", owner="me", ttl_s=5)
        Repair(store).rebuild("run", lambda records: [s.root for cp in records for s in cp.envelope.sections])
        assert store.run("run").last_seq == 3
        go_on(store, tmp_path)


def test_a_run_whose_whole_folder_is_gone_or_of_long_ago_is_named(tmp_path):
    """Proves X3."""
    with closing(open_files(tmp_path / "s")) as store:
        line = Line(store)
        line.commit(chunk_of("one"))
        shutil.copytree(tmp_path / "s" / "runs" / "run", tmp_path / "old")
        line.commit(chunk_of("two"))
        Line(store, "other").commit()
        shutil.rmtree(tmp_path / "s" / "runs" / "run")
        with pytest.raises(RunCorrupt, match="vanished"):
            store.run("run")
        assert [run.id for run in store.runs()] == ["other"]
        assert [error.run for error in store.runs().damaged] == ["run"]
        shutil.copytree(tmp_path / "old", tmp_path / "s" / "runs" / "run")
        with pytest.raises(RunCorrupt, match="newest 1 lines"):
            store.run("run")


def test_damage_of_one_run_hides_nothing_of_the_others_and_deletes_no_chunk(tmp_path):
    """Proves D11: a damaged log may hold what nobody else holds."""
    with closing(open_files(tmp_path)) as store:
        for run in ("good", "bad"):
            line = Line(store, run)
            line.commit(chunk_of(f"of {run}"))
            line.commit(chunk_of("shared"))
        journal = tmp_path / "runs" / "bad" / "journal.jsonl"
        journal.write_bytes(b"#" + journal.read_bytes()[1:])
        assert [run.id for run in store.runs()] == ["good"]
        line = Line(store, "good")
        line.follow()
        line.commit(chunk_of("more"))
        store.delete_run("good")
        assert {chunk_of("of bad").id, chunk_of("shared").id} <= set(store.chunk_ids())
        assert [record.envelope.seq for record in store.checkpoints("bad")] == [2]
        Repair(store).rebuild("bad", lambda records: [s.root for cp in records for s in cp.envelope.sections])
        assert Repair(store).damaged_runs() == []
        assert [str(error) for error in store.checkpoints("bad").damaged] == wrong(store)


@pytest.mark.parametrize("what", ["link", "fifo", "folder", "socket", "sparse", "device"])
@pytest.mark.parametrize("name", ["runs/run/journal.jsonl", "index.jsonl", "witness/run", "meta.jsonl", "chunk"])
def test_what_is_not_a_file_of_ours_is_a_typed_error_and_never_waits(tmp_path, name, what):
    """Proves D11: links are not followed, a FIFO is not waited for, three sparse gigabytes are not read."""
    with closing(open_files(tmp_path / "s")) as store:
        store.put_meta("keys", b"slot", expected=None)
        Line(store).commit(chunk_of("one"))
        Line(store, "other").commit(chunk_of("two"))
    path = tmp_path / "s" / name
    if name == "chunk":
        path = tmp_path / "s" / "chunks" / chunk_of("one").id.hex()[:2] / chunk_of("one").id.hex()
    was = path.read_bytes()
    path.unlink()
    if what == "link":
        (tmp_path / "elsewhere").write_bytes(was)
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    elif what == "sparse":
        with path.open("wb") as file:
            file.truncate(3 << 30)
    else:
        path.symlink_to("/dev/zero")
    with closing(open_files(tmp_path / "s")) as store:
        assert store.run("other").last_seq == 1
        assert "other" in {run.id for run in store.runs()}
        if name in ("index.jsonl", "witness/run"):
            assert store.run("run").last_seq == 1
            assert list(Inspection(store).check()) == []
        elif name == "chunk":
            assert list(lost_sections(store, store.checkpoint_at("run", 1)))
        else:
            with pytest.raises(IntegrityError):
                store.meta("keys") if name == "meta.jsonl" else store.run("run")
            assert list(Inspection(store).check())
        if name == "chunk":
            store.delete_run("run")  # a pipe that nobody reads would be waited for, with the store's lock held
            assert "run" not in {run.id for run in store.runs()}
