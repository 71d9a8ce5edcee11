"""What the fast scan passes, the exact look finds nothing in; and what it takes out is gone."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast, Secret
from holdfast.capture import scan
from holdfast.capture.patterns import SECRET_KEYS
from holdfast.capture.redact import RedactingPacker, RedactionRules, register_markers
from holdfast.capture.secrets import SecretFinder, make_finder
from holdfast.encode.types import TypeRegistry
from holdfast.store.memory import MemoryStore

TOKENS = st.sampled_from([
    "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1B2" * 9, "xoxb-1234567890-abcdefghij", "sk-proj-" + "Zx9Qw8Er7Ty6" * 4,
    "postgresql://u:s3cr3tpass@h/db", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIabc123\n-----END RSA PRIVATE KEY-----", "password=abcd1234x",
    "Authorization: Bearer abcdef0123456789ABCDEF", "--token abc123def456", "curl -u me:swordfish https://x",
    "--password", "--db-password=swordfish", "-u", "me:swordfish", "curl", "DB_PASSWORD", "GITHUB_TOKEN",
    "a8f7b6c5d4e3f2a1b0",
])  # fmt: skip
TEXTS = st.builds(lambda a, t, b: f"{a}{t}{b}", st.text(max_size=40), TOKENS | st.just(""), st.text(max_size=40))
KEYS = st.text(max_size=12) | st.sampled_from(
    [
        "password",
        "API-Key",
        "github_token",
        "Set-Cookie",
        "author",
        "max_tokens",
        "dbPassword",
        b"password",
        "name",
        "value",
        "Key",
        "Value",
    ]
)
LEAVES = TEXTS | st.integers() | st.none() | st.booleans() | st.binary(max_size=30) | st.builds(Secret, TEXTS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4) | st.tuples(inner),
    max_leaves=12,
)


def packer():
    types = TypeRegistry()
    register_markers(types)
    return RedactingPacker(types, RedactionRules())


@settings(deadline=None)
@given(VALUES)
@example({"password": "x"})
@example({"github_token": "a8f7b6c5d4e3f2a1b0"})
@example(["x" * 300 + " AKIAIOSFODNN7EXAMPLE"])
@example({"value": "swordfish", "name": "DB_PASSWORD"})
@example({"value": "a8f7b6c5d4e3f2a1b0", "name": "GITHUB_TOKEN"})
@example(["curl", "-u", "me:swordfish"])
def test_the_scan_never_passes_what_the_exact_look_takes_out(value):
    always, quick = packer(), packer()
    always._scan = lambda _data: True
    assert quick.pack(value, "state") == always.pack(value, "state")


@settings(deadline=None)
@given(VALUES)
def test_both_scans_give_the_same_answer(value):
    types = TypeRegistry()
    register_markers(types)
    from holdfast.encode.values import Packer  # noqa: PLC0415

    data = Packer(types).pack(value, "state")
    native = scan.make_scan(SECRET_KEYS, ())
    sources = [shape.native for shape in scan.SHAPES] + [*scan.OTHERS]
    sources += [*(scan._packed_key(key) for key in SECRET_KEYS), scan._packed_last(SECRET_KEYS)]
    assert native(data) == scan._plain_scan([source.encode() for source in sources])(data)


@given(TEXTS)
def test_redacting_twice_changes_nothing_more(text):
    once = make_finder().clean(text)
    assert make_finder().clean(once) == once


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=5).map(" ".join))
def test_looking_around_what_the_native_scan_noticed_finds_all_that_looking_everywhere_finds(text):
    everywhere = SecretFinder()
    everywhere._find = None
    data = text.encode("utf-8", "surrogatepass")
    assert make_finder().find(data) == everywhere.find(data)


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=25), st.data())
def test_what_is_packed_step_by_step_is_as_redacted_as_what_is_packed_at_once(texts, drawn):
    """Only what changed is scanned, and that is enough."""
    filler = "y" * drawn.draw(st.sampled_from([10, 3000]))
    hf = Holdfast(MemoryStore())
    run = hf.run("r")
    items = []
    for text in texts:
        items.append({"text": text, "filler": filler})
        taken = run.checkpoint(state={"items": items, "last": text})
    fresh = Holdfast(MemoryStore()).run("r").checkpoint(state={"items": items, "last": texts[-1]})
    assert taken.section("state") == fresh.section("state")
    assert set(taken.redacted) == set(fresh.redacted)
    assert taken.redacted_count == fresh.redacted_count


@given(st.binary(max_size=200), st.binary(max_size=50), st.integers(0, 200))
def test_the_changed_part_holds_all_that_changed(old, new, at):
    changed = old[:at] + new + old[at + 7 :]
    wanted = b"" if old == changed else changed  # within the margin everything is looked at
    assert scan.changed_part(old, changed) == wanted


@given(st.integers(0, 40_000), st.binary(min_size=1, max_size=40))
def test_what_is_far_from_a_change_is_not_looked_at(at, new):
    old = bytes(40_000)
    changed = old[:at] + new + old[at:]
    part = scan.changed_part(old, changed)
    assert len(part) <= 2 * scan.MARGIN + 2 * len(new) + 2
    assert new.strip(b"\0") in part
