import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.encode.chunks import ChunkReader, ChunkWriter, parse_node
from holdfast.encode.compress import Compressor
from holdfast.encode.cuts import recut
from holdfast.encode.section import SectionEncoder, SectionMemo, decode_section
from holdfast.encode.tree import LEAF, NODE, Base, Copy, Ref, decode_node, encode_node, node_id
from holdfast.encode.values import Packer
from holdfast.errors import ChunkCorrupt, LimitExceeded, ValueRefused
from holdfast.testing.strategies import same, values
from property.things import Note, registry

PACKER = Packer(registry())
LIMIT = 64 * 1024 * 1024
some = settings(derandomize=True, deadline=None, database=None, max_examples=40)


class Tape:
    """A section saved again and again into one heap of chunks, read back each time by a reader that knows nothing."""

    def __init__(self, *, max_bytes=LIMIT):
        self.chunks = {}
        self.memo = SectionMemo()
        self.max_bytes = max_bytes
        self.roots = []

    def save(self, value):
        """Save, and return how many stored bytes that added."""
        writer = ChunkWriter(Compressor("none"))
        root = SectionEncoder(PACKER, writer, max_bytes=self.max_bytes).encode("state", value, self.memo)
        fresh = {name: chunk for name, chunk in writer.chunks.items() if name not in self.chunks}
        self.chunks.update(fresh)
        self.roots.append(root)
        return sum(len(chunk.data) for chunk in fresh.values())

    def read(self, number=-1):
        found = ChunkReader(lambda ids: {name: self.chunks[name] for name in ids if name in self.chunks})
        return decode_section("state", self.roots[number], PACKER, found, max_bytes=self.max_bytes)

    def sweep(self):
        """Forget every chunk that the last save does not reach, as retention does."""
        reader = ChunkReader(lambda ids: {name: self.chunks[name] for name in ids})
        reached, todo = set(), [self.roots[-1]]
        while todo:
            ref = todo.pop()
            reached.add(ref.id)
            if ref.kind == NODE:
                todo += [part for part in reader.stored_nodes([ref])[0] if isinstance(part, Ref)]
        self.chunks = {name: chunk for name, chunk in self.chunks.items() if name in reached}
        self.roots = self.roots[-1:]


