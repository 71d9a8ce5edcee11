"""docs/CLI.md says what the program says."""

from __future__ import annotations

from pathlib import Path

from command_reference import reference
from holdfast.cli.errors import EXIT_CODES
from holdfast.errors import HoldfastError

PAGE = Path(__file__).parents[2] / "docs" / "CLI.md"


def kinds(cls=HoldfastError):
    yield cls
    for below in cls.__subclasses__():
        yield from kinds(below)


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == reference(), "make docs"


def test_every_exit_code_of_an_error_is_in_the_table():
    assert {kind.exit_code for kind in kinds()} <= {code for code, _ in EXIT_CODES}
