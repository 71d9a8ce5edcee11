"""Fifty secrets of different shapes, put everywhere that a checkpoint can hold something: none may be found again."""

import base64
import io
import json
import logging
import os
import random
import string
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

import holdfast
from holdfast import Redacted, Secret
from holdfast.capture import scan

RANDOM = random.Random(20_261_115)


def some(count, alphabet=string.ascii_letters + string.digits):
    """Return random text with a digit early on, as generated credentials have."""
    return RANDOM.choice(string.digits) + "".join(RANDOM.choices(alphabet, k=count - 1))


HEX, UPPER = "0123456789abcdef", string.ascii_uppercase + string.digits
BODY = "\n".join(some(64) for _ in range(12))


def jwt():
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    return f"{head}.{base64.urlsafe_b64encode(some(60).encode()).decode().rstrip('=')}.{some(43)}"


# Credentials that are told by their shape alone, so that they are found wherever they stand.
SHAPED = {
    "aws key id": f"AKIA{some(16, UPPER)}", "aws session": f"ASIA{some(16, UPPER)}",
    "github": f"ghp_{some(36)}", "github oauth": f"gho_{some(36)}", "github app": f"ghs_{some(36)}",
    "github fine": f"github_pat_{some(22)}_{some(59)}", "gitlab": f"glpat-{some(20)}",
    "slack bot": f"xoxb-{some(12, string.digits)}-{some(24)}",
    "slack app": f"xapp-1-{some(11, UPPER)}-{some(60)}", "openai": f"sk-{some(48)}",
    "openai project": f"sk-proj-{some(64)}", "anthropic": f"sk-ant-api03-{some(93)}",
    "stripe live": f"sk_live_{some(24)}", "stripe restricted": f"rk_live_{some(24)}",
    "stripe hook": f"whsec_{some(32)}", "google api": f"AIza{some(35)}", "google oauth": f"ya29.{some(64)}",
    "google secret": f"GOCSPX-{some(28)}", "npm": f"npm_{some(36)}", "pypi": f"pypi-AgEIcHlwaS5vcmc{some(70)}",
    "hugging face": f"hf_{some(34)}", "replicate": f"r8_{some(37)}", "groq": f"gsk_{some(52)}",
    "perplexity": f"pplx-{some(48)}", "xai": f"xai-{some(80)}", "sendgrid": f"SG.{some(22)}.{some(43)}",
    "mailgun": f"key-{some(32, HEX)}", "twilio": f"SK{some(32, HEX)}", "shopify": f"shpat_{some(32, HEX)}",
    "digital ocean": f"dop_v1_{some(64, HEX)}", "doppler": f"dp.pt.{some(43)}", "vault": f"hvs.{some(90)}",
    "databricks": f"dapi{some(32, HEX)}", "linear": f"lin_api_{some(40)}", "notion": f"ntn_{some(46)}",
    "postman": f"PMAK-{some(24, HEX)}-{some(34, HEX)}", "telegram": f"{some(9, string.digits)}:AA{some(33)}",
    "age": f"AGE-SECRET-KEY-1{some(58, UPPER)}", "jwt": jwt(),
    "rsa": f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
    "openssh": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{BODY[::-1]}\n-----END OPENSSH PRIVATE KEY-----",
}  # fmt: skip
# Credentials that need what stands around them; the second part is the secret itself.
IN_TEXT = {
    "postgres url": ("postgresql://app:{}@db.example.com:5432/app", some(20)),
    "redis url": ("redis://:{}@cache:6379/0", some(24)),
    "azure": ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=core", some(86) + "=="),
    "odbc": ("Driver=x;Server=db;UID=sa;PWD={};Encrypt=yes", some(12)),
    "bearer": ("curl -H 'Authorization: Bearer {}' https://api.example.com", some(40)),
    "basic": ("Authorization: Basic {}", base64.b64encode(f"user:{some(12)}".encode()).decode()),
    "env file": ("export DATABASE_PASSWORD={}", some(16)),
    "json": ('{{"client_secret": "{}"}}', some(32)),
    "command line": ("deploy --token {} --now", some(24)),
    "curl login": ("curl -sS -u deploy:{} https://api.example.com/v1", some(14)),
    "curl user": ("curl -X POST \\\n  --data a=b \\\n  --user 'deploy:{}' https://api.example.com", some(14)),
    "slack hook": ("https://hooks.slack.com/services/{}", f"T{some(8, UPPER)}/B{some(8, UPPER)}/{some(24)}"),
}
ALL = {**SHAPED, **{name: text.format(secret) for name, (text, secret) in IN_TEXT.items()}}
NEEDLES = {**SHAPED, **{name: secret for name, (_, secret) in IN_TEXT.items()}}


