"""Encryption at rest: what is stored can be read, and its names matched with contents, only with the key.

Random data keys belong to a store, one for each epoch; users' keys open them through slots. What locks a slot, a secret
and the public half of a pair, is derived from the user's key and kept under the newest data key: only a holder of a key
can lock a slot, also one for others, and leave one out. What opens it, the private half too, is the user's alone, so
that who is left out opens no slot of the others. All keys in use are derived from a data key, one for each purpose.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KEY_BYTES = 32
SLOTS_VERSION = 4
RING_BYTES = 16
_PREFIX = "hfk1_"
_NONCE_BYTES = 12
_VERSION = b"\x01"
_HALF = 16
_ROUNDS = 4
_NEEDS_EXTRA = "an encrypted or signed store needs the extra: pip install 'holdfast[crypto]'"


class KeySlot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A store's data keys, locked for the holder of one user key; `id` tells which without giving anything away.

    `slot_key` is what locks it, under the newest data key, so that who retires another key can lock the next data key;
    `locked` begins with the public half of the pair that it was locked with.
    """

    id: str
    slot_key: bytes
    locked: bytes


class KeySlots(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All keys that open a store, and what they are for; `signature` is made with the newest data key.

    `ring` is random: the slot keys of one user key differ from ring to ring. Copies that go to the same keys keep it.
    """

    version: int
    mode: str
    ring: bytes
    slots: tuple[KeySlot, ...]
    signature: bytes = b""


def generate_key(entropy: Callable[[int], bytes] = os.urandom) -> str:
    """Return a new key as text, for a file or an environment variable."""
    return _PREFIX + base64.urlsafe_b64encode(entropy(KEY_BYTES)).decode().rstrip("=")


def parse_key(text: str) -> bytes:
    """Return the key in a text: its first line that is not empty or a comment; UsageError if it is not a key."""
    lines = [line.strip() for line in text.splitlines()]
    line = next((line for line in lines if line and not line.startswith("#")), "")
    body = line.removeprefix(_PREFIX)
    key = b""
    try:
        if len(body) == 2 * KEY_BYTES:
            key = bytes.fromhex(body)
        else:
            key = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except (ValueError, binascii.Error):
        pass
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"a key is {KEY_BYTES} random bytes as base64 or hex; this text gives {len(key)}. "
            "Make one with holdfast.generate_key() and keep it outside the store"
        )
    return key


def key_id(key: bytes) -> str:
    """Return a name for a key that tells nothing about it, and that no other key has."""
    return _id_of(_own_half(key).public_key().public_bytes_raw())


def _id_of(public: bytes) -> str:
    return blake3(public, derive_key_context="holdfast 4 key id").hexdigest()[:32]


def slot_key(key: bytes, ring: bytes) -> bytes:
    """Return what locks the slot of a user key in a ring of keys, and does not open it: a secret, and a public half."""
    secret = blake3(key + ring, derive_key_context="holdfast 4 slot secret").digest()
    public: bytes = _own_half(key).public_key().public_bytes_raw()
    return secret + public


def _own_half(key: bytes) -> Any:
    """Return the private half of a user's pair; it is that of all rings, so that the key's id vouches for the other."""
    return _x25519().X25519PrivateKey.from_private_bytes(
        blake3(key, derive_key_context="holdfast 4 private half").digest()
    )


def _slot_cipher(own: bytes, passing: bytes, shared: bytes) -> Any:
    """Return the cipher of one slot: from its slot key, a passing pair's public half, and what both pairs share."""
    return _aes(blake3(own + passing + shared, derive_key_context="holdfast 4 slot").digest())


def lock_slots(
    data_keys: Sequence[bytes],
    slot_keys: Mapping[str, bytes],
    *,
    mode: str,
    ring: bytes,
    entropy: Callable[[int], bytes],
) -> KeySlots:
    """Return a store's data keys, oldest first, locked for each of these slot keys and signed with the newest one."""
    made = []
    for name, own in slot_keys.items():
        pair = _x25519().X25519PrivateKey.from_private_bytes(entropy(KEY_BYTES))
        passing = pair.public_key().public_bytes_raw()
        shared = pair.exchange(_x25519().X25519PublicKey.from_public_bytes(own[KEY_BYTES:]))
        nonce = entropy(_NONCE_BYTES)
        about = _about_slot(SLOTS_VERSION, mode, ring, name)
        locked = passing + nonce + _slot_cipher(own, passing, shared).encrypt(nonce, b"".join(data_keys), about)
        made.append(KeySlot(name, Vault(data_keys[-1]).encrypt(own, _about_slot_key(name)), locked))
    slots = KeySlots(SLOTS_VERSION, mode, ring, tuple(made))
    return msgspec.structs.replace(slots, signature=Vault(data_keys[-1]).sign(_signed_slots(slots)))


def open_slots(slots: KeySlots, key: bytes) -> tuple[bytes, ...] | None:
    """Return the data keys, oldest first; None if this key has no slot; ValueError if a slot was altered."""
    name = key_id(key)
    slot = next((one for one in slots.slots if one.id == name), None)
    if slot is None:
        return None
    about = _about_slot(slots.version, slots.mode, slots.ring, name)
    passing, rest = slot.locked[:KEY_BYTES], slot.locked[KEY_BYTES:]
    own, half = slot_key(key, slots.ring), _own_half(key)
    try:
        shared = half.exchange(_x25519().X25519PublicKey.from_public_bytes(passing))
        opened: bytes = _slot_cipher(own, passing, shared).decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], about)
    except Exception:  # noqa: BLE001 - InvalidTag, no point of the curve, or a slot too short to be one
        raise ValueError("was altered") from None
    data_keys = tuple(opened[start : start + KEY_BYTES] for start in range(0, len(opened), KEY_BYTES))
    if not data_keys or len(data_keys[-1]) != KEY_BYTES:
        raise ValueError("holds no data key")
    if not Vault(data_keys[-1]).is_signed(_signed_slots(slots), slots.signature):
        raise ValueError("stands among slots that were altered")
    return data_keys


