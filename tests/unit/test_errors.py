import copy
import inspect
import pickle
import re
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.cli.recovering import NotRecovered
from holdfast.errors import HoldfastError


def tree(cls):
    return {cls, *(deeper for child in cls.__subclasses__() for deeper in tree(child))}


ALL = sorted((cls for cls in tree(HoldfastError) if cls.__module__ == errors.__name__), key=lambda cls: cls.__name__)
VALUES = {"retry_after": 30, "size": 3000, "limit": 1000, "found": 9, "known": 1, "used": 2000, "timeout_s": 7}
VALUES |= {
    name: (f"the-{name}", "more")
    for name in ("paths", "matches", "allowed", "problems", "changed", "blockers", "suggestions", "history", "wishes")
}


def value_of(field):
    return VALUES.get(field, f"the-{field}")


def example(cls):
    return cls(*map(value_of, cls.field_names))


@pytest.mark.parametrize("cls", ALL)
def test_an_error_survives_pickling_and_copying(cls):
    error = example(cls)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is cls
        assert twin.args == error.args
        assert str(twin) == str(error)
        assert [getattr(twin, field) for field in cls.field_names] == list(error.args)


@pytest.mark.parametrize("cls", [cls for cls in ALL if cls is not HoldfastError])
def test_an_error_says_all_that_it_knows(cls):
    sentence = str(example(cls))
    for field in cls.field_names:
        value = value_of(field)
        assert (f"{value:,}" if isinstance(value, int) else f"the-{field}") in sentence


@pytest.mark.parametrize("cls", ALL)
def test_what_may_be_left_out_may_be_left_out(cls):
    required = [field for field in cls.field_names if not hasattr(cls, field)]
    error = cls(*map(value_of, required))
    assert str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("cls", ALL)
def test_an_error_has_an_exit_code_of_its_group_and_says_whether_to_try_again(cls):
    groups = {"UsageError": 2, "NotFound": 3, "Conflict": 4, "IntegrityError": 5, "StoreError": 6}
    groups |= {"RestoreConflict": 4, "RestoreFailed": 6, "Unprotected": 7, "HoldfastError": 1, "RecoveryError": 8}
    groups |= {"RunWaiting": 9, "BudgetExhausted": 9, "RunCancelled": 10, "ReplanLimit": 11}
    group = next(base.__name__ for base in cls.__mro__ if base.__name__ in groups)
    assert cls.exit_code == groups[group]
    assert isinstance(cls.retryable, bool)


@pytest.mark.parametrize("cls", [errors.Conflict, errors.HeadMoved, errors.StoreBusy])
def test_what_may_work_the_next_time_says_so(cls):
    assert cls.retryable


@pytest.mark.parametrize("cls", [errors.UsageError, errors.NotFound, errors.IntegrityError, errors.StoreFull])
def test_what_will_not_mend_itself_says_so(cls):
    assert not cls.retryable


def test_the_tree_in_the_docstring_is_the_real_tree():
    drawn, above = {}, []
    for line in inspect.getdoc(errors).splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z]\w+)(?:\s{2,}.*)?$", line)
        if found:
            depth = len(found[1]) // 4
            above[depth:] = [found[2]]
            drawn[found[2]] = above[depth - 1] if depth else "Exception"
    assert drawn == {cls.__name__: cls.__base__.__name__ for cls in ALL}


def test_every_error_is_a_public_name():
    assert {cls.__name__ for cls in ALL} <= set(holdfast.__all__)


@pytest.mark.parametrize("hostile", ["a\nb", "a\x1b[31mb", "a\0b", "\u202eb"])
def test_names_that_came_from_outside_are_shown_escaped(hostile):
    for error in (
        errors.NotFound("run", hostile),
        errors.InvalidId(hostile, "run"),
        errors.HeadMoved(hostile, None, None),
        errors.RunCorrupt("damaged", hostile),
        errors.UnknownType(hostile, "section state"),
        errors.SectionInvalid("wrong", hostile),
    ):
        assert str(error).isprintable()


def test_an_error_refuses_fields_that_it_does_not_have():
    for given, named in (((), {}), (("x", "y"), {}), (("x",), {"detail": "y"}), ((), {"other": "x"})):
        with pytest.raises(TypeError, match="UsageError takes detail"):
            errors.UsageError(*given, **named)


def test_every_error_of_the_package_takes_the_fields_of_those_above_it():
    folder = Path(holdfast.__file__).parent
    sources = [path.read_text() for path in folder.rglob("*.py")]
    kinds = {cls.__name__ for cls in ALL}
    found = [name for text in sources for name in re.findall(r"@dataclass.*\nclass \w+\((\w+)\)", text)]
    assert kinds.isdisjoint(found)  # a dataclass would forget fields that its base does not have as one
    assert NotRecovered("r", ("why",)).args == ("r", ("why",))