# Words without any shape, which only the structure around them tells: a list of arguments, a name and its value.
WORDS = [f"{word}fish" for word in ("sword", "dragon", "angel", "clown", "jelly", "star", "cat", "gold", "king")]
STRUCTURED = [
    ["mysql", "--password", WORDS[0], "db"],
    ("deploy", "--db-password", WORDS[1]),
    {"argv": ["pg", f"--password={WORDS[2]}"]},
    {"env": [{"name": "DB_PASSWORD", "value": WORDS[3]}]},
    {"value": WORDS[4], "name": "CLIENT_SECRET"},
    {"Key": "password", "Value": WORDS[5], "PropagateAtLaunch": True},
    ["curl", "-s", "-u", f"me:{WORDS[6]}", "https://api.example.com"],
    ["/usr/bin/curl", f"--user=me:{WORDS[7]}"],
    f"curl --user me:{WORDS[8]} https://api.example.com",
]
NEEDLES |= {f"word {number}": word for number, word in enumerate(WORDS)}


@dataclass
class Config:
    endpoint: str
    password: str


class Tool:
    """A live object with secrets in its state."""

    def snapshot(self):
        return {"env": dict(ALL), "log": "\n".join(ALL.values())}

    def restore(self, value):
        self.value = value


def everywhere(name, text):
    """Return sections with this text in every place that takes text."""
    return {
        "state": {
            "plain": text, "inside": f"before {text} after", "bytes": text.encode(), "list": [text, [text]],
            "tuple": (text,), "set": {text}, "key": {text: 1}, "deep": [[{"a": {"b": [f"x {text}"]}}]],
            "path": Path("/srv") / text.replace("/", "_").replace("\n", "_") if "/" not in text else Path("/srv"),
            "config": Config(endpoint=text, password=f"pw {text}"), "wrapped": Secret(text),
            "odd": {1: text, None: text},
            "headers": {"Authorization": f"Bearer {text}", "X-Api-Key": text}, "lone": f"\udc80 {text}",
            "json": json.dumps({"value": text}), "many": [f"{index} {text}" for index in range(40)],
        },
        "context": {"task": text, "lessons": [f"never write {text}"], "metadata": {"note": text, "x": {"y": text}}},
        "agents": [{"id": "a", "status": "failed", "input": {"q": text}, "output": [text], "error": f"failed: {text}"}],
        "graph": {"id": "g", "tasks": {"t": {"status": "completed", "result": {"stdout": f"+ {text}\n"}}}},
        "messages": {"pending": [{"to": "b", "text": text}]},
        "subject": {"id": "1", "body": f"see {text}", "title": text},
        "error": {"message": text, "stack": f'File "x.py", line 1\n    connect("{text}")\nError: {text}'},
        "workflow": {"current_state": f"at {text}"},
    }  # fmt: skip


