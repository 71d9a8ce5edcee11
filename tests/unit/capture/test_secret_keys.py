import pytest

from holdfast import Holdfast, Redacted, Settings
from holdfast.capture.redact import RedactingPacker, RedactionRules, register_markers
from holdfast.encode.types import TypeRegistry
from holdfast.store.memory import MemoryStore


def saved(value, **redaction):
    settings = Settings(redaction=type(Settings().redaction)(**redaction))
    return Holdfast(MemoryStore(), settings=settings).run("r").checkpoint(state=value).section("state")


@pytest.mark.parametrize("value", ["x", 7, ["a", "b"], {"deep": {"er": 1}}, b"bytes"])
def test_what_stands_at_a_path_that_the_user_names_is_taken_out(value):
    back = saved({"note": value, "rest": 1}, paths=["state.note"])
    assert back == {"note": Redacted("path state.note"), "rest": 1}


@pytest.mark.parametrize(
    "key",
    ["password", "apiKey", "dbPassword", "db_password", "DBPassword", "userApiKey", "smtp-passwd", "x" * 40 + "_secret",
     b"password", b"dbPassword", b"db.client_secret"],
)  # fmt: skip
def test_text_under_a_key_that_ends_in_an_excluded_one_is_taken_out(key):
    assert saved({"inner": {key: "swordfish"}}) == {"inner": {key: Redacted("key")}}


@pytest.mark.parametrize(
    "value",
    [{"password_rules": "long"}, {"reset_password": {"step": 2}}, {"dbPassword": ""}, {"nopassword": "x"},
     {"discretesecretary": "x"}, {b"plain": "x"}],
)  # fmt: skip
def test_what_only_resembles_it_stays(value):
    assert saved(value) == value


@pytest.mark.parametrize(
    "value",
    [["docker", "run", "-u", "1000:1000"], "docker run -u 1000:1000 x", ["--password", "--user", "me"], ["--password"],
     ["--password", "$PASSWORD"], ["--password=$PASSWORD"], ["--password", ""], {"name": "bob", "value": "swordfish"},
     {"name": "password_rules", "value": "long"}, "curl --user-agent 'a:b' x", "curl -u me:$PASSWORD x", "curl -u me x",
     ["curl", "-u", "me"], ["- password", "is a bullet"], {"name": "DB_PASSWORD", "value": None},
     "see curl\n then run it -u a:b"],
)  # fmt: skip
def test_flags_and_pairs_that_hold_no_secret_stay(value):
    assert saved(value) == value


def test_a_flags_value_and_a_pairs_value_come_back_as_markers():
    assert saved([["--password", "x"], {"name": "DB_PASSWORD", "value": "y"}, ["curl", "-u", "me:z"]]) == [
        ["--password", Redacted("key")],
        {"name": "DB_PASSWORD", "value": Redacted("key")},
        ["curl", "-u", "me:[redacted:curl-user]"],
    ]


def test_a_false_alarm_in_one_entry_looks_into_no_other():
    packer, looked_at = RedactingPacker(TypeRegistry(), RedactionRules()), []
    before = packer._text
    packer._text = lambda text, where: looked_at.append(where) or before(text, where)
    entries = {f"entry-{n}": {"text": "plain words", "more": "of them"} for n in range(50)}
    entries["entry-7"]["text"] = "do not pwn"  # as a packed name that ends here would be: followed by a text
    packer.begin("state")
    value = {"entries": entries, "list": [{"text": "words"}] * 50}
    assert packer.unpack(packer.pack(value, "state"), "state") == value
    assert 0 < len(looked_at) <= 2


@pytest.mark.parametrize(
    "place",
    [
        lambda secret: {"a": {"b": {"c": "x"}, "d": {"e": secret}}},
        lambda secret: {"a": [{"b": "x"}, {"c": [{"d": secret}]}]},
        lambda secret: {"a": {"b": "x"}, "password": {"d": "x", "value": secret}},
        lambda secret: [{"a": "x"}, [["x"], [secret]]],
        lambda secret: {"a": {"b": "x"}, f"key {secret}": {"d": "x"}},
    ],
)
def test_a_secret_among_structures_is_found_wherever_it_stands(place):
    types = TypeRegistry()
    register_markers(types)
    packer = RedactingPacker(types, RedactionRules())
    packer.begin("state")
    secret = "AKIAIOSFODNN7" + "EXAMPLE"
    packed = packer.pack(place(secret), "state")
    assert secret.encode() not in packed
