"""Build the documents as a site: README, docs/ and CHANGELOG into dist/site, by Sphinx. A dead link fails the build.

python tests/docs_site.py
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, SITE = ROOT / "dist" / "site-source", ROOT / "dist" / "site"
BESIDE = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
MENU = {
    "Begin": ["TUTORIAL", "howto/*", "adapters/README", "adapters/*"],
    "Guides": [
        "RUNTIME", "CAPTURE", "RECOVERY", "FLOWS", "WORKSPACE", "STORES", "WEB", "SCALE", "SECURITY", "RELIABILITY",
        "BENCHMARKS",
    ],
    "Reference": ["CLI", "reference/*"],
    "Inside": ["ARCHITECTURE", "FORMAT", "CONTRIBUTING", "CHANGELOG", "decisions/index"],
}  # fmt: skip
CONFIGURATION = """
project = "Holdfast"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Holdfast"
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
"""
_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)#\s]+)(#[^)]*)?\)")


def prepare() -> None:
    """Lay the documents out as the site has them: README in front, a page that lists the decisions, the menu."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE)
    for name, page in BESIDE.items():
        (SOURCE / page).write_text(_linked((ROOT / name).read_text(), ROOT, Path()))
    for path in (ROOT / "docs").rglob("*.md"):
        place = path.relative_to(ROOT / "docs")
        (SOURCE / place).write_text(_linked(path.read_text(), path.parent, place.parent))
    lists = [
        f"```{{toctree}}\n:hidden:\n:caption: {title}\n:glob:\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n```"
        for title, pages in MENU.items()
    ]
    with (SOURCE / "index.md").open("a") as front:
        front.write("\n" + "\n\n".join(lists) + "\n")
    (SOURCE / "decisions" / "index.md").write_text(
        "# Decisions\n\nWhy things are as they are.\n\n```{toctree}\n:glob:\n:maxdepth: 1\n\n0*\n```\n"
    )
    (SOURCE / "conf.py").write_text(CONFIGURATION)


def _linked(text: str, folder: Path, place: Path) -> str:
    """Return a document with its links as the site has them; what is not a document is named, not linked."""

    def moved(found: re.Match[str]) -> str:
        text, target, anchor = found.group(1), found.group(2), found.group(3) or ""
        if "://" in target:
            return found.group(0)
        meant = (folder / target).resolve()
        up = "../" * len(place.parts)
        beside = meant.relative_to(ROOT).as_posix()
        if beside in BESIDE:
            return f"{text}({up}{BESIDE[beside]}{anchor})"
        if not beside.startswith("docs"):
            return text.strip("![]")
        inside = Path(beside).relative_to("docs").as_posix()
        return f"{text}({up}{inside}{'/index.md' if meant.is_dir() else ''}{anchor})"

    return _LINK.sub(moved, text)


if __name__ == "__main__":
    prepare()
    shutil.rmtree(SITE, ignore_errors=True)
    built = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(SOURCE), str(SITE)]
    sys.exit(subprocess.run(built, check=False).returncode)
