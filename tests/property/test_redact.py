"""What the fast scan passes, the exact look finds nothing in; and what it takes out is gone."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast, Secret
from holdfast.capture import scan
from holdfast.capture.redact import RedactingPacker, RedactionRules, register_markers
from holdfast.capture.secret_keys import SECRET_KEYS
from holdfast.capture.secrets import SecretFinder, make_finder
from holdfast.encode.opaque import Opaque
from holdfast.encode.types import TypeRegistry
from holdfast.store.memory import MemoryStore

TOKENS = st.sampled_from([
    "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1B2" * 9, "xoxb-1234567890-abcdefghij", "sk-proj-" + "Zx9Qw8Er7Ty6" * 4,
    "postgresql://u:s3cr3tpass@h/db", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIabc123\n-----END RSA PRIVATE KEY-----", "password=abcd1234x",
    "Authorization: Bearer abcdef0123456789ABCDEF", "--token abc123def456", "curl -u me:swordfish https://x",
    "--password", "--db-password=swordfish", "-u", "me:swordfish", "curl", "DB_PASSWORD", "GITHUB_TOKEN",
    "a8f7b6c5d4e3f2a1b0", "DB_PASS=swordfish", "mysql -uroot -pswordfish db", "sshpass", "-p", "mysql", "-pswordfish",
    '"password": "sword(fish)1"', "password: sword-fish\n", "Cookie: sid=" + "a1B2c3D4" * 4, "cache_key=" + "a1b2" * 8,
    "machine h login me password swordfish", "db:5432:app:ann:swordfish", "Authorization: token " + "a1b2" * 8,
    "token=abc123def", "https://x?a=b&secret=abc123def", "passphrase is abc123def", "secret_name=abc-v2",
])  # fmt: skip
NAMES = st.lists(
    st.tuples(
        st.sampled_from([
            "pass", "password", "pwd", "pw", "secret", "token", "key", "Key", "api", "auth", "db", "DB", "prod", "2",
            "value", "data", "credentials", "bearer", "jwt", "salt", "cookie", "next", "cache", "authorization", "name",
        ]),
        st.sampled_from(["_", "-", ".", "", " ", ":", "/", "__"]),
    ),
    min_size=1,
    max_size=4,
).map(lambda parts: "".join(map("".join, parts)))  # fmt: skip
ASSIGNED = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "--", "?", "\n", "export "]),
        NAMES,
        st.sampled_from([" = ", "=", ": ", '": "', "='", " ", "=>", " := ", '\\": \\"']),
        st.sampled_from(
            ["swordfish", "abc123def", "p4ss,w0rd", "$X", "a=b", "true", "dXNlcjpwYXNzd29yZDE=", "a1B2" * 6]
        ),
        st.sampled_from(["", '"', "'", ")", ",", "\n", " z"]),
    ),
)
TEXTS = ASSIGNED | st.builds(
    lambda a, t, b: f"{a}{t}{b}", st.text(max_size=40), TOKENS | st.just(""), st.text(max_size=40)
)
KEYS = (
    st.text(max_size=12)
    | NAMES
    | st.sampled_from(
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
            "DB_PASS",
            "token",
            "cache_key",
            "ACME_KEY",
            "credentials",
            "PGPASSWORD",
            "pw",
        ]
    )
)
LEAVES = TEXTS | st.integers() | st.none() | st.booleans() | st.binary(max_size=30) | st.builds(Secret, TEXTS)
LEAVES |= st.builds(lambda text: Opaque(text.encode("utf-8", "replace")), TEXTS)
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
    sources = [source.encode() for source in scan.sources(SECRET_KEYS, ())]
    assert native(data) == scan._plain_scan(sources)(data)


@settings(deadline=None)  # the first text of a process pays for compiling the patterns
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
