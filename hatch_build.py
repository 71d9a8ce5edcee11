"""Build the page of `holdfast ui` into wheel and sdist, and the README as a package index shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_STATIC = Path("src/holdfast/web/static")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):  # type: ignore[misc]  # the library's types are not known here
    """Gives the package the README with links that hold outside of the repository.

    `source` of its table in pyproject.toml is where a release can be read; while it is empty, a link becomes its text.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description, and the address of the source."""
        address = self.config.get("source", "").format(version=metadata["version"]).rstrip("/")
        if address:
            metadata["urls"] = {"Documentation": f"{address}/docs/TUTORIAL.md", "Source": address}
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": _LINK.sub(lambda it: _linked(it, address), text)}


def _linked(link: re.Match[str], address: str) -> str:
    picture, text, target = link.groups()
    if address:
        return f"{picture}[{text}]({address}/{target}{'?raw=true' if picture else ''})"
    return "" if picture else text


class PageHook(BuildHookInterface):  # type: ignore[misc]  # as above
    """Runs the client's build, or takes the page that an sdist brings along; a package without it is refused."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page; an editable install does without until `make web`."""
        if version == "editable":
            return
        root = Path(self.root)
        if (root / "web" / "package.json").is_file() and shutil.which("npm") is not None:
            client = root / "web"
            if not (client / "node_modules" / "esbuild").is_dir():
                subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=client, check=True)  # noqa: S607
            subprocess.run(["node", "build.mjs"], cwd=client, check=True)  # noqa: S607 - Node of this machine
        if not (root / _STATIC / "app.js").is_file():
            raise RuntimeError("the page is not built: install Node, or run `make web`, and build again")
        build_data["artifacts"].append(f"/{_STATIC}/**")
