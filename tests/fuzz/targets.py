"""A fuzz target for every decoder: takes any bytes, and lets nothing out but what the decoder says it raises.

`python tests/fuzz/targets.py NAME` runs one under atheris, with its usual options (-runs=, -max_total_time=);
`all SECONDS` runs each for so long.
"""

import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
import ormsgpack
import zstandard

from holdfast import HoldfastError
from holdfast.capture.redact import RedactingPacker, RedactionRules
from holdfast.encode.chunks import parse_node
from holdfast.encode.compress import decompress
from holdfast.encode.documents import Places, parse_json, parse_yaml
from holdfast.encode.encrypt import Vault, parse_key
from holdfast.encode.footprint import check_footprint, footprint
from holdfast.encode.tree import LEAF, NODE, Ref, encode_node
from holdfast.encode.types import TypeRegistry
from holdfast.encode.values import Packer
from holdfast.flow.condition import parse_condition
from holdfast.flow.load import parse_flow
from holdfast.flow.markdown import flow_from_plan
from holdfast.journal.entry import read_entry
from holdfast.recovery.plan import from_json as recovery_plan
from holdfast.settings.file import make_settings, matches_nothing
from holdfast.settings.trust import wishes_of
from holdfast.store import tables
from holdfast.store.codec import RowCodec, _place
from holdfast.store.files_log import read_lines
from holdfast.workspace import cache, ignore, index, objects
from holdfast.workspace.gitdir import GitFailed
from holdfast.workspace.plan import from_json as restore_plan

PACKER = Packer(TypeRegistry())
REDACTOR = RedactingPacker(TypeRegistry(), RedactionRules())
CODEC = RowCodec()
VAULT = Vault(bytes(32), bytes(range(32)))


def rows(data):
    """Read bytes as the sealed value of a row of every table."""
    for table in tables.TABLES:
        key = tuple({"text": "run", "int": 1, "real": 1.0, "blob": b"x"}[column.type] for column in table.key)
        with suppress(HoldfastError):
            CODEC.open(table, (*key, *(None for _ in table.columns), data, CODEC._seal(_place(table, key), data)))


def log(data):
    """Read bytes as the log of a run in a files store."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        for _ in read_lines(file.fileno()):
            pass


def settings(data):
    """Read bytes as a settings file, and judge what it wishes for."""
    plain = parse_yaml(data, "x")
    wishes_of(plain, Path("/nonexistent"))
    make_settings(plain)


def redaction(data):
    """Redact bytes as text, as bytes, and as what they unpack to."""
    text = data.decode("utf-8", "surrogateescape")
    REDACTOR.text(text.encode("utf-8", "replace").decode())
    REDACTOR.begin("state")
    REDACTOR.pack({"a": data, "b": text.encode("utf-8", "replace").decode()}, "state")


def pack_delta(data):
    """Apply bytes as a delta of a git pack to a base."""
    objects._patched(b"base of a delta" * 20, data, 1 << 20)


def documents(data):
    """Read bytes as JSON and as YAML, with and without the place of each part."""
    for parse in (parse_json, parse_yaml):
        for places in (None, Places()):
            with suppress(HoldfastError):
                parse(data, "x", places=places)


def weighed(data):
    """Estimate what bytes take in memory, whether they are a value or not."""
    assert footprint(data, 1 << 62) >= 0
    check_footprint("x", data, max_bytes=1 << 10, stored_bytes=len(data) // 8)


TARGETS = {
    "value": (lambda data: PACKER.unpack(data, "x"), HoldfastError),
    "kept value": (lambda data: CODEC.unlock_value(data) or VAULT.unlock(data, b"x"), ValueError),
    "footprint": (weighed, HoldfastError),
    "node": (lambda data: parse_node(Ref(NODE, len(data), bytes(32)), data), HoldfastError),
    "chunk": (lambda data: decompress(data[0] % 5 if data else 0, data[1:], 1 << 16), ValueError),
    "row": (rows, HoldfastError),
    "record": (
        lambda data: read_entry(
            tables.Record(line=1, number=1, prev=b"", kind="saved", path="p", at=1.0, body=data), None
        ),
        HoldfastError,
    ),
    "log": (log, HoldfastError),
    "cache": (cache.load, HoldfastError),
    "documents": (documents, HoldfastError),
    "flow": (parse_flow, HoldfastError),
    "plan": (lambda data: flow_from_plan(data.decode("utf-8", "replace"), run="true"), HoldfastError),
    "condition": (lambda data: parse_condition(data.decode("utf-8", "replace")), (HoldfastError, ValueError)),
    "settings": (settings, HoldfastError),
    "expression": (lambda data: matches_nothing(data.decode("utf-8", "replace")), re.error),
    "key": (lambda data: parse_key(data.decode("utf-8", "replace")), HoldfastError),
    "git index": (lambda data: index.parse(b"DIRC" + data, 20), GitFailed),
    "git object": (lambda data: objects._loose_object("0" * 40, data, 1 << 20), GitFailed),
    "git delta": (pack_delta, GitFailed),
    "ignore": (
        lambda data: ignore.parse(data).verdict(b"a" * 100, b"b/" + b"a" * 100, is_directory=False),
        HoldfastError,
    ),
    "restore plan": (restore_plan, HoldfastError),
    "recovery plan": (recovery_plan, HoldfastError),
    "redaction": (redaction, HoldfastError),
}


def seeds():
    """Return bytes that targets take, to begin from."""
    value = {"a": [1, 2.5, "text", b"bytes", None, True], "b": {"c": {"d": "x" * 50}}}
    packed = ormsgpack.packb(value)
    json = msgspec.json.encode({"flow": "x", "phases": {"a": {"run": "true"}}, "retention": {"live": 3}})
    text = b"flow: x\nphases:\n  a: {run: 'true', needs: [b]}\nredaction: {patterns: {a: 'a[0-9]{2,3}'}}\n"
    found = [packed, json, text, b"\0" + packed, b"\1" + zstandard.compress(packed), b"# a\n*.py[co]\n!/b/**/c?\n"]
    found += [
        encode_node([Ref(LEAF, 5, bytes(32)), b"literal"])[0],
        b"## Phase 1: a\n```sh\ntrue\n```\n",
        b"",
        b"(a|b)*c",
    ]
    found += [
        b"\x90\x01\x14" + b"\x91\x00\x05abcde",
        b"a == 1 and b in [1, 2]",
        b"password = hunter2hunter2 ghp_" + b"a" * 36,
    ]
    return found


def one(name, data):
    """Give bytes to a target."""
    target, allowed = TARGETS[name]
    with suppress(allowed):
        target(data)


def run_all(seconds):
    """Run every target for so long; return how many ended badly."""
    bad = 0
    for name in TARGETS:
        command = [sys.executable, __file__, name, f"-max_total_time={seconds}", "-max_len=65536"]
        done = subprocess.run(command, capture_output=True, check=False)
        bad += done.returncode != 0
        print(f"{name:<16} {'failed' if done.returncode else 'ok'}", flush=True)
        if done.returncode:
            print(done.stderr.decode(errors="replace")[-4000:])
    return bad


def run_one(name, options):
    """Run one target under atheris until its options end it."""
    import atheris  # noqa: PLC0415 - only where it is installed

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds()):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], *options, corpus], lambda data: one(name, data))
        atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1] == "all":
        sys.exit(run_all(int(sys.argv[2])))
    run_one(sys.argv[1], sys.argv[2:])