def text(rng, size):
    return rng.randbytes(size // 2 + 1).hex()[:size]


def message(rng, size=2000):
    return {"role": "user", "content": text(rng, size), "n": rng.randrange(1 << 40), "meta": {"tags": ["a", 1.5, None]}}


ODD = (1 << 70, (1, 2), {"x"}, b"bytes", Note("t"), "\ud800", {5: "odd key"}, float("nan"), -0.0, None)


def append(rng, _state, items, _at):
    items.append(message(rng))


def extend(rng, _state, items, _at):
    items.extend(message(rng, rng.choice([5, 300, 3000])) for _ in range(rng.choice([10, 60])))


def change_item(rng, _state, items, at):
    items[at : at + 1] = [message(rng)]


def change_field(rng, _state, items, at):
    if items[at:] and type(items[at]) is dict:
        items[at]["n"] = rng.random()


def insert_at_the_front(rng, _state, items, _at):
    items.insert(0, message(rng))


def slide_the_window(rng, _state, items, _at):
    del items[: rng.randrange(5)]
    items.append(message(rng))


def insert(rng, _state, items, at):
    items.insert(at, message(rng))


def delete(_rng, _state, items, at):
    del items[at : at + 1]


def truncate(_rng, _state, items, at):
    del items[at:]


def replace(rng, _state, items, _at):
    items[:] = [message(rng, 500) for _ in range(rng.choice([0, 3, 8, 200]))]


def insert_something_odd(rng, _state, items, at):
    items.insert(at, rng.choice(ODD))


def add_a_key(rng, state, _items, _at):
    state[rng.choice(["a.b", "two words", "", "k", "\ud801"])] = [message(rng, 1000) for _ in range(70)]


def drop_a_key(rng, state, _items, _at):
    del state[rng.choice(list(state))]


def change_shape(rng, state, _items, _at):
    shapes = [[message(rng) for _ in range(50)], {"now": "a dict"}, "text", {"d": [text(rng, 70_000)]}]
    state["turning"] = rng.choice(shapes)


def change_text(rng, state, _items, _at):
    state["context"] = text(rng, rng.choice([10, 20_000, 150_000]))


def change_bytes(rng, state, _items, _at):
    state["bytes"] = rng.randbytes(rng.choice([1, 300_000, 1_500_000]))


def nest(rng, state, _items, _at):
    state["deep"] = {"er": {"log": [text(rng, 900) for _ in range(rng.choice([5, 100]))], "n": rng.random()}}


def reorder_keys(rng, state, _items, _at):
    state["first"] = state.pop(rng.choice(list(state)))


def copy_a_list(rng, state, items, _at):
    state[f"list {rng.randrange(3)}"] = list(items)


EDITS = [
    append, append, extend, change_item, change_field, insert_at_the_front, slide_the_window, insert, delete, truncate,
    replace, insert_something_odd, add_a_key, drop_a_key, change_shape, change_text, change_bytes, nest, reorder_keys,
    copy_a_list,
]  # fmt: skip


def edit(rng, state):
    """Change the state in one of the ways that states change."""
    lists = [item for item in state.values() if type(item) is list] or [state.setdefault("messages", [])]
    items = rng.choice(lists)
    rng.choice(EDITS)(rng, state, items, rng.randrange(len(items) + 1))


@pytest.mark.parametrize("seed", range(40))
def test_after_every_edit_a_fresh_reader_sees_the_live_value(seed):
    """Proves X2."""
    rng = random.Random(seed)
    state = {"messages": [message(rng) for _ in range(rng.choice([0, 5, 80]))], "context": text(rng, 20_000)}
    tape = Tape()
    for _ in range(30):
        edit(rng, state)
        tape.save(state)
        assert same(tape.read(), state)
        if rng.random() < 0.08:
            tape.memo = SectionMemo()
        if rng.random() < 0.3:
            tape.sweep()


@pytest.mark.parametrize("seed", range(6))
def test_older_saves_stay_as_they_were(seed):
    rng = random.Random(1000 + seed)
    state = {"messages": [message(rng) for _ in range(60)]}
    tape, saved = Tape(), []
    for _ in range(12):
        edit(rng, state)
        tape.save(state)
        saved.append(PACKER.pack(state, "state"))
    for number, data in enumerate(saved):
        assert same(tape.read(number), PACKER.unpack(data, "state"))


@settings(some, max_examples=60)
@given(st.lists(values(max_leaves=8), min_size=1, max_size=6), st.booleans())
def test_any_sequence_of_values_can_be_saved_over_one_another(sequence, in_a_long_list):
    tape = Tape()
    padding = [f"{n:05}" * 300 for n in range(60)]
    for value in sequence:
        saved = {"padding": padding, "list": [*padding, value, value]} if in_a_long_list else value
        tape.save(saved)
        assert same(tape.read(), saved)


def test_equal_atoms_in_a_settled_group_keep_their_first_form_and_nothing_else_does():
    """The one loosening, as rope.py documents it."""
    rng = random.Random(5)
    state = [{"flag": True, "text": text(rng, 1000)} for _ in range(300)]
    tape = Tape()
    tape.save(state)
    state[3]["flag"] = 1
    tape.save(state)
    assert tape.read() == state
    state[3]["flag"] = 2
    tape.save(state)
    assert same(tape.read()[3], state[3])


class Quarrelsome:
    """A value that refuses to be compared, like an array."""

    __hash__ = None

    def __eq__(self, other):
        raise ValueError("the truth value of an array is ambiguous")


def test_a_value_that_refuses_to_be_compared_is_refused_by_path():
    rng = random.Random(6)
    tape, state = Tape(), [message(rng) for _ in range(200)]
    tape.save(state)
    state[2] = {"x": Quarrelsome()}
    with pytest.raises(ValueRefused) as caught:
        tape.save(state)
    assert caught.value.path == "state[2].x"


@pytest.mark.parametrize("key", ["messages", "a.b", "two words"])
def test_a_refusal_in_a_long_list_names_the_exact_path(key):
    rng = random.Random(7)
    tape, state = Tape(), {key: [message(rng) for _ in range(200)]}
    tape.save(state)
    state[key][150]["content"] = object()
    shown = f"state.{key}" if key == "messages" else f"state[{key!r}]"
    with pytest.raises(ValueRefused) as caught:
        tape.save(state)
    assert caught.value.path == f"{shown}[150].content"


@pytest.mark.parametrize("size", [1_100_000, 4_200_000, 9_000_000])
def test_an_item_larger_than_a_chunk_fits_into_a_long_list(size):
    """Proves X2."""
    rng = random.Random(8)
    tape, state = Tape(), [message(rng) for _ in range(20)]
    state.insert(10, {"image": rng.randbytes(size)})
    tape.save(state)
    assert same(tape.read(), state)
    state.append(message(rng))
    assert tape.save(state) < 300_000
    state[3] = message(rng)
    assert tape.save(state) < 300_000
    assert same(tape.read(), state)


def test_a_list_that_was_short_for_a_while_is_stored_anew_after_its_old_chunks_were_swept():
    """Proves X3: a memo never relies on chunks that retention may have taken."""
    rng = random.Random(9)
    item, tape = {"text": text(rng, 2000)}, Tape()
    # All items are alike and none ends a group, so the whole list is the rope's tail; the padding makes the encoder
    # look for long lists again.
    for count, padding in ((60, 0), (7, 500_000), (60, 1_500_000), (61, 4_000_000)):
        state = {"a": [item] * count, "pad": text(rng, padding), "b": [message(rng) for _ in range(60)]}
        tape.save(state)
        tape.sweep()
        assert same(tape.read(), state)


def conversation(rng, steps):
    return {"messages": [message(rng) for _ in range(steps)], "context": text(rng, 20_000)}


def costs(change, *, steps=40, start=600):
    """Return the stored bytes of each save of a state of about 1.2 MB after a change to it."""
    rng = random.Random(11)
    state, tape = conversation(rng, start), Tape()
    tape.save(state)
    found = []
    for step in range(steps):
        change(rng, state, step)
        found.append(tape.save(state))
        assert tape.read() == state
    return found


def grow(rng, state, _step):
    state["messages"].append(message(rng))


def change_one(rng, state, _step):
    state["messages"][rng.randrange(600)] = message(rng)


def slide(rng, state, _step):
    del state["messages"][0]
    state["messages"].append(message(rng))


def change_context(rng, state, _step):
    at = rng.randrange(19_900)
    state["context"] = state["context"][:at] + text(rng, 100) + state["context"][at + 100 :]


def change_nothing(rng, state, _step):
    pass


@pytest.mark.parametrize(
    ("change", "mean", "most"),
    [
        (grow, 12_000, 100_000),
        (change_one, 100_000, 200_000),
        (slide, 40_000, 150_000),
        (change_context, 8_000, 20_000),
        (change_nothing, 1, 1),
    ],
)
def test_a_save_costs_about_what_changed(change, mean, most):
    """Proves X2."""
    found = costs(change)
    assert sum(found) / len(found) < mean
    assert max(found) < most


def test_a_small_item_costs_little_more_than_itself():
    """Proves X2."""
    state, tape, rng = {"messages": [message(random.Random(5), 60) for _ in range(300)]}, Tape(), random.Random(6)
    tape.save(state)
    added = []
    for _ in range(100):
        state["messages"].append(message(rng, 60))
        added.append(tape.save(state))
    assert sum(added) / len(added) < 1_000
    assert tape.read() == state
    tape.sweep()
    state["messages"].append("one more")
    tape.save(state)
    assert tape.read() == state


def test_the_cost_of_an_append_does_not_grow_with_the_list():
    """Proves X2."""
    small, large = sum(costs(grow, start=300)), sum(costs(grow, start=3000, steps=40))
    assert large < 3 * small


def test_a_blob_that_grows_or_moves_costs_what_is_new():
    """Proves X2."""
    rng = random.Random(12)
    blob, tape = rng.randbytes(2_000_000), Tape()
    tape.save(blob)
    assert tape.save(blob + rng.randbytes(1000)) < 150_000
    assert tape.save(rng.randbytes(1000) + blob) < 150_000
    assert tape.save(blob[:1_000_000] + rng.randbytes(500) + blob[1_000_000:]) < 200_000
    assert tape.save(blob) < 150_000


def test_a_dropped_memo_costs_no_stored_bytes_for_an_unchanged_list():
    rng = random.Random(13)
    state, tape = [message(rng) for _ in range(400)], Tape()
    tape.save(state)
    tape.memo = SectionMemo()
    assert tape.save(state) < 20_000


def test_a_section_over_the_limit_is_neither_saved_nor_read():
    tape = Tape(max_bytes=1000)
    with pytest.raises(LimitExceeded, match="section state") as caught:
        tape.save("x" * 2000)
    assert caught.value.limit == 1000
    tape = Tape()
    tape.save("x" * 2000)
    tape.max_bytes = 1000
    with pytest.raises(LimitExceeded, match="max_section_mb"):
        tape.read()


sizes = st.integers(0, 40_000)
blobs = st.one_of(
    st.builds(lambda seed, size: random.Random(seed).randbytes(size), st.binary(max_size=20), sizes),
    st.builds(lambda pattern, size: (pattern * size)[:size], st.sampled_from([b"\0", b"ab", b"line\n" * 500]), sizes),
)


@settings(some, max_examples=80)
@given(st.lists(st.one_of(blobs, st.tuples(st.integers(0, 60_000), st.integers(0, 9000), blobs)), max_size=6))
def test_cuts_laid_end_to_end_are_the_new_bytes(steps):
    data, cuts = b"", []
    stored = {}
    for step in steps:
        if isinstance(step, bytes):
            data = data + step if len(data) < 300_000 else step
        else:
            at, gone, added = step
            data = data[:at] + added[:3000] + data[at + gone :]
        writer = ChunkWriter(Compressor("none"))
        cuts = recut(data, cuts, writer)
        stored.update(writer.chunks)
        assert b"".join(cut.data for cut in cuts) == data
        assert b"".join(stored[cut.ref.id].data for cut in cuts) == data
        assert all(cut.ref == Ref(LEAF, len(cut.data), cut.ref.id) for cut in cuts)


def test_many_small_edits_do_not_crumble_the_cuts():
    rng = random.Random(14)
    data, cuts = rng.randbytes(400_000), []
    for _ in range(300):
        at = rng.randrange(len(data))
        data = data[:at] + rng.randbytes(20) + data[at + 15 :]
        cuts = recut(data, cuts, ChunkWriter(Compressor("none")))
    assert len(cuts) < 300


entries = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=50),
        st.builds(
            Ref, st.sampled_from([LEAF, NODE]), st.integers(1, (1 << 48) - 1), st.binary(min_size=32, max_size=32)
        ),
    ),
    max_size=20,
)


