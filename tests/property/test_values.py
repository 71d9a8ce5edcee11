import dataclasses
import socket
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.encode.types import TypeRegistry
from holdfast.encode.values import Ext, Packer
from holdfast.errors import HoldfastError, IntegrityError, UnknownType, UsageError, ValueRefused
from holdfast.testing.strategies import HOSTILE, same, values
from property.things import Colour, Frozen, Level, Model, Note, Pair, Point, Shelf, objects, registry

PACKER = Packer(registry())
some = settings(derandomize=True, deadline=None, database=None, max_examples=150)


def there_and_back(value, packer=PACKER):
    return packer.unpack(packer.pack(value, "state"), "state")


@settings(some, max_examples=400)
@given(values(objects()))
def test_every_supported_value_comes_back_exactly(value):
    assert same(there_and_back(value), value)


@some
@given(values(objects()))
def test_packing_twice_gives_the_same_bytes(value):
    assert PACKER.pack(value, "state") == PACKER.pack(value, "state")


def test_equal_sets_are_stored_as_equal_bytes():
    left, right = {0, 8}, {8, 0}
    assert list(left) != list(right)
    assert PACKER.pack(left, "state") == PACKER.pack(right, "state")
    assert PACKER.pack(frozenset(left), "state") == PACKER.pack(frozenset(right), "state")


@some
@given(values(objects(), max_leaves=5))
def test_a_value_next_to_a_lone_surrogate_is_walked_in_python_and_comes_back_as_well(value):
    assert same(there_and_back({"\ud800": value, "v": [value]}), {"\ud800": value, "v": [value]})


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: next(iter(value)))
def test_a_hostile_looking_dict_is_just_a_dict(value):
    assert same(there_and_back(value), value)
    assert same(there_and_back([value, {1: value}]), [value, {1: value}])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ([1], (1,)),
        ({1}, frozenset({1})),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Level.LOW, 1),
        (Decimal("1.0"), Decimal("1.00")),
        (datetime(2024, 10, 27, 2, 30, fold=0, tzinfo=UTC), datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=UTC)),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))),
        (Note(1), Note(True)),
        (Point(1), Point(1.0)),
        (Pair(1, 2), (1, 2)),
        (b"x", bytearray(b"x")),
    ],
)
def test_the_exact_comparison_sees_what_equality_forgives(left, right):
    assert not same(left, right)
    assert same(left, left)
    assert same(right, right)


@dataclasses.dataclass
class Unregistered:
    x: object = None


class Untold(Enum):
    ONE = 1


class Region(tzinfo):
    """A zone of a foreign library whose offset depends on the date."""

    def utcoffset(self, moment):
        return None if moment is None else timedelta(hours=1)

    def dst(self, _moment):
        return None


class Fixed(tzinfo):
    """A fixed offset of a foreign library, such as pydantic's."""

    def utcoffset(self, _moment):
        return timedelta(hours=5, minutes=30)


class Text(str):
    __slots__ = ()


def cyclic_list():
    value = []
    value.append(value)
    return value


def nested(depth, wrap):
    value = None
    for _ in range(depth):
        value = wrap(value)
    return value


