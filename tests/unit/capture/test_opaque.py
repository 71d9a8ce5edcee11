"""Bytes that are not text are never edited: what a program wrote in a format of its own is restored as it was."""

import gzip
import json
import pickle
import struct

import pytest

import holdfast
from credential_corpus import CREDENTIALS, some
from holdfast import Redacted
from holdfast.encode.opaque import Opaque

KEY = "AKIA" + some(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


@pytest.fixture
def hf():
    return holdfast.open("memory:", settings=holdfast.Settings())


def saved(hf, state):
    return hf.run("r").checkpoint(state=state).section("state")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_wrapped_pickle_with_a_key_in_it_comes_back_and_loads(hf, protocol):
    blob = Opaque(pickle.dumps({"key": KEY, "password": "swordfish"}, protocol))
    back = saved(hf, {"graph": blob, "deep": [{"blob": blob}]})
    assert back == {"graph": blob, "deep": [{"blob": blob}]}
    assert type(back["graph"]) is Opaque
    assert pickle.loads(back["graph"]) == {"key": KEY, "password": "swordfish"}


@pytest.mark.parametrize("name", ["password", "token", "api_key", "credentials", "data"])
def test_a_telling_name_does_not_take_out_what_is_wrapped(hf, name):
    assert saved(hf, {name: Opaque(KEY.encode())}) == {name: KEY.encode()}


def test_a_key_or_path_that_the_user_names_takes_out_what_is_wrapped():
    redaction = type(holdfast.Settings().redaction)(more_keys=["blob"], paths=["state.other"])
    hf = holdfast.open("memory:", settings=holdfast.Settings(redaction=redaction))
    back = saved(hf, {"blob": Opaque(b"x"), "other": Opaque(b"y"), "kept": Opaque(b"z")})
    assert back == {"blob": Redacted("key"), "other": Redacted("path state.other"), "kept": b"z"}


@pytest.mark.parametrize(
    "blob",
    [
        pickle.dumps({"key": KEY}),
        gzip.compress(KEY.encode()) + KEY.encode(),
        struct.pack(">I", len(KEY)) + KEY.encode(),
        b"\x0a" + bytes([len(KEY)]) + KEY.encode(),  # a field of a protocol buffer
        KEY.encode("utf-16"),
        b"\xff" + KEY.encode(),
    ],
    ids=["pickle", "gzip", "length and text", "protobuf", "utf-16", "not utf-8"],
)
def test_plain_bytes_that_are_not_text_are_not_edited(hf, blob):
    assert saved(hf, {"blob": blob, "view": bytearray(blob)}) == {"blob": blob, "view": blob}


def test_plain_bytes_that_are_text_are_redacted_like_text(hf):
    log = f"línea 1\n\x1b[1mkey {KEY}\x1b[0m\n".encode()
    body = json.dumps({"password": "swordfish"}).encode()
    back = saved(hf, {"log": log, "body": body})
    assert KEY.encode() not in back["log"]
    assert b"swordfish" not in back["body"]
    assert back["log"].startswith("línea 1\n".encode())


def test_a_file_full_of_credentials_comes_back_when_it_is_wrapped(hf):
    blob = Opaque("\n".join(one.text for one in CREDENTIALS).encode())
    taken = hf.run("r").checkpoint(state={"blob": blob})
    assert taken.section("state") == {"blob": blob}
    assert taken.redacted_count == 0


def test_opaque_bytes_are_bytes():
    blob = Opaque(b"abc")
    assert blob == b"abc"
    assert {blob: 1}[b"abc"] == 1
    assert repr(blob) == "Opaque(b'abc')"
    assert pickle.loads(pickle.dumps(blob)) == blob
