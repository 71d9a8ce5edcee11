import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast


def names_for_type_checkers():
    tree = ast.parse(Path(holdfast.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {alias.name for node in block.body for alias in node.names}


def test_all_lists_exactly_the_names_that_type_checkers_see():
    assert set(holdfast.__all__) == names_for_type_checkers() | {"__version__"}
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)
    assert sorted(holdfast.__all__) == holdfast.__all__


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_is_there_and_says_what_it_is_for(name):
    assert getattr(holdfast, name).__doc__


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        holdfast.nothing  # noqa: B018 - looking is the test


def test_importing_the_package_loads_no_driver_and_no_test_tool():
    tools = ("apsw", "lz4", "pytest", "hypothesis", "pydantic", "attrs")
    probe = f"import sys, holdfast, holdfast.testing; print([name for name in {tools} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