@some
@given(entries)
def test_a_node_comes_back_as_it_was(parts):
    data, size = encode_node(parts)
    assert decode_node(data) == parts
    assert size == sum(part.size if isinstance(part, Ref) else len(part) for part in parts)
    assert parse_node(Ref(NODE, size, node_id(data)), data) == parts


@settings(some, max_examples=400)
@given(st.binary(max_size=120))
def test_garbage_is_no_node_or_one_that_fits_into_its_bytes(data):
    try:
        parts = decode_node(data)
    except ValueError:
        return
    assert sum(32 if isinstance(part, Ref) else len(part) for part in parts if not isinstance(part, Copy)) <= len(data)


@some
@given(entries.filter(bool), st.integers(-5, 5).filter(bool))
def test_a_node_that_does_not_add_up_is_corrupt(parts, off):
    data, size = encode_node(parts)
    with pytest.raises(ChunkCorrupt):
        parse_node(Ref(NODE, max(0, size + off), node_id(data)), data)


def patched(parts, known=(b"a", b"bc", b"def")):
    """Return a reader, the reference of a patch with these parts, and what the entries of its base are."""
    writer = ChunkWriter(Compressor("none"))
    base = writer.node(known)
    patch = writer.node([Base(base.size, base.id), *parts])
    return ChunkReader(lambda ids: {name: writer.chunks[name] for name in ids if name in writer.chunks}), patch, base