def slot_keys_of(slots: KeySlots, data_key: bytes) -> dict[str, bytes]:
    """Return the slot keys of slots that the newest data key has signed; ValueError if one is not its user's.

    Who has a key could put a pair of his own there, and would open what is locked with it after he was removed.
    """
    found = {slot.id: Vault(data_key).decrypt(slot.slot_key, _about_slot_key(slot.id)) for slot in slots.slots}
    for name, own in found.items():
        if _id_of(own[KEY_BYTES:]) != name:
            raise ValueError(f"what locks the slot of the key {name} is not its own")
    return found


def fingerprint(data_key: bytes) -> str:
    """Return what tells a data key from any other, and nothing about it."""
    return _derived(data_key, "fingerprint").hex()[:32]


def _signed_slots(slots: KeySlots) -> bytes:
    parts = [[slot.id, slot.slot_key, slot.locked] for slot in slots.slots]
    return b"key slots\0" + msgspec.msgpack.encode([slots.version, slots.mode, slots.ring, parts])


def _about_slot(version: int, mode: str, ring: bytes, name: str) -> bytes:
    return b"key slot\0" + msgspec.msgpack.encode([version, mode, ring, name])


def _about_slot_key(name: str) -> bytes:
    return b"slot key\0" + name.encode()


class _Epoch:
    """The keys that are derived from one data key, one for each purpose."""

    def __init__(self, data_key: bytes, number: int) -> None:
        self.cipher = _aes(_derived(data_key, "encryption"))
        self.nonce_key = _derived(data_key, "nonce")
        self.name_key = _derived(data_key, "chunk name")
        self.signing_key = _derived(data_key, "signature")
        self.listing_key = _derived(data_key, "list column")
        self.mark = number.to_bytes((number.bit_length() + 7) // 8, "big")
        """What names that were given in this epoch end with; nothing in the first."""


class Vault:
    """Encrypts, names and signs with keys derived from a store's data keys, one for each epoch, oldest first.

    All is written in the newest epoch, and rows are read in it alone: those are written again when a key is retired.
    Chunks stay as they are, so their names tell the epoch that they were written in.
    """

    def __init__(self, *data_keys: bytes) -> None:
        self._epochs = [_Epoch(data_key, number) for number, data_key in enumerate(data_keys)]
        self._newest = self._epochs[-1]
        self._by_mark = {epoch.mark: epoch for epoch in self._epochs}

    def encrypt(self, data: bytes, about: bytes) -> bytes:
        """Return the data locked and bound to what it is about; the same data gives the same bytes."""
        # The nonce follows from all that is encrypted, so that it repeats only when everything does.
        nonce = blake3(len(about).to_bytes(8, "big") + about + data, key=self._newest.nonce_key).digest(_NONCE_BYTES)
        sealed: bytes = self._newest.cipher.encrypt(nonce, data, about)
        return _VERSION + nonce + sealed

    def decrypt(self, data: bytes, about: bytes, *, named: bytes = b"") -> bytes:
        """Return the data; ValueError unless it was locked with this key and is about the same.

        With the name of a stored chunk, it is that chunk's epoch that counts.
        """
        epoch = self._epoch_of(named) if named else self._newest
        if data[:1] != _VERSION:
            raise ValueError("is not encrypted as this program does it")
        try:
            opened: bytes = epoch.cipher.decrypt(data[1 : 1 + _NONCE_BYTES], data[1 + _NONCE_BYTES :], about)
        except Exception:  # noqa: BLE001 - InvalidTag, or too short to be anything
            raise ValueError("was altered or stands in another's place") from None
        return opened

    def lock(self, data: bytes, about: bytes) -> bytes:
        """Return the data locked as `encrypt` does, with its epoch before it: it opens after a key is retired, too."""
        mark = self._newest.mark
        return bytes((len(mark),)) + mark + self.encrypt(data, about)

    def unlock(self, data: bytes, about: bytes) -> bytes:
        """Return what was locked; ValueError unless it was with one of these keys, and about the same."""
        end = 1 + (data[0] if data else 0)
        return self.decrypt(data[end:], about, named=bytes(2 * _HALF) + data[1:end])

    def hide(self, name: bytes) -> bytes:
        """Return the name under which a chunk is stored: a permutation that only the key holder can follow."""
        return _hidden(self._newest, name)

    def hidden_names(self, name: bytes) -> list[bytes]:
        """Return the names under which a chunk may be stored, newest epoch first."""
        return [_hidden(epoch, name) for epoch in reversed(self._epochs)]

    def show(self, name: bytes) -> bytes:
        """Return the true name of a stored chunk; ValueError if this store gives no such name."""
        epoch = self._epoch_of(name)
        left, right = name[:_HALF], name[_HALF : 2 * _HALF]
        for number in reversed(range(_ROUNDS)):
            left, right = _xor(right, _round(epoch, number, left)), left
        return left + right

    def sign(self, data: bytes) -> bytes:
        """Return a signature that only a key holder can make."""
        return blake3(data, key=self._newest.signing_key).digest()

    def is_signed(self, data: bytes, signature: bytes) -> bool:
        """Tell whether this is the data's signature."""
        from hmac import compare_digest  # noqa: PLC0415 - it loads OpenSSL, which few need

        return compare_digest(self.sign(data), signature)

    def digest(self, data: bytes) -> bytes:
        """Return what stands for a value in a list column: equal for equal values, and no signature of anything."""
        return blake3(data, key=self._newest.listing_key).digest()

    def _epoch_of(self, name: bytes) -> _Epoch:
        epoch = self._by_mark.get(name[2 * _HALF :])
        if epoch is None or len(name) < 2 * _HALF:
            raise ValueError("has a name that this store does not give")
        return epoch


def _hidden(epoch: _Epoch, name: bytes) -> bytes:
    left, right = name[:_HALF], name[_HALF:]
    for number in range(_ROUNDS):
        left, right = right, _xor(left, _round(epoch, number, right))
    return left + right + epoch.mark


def _round(epoch: _Epoch, number: int, half: bytes) -> bytes:
    return blake3(bytes((number,)) + half, key=epoch.name_key).digest(_HALF)


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(_HALF, "big")


def _derived(data_key: bytes, purpose: str) -> bytes:
    return blake3(data_key, derive_key_context=f"holdfast 2 {purpose}").digest()


def _x25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(_NEEDS_EXTRA) from None
    return x25519


def _aes(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(_NEEDS_EXTRA) from None
    return AESGCM(key)
