import random

import pytest

import holdfast
from holdfast.encode.appended import Appended


def record(number, size=300):
    return {"number": number, "text": random.Random(number).randbytes(size // 2).hex()}


@pytest.fixture
def run():
    with holdfast.open("memory:") as hf:
        yield hf.run("r")


def test_a_log_comes_back_as_a_list_after_every_addition(run):
    """Proves X2."""
    items = []
    for number in range(400):
        items.append(record(number, size=20 + 997 * number % 3_000))
        saved = run.checkpoint(sections={"log": Appended(items)})
        if number % 37 == 0:
            assert saved.section("log") == items


def test_a_log_that_grows_while_it_is_saved_is_saved_as_it_was(run):
    items = [record(number) for number in range(5)]
    seen = Appended(items)
    items.append(record(5))
    assert len(seen) == 5
    assert list(seen) == items[:5]
    assert run.checkpoint(sections={"log": seen}).section("log") == items[:5]
    assert run.checkpoint(sections={"log": Appended(items)}).section("log") == items


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 200])
def test_a_log_of_any_length_comes_back(run, count):
    items = [record(number) for number in range(count)]
    assert run.checkpoint(sections={"log": Appended(items)}).section("log") == items


def test_another_list_under_the_same_name_is_another_log(run):
    first, second = [record(number) for number in range(100)], [record(number) for number in range(500, 520)]
    for items in (first, second, first[:3], first):
        assert run.checkpoint(sections={"log": Appended(items)}).section("log") == items


def test_a_log_may_become_a_plain_list_and_back(run):
    items = [record(number) for number in range(200)]
    for value in (Appended(items), items, Appended(items), {"items": items}, Appended(items)):
        saved = run.checkpoint(sections={"log": value}).section("log")
        assert saved == (items if not isinstance(value, dict) else value)


def test_adding_costs_what_is_added(run):
    """Proves X2."""
    items = [record(number) for number in range(3_000)]
    whole = run.checkpoint(sections={"log": Appended(items)}).stored_bytes
    items.append(record(3_000))
    assert run.checkpoint(sections={"log": Appended(items)}).stored_bytes < whole / 50


def test_a_secret_in_a_log_is_kept_out_and_stays_listed(run):
    items = [record(0), {"note": "token AKIAIOSFODNN7EXAMPLE"}]
    for number in range(1, 100):
        saved = run.checkpoint(sections={"log": Appended(items)})
        assert "AKIA" not in str(saved.section("log"))
        assert saved.redacted_count == 1, number
        items.append(record(number))


def test_after_a_refused_commit_the_whole_log_is_there(run):
    items = [record(number) for number in range(50)]
    run.checkpoint(sections={"log": Appended(items)})
    items.append(record(50))
    with pytest.raises(holdfast.ValueRefused):
        run.checkpoint(sections={"log": Appended(items), "bad": object()})
    items.append(record(51))
    assert run.checkpoint(sections={"log": Appended(items)}).section("log") == items
