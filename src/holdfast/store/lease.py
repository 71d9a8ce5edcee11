"""The right to move one run: held by one owner for a time, fenced by a counter that never goes back.

A lease that lapsed may be taken over; the old owner's commits are then refused, because they carry the old token.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import IntegrityError, LeaseHeld, LeaseLost, UsageError
from holdfast.store.codec import stored_time
from holdfast.store.repeat import repeated
from holdfast.store.tables import LEASE, LINE, MAIN, LeaseRow

if TYPE_CHECKING:
    from holdfast.store.line_reader import LineReader
    from holdfast.store.medium import Reader, Transaction
    from holdfast.store.tables import LineRow, Row

LONGEST_LEASE_S = 30 * 86_400.0
_LONGEST_OWNER = 200
_TOKENS = 1 << 40


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as it was granted; `token` goes into every commit made under it."""

    run: str
    owner: str
    token: int
    expires_at: datetime


class Leases:
    """The leases of one store."""

    def __init__(self, lines: LineReader) -> None:
        self._lines = lines
        self._medium = lines.medium
        self._codec = lines.codec
        self._given_back: set[tuple[str, str, int]] = set()
        """Leases that their owner gave back here and the medium could not end: they hold up nobody of this store."""

    @repeated
    def take(self, run: str, *, owner: str, ttl_s: float, line: str = MAIN) -> Lease:
        """Take the right to move a line, new or lapsed or one's own already; LeaseHeld if another owner has it."""
        _check_terms(owner, ttl_s)
        with self._medium.write() as transaction:
            transaction.lock(run)
            now = self._medium.now()
            before = self.stored(transaction, run, line)
            if before is not None and before.owner != owner and self._is_in_force(before, line, now):
                raise _held(before)
            head = self._lines.read(transaction, run, line).line
            last = _last_token(before, transaction.get(LEASE, (run, line)), now)
            token = max(last, head.fence if head else 0) + 1
            taken = self._put(
                transaction, LeaseRow(run=run, line=line, owner=owner, token=token, expires_at=now + ttl_s)
            )
            if head is not None:
                transaction.put(LINE, self._codec.close(LINE, msgspec.structs.replace(head, fence=token)))
        self._lines.forget(run)
        return taken

    @repeated
    def renew(self, lease: Lease, *, ttl_s: float, line: str = MAIN) -> Lease:
        """Keep a lease for longer, even one that lapsed and nobody took; LeaseLost if somebody did."""
        _check_terms(lease.owner, ttl_s)
        with self._medium.write() as transaction:
            transaction.lock(lease.run)
            _check_token(self.stored(transaction, lease.run, line), lease.run, lease.token)
            return self._put(transaction, _row_of(lease, line, self._medium.now() + ttl_s))

    @repeated
    def end(self, lease: Lease, *, line: str = MAIN) -> None:
        """Give a lease back; nothing happens if it was lost already."""
        place = lease.run, line, lease.token
        self._given_back.add(place)
        with self._medium.write() as transaction:
            transaction.lock(lease.run)
            current = self.stored(transaction, lease.run, line)
            if current is not None and current.token == lease.token:
                self._put(transaction, _row_of(lease, line, self._medium.now()))
        self._given_back.discard(place)

    @repeated
    def running(self, run: str, *, line: str = MAIN) -> Lease | None:
        """Return the running lease of a line, None if nobody has it."""
        with self._medium.read() as reader:
            lease = self.stored(reader, run, line)
        return lease if lease is not None and self._is_in_force(lease, line, self._medium.now()) else None

    def _is_in_force(self, lease: Lease, line: str, now: float) -> bool:
        return _is_running(lease, now) and (lease.run, line, lease.token) not in self._given_back

    def first_fence(self, lease: Lease | None, run: str, token: int | None) -> int:
        """Return the fence that a new line begins with: the token of a lease which was taken before there was a line.

        LeaseLost if the writer's token is another one, LeaseHeld if the writer has none and somebody has a lease.
        """
        if token is not None:
            _check_token(lease, run, token)
        elif lease is not None and _is_running(lease, self._medium.now()):
            raise _held(lease)
        return lease.token if lease else 0

    def check_fence(self, run: str, line: str, fence: int, token: int | None) -> None:
        """Raise LeaseLost or LeaseHeld unless a writer with this token, or none, may move a line with this fence."""
        if token == fence or (token is None and not fence):
            return
        lease = self.running(run, line=line)
        if token is not None:
            raise LeaseLost(run, token, lease.owner if lease else None)
        if lease is not None:
            raise _held(lease)

    def stored(self, reader: Reader, run: str, line: str) -> Lease | None:
        """Return a lease; a damaged one is nobody's, for the line's own fence still stops whoever had it."""
        row = reader.get(LEASE, (run, line))
        try:
            return None if row is None else _lease_of(self._codec.open(LEASE, row))
        except IntegrityError:
            return None

    def is_last(self, reader: Reader, line: LineRow) -> bool:
        """Tell whether the lease that is stored for a line is the last one that was taken, none if there was none.

        One that is damaged is not older: its row is a fault of its own.
        """
        lease = self.stored(reader, line.run, line.name)
        if lease is None and reader.get(LEASE, (line.run, line.name)) is not None:
            return True
        return line.fence == (lease.token if lease else 0)

    def _put(self, transaction: Transaction, row: LeaseRow) -> Lease:
        transaction.put(LEASE, self._codec.close(LEASE, row))
        return _lease_of(row)


def _lease_of(row: LeaseRow) -> Lease:
    return Lease(run=row.run, owner=row.owner, token=row.token, expires_at=stored_time(row.expires_at))


def _row_of(lease: Lease, line: str, expires_at: float) -> LeaseRow:
    return LeaseRow(run=lease.run, line=line, owner=lease.owner, token=lease.token, expires_at=expires_at)


def _check_terms(owner: str, ttl_s: float) -> None:
    """Raise UsageError unless these can be a lease's terms."""
    if not isinstance(owner, str) or not owner.isprintable() or not 0 < len(owner) <= _LONGEST_OWNER:
        raise UsageError(f"owner={owner!r:.80}: name the process in 1 to {_LONGEST_OWNER} printable characters")
    if not isinstance(ttl_s, (int, float)) or not 0 < ttl_s <= LONGEST_LEASE_S:
        raise UsageError(f"ttl_s={ttl_s!r}: give seconds, more than 0 and at most {LONGEST_LEASE_S:.0f} (30 days)")


def _is_running(lease: Lease, now: float) -> bool:
    """Tell whether a lease is in force; one that ends later than any that is granted was not granted."""
    return 0 < (lease.expires_at - stored_time(now)).total_seconds() <= LONGEST_LEASE_S


def _held(lease: Lease) -> LeaseHeld:
    return LeaseHeld(lease.run, lease.owner, lease.expires_at.isoformat())


def _check_token(lease: Lease | None, run: str, token: int) -> None:
    """Raise LeaseLost if the run's lease has another token by now."""
    if lease is None or lease.token != token:
        raise LeaseLost(run, token, lease.owner if lease else None)


def _last_token(lease: Lease | None, row: Row | None, now: float) -> int:
    """Return the last token that a lease gave; if that cannot be read, one that no count can have reached."""
    if lease is None:
        return 0 if row is None else int(now)
    return lease.token if lease.token < _TOKENS else 0