def test_a_patch_takes_entries_over_from_its_base():
    reader, patch, base = patched([Copy(1, 2, 5), b"new", Copy(0, 1, 1)])
    assert reader.read(patch, limit=LIMIT) == b"bcdefnewa"
    assert reader.nodes([patch, base]) == [[b"bc", b"def", b"new", b"a"], [b"a", b"bc", b"def"]]
    assert [part.id for part in reader.stored_nodes([patch])[0] if isinstance(part, Ref)] == [base.id]


@pytest.mark.parametrize("parts", [[Copy(2, 2, 3)], [Copy(0, 1, 2)], [Copy(9, 1, 1)], [Copy(0, 3, 6)] * 30_000])
def test_a_patch_that_does_not_fit_its_base_is_corrupt(parts):
    reader, patch, _base = patched(parts)
    with pytest.raises(ChunkCorrupt):
        reader.read(patch, limit=LIMIT)


def test_a_patch_of_a_patch_is_corrupt():
    writer = ChunkWriter(Compressor("none"))
    base = writer.node([b"a", b"b"])
    one = writer.node([Base(base.size, base.id), Copy(0, 2, 2)])
    two = writer.node([Base(one.size, one.id), Copy(0, 1, 2)])
    with pytest.raises(ChunkCorrupt, match="patch of a patch"):
        ChunkReader(lambda ids: {name: writer.chunks[name] for name in ids}).read(two, limit=LIMIT)


