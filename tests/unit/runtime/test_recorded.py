import threading

import pytest

from holdfast.errors import UsageError
from holdfast.runtime.recorded import check_name, digest_of, kept, reason_of


def test_a_digest_is_of_the_content_whatever_the_order_of_its_keys():
    assert digest_of({"a": 1, "b": {1, 2, 3}}) == digest_of({"b": {3, 2, 1}, "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})
    assert digest_of("1") != digest_of(1)
    assert digest_of({("a", 1): 2}) == digest_of({("a", 1): 2})


def test_what_has_no_stable_form_has_no_digest():
    assert digest_of(object()) is None
    assert digest_of([threading.Lock()]) is None


def test_what_is_kept_is_a_copy_unless_it_cannot_be_copied():
    given = {"a": [1]}
    copy = kept(given)
    given["a"].append(2)
    assert copy == {"a": [1]}
    lock = threading.Lock()
    assert kept(lock) is lock


def test_a_reason_is_short_and_valid():
    assert reason_of("because") == "because"
    assert len(reason_of("x" * 10_000)) == 300
    assert reason_of("\ud800").encode() == b"\\ud800"


@pytest.mark.parametrize("name", ["", "\n", "a\0", "x" * 201, None])
def test_what_is_no_name_is_refused(name):
    check_name("a task", "t-1 (draft)")
    with pytest.raises(UsageError, match="not a valid name of a task"):
        check_name("a task", name)
