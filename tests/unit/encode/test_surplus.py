import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.encode.surplus import surplus
from holdfast.encode.values import Ext, Packer
from holdfast.errors import IntegrityError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN, st.binary(max_size=5))
def test_nothing_that_is_packed_has_surplus_and_what_follows_it_is_counted(value, more):
    data = ormsgpack.packb(value)
    assert surplus(data) is None
    assert (surplus(data + more) is None) is (not more)
    assert Packer().unpack(Packer().pack(value, "x"), "x") == value


@given(st.dictionaries(st.text(), PLAIN, min_size=1), st.lists(st.integers(0, 3), max_size=6))
def test_a_key_that_is_there_twice_is_found_at_any_depth(value, around):
    key, one = next(iter(value.items()))
    entries = [*value.items(), (key, one)]
    data = ormsgpack.packb(dict.fromkeys(range(len(entries))), option=ormsgpack.OPT_NON_STR_KEYS)
    head = data[: 1 if len(entries) < 16 else 3]
    data = head + b"".join(ormsgpack.packb(part) for entry in entries for part in entry)
    for kind in around:
        inside = {0: b"\x91", 1: b"\x81\xa1k", 2: b"\x92\x01", 3: b"\x82\xa1a\x01\xa1b"}[kind]
        data = inside + data
    assert surplus(data) == "a mapping has a key twice"


@pytest.mark.parametrize(
    "data", [b"a" * 100, b"\x01\x01", b"\x82\xa1a\x01\xa1a\x02", b"\x91\x82\xa1a\x01\xa1a\x02", b"\x80\xc0"]
)
def test_bytes_with_surplus_are_no_value(data):
    """Issue 18.7: 4 MiB of `a` were read as the number 97, and of two values of one key one was dropped."""
    with pytest.raises(IntegrityError):
        Packer().unpack(data, "x")


P = (1 << 61) - 1


@pytest.mark.parametrize("code", [Ext.SET, Ext.FROZENSET])
@pytest.mark.parametrize("made", [lambda n: P * n, lambda n: (P * n, 1), lambda n: "first" if n == 1 else P * n])
def test_elements_that_were_chosen_to_collide_are_refused(code, made):
    """Threats 8: a megabyte of them took minutes."""
    packer = Packer()
    data = packer.pack([made(n) for n in range(1, 5_000)], "x")
    with pytest.raises(IntegrityError, match="the same hash"):
        packer.unpack(ormsgpack.packb(ormsgpack.Ext(code, data)), "x")


def test_keys_that_were_chosen_to_collide_are_refused():
    packer = Packer()
    data = packer.pack([[P * n, 1] for n in range(1, 5_000)], "x")
    with pytest.raises(IntegrityError, match="the same hash"):
        packer.unpack(ormsgpack.packb(ormsgpack.Ext(Ext.MAP, data)), "x")
    for value in (dict.fromkeys(range(-3_000, 3_000), 1), set(range(5_000)), {n / 7 for n in range(5_000)}):
        assert packer.unpack(packer.pack(value, "x"), "x") == value