REFUSED = {
    "socket": (lambda: socket.socket.__new__(socket.socket), "cannot checkpoint a socket.socket"),
    "lambda": (lambda: lambda: None, "cannot checkpoint a function"),
    "file": (lambda: sys.__stdout__, "cannot checkpoint a _io.TextIOWrapper"),
    "object": (object, "cannot checkpoint a object"),
    "class": (lambda: int, "cannot checkpoint a type"),
    "module": (lambda: sys, "cannot checkpoint a module"),
    "generator": (lambda: (n for n in ()), "cannot checkpoint a generator"),
    "exception": (lambda: ValueError("x"), "cannot checkpoint a ValueError"),
    "complex": (lambda: 1j, "cannot checkpoint a complex"),
    "range": (lambda: range(3), "cannot checkpoint a range"),
    "deque": (lambda: deque([1]), "cannot checkpoint a collections.deque"),
    "mapping proxy": (lambda: MappingProxyType({}), "cannot checkpoint a mappingproxy"),
    "defaultdict": (lambda: defaultdict(list), "make it a plain dict"),
    "OrderedDict": (OrderedDict, "make it a plain dict"),
    "Counter": (Counter, "make it a plain dict"),
    "str subclass": (lambda: Text("x"), "make it a plain str"),
    "namedtuple": (lambda: namedtuple("Spot", "x")(1), "that is not registered"),  # noqa: PYI024 - the old form
    "dataclass": (Unregistered, "that is not registered"),
    "enum": (lambda: Untold.ONE, "that is not registered"),
    "region of a foreign zone class": (lambda: datetime(2024, 1, 1, tzinfo=Region()), "use zoneinfo.ZoneInfo"),
    "time in such a region": (lambda: time(1, tzinfo=Region()), "use zoneinfo.ZoneInfo"),
    "integer of 2 MB": (lambda: 1 << (1 << 24), "over the limit"),
    "decimal of 2 million digits": (lambda: Decimal("1" * 2_000_000), "over the limit"),
    "object that cannot be taken apart": (lambda: Note.__new__(Note), "cannot take this Note apart"),
}
PLACES = {
    "state": lambda bad: bad,
    "state.a[3].x": lambda bad: {"a": [0, 1, 2, {"x": bad}]},
    "state['two words'][0]": lambda bad: {"two words": [bad]},
    "state['a.b'].c": lambda bad: {"a.b": {"c": bad}},
    "state[5][(1, 2)]": lambda bad: {5: {(1, 2): bad}},
    "state.t[1][0]": lambda bad: {"t": (0, (bad,))},
    "state.note.body[0]": lambda bad: {"note": Note("title", [bad])},
    "state.model.first.x": lambda bad: {"model": Model(first={"x": bad})},
    "state.model.more": lambda bad: {"model": Model(more=bad)},
    "state.shelf._hidden": lambda bad: {"shelf": Shelf(bad)},
    "state.point.x[1]": lambda bad: {"point": Point([0, bad])},
    "state.pair[1].z": lambda bad: {"pair": Pair(0, {"z": bad})},
    "state['\\ud800'].b": lambda bad: {"\ud800": {"b": bad}},
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_could_not_come_back_equal_is_refused_with_the_reason(kind):
    make, reason = REFUSED[kind]
    with pytest.raises(ValueRefused) as caught:
        PACKER.pack({"a": [make()]}, "state")
    assert caught.value.path == "state.a[0]"
    assert reason in caught.value.detail


@pytest.mark.parametrize("path", PLACES)
def test_a_refusal_names_the_exact_path(path):
    with pytest.raises(ValueRefused) as caught:
        PACKER.pack(PLACES[path](object()), "state")
    assert caught.value.path == path
    assert str(caught.value) == f"{path}: cannot checkpoint a object"


@pytest.mark.parametrize("bad", [{"k": {object()}}, {"k": {frozenset({object()})}}])
def test_a_refusal_inside_a_set_names_the_set(bad):
    with pytest.raises(ValueRefused) as caught:
        PACKER.pack(bad, "state")
    assert caught.value.path.startswith("state.k{}")


@pytest.mark.parametrize("bad", [{Untold.ONE: 1}, {("a", Untold.ONE): 1}])
def test_a_refused_key_is_named_as_a_key(bad):
    with pytest.raises(ValueRefused) as caught:
        PACKER.pack({"d": bad}, "state")
    assert caught.value.path.startswith("state.d.<key>")


@pytest.mark.parametrize(
    "make", [cyclic_list, lambda: nested(5000, lambda inner: [inner])], ids=["cyclic", "deep list"]
)
@pytest.mark.parametrize("wrap", [lambda bad: bad, lambda bad: {"x": (bad,)}], ids=["bare", "in a tuple"])
def test_what_contains_itself_or_is_too_deep_is_refused(make, wrap):
    with pytest.raises(ValueRefused, match="nested deeper than"):
        PACKER.pack(wrap(make()), "state")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: [inner],
        lambda inner: {"k": inner},
        lambda inner: (inner,),
        lambda inner: frozenset([inner]),
        lambda inner: {5: inner},
        Note,
        lambda inner: [(inner,)],
    ],
    ids=["list", "dict", "tuple", "frozenset", "odd keys", "dataclass", "list of tuple"],
)
@pytest.mark.parametrize("depth", [50, 99, 100, 101, 102, 150, 254, 255, 256, 257, 400, 5000])
def test_at_every_depth_a_value_is_refused_or_can_be_read_again(wrap, depth):
    value = nested(depth, wrap)
    try:
        data = PACKER.pack(value, "state")
    except ValueRefused:
        assert depth > 49
    else:
        assert PACKER.pack(PACKER.unpack(data, "state"), "state") == data