def bytes_of(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def found_in(data, where):
    """Name every canary that stands in these bytes, as it is or as JSON, base64 or hex would write it."""
    left = []
    for name, needle in NEEDLES.items():
        plain = needle.encode()
        forms = {plain, json.dumps(needle)[1:-1].encode(), base64.b64encode(plain), plain.hex().encode()}
        if any(form in data for form in forms):
            left.append(f"{name} in {where}")
    return left


def test_there_are_fifty_canaries_of_different_shapes():
    assert len(ALL) >= 50
    assert len(set(NEEDLES.values())) == len(NEEDLES)


@pytest.mark.parametrize("native", [True, False], ids=["hyperscan", "re"])
def test_no_canary_is_found_in_any_byte_of_store_log_or_output(tmp_path, caplog, monkeypatch, native):
    """Proves E7, and threats 12 and 19: state, context, errors, tracebacks, agent input and output, stdout."""
    if not native:
        monkeypatch.setattr(scan, "_hyperscan", scan._plain_scan)
    scan.make_scan.cache_clear()
    output = io.StringIO()
    with caplog.at_level(logging.DEBUG), redirect_stdout(output), redirect_stderr(output):
        hf = holdfast.open(tmp_path, types=[Config], compression="none", settings=holdfast.Settings())
        for number, (name, text) in enumerate(ALL.items()):
            run = hf.run(f"run-{number}")
            sections = everywhere(name, text)
            taken = run.checkpoint(reason=f"because of {text}", label=f"about {text}"[:60_000], **sections)
            print(taken, taken.reason, taken.label, taken.redacted, taken.summary, taken.recovery)
            run.checkpoint(sections={"own": {"a": text}}, state={"grown": ["x" * 3000] * 40 + [text]})
        for number, value in enumerate(STRUCTURED):
            hf.run(f"structured-{number}").checkpoint(
                state={"call": value, "again": [[value]]},
                sections={"alone": value},
                agents=[{"id": "a", "status": "failed", "input": {"call": value}, "output": [value]}],
                messages={"pending": [{"to": "b", "call": value}]},
            )
        with pytest.raises(RuntimeError), hf.run("live") as run:  # noqa: PT012 - what happens in the block is the test
            run.register("tool", Tool())
            run.maybe_checkpoint("agent_complete", reason=ALL["github"])
            raise RuntimeError("failed with " + " and ".join(ALL.values()))
        report = hf.verify()
        print(report, hf.prune(dry_run=True).decisions)
        hf.close()
    scan.make_scan.cache_clear()
    assert report.sound
    left = found_in(bytes_of(tmp_path), "the store")
    left += found_in(caplog.text.encode(errors="surrogatepass"), "the log")
    left += found_in(output.getvalue().encode(errors="surrogatepass"), "the output")
    assert left == []


def test_a_store_without_redaction_does_hold_them(tmp_path):
    """The search above can fail: with redaction off it finds every canary, but not what was marked as Secret."""
    settings = holdfast.open("memory:").settings
    off = type(settings)(redaction=type(settings.redaction)(enabled=False))
    hf = holdfast.open(tmp_path, compression="none", settings=off)
    run = hf.run("r")
    for value in (*ALL.values(), STRUCTURED):  # one by one: a large value would lie on several pages, cut anywhere
        run.checkpoint(state=value)
    run.checkpoint(sections={"marked": Secret("canary-of-its-own-4711")})
    hf.close()
    data = bytes_of(tmp_path)
    assert len(found_in(data, "")) == len(NEEDLES)
    assert b"canary-of-its-own-4711" not in data


def test_what_was_removed_is_listed_by_path_and_comes_back_as_a_marker(tmp_path):
    """Proves E7."""
    hf = holdfast.open(tmp_path, settings=holdfast.Settings())
    state = {"config": {"password": "hunter2", "host": "db"}, "note": f"use {SHAPED['github']} now", "n": Secret(7)}
    taken = hf.run("r").checkpoint(state=state)
    assert taken.redacted_count == 3
    assert {(one.path, one.rule) for one in taken.redacted} == {
        ("state.config.password", "key"), ("state.note", "github-token"), ("state.n", "marked"),
    }  # fmt: skip
    back = hf.latest("r").section("state")
    assert back == {
        "config": {"password": Redacted("key"), "host": "db"},
        "note": "use [redacted:github-token] now",
        "n": Redacted("marked"),
    }
    again = hf.run("r").checkpoint(state=back)
    assert again.section("state") == back
    assert "hunter2" not in repr(taken.redacted)


def test_a_marker_is_filled_from_the_environment_only_where_the_user_says_so(tmp_path, monkeypatch):
    """Proves E7."""
    monkeypatch.setenv("HOLDFAST_TEST_TOKEN", "from-the-environment")
    monkeypatch.setenv("HOLDFAST_TEST_OTHER", "not-allowed")
    plain = holdfast.Settings()
    redaction = type(plain.redaction)(fill={"state.config.password": "HOLDFAST_TEST_TOKEN"})
    state = {
        "config": {"password": "x1"},
        "a": Secret("y", env="HOLDFAST_TEST_TOKEN"),
        "b": Secret("z", env="HOLDFAST_TEST_OTHER"),
    }
    hf = holdfast.open(tmp_path, settings=type(plain)(redaction=redaction))
    hf.run("r").checkpoint(state=state)
    back = hf.latest("r").section("state")
    assert back["config"]["password"] == back["a"] == "from-the-environment"
    assert back["b"] == Redacted("marked", "HOLDFAST_TEST_OTHER")
    assert "HOLDFAST_TEST_OTHER" in os.environ
    unfilled = holdfast.open(tmp_path, settings=plain).latest("r").section("state")
    assert unfilled["a"] == Redacted("marked", "HOLDFAST_TEST_TOKEN")
