"""The reader of untrusted documents: plain data within bounds, or one typed error, soon and in little memory."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import resource
import socket
import time

import pytest
import yaml
import zstandard

from crash.children import Child
from holdfast.encode.documents import Bounds, Places, is_plain_text, parse_json, parse_yaml, read_document, read_regular
from holdfast.errors import DocumentInvalid

MOST_MEMORY = 512 << 20

NESTED = "".join(f"{' ' * depth}a:\n" for depth in range(5_000))
ANCHORS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(9)
)
HOSTILE = {
    "deep.json": b"[" * 400_000,
    "deep object.json": b'{"a":' * 200_000,
    "deep closed.json": b"[" * 200_000 + b"]" * 200_000,
    "just too deep.json": b"[" * 65 + b"]" * 65,
    "many.json": b"[" + b"[]," * 330_000 + b"[]]",
    "many objects.json": b"[" + b'{"":0},' * 140_000 + b"0]",
    "many numbers.json": b"[" + b"0," * 520_000 + b"0]",
    "twice.json": b'{"a": 1, "b": {"c": 1, "c": 2}}',
    "nan.json": b'{"a": NaN}',
    "infinity.json": b"[-Infinity]",
    "long number.json": b"9" * 900_000,
    "trailing.json": b"{} {}",
    "cut.json": b'{"a": [1, 2',
    "empty.json": b"",
    "surrogates.json": b'"\xed\xa0\x80"',
    "utf16.json": "{}".encode("utf-16"),
    "zeros.json": bytes(100_000),
    "deep.yaml": b"[" * 400_000,
    "deep block.yaml": NESTED.encode(),
    "deep sequence.yaml": b"- " * 100_000,
    "deep mapping.yaml": b"{a: " * 100_000,
    "deep keys.yaml": b"? " * 100_000,
    "anchors.yaml": ANCHORS.encode(),
    "anchors in one line.yaml": b"{a: &a [x,x], b: &b [*a,*a], c: [*b,*b]}",
    "an anchor on itself.yaml": b"&a [*a]",
    "an anchor as key.yaml": b"&a a: *a",
    "merge.yaml": b"a: &a {b: 1}\nc:\n  <<: *a\n",
    "many.yaml": b"- \n" * 340_000,
    "many flow.yaml": b"[" + b"[]," * 260_000 + b"[]]",
    "twice.yaml": b"a: 1\nb:\n  c: 1\n  c: 2\n",
    "tag.yaml": b"!!python/object/apply:os.system [echo]",
    "binary tag.yaml": b"!!binary aGVsbG8=",
    "own tag.yaml": b"a: !thing 1",
    "directive.yaml": b"%TAG ! tag:x,2000:\n---\n!a b\n",
    "two documents.yaml": b"a: 1\n---\nb: 2\n",
    "list as key.yaml": b"[a, b]: 1",
    "cut.yaml": b"a: [1",
    "tabs.yaml": b"a:\n\t- b\n",
    "not utf8.yaml": b"a: \xff\xfe",
    "zeros.yaml": bytes(100_000),
    "control.yaml": b"a: \x07",
    "bomb.json.zst": zstandard.ZstdCompressor().compress(b"[" + b"[]," * 40_000_000 + b"[]]"),
    "bomb of text.json.zst": zstandard.ZstdCompressor().compress(b'"' + b"a" * 400_000_000 + b'"'),
    "bomb.json.gz": gzip.compress(b" " * 200_000_000 + b"1", 1),
    "cut.json.gz": gzip.compress(b'{"a": 1}')[:-4],
    "trailing.json.gz": gzip.compress(b"1") + b"more",
    "no frame.json.zst": b"not zstd at all",
    "cut.json.zst": zstandard.ZstdCompressor().compress(b'"' + b"ab" * 500 + b'"')[:-6],
    "window.json.zst": zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, compression_level=1)
    ).compress(os.urandom(1 << 20)),
}


def below_512_mb(work):
    """Run a check in a child that may have 512 MB more than it has now, and half a minute."""

    def live(report):
        with open("/proc/self/statm") as file:  # noqa: PTH123
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MOST_MEMORY, now + MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
        work()

    ended = Child(live).join()
    assert ended.code == 0, ended.reports


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_one_typed_error_in_bounded_memory(tmp_path, name):
    """Proves D11: nothing deeper, larger or other than plain data is handed out, and the process lives."""
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])

    def check():
        with pytest.raises(DocumentInvalid) as caught:
            read_document(path, Bounds(nodes=100_000))
        assert str(caught.value).startswith(str(path))
        assert len(str(caught.value)) < 1000 + len(str(path))

    below_512_mb(check)


@pytest.mark.parametrize("what", ["link", "dangling link", "fifo", "folder", "socket", "device", "sparse"])
def test_what_is_not_a_regular_file_of_a_fair_size_is_refused_at_once(tmp_path, what):
    """Proves D11."""
    path = tmp_path / "document.json"
    if what.endswith("link"):
        if what == "link":
            (tmp_path / "other.json").write_text("{}")
        path.symlink_to(tmp_path / "other.json")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(3 << 30)
    started = time.monotonic()
    with pytest.raises(DocumentInvalid):
        read_document(path)
    assert time.monotonic() - started < 5
    if what == "link":
        assert read_regular(path, limit=10, follow=True) == b"{}"


def test_a_missing_file_is_the_operating_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_document(tmp_path / "none.json")


def test_a_file_that_grows_while_it_is_read_stays_within_its_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_bytes(b"1" * 100)
    real = os.read
    monkeypatch.setattr(os, "read", lambda d, n: real(d, n) or b"1" * min(n, 50))
    with pytest.raises(DocumentInvalid, match="grew"):
        read_regular(path, limit=1000)


def test_what_is_within_bounds_is_read_as_it_is(tmp_path):
    value = {"a": [1, 2.5, None, True, "ü\n", {}], "b": {"c": "x" * 1000}}
    for name, data in {
        "a.json": json.dumps(value).encode(),
        "a.json.gz": gzip.compress(json.dumps(value).encode()),
        "a.json.zst": zstandard.ZstdCompressor().compress(json.dumps(value).encode()),
        "a.yaml": yaml.safe_dump(value).encode(),
        "a.yml": b"\xef\xbb\xbf" + yaml.safe_dump(value).encode(),
    }.items():
        (tmp_path / name).write_bytes(data)
        assert read_document(tmp_path / name) == value
    assert parse_json(b"[" * 64 + b"]" * 64, "a") is not None
    assert parse_yaml(b"[" * 64 + b"]" * 64, "a") is not None
    with pytest.raises(DocumentInvalid, match="limit"):
        parse_json(b"[1, 2, 3]", "a", Bounds(size_bytes=5))
    with pytest.raises(DocumentInvalid, match="parts"):
        parse_json(b"[1, 2, 3]", "a", Bounds(nodes=2))
    assert parse_json(b'["' + b"," * 100 + b'"]', "a", Bounds(nodes=2)) == ["," * 100]


def test_yaml_is_read_by_the_rules_of_yaml_1_2():
    text = b"a: no\nb: on\nc: 1:30\nd: 2030-01-01\ne: 0o17\nf: 1_000\ng: 1e3\nh: ~\ni: TRUE\nj: '1'\nk: .inf\nl: 0x1f\n"
    assert parse_yaml(text, "a") == {
        "a": "no", "b": "on", "c": "1:30", "d": "2030-01-01", "e": "0o17", "f": 1000, "g": 1000.0, "h": None, "i": True,
        "j": "1", "k": ".inf", "l": "0x1f",
    }  # fmt: skip
    assert not is_plain_text("1e3")
    assert is_plain_text("no")
    assert parse_yaml(b"", "a") is None
    places = Places()
    parse_yaml(b"a:\n- b\n- c: d\n", "a", places=places)
    lines = places.lines
    assert (lines["a",], lines["a", 0], lines["a", 1, "c"]) == (1, 2, 3)


def test_errors_say_where(tmp_path):
    for text, place in ((b"a: 1\nb: [", "line 3"), (b"a: 1\nb: !x 1", "line 2"), (b"a: 1\n\n\nb: \xff", "line 4")):
        with pytest.raises(DocumentInvalid, match=place):
            parse_yaml(text, "x.yaml")


def test_random_changes_of_a_document_are_read_or_refused_with_one_error():
    """Nothing but plain data or a DocumentInvalid comes out, whatever goes in."""
    value = {"id": "cp_0", "list": [1, 2.5, None, {"deep": [[["x"]]]}], "text": "first\nsecond"}
    texts = [json.dumps(value).encode(), yaml.safe_dump(value).encode()]
    chance = random.Random(7)
    signs = b"[]{}:,-&*!|>'\"%@`#?\n\t \0\xff<=~"
    outcomes = set()
    for _ in range(1500):
        data = bytearray(chance.choice(texts))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = bytes(chance.choices(signs, k=chance.randrange(4)))
        for parse in (parse_json, parse_yaml):
            try:
                parse(bytes(data), "x")
                outcomes.add("read")
            except DocumentInvalid:
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}
