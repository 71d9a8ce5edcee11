"""Keys of a store: who may open it, what a key protects, and how one is retired.

The key slots are one row, written before any other. A slot opens for its user's key alone, and only a holder of a key
can lock one; mode and version are bound to it, and the newest data key signs them all: an edited row is refused, not
obeyed. Adding a key adds a slot. Removing one begins a new epoch: a fresh data key for all that is written from now on.
Every row is sealed again with it in the same transaction, so that rows are of the newest epoch or forged; chunks stay,
their names are vouched for by rows. Slots of an earlier epoch are valid in themselves: if somebody puts them back, the
memory of this machine (`epoch_memory.py`) shows it.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from holdfast.encode.encrypt import (
    KEY_BYTES,
    RING_BYTES,
    SLOTS_VERSION,
    KeySlots,
    Vault,
    fingerprint,
    key_id,
    lock_slots,
    open_slots,
    parse_key,
    slot_key,
    slot_keys_of,
)
from holdfast.errors import Conflict, IntegrityError, KeyRefused, StoreCorrupt, UsageError
from holdfast.store.codec import RowCodec
from holdfast.store.epoch_memory import different, lost_keys
from holdfast.store.medium import Batch, StaleError, first_cells
from holdfast.store.store import Store
from holdfast.store.tables import GAP, LINE, META, RECORD, TABLES, GapRow, LineRow, MetaRow, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.store.epoch_memory import EpochMemory, Seen
    from holdfast.store.medium import Medium, Reader, Transaction
    from holdfast.store.tables import Row

KeyMode = Literal["sign", "encrypt"]
KEYS = "keys"
"""The row of the key slots; the only one that is read before a key is known."""
WITNESS = "epoch"
"""A row that only the newest data key opens: it shows key slots that are older than the rest of the store."""
_MODES: tuple[KeyMode, ...] = ("sign", "encrypt")
_PAGE = 500
_LAST = 1 << 48  # above any number
_plain = RowCodec()


def seal_store(
    place: Store | Medium,
    key: str | None,
    *,
    sign: bool | None = False,
    memory: EpochMemory | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Store:
    """Return the store as its key opens it, a new one begun with it; KeyRefused if key and store do not go together.

    `sign` says what is asked for: signing, encryption, or (None) whatever the store has. Of several processes that
    begin a store at once one makes the data key, and the others open it. `memory` is what this machine knows of the
    keys in this place: StoreCorrupt if these are older, those of another store, or gone.
    """
    medium = place.medium if isinstance(place, Store) else place
    row, is_empty = _looked_at(medium)
    lost = lost_keys(memory, medium, is_empty=is_empty) if row is None else None
    if lost is not None:
        row, is_empty = _looked_at(medium)  # another process may have begun the store between the two looks
        if row is None:
            raise lost
    if key is None:
        if row is not None:
            raise KeyRefused(
                "it is encrypted or signed: give its key with key_file=, key_env= or in the settings", medium.url
            )
        return place if isinstance(place, Store) else Store(medium)
    user_key = parse_key(key)
    if row is None:
        if not is_empty:
            raise KeyRefused(
                "it holds rows that were stored without a key: open it without, or begin a new store", medium.url
            )
        ring, data_key = entropy(RING_BYTES), entropy(KEY_BYTES)
        slot_keys = {key_id(user_key): slot_key(user_key, ring)}
        mode = "sign" if sign else "encrypt"
        row = _begun(medium, data_key, lock_slots([data_key], slot_keys, mode=mode, ring=ring, entropy=entropy))
    return StoreKeys(medium, user_key, row, sign=sign, memory=memory, entropy=entropy).store


def keys_of(store: Store) -> StoreKeys | None:
    """Return the keys of a store that is encrypted or signed, None for any other."""
    medium: object = store.medium
    return medium.keys if isinstance(medium, KeyedMedium) else None


def has_keys(store: Store) -> bool:
    """Tell whether a store is encrypted or signed, however it was opened."""
    with store.medium.read() as reader:
        return reader.get(META, (KEYS,)) is not None


def _looked_at(medium: Medium) -> tuple[Row | None, bool]:
    """Return the row of a store's key slots, and whether the store is empty beside it."""
    with medium.read() as reader:
        row = reader.get(META, (KEYS,))
        witness = reader.get(META, (WITNESS,))
        rows = [one for table in TABLES for one in reader.scan(table, limit=1)]
    if row is None and witness is not None:
        raise StoreCorrupt("its key slots are gone: put them back from a copy of the store", medium.url)
    return row, not rows and next(iter(medium.chunk_ids()), None) is None


