"""The workload of the files store's crash tests, disks that strike, and a picture of all that callers can see."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from holdfast.encode.chunks import verified
from holdfast.encode.tree import LEAF
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.checkpoint import Marks
from holdfast.store.commit import Commit, Draft
from holdfast.store.files import FilesMedium
from holdfast.store.files_disk import Disk
from holdfast.store.inspection import Inspection
from holdfast.store.repair import Repair
from holdfast.store.store import Store
from holdfast.store.tables import AccountRow
from holdfast.testing.contract import NOON, Line, chunk_of
from holdfast.testing.faults import Call

BIG = chunk_of("x" * 3_000)
FACTS = ("keys", "other")


class StrikingDisk(Disk):
    """A disk that counts its calls, keeps a log of them, and strikes at one."""

    def __init__(self, at=None, strike=None, *, lasting=False):
        self.calls = []
        self.at = at
        self.strike = strike
        self.lasting = lasting

    def meet(self, operation, path, data=b"", offset=0):
        self.calls.append(Call(operation, str(path), offset, data))
        number = len(self.calls) - 1
        if self.at is not None and (number == self.at or (self.lasting and number > self.at)):
            self.strike(operation, path, data, offset)


def kill(*_call):
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def tear(operation, path, data, offset):
    """Let half of a write reach the disk, then kill; other calls are not made at all."""
    if operation == "write":
        descriptor = os.open(path, os.O_WRONLY)
        os.pwrite(descriptor, data[: len(data) // 2], offset)
    kill()


def open_files(folder, disk=None, **options):
    return Store(FilesMedium(folder, disk=disk, **options))


class Work:
    """A bit of everything, in numbered steps; a step that failed may be done again."""

    def __init__(self, store):
        self.store = store
        self.lease = None

    def line(self, run="run"):
        line = Line(self.store, run)
        with suppress(NotFound):
            line.follow()
        return line

    def records(self, *bodies, run="run", **more):
        line = self.store.line(run)
        after = line.number if line else 0
        drafts = [Draft("call", f"step/{body}", 1.0, body.encode(), key=body) for body in bodies]
        self.store.write(Commit(run=run, after=after, records=drafts, at=NOON, **more))

    def take_lease(self):
        self.lease = self.store.leases.take("leased", owner="me", ttl_s=3600)

    def end_lease(self):
        self.store.leases.end(self.store.leases.running("leased") or self.lease)

    def at(self, seq):
        return self.store.checkpoint_at("run", seq).envelope.id

    def steps(self):
        store = self.store
        account = AccountRow(run="run", name="tokens", used="5")
        return [
            lambda: store.put_meta("keys", b"slot", expected=None),
            lambda: self.line().commit(chunk_of("one")),
            lambda: self.line().commit(chunk_of("two"), BIG),
            lambda: self.records("a", "b"),
            lambda: self.line("Other:1").commit(chunk_of("one")),
            lambda: store.mark(self.at(1), Marks(status="archived")),
            self.take_lease,
            lambda: self.records("c", accounts=[(None, account)]),
            lambda: store.post("run", "answer", b"yes", key="q1"),
            lambda: self.line().commit(chunk_of("three")),
            lambda: store.delete("run", [self.at(2)]),
            lambda: store.release("run", [chunk_of("two").id, BIG.id], expected_seq=3, created_at=NOON),
            lambda: store.journal.compact("run", [1, 2]),
            lambda: store.put_meta("keys", b"another", expected=b"slot"),
            self.end_lease,
            lambda: store.delete_run("Other:1"),
            lambda: self.line("Other:1").commit(chunk_of("again")),
            lambda: self.records("d", "e"),
            store.reclaim,
        ]

    def do(self, done):
        for number, step in enumerate(self.steps()):
            step()
            done(number)


def picture(store):
    """Return what a store holds, as far as its callers can tell; numbers and ids made by chance are left out."""
    return {
        **{
            run.id: {
                "last": run.last_seq,
                "checkpoints": [
                    (cp.envelope.seq, cp.marks.status, cp.envelope.sections) for cp in store.checkpoints(run.id)
                ],
                "deleted": sorted(one.seq for one in store.tombstones(run.id)),
                "held": sorted(store.held(run.id)),
                "records": [(r.number, r.path, r.body) for r in store.journal.records(store.line(run.id))],
                "gaps": [(gap.first, gap.last) for gap in store.journal.gaps(store.line(run.id))],
                "accounts": {name: row.used for name, row in store.accounts(run.id).items()},
                "inbox": [(row.number, row.body) for row in store.inbox(run.id)],
            }
            for run in store.runs()
        },
        "facts": {name: store.meta(name) for name in FACTS},
        "leased": (lease.owner, lease.token) if (lease := store.leases.running("leased")) else None,
    }  # fmt: skip


def wrong(store):
    """Return all that is wrong with a store, by every check that there is."""
    found = [*Inspection(store).check(), *Repair(store).damaged_runs(), *map(str, store.runs().damaged)]
    for run in store.runs():
        found += map(str, store.checkpoints(run.id).damaged)
        found += map(str, [step.fault for step in store.journal.walk(store.line(run.id)) if step.fault])
        for checkpoint in store.checkpoints(run.id):
            found += lost_sections(store, checkpoint)
    return found


def lost_sections(store, checkpoint):
    for section in checkpoint.envelope.sections:
        try:
            verified(LEAF, section.root, store.fetch([section.root]).get(section.root))
        except HoldfastError as error:
            yield str(error)


def go_on(store, folder):
    """Write after a crash, sweep, and check that nothing is left that nobody needs."""
    work = Work(store)
    for run in ("run", "new"):
        work.line(run).commit(chunk_of("afterwards"))
        work.records("after", run=run)
    assert chunk_of("afterwards").id in store.fetch([chunk_of("afterwards").id])
    store.reclaim()
    needed = set().union(*(store.held(run.id) for run in store.runs()))
    assert set(store.chunk_ids()) == needed, "chunks are left that nobody holds"
    assert list(Path(folder, "tmp").iterdir()) == [], "files are left half written"
    assert wrong(store) == []
