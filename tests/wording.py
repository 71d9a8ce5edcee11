"""The words of STYLE's table, looked for in names and texts of the package: `make lint` runs it.

Each line gives a file, a line and the word to write instead. `life`, `whose` and the like are ordinary words in a
comment; what is looked at is what people read and search for: file names, names of classes and functions, messages,
docstrings.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent / "src" / "holdfast"
TEXTS = {
    r"carr(y|ies|ied|ying) (it |them |a run |the run )?on\b": "resume, continue",
    r"\b(go|goes|going|went) on\b(?! (?:at|top))": "continue, resume",
    r"\b(come|comes|came|coming) back\b": "return, resume",
    r"\b(anew|afresh)\b": "again, recreated",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\b(grave|graves|buried)\b": "tombstone, deleted",
    r"\bbells?\b": "wake-up",
    r"\bwardens?\b": "supervisor, reaper",
    r"\b(foretell|foretells|foretold|foresee|outlook)\b": "preview",
    r"\b(this|that|each|one|every|another|an earlier|its|next|last|first) (life|lives)\b": "process, attempt",
    r"(^|'|`|\"|\b(?:it|that|this)) (is|are) no (?!longer|more|other|such|file\b|need|way)[a-z]": "is not a valid ...",
}
NAMES = r"(^|_)(bell|warden|anew|afresh|mend|mended|outlook|foretell|grave)(_|$)"
FILES = {"bell", "patience", "voice", "quiet", "keep", "known", "shown", "prints", "together", "leaving", "ahead",
         "words", "utils", "helpers", "common", "base", "outlook", "awaited"}  # fmt: skip


def found(root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each word that is not to be used."""
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root.parent)
        if path.stem in FILES:
            yield f"{place}: name the file for the noun that it defines"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if re.search(NAMES, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()):
                    yield f"{place}:{node.lineno}: {node.name}: a name of STYLE's left column"
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                for pattern, instead in TEXTS.items():
                    for hit in re.finditer(pattern, node.value, re.IGNORECASE):
                        line = node.lineno + node.value[: hit.start()].count("\n")
                        yield f"{place}:{line}: {hit[0]!r}: write {instead}"


if __name__ == "__main__":
    lines = list(found())
    print("\n".join(lines))
    sys.exit(bool(lines))
