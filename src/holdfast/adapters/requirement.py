"""Requirement of an adapter: the version of its framework that it was tested with, and those that keep its promises."""

from __future__ import annotations

import re
import warnings
from importlib.metadata import version


class UntestedVersionWarning(UserWarning):
    """A framework is older than the version that its adapter was tested with, or of another series."""


def check_version(package: str, *, tested: str) -> None:
    """Warn of a version of a package that is older than the tested one, or may break with it: of another series.

    A series is a major version, or 0.x.
    """
    found, first = _parts(version(package)), _parts(tested)
    series = 1 if first[0] else 2
    if found < first or found[:series] != first[:series]:
        last = ".".join(map(str, (*first[: series - 1], first[series - 1] + 1)))
        warnings.warn(
            f"{package} {version(package)} is outside the range that holdfast was tested with (from {tested}, below "
            f"{last}): run your own tests before you rely on it",
            UntestedVersionWarning,
            stacklevel=3,
        )


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])
