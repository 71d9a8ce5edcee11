"""Requirement of an adapter: the versions of its framework that it was tested with."""

from __future__ import annotations

import re
import warnings
from importlib.metadata import version


class UntestedVersionWarning(UserWarning):
    """A framework is of a version that its adapter was not tested with."""


def check_version(package: str, *, tested: tuple[str, str]) -> None:
    """Warn unless the version of a package is one of those tested: from the first on, below the last."""
    found, (first, last) = version(package), tested
    if not _parts(first) <= _parts(found) < _parts(last):
        warnings.warn(
            f"{package} {found} is outside the range that holdfast was tested with (from {first}, below {last}): "
            "run your own tests before you rely on it",
            UntestedVersionWarning,
            stacklevel=3,
        )


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])
