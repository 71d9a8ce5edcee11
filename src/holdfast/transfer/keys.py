"""Encrypted and signed runs on their way: they travel locked, with the key slots of their store, and never in plain.

A checkpoint's checksum covers what is stored, so ids and links can be kept only under the same data key: the target
takes the source's key slots over if it is empty, or must have them already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import KeyRefused
from holdfast.store.sealed import KEYS_RUN, SealedStore, read_slots

if TYPE_CHECKING:
    from holdfast.store.api import Store


def bare(store: Store) -> Store:
    """Return a store without its lock."""
    return store.inner if isinstance(store, SealedStore) else store


def slots_are_missing(source: Store, target: Store) -> bool:
    """Tell whether the key slots have to be copied first; KeyRefused if the two stores do not go together."""
    ours, theirs = read_slots(bare(source)), read_slots(bare(target))
    if ours is None and theirs is None:
        return False
    if ours is None:
        raise KeyRefused("runs stored without a key cannot be copied here with their checksums kept", target.url)
    if not isinstance(source, SealedStore):
        raise KeyRefused("it is encrypted or signed: open it with its key to copy from it", source.url)
    if theirs is not None:
        if not isinstance(target, SealedStore) or not target.shares_key_with(source):
            raise KeyRefused("it has another key than the source: copy into a new, empty store", target.url)
        return False
    if target.runs(limit=1):
        raise KeyRefused("it holds runs without a key, the source is locked: copy into a new, empty store", target.url)
    return True


def locked_like(source: Store, target: Store) -> Store:
    """Return the target as a store that locks as the source does."""
    if isinstance(source, SealedStore) and not isinstance(target, SealedStore):
        return source.over(target)
    return target


__all__ = ["KEYS_RUN", "bare", "locked_like", "slots_are_missing"]