def _begun(medium: Medium, data_key: bytes, slots: KeySlots) -> Row:
    """Write the first key slots of an empty store, and return the row that is there: perhaps another process's."""
    row = _slots_row(slots)
    witness = _witness(RowCodec(Vault(data_key), cast("KeyMode", slots.mode)), 0)
    try:
        medium.apply(Batch(guards=[(META, (KEYS,), None)], inserts=[(META, row), (META, witness)]))
    except StaleError:
        there, _ = _looked_at(medium)
        if there is None:
            raise Conflict(medium.url) from None
        return there
    return row


def _slots_row(slots: KeySlots) -> Row:
    return _plain.close(META, MetaRow(name=KEYS, body=msgspec.json.encode(slots)))


def _witness(codec: RowCodec, epoch: int) -> Row:
    return codec.close(META, MetaRow(name=WITNESS, body=str(epoch).encode()))


def _read_slots(row: Row, store: str) -> KeySlots:
    """Return the key slots in a row; IntegrityError if they are damaged, KeyRefused if they say what is not known."""
    try:
        slots = msgspec.json.decode(_plain.open(META, row).body, type=KeySlots)
    except (IntegrityError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        detail = f"its key slots are damaged ({error}): put them back from a copy of the store"
        raise StoreCorrupt(detail, store) from error
    if slots.version != SLOTS_VERSION or slots.mode not in _MODES:
        raise KeyRefused(
            f"its key slots have the mode {slots.mode[:40]!r} and version {slots.version}, which this program does not "
            "know. If another version of it wrote them, use that one; if not, somebody altered them: put them back "
            "from a copy",
            store,
        )
    return slots


class StoreKeys:
    """The keys of one open store: opens, follows and changes its key slots."""

    def __init__(
        self,
        medium: Medium,
        user_key: bytes,
        row: Row,
        *,
        sign: bool | None,
        memory: EpochMemory | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._inner = medium
        self._user_key = user_key
        self._memory = memory if medium.traits.durable else None
        self._entropy = entropy
        self._lock = threading.RLock()
        self._is_removed = False
        slots = _read_slots(row, medium.url)
        if sign is not None and slots.mode != ("sign" if sign else "encrypt"):
            has, wanted = ("signed", "encryption") if slots.mode == "sign" else ("encrypted", "signing")
            change = f"set sign to {'true' if slots.mode == 'sign' else 'false'} in the settings (or pass sign=)"
            raise KeyRefused(
                f"it is {has}, and the settings ask for {wanted}. If it should be {has}, {change}; if not, begin a new "
                "store and copy its runs there",
                medium.url,
            )
        self.mode = cast("KeyMode", slots.mode)
        self._ring = slots.ring
        self._data_keys = self._opened(slots)
        self._seal = row[-1]
        self.codec = RowCodec(Vault(*self._data_keys), self.mode, renew=self._renewed)
        self.medium = KeyedMedium(medium, self)
        self.store = Store(cast("Medium", self.medium), self.codec)
        seen = [] if self._memory is None else self._memory.seen(medium.url)
        self._check_witness()  # after: what was seen is in the store by now
        self._check_memory(seen)

    @property
    def own_id(self) -> str:
        """The name of the key that this store was opened with."""
        return key_id(self._user_key)

    def ids(self) -> list[str]:
        """Return the names of all keys that open the store."""
        with self.medium.read() as reader:
            return [slot.id for slot in self._slots(reader, is_checked=not self._is_removed).slots]

    def add(self, key: str) -> None:
        """Let one more key open the store; those in use stay."""
        user_key = parse_key(key)
        with self.medium.write() as transaction:
            slot_keys = self._slot_keys(transaction)
            slot_keys[key_id(user_key)] = slot_key(user_key, self._ring)
            row = self._locked(self._data_keys, slot_keys)
            transaction.put(META, row)
        self._seal = row[-1]

    def remove(self, key: str) -> None:
        """Retire a key (its text, or its id): it opens nothing that is written from now on; the last one stays.

        Every row is sealed again with a fresh data key, all or nothing. Chunks that are there stay readable with the
        old key for whoever has a copy of it and of them.
        """
        if not self._inner.traits.many_runs:
            raise UsageError(
                "a files store cannot seal all its runs again at once, so no key is removed from it: begin another "
                "store with the keys that stay, and bring the runs there with `holdfast copy`"
            )
        with self.medium.write(erase=True) as transaction:
            slot_keys = self._slot_keys(transaction)
            name = key if key in slot_keys else key_id(parse_key(key))
            if slot_keys.pop(name, None) is None:
                raise UsageError(f"the key {name} does not open this store, so it cannot be removed")
            if not slot_keys:
                raise UsageError("this is the only key: add another before you remove it, or nobody can read the store")
            data_keys = [*self._data_keys, self._entropy(KEY_BYTES)]
            opened, sealed = RowCodec(self._vault, self.mode), RowCodec(Vault(*data_keys), self.mode)
            row = self._locked(data_keys, slot_keys)
            transaction.put(META, row)  # first: where transactions run side by side, the others wait for this row
            transaction.put(META, _witness(sealed, len(data_keys) - 1))
            _seal_again(transaction, opened, sealed)
        self._is_removed = key_id(self._user_key) not in slot_keys
        if not self._is_removed:
            self._use(tuple(data_keys), row)
        self._remember(data_keys)

    def over(self, medium: Medium) -> Store:
        """Return a store in another place that this key opens; an empty one gets the same keys, and data of its own."""
        row, is_empty = _looked_at(medium)
        if row is None:
            lost = lost_keys(self._memory, medium, is_empty=is_empty)
            if lost is not None:
                raise lost
            if not is_empty:
                raise KeyRefused(
                    "it holds rows without a key and the source has one: copy into an empty store, or one with a key",
                    medium.url,
                )
            with self.medium.read() as reader:
                slot_keys = self._slot_keys(reader)
            data_key = self._entropy(KEY_BYTES)
            slots = lock_slots([data_key], slot_keys, mode=self.mode, ring=self._ring, entropy=self._entropy)
            row = _begun(medium, data_key, slots)
        memory = None if self._memory is None else self._memory.of_known_places()
        return StoreKeys(medium, self._user_key, row, sign=None, memory=memory, entropy=self._entropy).store

    def lock_beside(self, data: bytes, about: bytes) -> bytes:
        """Return what a file beside the store holds, locked as the contents are; as it is if those are readable."""
        return data if self.mode == "sign" else self._vault.encrypt(data, b"beside\0" + about)

    def unlock_beside(self, data: bytes, about: bytes) -> bytes:
        """Return what was locked; ValueError if that was with another key, or about something else."""
        return data if self.mode == "sign" else self._vault.decrypt(data, b"beside\0" + about)

    def hidden_name(self, name: bytes) -> bytes:
        """Return a name of 32 bytes as the medium may see it."""
        return name if self.mode == "sign" else self._vault.hide(name)

    @property
    def _vault(self) -> Vault:
        assert self.codec.vault is not None
        return self.codec.vault

    def guard(self, batch: Batch) -> None:
        """Let a commit be made only with the keys that it was sealed with; StaleError if those are old by now.

        Another thread may have taken over other keys since the first of its rows was sealed.
        """
        with self._lock:
            seal, codec = self._seal, RowCodec(self._vault, self.mode)
        if not all(codec.has_sealed(table, row) for table, row in (*batch.inserts, *batch.puts)):
            raise StaleError(KEYS)
        batch.guards.append((META, (KEYS,), cast("bytes", seal)))

    def follow(self, reader: Reader) -> bool:
        """Take over keys that another process changed; tell whether it did. KeyRefused if this key was removed."""
        row = reader.get(META, (KEYS,))
        if row is None:
            raise StoreCorrupt("its key slots are gone: put them back from a copy of the store", self._inner.url)
        with self._lock:
            if row[-1] == self._seal:
                return False
            data_keys = self._opened(_read_slots(row, self._inner.url))
            known = self._data_keys
            if data_keys[: len(known)] != known:
                raise StoreCorrupt(
                    "its key slots are older than those that this process knows: somebody put an old version back, or "
                    "a key was removed in this moment. Try again, and if it stays so restore the store from a copy",
                    self._inner.url,
                )
            self._use(data_keys, row)
        self._remember(data_keys)
        return True

    def _renewed(self) -> bool:
        """Look whether a row did not open because the keys changed meanwhile."""
        if self.medium.reader is not None:
            return self.follow(self.medium.reader)
        with self._inner.read() as reader:
            return self.follow(reader)

    def _use(self, data_keys: tuple[bytes, ...], row: Row) -> None:
        with self._lock:
            if data_keys != self._data_keys:
                self.codec.vault = Vault(*data_keys)
            self._data_keys, self._seal = data_keys, row[-1]

    def _locked(self, data_keys: Sequence[bytes], slot_keys: dict[str, bytes]) -> Row:
        return _slots_row(lock_slots(data_keys, slot_keys, mode=self.mode, ring=self._ring, entropy=self._entropy))

    def _slot_keys(self, reader: Reader) -> dict[str, bytes]:
        """Return what locks the slots as they are by now, by the names of the keys."""
        slots = self._slots(reader)
        try:
            found = slot_keys_of(slots, self._data_keys[-1])
        except ValueError as error:
            raise StoreCorrupt(
                f"{error}: somebody who had a key exchanged it. Begin another store with the keys that stay, and bring "
                "the runs there with `holdfast copy`",
                self._inner.url,
            ) from None
        return found | {self.own_id: slot_key(self._user_key, self._ring)}

    def _slots(self, reader: Reader, *, is_checked: bool = True) -> KeySlots:
        """Return the slots as they are by now; whoever removed its own key can only list them."""
        if is_checked:
            self.follow(reader)
        row = reader.get(META, (KEYS,))
        assert row is not None
        return _read_slots(row, self._inner.url)

    def _opened(self, slots: KeySlots) -> tuple[bytes, ...]:
        """Return the data keys, oldest first; KeyRefused if this key does not open its slot."""
        name = key_id(self._user_key)
        try:
            opened = open_slots(slots, self._user_key)
        except ValueError as error:
            raise KeyRefused(
                f"the slot of this key ({name}) {error}: somebody changed its mode, keys or bytes. Put the key slots "
                "back from a copy of the store, or open it with another of its keys",
                self._inner.url,
            ) from None
        if opened is None:
            known = ", ".join(slot.id[:40] for slot in slots.slots)
            raise KeyRefused(f"this key ({name}) does not open it; the keys {known} do", self._inner.url)
        return opened

    def _check_witness(self) -> None:
        """Refuse key slots that are older than the rest of the store."""
        with self.medium.read() as reader:
            self.follow(reader)
            row = reader.get(META, (WITNESS,))
            try:
                told = None if row is None else self.codec.open(META, row).body
            except IntegrityError:
                told = None
            opens = self._opens_a_row(reader)
        if told != str(len(self._data_keys) - 1).encode() or not opens:
            raise StoreCorrupt(
                "its key slots are not those that its rows were written with: somebody put an older version of them "
                "back, or the other way round. Restore the store from a copy",
                self._inner.url,
            )

    def _check_memory(self, seen: Sequence[Seen]) -> None:
        """Refuse keys that are older than those that this machine has seen here, or those of another store."""
        problem = different(seen, self._ring, [fingerprint(one) for one in self._data_keys])
        if problem is not None and self._memory is not None:
            file = self._memory.file(self._inner.url)
            undo = f"If you put it there yourself, say so with `holdfast store key forget` (or delete {file})"
            raise StoreCorrupt(f"{problem}. {undo}", self._inner.url)
        self._remember(self._data_keys)

    def _remember(self, data_keys: Sequence[bytes]) -> None:
        if self._memory is not None:
            self._memory.remember(self._inner.url, self._ring, [fingerprint(one) for one in data_keys])

    def _opens_a_row(self, reader: Reader) -> bool:
        """Tell whether these keys open one of the first rows; where they open none, slots and witness are both old.

        Who wrote with them would write for the holder of a key that was removed.
        """
        found = False
        for table in TABLES:
            for row in [] if table is META else reader.scan(table, limit=2):
                if self.codec.open_if_sound(table, row) is not None:
                    return True
                found = True
        return not found


class KeyedMedium:
    """A medium as a store with a key sees it: no commit is made with keys that were changed meanwhile."""

    def __init__(self, inner: Medium, keys: StoreKeys) -> None:
        self.inner = inner
        self.keys = keys
        self._looking = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def reader(self) -> Reader | None:
        """What this thread looks through at this moment."""
        return getattr(self._looking, "reader", None)

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Look at one moment."""
        with self.inner.read() as reader, self._through(reader):
            yield reader

    @contextmanager
    def write(self, *, erase: bool = False) -> Iterator[Transaction]:
        """Begin a transaction, with the keys as they are in it."""
        with self.inner.write(erase=erase) as transaction, self._through(transaction):
            self.keys.follow(transaction)
            yield transaction

    def apply(self, batch: Batch) -> None:
        """Check the guards and write everything; StaleError, too, if the keys were changed."""
        try:
            self.keys.guard(batch)
            self.inner.apply(batch)
        except StaleError:
            with self.inner.read() as reader:
                self.keys.follow(reader)
            raise

    @contextmanager
    def _through(self, reader: Reader) -> Iterator[None]:
        before, self._looking.reader = self.reader, reader
        try:
            yield
        finally:
            self._looking.reader = before


def _seal_again(transaction: Transaction, old: RowCodec, new: RowCodec) -> None:
    """Write every row that opens again under another codec; those that do not open stay as they are."""
    ends: dict[int, tuple[bytes, bytes]] = {}
    for table in (RECORD, GAP):
        for line in list(first_cells(transaction, table)):
            if line not in ends:
                ends[cast("int", line)] = _chain_again(transaction, cast("int", line), old, new)
    for table in TABLES:
        for first in [] if table in (RECORD, GAP) else list(first_cells(transaction, table)):
            for row in transaction.scan(table, (first,)):
                if table is META and first in (KEYS, WITNESS):
                    continue
                try:
                    value = old.open(table, row)
                except IntegrityError:
                    continue
                if table is LINE:
                    value = _with_end(value, *ends.get(value.n, (b"", b"")))
                transaction.put(table, new.close(table, value))


def _with_end(line: LineRow, was: bytes, now: bytes) -> LineRow:
    return msgspec.structs.replace(line, chain=now) if line.chain == was else line


def _chain_again(transaction: Transaction, line: int, old: RowCodec, new: RowCodec) -> tuple[bytes, bytes]:
    """Write a line's records and gaps again, chained by their new seals; return the old and the new end of the chain.

    A record that does not open stays, and what follows it stays chained to the seal that it has.
    """
    gaps: list[GapRow] = []
    for row in transaction.scan(GAP, (line,), reverse=True):
        try:
            gaps.append(old.open(GAP, row))
        except IntegrityError:
            continue
    was = now = b""
    number = 0
    while True:
        rows: list[Row | None] = list(transaction.scan(RECORD, (line,), low=number + 1, limit=_PAGE))
        for found in rows or [None]:
            number = _LAST if found is None else cast("int", found[1])
            while gaps and gaps[-1].first <= number:
                gap = gaps.pop()
                prev = now if gap.prev == was else gap.prev
                transaction.put(GAP, new.close(GAP, msgspec.structs.replace(gap, prev=prev)))
                was = now = gap.seal
            if found is None:
                return was, now
            try:
                record: Record = old.open(RECORD, found)
            except IntegrityError:
                was = now = cast("bytes", found[-1])
                continue
            prev = now if record.prev == was else record.prev
            sealed = new.close(RECORD, msgspec.structs.replace(record, prev=prev))
            transaction.put(RECORD, sealed)
            was, now = cast("bytes", found[-1]), cast("bytes", sealed[-1])
