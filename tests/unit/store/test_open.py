from pathlib import Path
from urllib.parse import unquote

import pytest

import holdfast
from holdfast.errors import UsageError
from holdfast.store.open import open_store


@pytest.mark.parametrize(
    ("place", "file"),
    [
        (None, ".holdfast/holdfast.db"),
        ("here", "here/holdfast.db"),
        ("here.db", "here.db"),
        (Path("a/b"), "a/b/holdfast.db"),
        ("with space/%41", "with space/%41/holdfast.db"),
        ("é", "é/holdfast.db"),
        ("C:x", "C:x/holdfast.db"),
        ("./runs:2030", "runs:2030/holdfast.db"),
    ],
)
def test_a_path_is_a_folder_or_a_db_file(tmp_path, monkeypatch, place, file):
    monkeypatch.chdir(tmp_path)
    store = open_store(place)
    store.close()
    assert [found.relative_to(tmp_path) for found in tmp_path.rglob("*.db")] == [Path(file)]
    assert unquote(store.url) == f"sqlite://{tmp_path / file}"


@pytest.mark.parametrize(("tail", "file"), [("x.db", "x.db"), ("x", "x/holdfast.db"), ("a%20b.db", "a b.db")])
def test_a_sqlite_url_names_an_absolute_path(tmp_path, tail, file):
    store = open_store(f"sqlite://{tmp_path}/{tail}")
    store.close()
    assert (tmp_path / file).exists()


def test_memory_is_a_store_of_its_own_each_time():
    one, two = holdfast.open("memory:"), holdfast.open("memory:")
    one.run("r").checkpoint(state=1)
    assert not two.has("r")


@pytest.mark.parametrize(
    "place",
    [
        "", "\0", "a\0b", Path("a\0b"), ":memory:", "memory://", "memory:x", "sqlite:", "sqlite://", "sqlite:///",
        "sqlite:x.db", "sqlite://host/x.db", "sqlite:///x.db?mode=ro", "sqlite:///x.db#part", "sqlite:///a%00b.db",
        "sqlite://[", "http://x", "postgresql://", "file:///x.db", "nosuch:thing", 5, b"bytes", ["a"],
    ],
)  # fmt: skip
def test_what_is_no_place_is_refused_and_nothing_is_made(tmp_path, monkeypatch, place):
    """Proves D11."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        open_store(place)
    assert list(tmp_path.iterdir()) == []


def test_a_url_that_is_refused_is_shown_without_its_password():
    with pytest.raises(UsageError) as refused:
        open_store("postgrsql://ann:swordfish@host/database")
    assert "swordfish" not in str(refused.value)
    assert "postgrsql" in str(refused.value)
