"""A second connection to a store that is one file, so that long reading does not make commits wait for the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.store.keys import keys_of
from holdfast.store.open import open_store

if TYPE_CHECKING:
    from holdfast.store.store import Store


def second_way_in(store: Store) -> Store | None:
    """Return the same store, opened once more for reading; None where one connection serves all or it cannot be had."""
    if not store.url.startswith("sqlite:"):
        return None
    try:
        twin = open_store(store.url, read_only=True)
    except HoldfastError:
        return None  # the first way in still works, and is only slower for others
    keys = keys_of(store)
    return twin if keys is None else keys.over(twin.medium)
