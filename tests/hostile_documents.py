"""Documents that nobody should have to read, up to a megabyte, and every reader of documents; run in a child process.

Prints one line of JSON: how many were read, how many refused, what else was raised, and the most memory taken.
"""

import json
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from holdfast import HoldfastError
from holdfast.encode.documents import parse_json, parse_yaml, read_document
from holdfast.flow.load import parse_flow
from holdfast.flow.markdown import flow_from_plan
from holdfast.recovery.plan import from_json as recovery_plan
from holdfast.recovery.subject import FileSubject
from holdfast.settings.file import project_settings
from holdfast.store.mirror import Mirror, MirrorOptions
from holdfast.workspace.plan import from_json as restore_plan

MB = 1 << 20
WHOLE = ("yaml", "json", "pyproject", "plan")  # what others give to one of these is read by the same code


def shapes(size):  # noqa: PLR0915 - a list
    """Yield a name and the bytes of each hostile document, of about this many bytes where that matters."""
    yield "deep list", b"[" * size
    yield "deep list, closed", b"[" * (size // 2) + b"]" * (size // 2)
    yield "deep mapping", b'{"a":' * (size // 5)
    yield "deep and even", b'{"a":[' * 5_000 + b"1" + b"]}" * 5_000
    yield "deep by indentation", b"\n".join(b" " * depth + b"a:" for depth in range(min(1_400, size // 700)))
    yield "deep by dashes", b"- " * (size // 2)
    yield "deep by questions", b"? " * (size // 2)
    yield "wide and empty", b"[" + b"[]," * (size // 3 - 1) + b"[]]"
    yield "wide and of mappings", b"[" + b"{}," * (size // 3 - 1) + b"{}]"
    yield "wide and of ones", b"[" + b"1," * (size // 2 - 1) + b"1]"
    yield "many keys", b"{" + b",".join(b'"%x":1' % n for n in range(size // 12)) + b"}"
    yield "many keys in lines", b"\n".join(b"%x: 1" % n for n in range(size // 11))
    yield "one key twice", b'{"a": 1, "a": 2}'
    yield "one key very often", b"a: 1\n" * (size // 5)
    yield "a long text", b'"' + b"x" * size + b'"'
    yield "a long plain text", b"a " * (size // 2)
    yield "a long text in lines", b"a\n" * (size // 2)
    yield "a long key", b"x" * size + b": 1"
    yield "many colons", b"a: " * (size // 3)
    yield "many quotes", b"'" * size
    yield "many escapes", b'"' + b"\\u0041" * (size // 6) + b'"'
    yield "an open text", b'"' + b"\\\\" * (size // 2)
    yield "digits", b"9" * size
    yield "digits with points", b"[" + b"1.0e308," * (size // 8 - 1) + b"1]"
    yield "beyond numbers", b"[1e999, -1e999]"
    yield "no numbers", b"[NaN, Infinity, -Infinity]"
    yield "bad bytes", b"a: \xff\xfe\xfd" * 1_000
    yield "half a character", b'"\xe2\x82"'
    yield "half a pair", b'{"a": "\\ud800", "\\udfff": 1}'
    yield "zeros", bytes(size)
    yield "UTF-16", "a: 1\n".encode("utf-16") * 1_000
    yield "UTF-32", "a: 1\n".encode("utf-32")
    yield "byte order marks", b"\xef\xbb\xbf" * (size // 3)
    yield "control characters", bytes(range(1, 32)) * 1_000
    yield "tabs", b"\t" * size
    yield "spaces", b" " * size
    yield "lines", b"\n" * size
    yield "comments", b"# a\n" * (size // 4)
    yield "documents", b"--- 1\n" * (size // 6)
    yield "directives", b"%YAML 1.2\n" * (size // 10) + b"---\n1"
    yield "tags", b"- !!python/object/apply:os.system [id]\n" * 1_000
    yield "a long tag", b"!" + b"x" * size + b" 1"
    yield "anchors", b"- &a 1\n" * (size // 7)
    yield "a merge", b"a: &a {b: 1}\nc: {<<: *a}\n"
    yield (
        "aliases",
        b"a0: &a0 [x]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)),
    )
    yield "block texts", b"a: |\n" + b"  x\n" * (size // 4)
    yield "folded texts", b"a: >\n" + b"  x\n\n" * (size // 5)
    yield "headings", b"## Phase 1: a\n" * (size // 14)
    yield "numbered headings", b"".join(b"## Phase %d: a\n" % n for n in range(9_999))
    yield "fences", b"```sh\n" * (size // 6)
    yield "a front matter without end", b"---\n" + b"a: b\n" * (size // 5)
    yield "stars", b"*" * size
    yield "brackets and braces", b"[{" * (size // 2)
    chance = random.Random("documents")
    for number in range(14):
        seed = b'{"flow": "x", "phases": {"a": {"run": "true", "needs": ["b"]}}, "redaction": {"keys": []}}'
        data = bytearray(seed * chance.randrange(1, 3))
        for _ in range(chance.randrange(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        yield f"changed {number}", bytes(data)


def readers(folder):
    """Yield the name of each reader and a function that reads bytes with it."""

    def settings(name):
        file = folder / name
        return lambda data: (file.write_bytes(data), project_settings(file))

    def subject(suffix):
        file = folder / f"issue{suffix}"
        return lambda data: (file.write_bytes(data), FileSubject(file).fetch("1"))

    def mirror(form):
        made = Mirror(MirrorOptions(root=folder, form=form, location="mirror/{run}"))
        place = folder / "mirror/run"
        place.mkdir(parents=True, exist_ok=True)
        file = place / ("checkpoints.json" if form == "task" else f"index.{form}")

        def read(data):
            file.write_bytes(data)
            problem = made.keep_only("run", lambda: ["cp"])
            if problem is not None:
                raise problem

        return read

    def document(name):
        file = folder / name
        return lambda data: (file.write_bytes(data), read_document(file))

    yield "yaml", lambda data: parse_yaml(data, "x")
    yield "json", lambda data: parse_json(data, "x")
    yield "document", document("x.json")
    yield "flow", parse_flow
    yield "plan", lambda data: flow_from_plan(data.decode("utf-8", "replace"), run="true")
    yield "settings", settings("holdfast.yaml")
    in_toml = settings("pyproject.toml")
    yield "pyproject", lambda data: in_toml(b"[tool.holdfast]\na = " + data)
    for suffix in (".yaml", ".json", ".md"):
        yield f"subject {suffix}", subject(suffix)
    for form in ("json", "yaml", "task"):
        yield f"mirror {form}", mirror(form)
    yield "restore plan", restore_plan
    yield "recovery plan", recovery_plan


def main():
    counts = {"read": 0, "refused": 0, "other": [], "slow": []}
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CONFIG_HOME"] = place
        found = list(readers(Path(place)))
        for (name, data), (_, small) in zip(shapes(MB), shapes(MB // 32), strict=True):
            for reader, read in found:
                before = time.process_time()
                try:
                    read(data if reader in WHOLE else small)
                    counts["read"] += 1
                except (HoldfastError, msgspec.ValidationError):
                    counts["refused"] += 1
                except BaseException as error:  # noqa: BLE001 - that there is none is the claim
                    counts["other"].append(f"{reader}, {name}: {type(error).__name__} {str(error)[:100]}")
                if time.process_time() - before > 10:
                    counts["slow"].append(f"{reader}, {name}: {time.process_time() - before:.1f} s")
    status = Path("/proc/self/status").read_text()  # getrusage would count what the test's own process had
    counts["peak_mb"] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
