"""Queries by name from a `.sql` file: `-- name: x` begins one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("sql")
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def queries(file: str) -> dict[str, bytes]:
    """Return the queries of a file in `sql/`, by name; as bytes, which a driver takes for no template of ours."""
    _, *parts = _NAME.split((FOLDER / file).read_text())
    return {name: text.strip().encode() for name, text in zip(parts[::2], parts[1::2], strict=True)}
