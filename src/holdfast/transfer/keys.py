"""What the keys of two stores allow: a run keeps its checksums, takes its lock along, or is locked and linked anew.

A checkpoint's checksum covers what is stored, so it stays the same only under the same data key. Under another one the
links are made anew, parent by parent, after the old ones were checked. Nothing that is encrypted ever becomes readable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from holdfast.errors import KeyRefused
from holdfast.store.sealed import KEYS_RUN, SealedStore, read_slots

if TYPE_CHECKING:
    from holdfast.store.api import Store

Agreement = Literal["as stored", "with the key slots", "linked anew"]


def bare(store: Store) -> Store:
    """Return a store without its lock."""
    return store.inner if isinstance(store, SealedStore) else store


def agreement(source: Store, target: Store) -> Agreement:
    """Return how runs can be copied; KeyRefused if they cannot."""
    ours, theirs = read_slots(bare(source)), read_slots(bare(target))
    if ours is None and theirs is None:
        return "as stored"
    if ours is not None and not isinstance(source, SealedStore):
        raise KeyRefused("it is encrypted or signed: open it with its key to copy from it", source.url)
    if theirs is None:
        if target.runs(limit=1):
            raise KeyRefused(
                "it holds runs without a key and the source is locked: copy into an empty store, or one with a key",
                target.url,
            )
        return "with the key slots"
    if ours is not None and set(ours.slots) & set(theirs.slots):
        return "as stored"
    if not isinstance(target, SealedStore):
        raise KeyRefused("it has a key: open it with holdfast.open(place, key_file=...) to copy into it", target.url)
    if isinstance(source, SealedStore) and target.shares_key_with(source):
        return "as stored"
    if isinstance(source, SealedStore) and (source.mode, target.mode) == ("encrypt", "sign"):
        raise KeyRefused("it is signed, not encrypted: what is secret in the source could be read there", target.url)
    return "linked anew"


def locked_like(source: Store, target: Store) -> Store:
    """Return the target as a store that locks as the source does, unless it has a lock of its own."""
    if isinstance(source, SealedStore) and not isinstance(target, SealedStore):
        return source.over(target)
    return target


__all__ = ["KEYS_RUN", "Agreement", "agreement", "bare", "locked_like"]
