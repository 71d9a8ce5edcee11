"""A store behind a key: a wrapper that encrypts or signs all that passes, whatever the medium.

Encrypting: chunks, their names and envelopes are locked before the medium sees them; run ids, numbers, times and sizes
stay readable. Signing: everything stays readable, and an envelope that was not written with the key is refused.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from holdfast.encode import records
from holdfast.encode.chunks import Chunk
from holdfast.encode.encrypt import KEY_BYTES, KeySlots, Vault, key_id, lock_slot, open_slot, parse_key
from holdfast.errors import CheckpointCorrupt, HeadMoved, IntegrityError, KeyRefused, NotFound, UsageError
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, Envelope, Marks, Summary
from holdfast.model.ids import RESERVED, make_checkpoint_id
from holdfast.model.recovery import RecoveryInfo
from holdfast.store.api import Listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.model.checkpoint import RunRecord
    from holdfast.store.api import Store, StoreStats

KEYS_RUN = f"{RESERVED}keys"
Mode = Literal["encrypt", "sign"]
_UNREADABLE = 255  # a codec that does not exist: reading it says that the chunk is damaged
_NO_SUMMARY = Summary()
_envelopes = msgspec.msgpack.Decoder(Envelope)


def seal_store(
    store: Store, key: str | None, *, sign: bool = False, entropy: Callable[[int], bytes] = os.urandom
) -> Store:
    """Return the store as its key opens it; KeyRefused if key and store do not go together."""
    slots = read_slots(store)
    if key is None:
        if slots is not None:
            raise KeyRefused(
                "it is encrypted or signed: give its key with key_file=, key_env= or in the settings", store.url
            )
        return store
    user_key = parse_key(key)
    if slots is None:
        if store.runs(limit=1):
            if read_slots(store) is not None:  # another process began it since we looked: those are its keys
                return seal_store(store, key, sign=sign, entropy=entropy)
            raise KeyRefused(
                "it holds runs that were stored without a key: open it without, or begin a new store", store.url
            )
        data_key = entropy(KEY_BYTES)
        fresh = KeySlots("sign" if sign else "encrypt", (lock_slot(data_key, user_key, entropy),))
        try:
            write_slots(store, fresh, entropy, first=True)
        except HeadMoved:
            return seal_store(store, key, sign=sign, entropy=entropy)  # another process was first
        slots = fresh
    opened = open_slot(slots, user_key)
    if opened is None:
        known = ", ".join(slot.id for slot in slots.slots)
        raise KeyRefused(f"this key ({key_id(user_key)}) does not open it; the keys {known} do", store.url)
    return cast("Store", SealedStore(store, Vault(opened), opened, cast("Mode", slots.mode), entropy))


def read_slots(store: Store) -> KeySlots | None:
    """Return the key slots of a store, None if it has no key."""
    try:
        head = store.run(KEYS_RUN).head
    except NotFound:
        return None
    if head is None:
        return None
    try:
        return msgspec.json.decode(store.checkpoint(head).envelope.reason, type=KeySlots)
    except msgspec.MsgspecError as error:
        raise IntegrityError(f"the key slots of store {store.url} are damaged ({error})") from error


def write_slots(store: Store, slots: KeySlots, entropy: Callable[[int], bytes], *, first: bool = False) -> None:
    """Replace the key slots; HeadMoved if somebody else just did, or if these are the first and some are there."""
    try:
        run = store.run(KEYS_RUN)
        head, seq = run.head, run.last_seq
    except NotFound:
        head, seq = None, 0
    if first and head is not None:  # to replace them would lock out what is written under the other's key
        raise HeadMoved(KEYS_RUN, None, head)
    now = datetime.now(UTC)
    envelope = Envelope(
        format_version=FORMAT_VERSION,
        id=make_checkpoint_id(int(now.timestamp() * 1000), entropy(10)),
        run=KEYS_RUN,
        seq=seq + 1,
        parent=head,
        parent_checksum=store.checkpoint(head).checksum if head else None,
        trigger="manual",
        reason=msgspec.json.encode(slots).decode(),
        created_at=now,
        program_version="",
        sections=(),
        stored_bytes=0,
        codec="none",
        recovery=RecoveryInfo(can_resume=False),
        summary=_NO_SUMMARY,
    )
    store.commit(envelope, Marks(pinned=True), (), expected_head=head)
    if head is not None:
        store.delete(KEYS_RUN, [head])


class SealedStore:
    """A store whose contents are encrypted or signed; what needs no key is passed on as it is."""

    def __init__(
        self, inner: Store, vault: Vault, data_key: bytes, mode: Mode, entropy: Callable[[int], bytes]
    ) -> None:
        self.inner = inner
        self.url = inner.url
        self.traits = inner.traits
        self.mode: Mode = mode
        self._vault = vault
        self._data_key = data_key
        self._entropy = entropy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def over(self, inner: Store) -> Store:
        """Return another store under the same lock; its key slots must be there, too."""
        return cast("Store", SealedStore(inner, self._vault, self._data_key, self.mode, self._entropy))

    def shares_key_with(self, other: SealedStore) -> bool:
        """Tell whether two stores lock alike, so that a run's checksums are the same in both."""
        from hmac import compare_digest  # noqa: PLC0415 - it loads OpenSSL, which few need

        return compare_digest(self._data_key, other._data_key) and self.mode == other.mode

    def lock_beside(self, data: bytes, about: bytes) -> bytes:
        """Return what a file beside the store holds, locked as the contents are; as it is if those are readable."""
        return data if self.mode == "sign" else self._vault.encrypt(data, b"beside\0" + about)

    def unlock_beside(self, data: bytes, about: bytes) -> bytes:
        """Return what was locked; ValueError if that was with another key, or about something else."""
        return data if self.mode == "sign" else self._vault.decrypt(data, b"beside\0" + about)

    def hidden_name(self, name: bytes) -> bytes:
        """Return a name of 32 bytes as the medium may see it."""
        return name if self.mode == "sign" else self._vault.hide(name)

    def add_key(self, key: str) -> None:
        """Let one more key open the store; those in use go on."""
        slots = self._slots()
        slot = lock_slot(self._data_key, parse_key(key), self._entropy)
        kept = tuple(one for one in slots.slots if one.id != slot.id)
        write_slots(self.inner, KeySlots(slots.mode, (*kept, slot)), self._entropy)

    def remove_key(self, key: str) -> None:
        """Let a key (its text, or its id) open the store no longer; the last one stays."""
        slots = self._slots()
        name = key if any(slot.id == key for slot in slots.slots) else key_id(parse_key(key))
        kept = tuple(slot for slot in slots.slots if slot.id != name)
        if len(kept) == len(slots.slots):
            raise UsageError(f"the key {name} does not open this store, so it cannot be removed")
        if not kept:
            raise UsageError("this is the only key: add another before you remove it, or nobody can read the store")
        write_slots(self.inner, KeySlots(slots.mode, kept), self._entropy)

    def key_ids(self) -> list[str]:
        """Return the names of all keys that open the store."""
        return [slot.id for slot in self._slots().slots]

    def _slots(self) -> KeySlots:
        slots = read_slots(self.inner)
        if slots is None:
            raise IntegrityError(f"the key slots of store {self.url} are gone")
        return slots

    def commit(
        self, envelope: Envelope, marks: Marks, chunks: Collection[Chunk], *, expected_head: str | None, **options: Any
    ) -> CheckpointRecord:
        """Lock or sign, then commit."""
        locked = _Locked(chunks, self._locked_chunk) if self.mode == "encrypt" else chunks
        hidden = self._locked_envelope(envelope)
        stored = self.inner.commit(
            hidden, self._locked_marks(envelope.id, marks), locked, expected_head=expected_head, **options
        )
        return CheckpointRecord(envelope, stored.checksum, marks)

    def run(self, run: str) -> RunRecord:
        """Return a run, NotFound if there is none."""
        if run == KEYS_RUN:
            raise NotFound("run", run)
        return self.inner.run(run)

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs without the one that holds the keys."""
        found = self.inner.runs(limit=None if limit is None else limit + 1)
        return Listing([run for run in found if run.id != KEYS_RUN][:limit], found.damaged)

    def delete(self, run: str, checkpoints: Sequence[str], *, spare_pinned: bool = False) -> list[str]:
        """Delete checkpoints; the keys are no run of the user's."""
        self.run(run)
        return self.inner.delete(run, checkpoints, spare_pinned=spare_pinned)

    def delete_run(self, run: str) -> None:
        """Delete a run; the keys are none of the user's."""
        self.run(run)
        self.inner.delete_run(run)

    def checkpoint(self, checkpoint: str) -> CheckpointRecord:
        """Return a checkpoint, opened or its signature checked."""
        return self._opened(self.inner.checkpoint(checkpoint))

    def checkpoint_at(self, run: str, seq: int) -> CheckpointRecord | None:
        """Return the checkpoint with this number, None if it was deleted."""
        record = self.inner.checkpoint_at(run, seq)
        return None if record is None else self._opened(record)

    def checkpoints(
        self, run: str, *, limit: int | None = None, before_seq: int | None = None
    ) -> Listing[CheckpointRecord]:
        """Return a run's checkpoints; those that do not open are damage."""
        listing = self.inner.checkpoints(run, limit=limit, before_seq=before_seq)
        found: list[CheckpointRecord] = []
        damaged = list(listing.damaged)
        for record in listing:
            try:
                found.append(self._opened(record))
            except IntegrityError as error:
                damaged.append(error)
        return Listing(found, damaged)

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there, unlocked; one that does not unlock is damaged for its reader."""
        if self.mode == "sign":
            return dict(self.inner.fetch(ids))
        names = {self._vault.hide(name): name for name in ids}
        return {
            names[stored]: self._unlocked_chunk(names[stored], chunk)
            for stored, chunk in self.inner.fetch(list(names)).items()
        }

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the true name of every chunk."""
        return map(self._vault.show, self.inner.chunk_ids()) if self.mode == "encrypt" else self.inner.chunk_ids()

    def held(self, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""
        held = self.inner.held(run)
        return set(map(self._vault.show, held)) if self.mode == "encrypt" else held

    def release(self, run: str, chunks: Sequence[bytes], *, expected_seq: int, created_at: datetime) -> None:
        """Let a run's hold on chunks go."""
        names = list(map(self._vault.hide, chunks)) if self.mode == "encrypt" else chunks
        self.inner.release(run, names, expected_seq=expected_seq, created_at=created_at)

    def rebuild(self, run: str, reach: Callable[[Sequence[CheckpointRecord]], Collection[bytes]]) -> RunRecord | None:
        """Make a run's record anew from the checkpoints that this key opens."""

        def hidden(stored: Sequence[CheckpointRecord]) -> list[bytes]:
            needed = reach([record for one in stored if (record := self._if_opened(one)) is not None])
            return list(map(self._vault.hide, needed)) if self.mode == "encrypt" else list(needed)

        return self.inner.rebuild(run, hidden)

    def find(self, prefix: str, *, limit: int) -> list[str]:
        """Return the ids of checkpoints that begin with a prefix, without those that hold the keys."""
        keys = {record.envelope.id for record in self.inner.checkpoints(KEYS_RUN)}
        found = self.inner.find(prefix, limit=limit + len(keys))
        return [checkpoint for checkpoint in found if checkpoint not in keys][:limit]

    def mark(self, checkpoint: str, marks: Marks, *, expected: Marks | None = None) -> None:
        """Replace a checkpoint's marks."""
        was = None if expected is None else self._locked_marks(checkpoint, expected)
        self.inner.mark(checkpoint, self._locked_marks(checkpoint, marks), expected=was)

    def mark_many(self, run: str, changes: Mapping[str, tuple[Marks, Marks]]) -> list[str]:
        """Replace the marks that are as expected, and return the ids of the others."""
        self.run(run)
        locked = {
            checkpoint: (self._locked_marks(checkpoint, expected), self._locked_marks(checkpoint, marks))
            for checkpoint, (expected, marks) in changes.items()
        }
        return self.inner.mark_many(run, locked)

    def stats(self) -> StoreStats:
        """Count what is stored, without the keys."""
        stats = self.inner.stats()
        engine = f"{stats.engine}, {'AES-256-GCM' if self.mode == 'encrypt' else 'signed'}"
        keys = {record.envelope.created_at for record in self.inner.checkpoints(KEYS_RUN)}
        oldest, newest = stats.oldest_at, stats.newest_at
        if oldest in keys:
            first = self.find("", limit=1)
            oldest = self.inner.checkpoint(first[0]).envelope.created_at if first else None
        if newest in keys:
            heads = [run.head for run in self.runs() if run.head is not None]
            newest = max((self.inner.checkpoint(head).envelope.created_at for head in heads), default=None)
        return msgspec.structs.replace(
            stats,
            runs=stats.runs - 1,
            checkpoints=stats.checkpoints - 1,
            engine=engine,
            oldest_at=oldest,
            newest_at=newest,
        )

    def _locked_envelope(self, envelope: Envelope) -> Envelope:
        if self.mode == "sign":
            return msgspec.structs.replace(envelope, mac=self._vault.sign(records.seal(envelope)[0]))
        sealed = self._vault.encrypt(records.seal(envelope)[0], _place(envelope))
        return msgspec.structs.replace(
            envelope, trigger="", reason="", sections=(), recovery=RecoveryInfo(), summary=_NO_SUMMARY, sealed=sealed
        )

    def _opened(self, record: CheckpointRecord) -> CheckpointRecord:
        outer = record.envelope
        if self.mode == "sign":
            bare = msgspec.structs.replace(outer, mac=b"")
            if not self._vault.is_signed(records.seal(bare)[0], outer.mac):
                raise CheckpointCorrupt("it was not written with this store's key: somebody altered it", outer.id)
            return CheckpointRecord(bare, record.checksum, record.marks)
        try:
            envelope = _envelopes.decode(self._vault.decrypt(outer.sealed, _place(outer)))
        except (ValueError, msgspec.MsgspecError) as error:
            raise CheckpointCorrupt(f"its record {error}", outer.id) from error
        return CheckpointRecord(envelope, record.checksum, self._opened_marks(outer.id, record.marks))

    def _if_opened(self, record: CheckpointRecord) -> CheckpointRecord | None:
        try:
            return self._opened(record)
        except IntegrityError:
            return None

    def _locked_marks(self, checkpoint: str, marks: Marks) -> Marks:
        if self.mode == "sign" or marks.label is None:
            return marks
        return msgspec.structs.replace(marks, label=self._vault.encrypt(marks.label.encode(), _label(checkpoint)).hex())

    def _opened_marks(self, checkpoint: str, marks: Marks) -> Marks:
        if marks.label is None:
            return marks
        try:
            label = self._vault.decrypt(bytes.fromhex(marks.label), _label(checkpoint)).decode()
        except ValueError as error:
            raise CheckpointCorrupt(f"its label {error}", checkpoint) from error
        return msgspec.structs.replace(marks, label=label)

    def _locked_chunk(self, chunk: Chunk) -> Chunk:
        name = self._vault.hide(chunk.id)
        return Chunk(name, chunk.codec, chunk.size, self._vault.encrypt(chunk.data, _about(name, chunk)))

    def _unlocked_chunk(self, name: bytes, chunk: Chunk) -> Chunk:
        try:
            return Chunk(name, chunk.codec, chunk.size, self._vault.decrypt(chunk.data, _about(chunk.id, chunk)))
        except ValueError:
            return Chunk(name, _UNREADABLE, chunk.size, b"")


class _Locked(Collection[Chunk]):
    """Chunks that are locked one by one as they are taken out, so that a large commit stays within its memory."""

    def __init__(self, chunks: Collection[Chunk], lock: Callable[[Chunk], Chunk]) -> None:
        self._chunks = chunks
        self._lock = lock

    def __iter__(self) -> Iterator[Chunk]:
        return map(self._lock, self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, chunk: object) -> bool:
        return any(one == chunk for one in self)


def _place(envelope: Envelope) -> bytes:
    """Return where an envelope stands: bound to it, so that none can take another's place or parent."""
    text = f"envelope\0{envelope.run}\0{envelope.seq}\0{envelope.id}\0{envelope.parent}\0"
    return text.encode() + (envelope.parent_checksum or b"")


def _label(checkpoint: str) -> bytes:
    return f"label\0{checkpoint}".encode()


def _about(name: bytes, chunk: Chunk) -> bytes:
    return b"chunk\0" + name + bytes((chunk.codec,)) + chunk.size.to_bytes(8, "big")
