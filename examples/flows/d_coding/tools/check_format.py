"""Gate 1: no tabs, no trailing blanks, lines of at most 100 characters."""

import sys
from pathlib import Path

found = [
    f"{file}:{number}: {what}"
    for file in sys.argv[1:]
    for number, line in enumerate(Path(file).read_text().splitlines(), 1)
    for what, is_so in (
        ("a tab", "\t" in line),
        ("a trailing blank", line != line.rstrip()),
        ("too long", len(line) > 100),  # noqa: PLR2004 - what the gate is about
    )
    if is_so
]
print("\n".join(found))
sys.exit(bool(found))