def test_text_that_looks_like_a_reference_stays_text():
    tape, ref = Tape(), None
    state = {"messages": [message(random.Random(7), 3000) for _ in range(40)]}
    tape.save(state)
    ref = next(
        part
        for part in ChunkReader(lambda ids: {n: tape.chunks[n] for n in ids}).node(tape.roots[0])
        if isinstance(part, Ref)
    )
    state["messages"].append(ref.entry)
    tape.save(state)
    assert tape.read() == state


def test_a_tree_that_names_one_node_again_and_again_stops_before_it_fills_memory():
    writer = ChunkWriter(Compressor("none"))
    ref = writer.leaf(b"x")
    for _ in range(8):
        ref = writer.node([ref] * 30)
    reader = ChunkReader(lambda ids: {name: writer.chunks[name] for name in ids})
    with pytest.raises(LimitExceeded):
        reader.read(ref, limit=LIMIT)
    with pytest.raises(ChunkCorrupt, match="parts"):
        reader.read(ref, limit=1 << 60)


def test_a_leaf_never_passes_for_a_node():
    writer = ChunkWriter(Compressor("none"))
    inner = writer.leaf(b"inner")
    data, size = encode_node([inner])
    disguised = writer.leaf(data)
    reader = ChunkReader(lambda ids: {name: writer.chunks[name] for name in ids})
    with pytest.raises(ChunkCorrupt):
        reader.read(Ref(NODE, size, disguised.id), limit=LIMIT)


def test_a_missing_and_a_swapped_chunk_are_told_apart_from_the_right_one():
    """Proves X3."""
    writer = ChunkWriter(Compressor("none"))
    one, two = writer.leaf(b"one"), writer.leaf(b"two")
    swapped = SimpleNamespace(chunks={one.id: writer.chunks[two.id]})
    reader = ChunkReader(lambda ids: {name: swapped.chunks[name] for name in ids if name in swapped.chunks})
    with pytest.raises(ChunkCorrupt, match="hash"):
        reader.leaf(one)
    with pytest.raises(ChunkCorrupt, match="missing"):
        reader.leaf(two)
