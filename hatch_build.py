"""Build the page of `holdfast ui` into wheel and sdist; a package without it is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_STATIC = Path("src/holdfast/web/static")


class PageHook(BuildHookInterface):  # type: ignore[misc]  # the library's types are not known here
    """Runs the client's build, or takes the page that an sdist brings along."""

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
