import pytest

from holdfast import Holdfast, Redacted, Settings
from holdfast.store.memory import MemoryStore


def saved(value):
    return Holdfast(MemoryStore(), settings=Settings()).run("r").checkpoint(state=value).section("state")


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
