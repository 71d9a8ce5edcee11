import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import UsageError, generate_key
from holdfast.encode.encrypt import KeySlots, Vault, key_id, lock_slot, open_slot, parse_key

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


def test_a_slot_opens_for_its_key_and_for_no_other():
    keys = [os.urandom(32) for _ in range(3)]
    data_key = os.urandom(32)
    slots = KeySlots("encrypt", tuple(lock_slot(data_key, key, os.urandom) for key in keys[:2]))
    assert [open_slot(slots, key) for key in keys] == [data_key, data_key, None]
    forged = KeySlots("encrypt", tuple(type(slot)(key_id(keys[2]), slot.locked) for slot in slots.slots))
    assert open_slot(forged, keys[2]) is None
    assert open_slot(KeySlots("encrypt", (type(slots.slots[0])(key_id(keys[0]), b""),)), keys[0]) is None
