import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import UsageError, generate_key
from holdfast.encode.encrypt import (
    RING_BYTES,
    SLOTS_VERSION,
    Vault,
    key_id,
    lock_slots,
    open_slots,
    parse_key,
    slot_key,
    slot_keys_of,
)

VAULT = Vault(bytes(range(32)))
OTHER = Vault(bytes(range(1, 33)))


@given(st.binary(max_size=3000), st.binary(max_size=80))
def test_what_is_locked_comes_back_only_for_the_same_place_and_key(data, about):
    locked = VAULT.encrypt(data, about)
    assert VAULT.decrypt(locked, about) == data
    assert VAULT.encrypt(data, about) == locked
    assert len(data) < 8 or data not in locked
    for vault, place in ((VAULT, about + b"x"), (OTHER, about)):
        with pytest.raises(ValueError, match="altered or stands in another's place"):
            vault.decrypt(locked, place)


@given(st.binary(min_size=1, max_size=300), st.data())
def test_any_changed_byte_is_noticed(data, drawn):
    locked = bytearray(VAULT.encrypt(data, b""))
    locked[drawn.draw(st.integers(0, len(locked) - 1))] ^= drawn.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match=r"altered|not encrypted"):
        VAULT.decrypt(bytes(locked), b"")


def test_two_different_texts_never_share_a_nonce():
    nonces = {VAULT.encrypt(f"{n}".encode(), b"a")[1:13] for n in range(2_000)}
    nonces |= {VAULT.encrypt(b"0", f"{n}".encode())[1:13] for n in range(2_000)}
    assert len(nonces) == 4_000


@given(st.binary(min_size=32, max_size=32))
def test_a_chunk_name_is_hidden_and_found_again_by_the_key_alone(name):
    hidden = VAULT.hide(name)
    assert VAULT.show(hidden) == name
    assert hidden != name
    assert OTHER.hide(name) != hidden


def test_keys_are_read_from_text_and_nonsense_is_refused():
    text = generate_key()
    assert parse_key(f"# my key\n\n  {text}\n") == parse_key(text)
    assert parse_key(parse_key(text).hex()) == parse_key(text)
    for bad in ("", "short", "# only a comment", "!" * 43, "hfk1_" + "A" * 10):
        with pytest.raises(UsageError, match="32 random bytes"):
            parse_key(bad)


RING = bytes(RING_BYTES)


def slots_for(keys, data_keys, mode="encrypt"):
    slot_keys = {key_id(key): slot_key(key, RING) for key in keys}
    return lock_slots(data_keys, slot_keys, mode=mode, ring=RING, entropy=os.urandom)


def test_a_slot_opens_for_its_key_and_for_no_other():
    keys = [os.urandom(32) for _ in range(3)]
    data_keys = (os.urandom(32), os.urandom(32))
    slots = slots_for(keys[:2], data_keys)
    assert [open_slots(slots, key) for key in keys] == [data_keys, data_keys, None]
    assert slot_keys_of(slots, data_keys[-1]) == {key_id(key): slot_key(key, RING) for key in keys[:2]}
    with pytest.raises(ValueError, match="altered"):
        slot_keys_of(slots, data_keys[0])


def test_a_slot_that_was_altered_in_any_way_is_told_apart_from_a_missing_one():
    """Mode, version, ring and name are bound to it, and no slot can be added or exchanged."""
    keys = [os.urandom(32) for _ in range(3)]
    data_keys = (os.urandom(32),)
    slots = slots_for(keys[:2], data_keys)
    first, second = slots.slots
    replace = msgspec.structs.replace
    stranger = slots_for(keys[2:], data_keys).slots[0]
    for forged in (
        replace(slots, mode="sign"),
        replace(slots, version=SLOTS_VERSION + 1),
        replace(slots, signature=b""),
        replace(slots, slots=(replace(first, locked=b""), second)),
        replace(slots, slots=(replace(first, locked=second.locked), second)),
        replace(slots, ring=bytes([1]) * RING_BYTES),
        replace(slots, slots=(first, replace(second, slot_key=first.slot_key))),
        replace(slots, slots=(first, second, stranger)),
        replace(slots, slots=(first,)),
        replace(slots, slots=(replace(first, locked=first.locked[:-1] + bytes([first.locked[-1] ^ 1])), second)),
    ):
        with pytest.raises(ValueError, match=r"altered"):
            open_slots(forged, keys[0])
    assert open_slots(replace(slots, slots=(replace(first, id=key_id(keys[2])), second)), keys[0]) is None


@given(st.binary(min_size=32, max_size=32))
def test_chunks_of_all_epochs_are_found_and_new_ones_need_the_newest_key(name):
    first, second, third = bytes(32), bytes([1]) * 32, bytes([2]) * 32
    vaults = [Vault(first), Vault(first, second), Vault(first, second, third)]
    stored = [(vault.hide(name), vault.encrypt(b"data", b"about")) for vault in vaults]
    newest = vaults[-1]
    assert newest.hidden_names(name) == [hidden for hidden, _ in reversed(stored)]
    assert {newest.show(hidden) for hidden, _ in stored} == {name}
    assert {newest.decrypt(data, b"about", named=hidden) for hidden, data in stored} == {b"data"}
    for older in vaults[:-1]:
        with pytest.raises(ValueError, match="does not give"):
            older.show(stored[-1][0])
        with pytest.raises(ValueError, match="altered"):
            older.decrypt(stored[-1][1], b"about")
    with pytest.raises(ValueError, match="altered"):
        newest.decrypt(stored[0][1], b"about")