def test_a_mutable_view_of_bytes_comes_back_as_equal_bytes_by_either_way():
    for value in (bytearray(b"x"), memoryview(b"x")):
        assert same(there_and_back([value]), [b"x"])
        assert same(there_and_back([value, "\ud800"]), [b"x", "\ud800"])


def test_a_fixed_offset_of_a_foreign_zone_class_comes_back_equal():
    moment = datetime(2024, 1, 1, tzinfo=Fixed())
    assert there_and_back(moment) == moment
    assert there_and_back(moment).tzinfo == timezone(timedelta(hours=5, minutes=30))


def test_a_time_in_a_region_keeps_its_region():
    assert there_and_back(time(12, tzinfo=ZoneInfo("Europe/Berlin"))).tzinfo == ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    "value",
    [Frozen(1), Point(1, 2), Shelf(1, 2), Model(first=1, second=2, extra=3), Model(), Note(Note(Pair(1, Colour.PAIR)))],
    ids=repr,
)
def test_reading_an_object_runs_none_of_the_code_that_made_it(value):
    assert same(there_and_back(there_and_back(value)), value)


class Interrupting:
    """A registered class in whose adapter Ctrl+C strikes."""


@pytest.mark.parametrize("strike", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_the_middle_is_passed_on_not_taken_for_a_bad_value(strike):
    strikes = [strike, strike]

    def interrupted(_value):
        if strikes:
            raise strikes.pop()

    types = TypeRegistry()
    types.register(Interrupting, take_apart=interrupted, put_together=interrupted)
    with pytest.raises(strike):
        Packer(types).pack([Interrupting()], "state")
    stored = registered(types.for_class(Interrupting).name, None)
    with pytest.raises(strike):
        Packer(types).unpack(stored, "state")
    assert Packer(types).pack([1], "state") == b"\x91\x01"


def ext(code, content):
    return ormsgpack.packb(ormsgpack.Ext(code, content))


def refusal(data):
    """Return how reading these bytes is refused, or that it is not; any error but ours goes through."""
    try:
        PACKER.unpack(data, "state")
    except HoldfastError as error:
        return str(error)
    return "state was read"


def registered(name, content):
    return ext(Ext.REGISTERED, ormsgpack.packb([name, content]))


def test_a_stored_type_that_is_not_registered_is_named_and_never_imported():
    """Proves D11."""
    module = "this_module_must_not_be_imported"
    with pytest.raises(UnknownType) as caught:
        PACKER.unpack(registered(f"{module}.Thing", {"a": 1}), "section state")
    assert module in str(caught.value)
    assert module not in sys.modules
    with pytest.raises(UnknownType):
        PACKER.unpack(registered("os.system", "true"), "section state")


@pytest.mark.parametrize(
    "content",
    [
        registered(f"{Note.__module__}.Note", {"title": 1, "body": 2, "more": 3}),
        registered(f"{Note.__module__}.Note", [1, 2]),
        registered(f"{Model.__module__}.Model", [{"zzz": 1}, [], None, None]),
        registered(f"{Model.__module__}.Model", [5, [], None, None]),
        registered(f"{Colour.__module__}.Colour", "no such colour"),
        registered(f"{Pair.__module__}.Pair", [1]),
        registered([], 1),
        ext(Ext.REGISTERED, b"\xc0"),
        ext(Ext.SET, ormsgpack.packb([[1]])),
        ext(Ext.MAP, ormsgpack.packb([[[], 1]])),
        ext(Ext.MAP, ormsgpack.packb([1])),
        ext(Ext.DATETIME, ormsgpack.packb(["2024-01-01", "../../etc/passwd", 0])),
        ext(Ext.DATETIME, ormsgpack.packb(["2024-01-01", "America", 0])),
        ext(Ext.DATETIME, ormsgpack.packb(["2024-01-01", "no/such/zone", 0])),
        ext(Ext.DATETIME, ormsgpack.packb(["2024-01-01", None, 7])),
        ext(Ext.DECIMAL, ormsgpack.packb("1" * 2_000_000)),
        ext(Ext.DECIMAL, ormsgpack.packb("many")),
        ext(Ext.DECIMAL, ormsgpack.packb(5)),
        ext(Ext.TIMEDELTA, ormsgpack.packb([10**12, 0, 0])),
        ext(Ext.PATH, ormsgpack.packb(["os.system", "x"])),
        ext(Ext.UUID, b"short"),
        ext(Ext.TEXT, b"\xff\xff"),
        ext(Ext.INTEGER, b"\x7f" * ((1 << 20) + 1)),
        ext(99, b""),
        b"",
        b"\xc1",
        b"\x91" * 2000 + b"\xc0",
    ],
)
def test_content_that_no_value_has_is_an_integrity_error(content):
    """Proves D11."""
    with pytest.raises((IntegrityError, UsageError)) as caught:
        PACKER.unpack(content, "section state")
    assert str(caught.value).startswith("section state")


def test_extensions_nested_in_extensions_end_in_an_error_not_in_a_crash():
    data = b"\xc0"
    for _ in range(3000):
        data = ext(Ext.TUPLE, b"\x91" + data)
    with pytest.raises(IntegrityError):
        PACKER.unpack(data, "state")


@settings(some, max_examples=300)
@given(st.binary(max_size=200))
def test_garbage_is_decoded_or_refused_with_a_typed_error(data):
    assert refusal(data).startswith("state")


@settings(some, max_examples=300)
@given(values(objects(), max_leaves=6), st.data())
def test_a_value_with_a_changed_byte_is_decoded_or_refused_with_a_typed_error(value, data):
    packed = bytearray(PACKER.pack(value, "state"))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    assert refusal(bytes(packed)).startswith("state")


@pytest.mark.parametrize("code", list(Ext))
def test_each_extension_has_a_number_that_the_format_keeps(code):
    numbers = {
        "TUPLE": 1, "SET": 2, "FROZENSET": 3, "DATETIME": 4, "DATE": 5, "TIME": 6, "TIMEDELTA": 7, "UUID": 8,
        "DECIMAL": 9, "INTEGER": 10, "PATH": 11, "MAP": 12, "TEXT": 13, "REGISTERED": 14, "OPAQUE": 15, "OUTCOME": 16,
    }  # fmt: skip
    assert numbers[code.name] == code


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, None]}, "81a1619201c0"),
        (("x",), "c7030191a178"),
        (date(2024, 2, 29), "c70b05aa323032342d30322d3239"),
        (UUID(int=5), "d80800000000000000000000000000000005"),
        (1 << 64, "c7090a010000000000000000"),
        ({1: 2}, "d60c91920102"),
        (PurePosixPath("a"), "c7110b92ad50757265506f73697850617468a161"),
    ],
    ids=repr,
)
def test_the_bytes_of_a_value_are_those_of_the_format(value, expected):
    assert PACKER.pack(value, "state") == bytes.fromhex(expected)
