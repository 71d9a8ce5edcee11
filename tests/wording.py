"""The words of STYLE's table, looked for in names and texts: `make lint` runs it.

Each line gives a file, a line and the word to write instead. `life`, `whose` and the like are ordinary words in a
comment; what is looked at is what people read and search for: file names, names of classes and functions, messages,
docstrings, documents and the page. A class name is defined once in the package.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TREE = Path(__file__).parent.parent
ROOT = TREE / "src" / "holdfast"
DOCUMENTS = ("*.md", "docs/**/*.md", "web/src/*.tsx", "web/src/*.css", "plugins/**/*.md", "*.yaml")
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


# What is stored and what is declared are other sides of a live class and have its name: sections.Budget, model.Budget.
SIDES = ("model/sections.py", "flow/model.py")
TWICE = {"Call", "Command", "Conflict", "Entry", "Event", "Fault", "Kept", "Position", "Progress", "Question"}
"""Names that are defined twice as yet: none is added."""


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


def found_in_documents() -> Iterator[str]:
    """Yield a line for each word in the documents and in the page's client."""
    for path in sorted({path for pattern in DOCUMENTS for path in TREE.glob(pattern)}):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, instead in TEXTS.items():
                for hit in re.finditer(pattern, line, re.IGNORECASE):
                    yield f"{path.relative_to(TREE)}:{number}: {hit[0]!r}: write {instead}"


def defined_twice() -> Iterator[str]:
    """Yield a line for each public class whose name another one has."""
    places = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        for node in ast.parse(path.read_text()).body if place not in SIDES else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(place)
    twice = {name for name, found in places.items() if len(found) > 1}
    yield from (f"class {name}: in {', '.join(places[name])}: give one another name" for name in sorted(twice - TWICE))
    yield from (f"class {name} is defined once now: take it out of TWICE" for name in sorted(TWICE - twice))


if __name__ == "__main__":
    lines = [*found(), *found_in_documents(), *defined_twice()]
    print("\n".join(lines))
    sys.exit(bool(lines))
