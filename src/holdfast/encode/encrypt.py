"""Encryption at rest: what is stored can be read, and its names matched with contents, only with the key.

One random data key belongs to a store; users' keys open it through slots, so changing a user's key rewrites a slot and
nothing else. All other keys are derived from the data key, one for each purpose.
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
    from collections.abc import Callable

KEY_BYTES = 32
_PREFIX = "hfk1_"
_NONCE_BYTES = 12
_VERSION = b"\x01"
_HALF = 16
_ROUNDS = 4


class KeySlot(msgspec.Struct, frozen=True):
    """A store's data key, locked with one user's key; `id` tells which without giving anything away."""

    id: str
    locked: bytes


class KeySlots(msgspec.Struct, frozen=True):
    """All keys that open a store, and what they are for."""

    mode: str
    slots: tuple[KeySlot, ...]


def generate_key(entropy: Callable[[int], bytes] = os.urandom) -> str:
    """Return a new key as text, for a file or an environment variable."""
    return _PREFIX + base64.urlsafe_b64encode(entropy(KEY_BYTES)).decode().rstrip("=")


def parse_key(text: str) -> bytes:
    """Return the key in a text: its first line that is not empty or a comment; UsageError if it is no key."""
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
    """Return a name for a key that tells nothing about it."""
    return blake3(key, derive_key_context="holdfast 1 key id").hexdigest()[:16]


def lock_slot(data_key: bytes, key: bytes, entropy: Callable[[int], bytes]) -> KeySlot:
    """Return the data key, locked with a user's key."""
    name = key_id(key)
    nonce = entropy(_NONCE_BYTES)
    wrapping = blake3(key, derive_key_context="holdfast 1 key slot").digest()
    return KeySlot(name, nonce + _aes(wrapping).encrypt(nonce, data_key, name.encode()))


def open_slot(slots: KeySlots, key: bytes) -> bytes | None:
    """Return the data key, None if this key opens none of the slots."""
    name = key_id(key)
    wrapping = _aes(blake3(key, derive_key_context="holdfast 1 key slot").digest())
    for slot in slots.slots:
        if slot.id == name:
            try:
                opened: bytes = wrapping.decrypt(slot.locked[:_NONCE_BYTES], slot.locked[_NONCE_BYTES:], name.encode())
            except Exception:  # noqa: BLE001 - InvalidTag, or a slot too short to be one
                return None
            return opened
    return None


class Vault:
    """Encrypts, names and signs with keys derived from one data key."""

    def __init__(self, data_key: bytes) -> None:
        self._cipher = _aes(_derived(data_key, "encryption"))
        self._nonce_key = _derived(data_key, "nonce")
        self._name_key = _derived(data_key, "chunk name")
        self._signing_key = _derived(data_key, "signature")

    def encrypt(self, data: bytes, about: bytes) -> bytes:
        """Return the data locked and bound to what it is about; the same data gives the same bytes."""
        # The nonce follows from all that is encrypted, so that it repeats only when everything does.
        nonce = blake3(len(about).to_bytes(8, "big") + about + data, key=self._nonce_key).digest(_NONCE_BYTES)
        sealed: bytes = self._cipher.encrypt(nonce, data, about)
        return _VERSION + nonce + sealed

    def decrypt(self, data: bytes, about: bytes) -> bytes:
        """Return the data; ValueError unless it was locked with this key and is about the same."""
        if data[:1] != _VERSION:
            raise ValueError("is not encrypted as this program does it")
        try:
            opened: bytes = self._cipher.decrypt(data[1 : 1 + _NONCE_BYTES], data[1 + _NONCE_BYTES :], about)
        except Exception:  # noqa: BLE001 - InvalidTag, or too short to be anything
            raise ValueError("was altered or stands in another's place") from None
        return opened

    def hide(self, name: bytes) -> bytes:
        """Return the name under which a chunk is stored: a permutation that only the key holder can follow."""
        left, right = name[:_HALF], name[_HALF:]
        for number in range(_ROUNDS):
            left, right = right, _xor(left, self._round(number, right))
        return left + right

    def show(self, name: bytes) -> bytes:
        """Return the true name of a stored chunk."""
        left, right = name[:_HALF], name[_HALF:]
        for number in reversed(range(_ROUNDS)):
            left, right = _xor(right, self._round(number, left)), left
        return left + right

    def sign(self, data: bytes) -> bytes:
        """Return a signature that only a key holder can make."""
        return blake3(data, key=self._signing_key).digest()

    def is_signed(self, data: bytes, signature: bytes) -> bool:
        """Tell whether this is the data's signature."""
        from hmac import compare_digest  # noqa: PLC0415 - it loads OpenSSL, which few need

        return compare_digest(self.sign(data), signature)

    def _round(self, number: int, half: bytes) -> bytes:
        return blake3(bytes((number,)) + half, key=self._name_key).digest(_HALF)


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(_HALF, "big")


def _derived(data_key: bytes, purpose: str) -> bytes:
    return blake3(data_key, derive_key_context=f"holdfast 1 {purpose}").digest()


def _aes(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError("an encrypted store needs the extra: pip install 'holdfast[crypto]'") from None
    return AESGCM(key)
