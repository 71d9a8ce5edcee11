"""Leases, bells and tombstones in a SQLite file; a lease's clock is this machine's, a bell is a counter to look at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.encode import records
from holdfast.errors import CheckpointCorrupt, RunCorrupt
from holdfast.store.api import Tombstone
from holdfast.store.lease import Lease, check_current, check_fence, check_takeable
from holdfast.store.sqlite_rows import as_bytes, as_number

DAMAGED = "its lease does not match its checksum"
_FAR_AHEAD = 2**32
_MOST_TOKENS = 2**62
_COLUMNS = ", ".join(
    (as_bytes("run"), as_bytes("owner"), as_number("token"), "CAST(expires_at AS REAL)", as_bytes("seal"))
)
_LONG_AGO = datetime.fromtimestamp(0, UTC)


def check_fenced(execute: Any, run: str, fence: int | None) -> None:
    """Raise LeaseLost or LeaseHeld unless a commit with this token (or none) may move the run."""
    check_fence(_lease(execute, run), run, fence, datetime.now(UTC))


def take(execute: Any, run: str, owner: str, ttl_s: float) -> Lease:
    """Take a lease, LeaseHeld if another owner has it; tokens are counted for the whole file."""
    now = datetime.now(UTC)
    check_takeable(_lease(execute, run), owner, now)
    lease = Lease(run=run, owner=owner, token=_last_token(execute) + 1, expires_at=now + timedelta(seconds=ttl_s))
    _put(execute, lease)
    return lease


def renew(execute: Any, lease: Lease, ttl_s: float) -> Lease:
    """Keep a lease for longer, LeaseLost if somebody took it."""
    current = check_current(_lease(execute, lease.run), lease.run, lease.token)
    expires_at = datetime.now(UTC) + timedelta(seconds=ttl_s)
    renewed = Lease(run=current.run, owner=current.owner, token=current.token, expires_at=expires_at)
    _put(execute, renewed)
    return renewed


def end(execute: Any, lease: Lease) -> None:
    """Give a lease back; its row stays, so that tokens never go back."""
    current = _lease(execute, lease.run)
    if current is not None and current.token == lease.token:
        expire(execute, lease.run)


def expire(execute: Any, run: str) -> None:
    """Let a run's lease lapse at once; its row stays, so that tokens never go back."""
    current = _lease(execute, run)
    if current is not None:
        _put(execute, Lease(run=run, owner=current.owner, token=current.token, expires_at=_LONG_AGO))


def damaged(execute: Any) -> list[str]:
    """Return the runs whose lease does not match its checksum."""
    return [run.decode(errors="replace") for run in _damaged_rows(execute)]


def free_damaged(execute: Any, run: str) -> None:
    """Let a damaged lease be nobody's, under a token that was never granted: whoever has it is refused from now on."""
    rows = [row for row in _damaged_rows(execute) if row.decode(errors="replace") == run]
    if not rows:
        return
    # The true token may have been higher than what damage left: so far ahead none was granted.
    token = _last_token(execute) + _FAR_AHEAD
    for row in rows:
        execute("DELETE FROM lease WHERE run = CAST(? AS TEXT)", (row,))
    _put(execute, Lease(run=run, owner="nobody", token=token, expires_at=_LONG_AGO))


def running(execute: Any, run: str) -> Lease | None:
    """Return the running lease of a run."""
    lease = _lease(execute, run)
    return lease if lease is not None and lease.expires_at > datetime.now(UTC) else None


def ring(execute: Any, run: str) -> None:
    """Count one more ring for a run."""
    execute("INSERT INTO ring (run, times) VALUES (?, 1) ON CONFLICT (run) DO UPDATE SET times = times + 1", (run,))


def rings(execute: Any, run: str) -> int:
    """Return how often a run was rung for."""
    rows = execute("SELECT times FROM ring WHERE run = ?", (run,)).fetchall()
    return rows[0][0] if rows else 0


def tombstones(execute: Any, run: str) -> list[Tombstone]:
    """Return a run's tombstones, lowest number first; CheckpointCorrupt if one does not match its seal."""
    rows = execute("SELECT seq, id, checksum, seal FROM tombstone WHERE run = ? ORDER BY seq", (run,)).fetchall()
    for seq, checkpoint, checksum, seal in rows:
        if seal != records.seal_tombstone(run, seq, checkpoint, checksum):
            raise CheckpointCorrupt("what it left when it was deleted does not match its checksum", checkpoint)
    return [Tombstone(seq=seq, id=checkpoint, checksum=bytes(checksum)) for seq, checkpoint, checksum, _ in rows]


def bury(execute: Any, run: str, tombstone: Tombstone) -> None:
    """Add a tombstone."""
    seal = records.seal_tombstone(run, tombstone.seq, tombstone.id, tombstone.checksum)
    execute(
        "INSERT INTO tombstone (run, seq, id, checksum, seal) VALUES (?, ?, ?, ?, ?)",
        (run, tombstone.seq, tombstone.id, tombstone.checksum, seal),
    )


def _lease(execute: Any, run: str) -> Lease | None:
    rows = execute(f"SELECT {_COLUMNS} FROM lease WHERE run = ?", (run,)).fetchall()  # noqa: S608 - our columns
    return _opened(rows[0]) if rows else None


def _opened(row: tuple[bytes, bytes, int, float, bytes]) -> Lease:
    run, owner, token, expires_at, seal = row
    names = run.decode(errors="replace"), owner.decode(errors="replace")
    if seal != records.seal_lease(*names, token, expires_at):
        raise RunCorrupt(DAMAGED, names[0])
    return Lease(run=names[0], owner=names[1], token=token, expires_at=datetime.fromtimestamp(expires_at, UTC))


def _damaged_rows(execute: Any) -> list[bytes]:
    """Return the names of damaged leases as they are stored: damage may have left no text."""
    found = []
    for row in execute(f"SELECT {_COLUMNS} FROM lease ORDER BY run").fetchall():  # noqa: S608 - our columns
        try:
            _opened(row)
        except RunCorrupt:
            found.append(row[0])
    return found


def _last_token(execute: Any) -> int:
    """Return the highest token that can have been granted: damage may have left higher ones."""
    rows = execute("SELECT max(token) FROM lease WHERE token BETWEEN 0 AND ?", (_MOST_TOKENS,)).fetchall()
    return rows[0][0] or 0


def _put(execute: Any, lease: Lease) -> None:
    moment = lease.expires_at.timestamp()
    execute(
        "INSERT OR REPLACE INTO lease (run, owner, token, expires_at, seal) VALUES (?, ?, ?, ?, ?)",
        (lease.run, lease.owner, lease.token, moment, records.seal_lease(lease.run, lease.owner, lease.token, moment)),
    )
