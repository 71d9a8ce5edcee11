"""A real Chromium on a real `holdfast ui`; without one the tests that need it are skipped by name."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "holdfast" / "web" / "static"
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / "docs" / "images"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing():
    """Say what is missing for these tests, None if nothing is."""
    if importlib.util.find_spec("playwright") is None:
        return "no playwright: `make test-web` brings it"
    if CHROMIUM is None:
        return "no chromium: `make test-web` installs it"
    if not (STATIC / "app.js").is_file():
        return "the page is not built: `make web`"
    return None


needs_browser = pytest.mark.skipif(missing() is not None, reason=missing() or "")


class Browser:
    """One browser; pages that remember every message and error they saw."""

    def __init__(self, playwright):
        self._browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        self.said = []

    def context(self, **options):
        options.setdefault("viewport", {"width": 1360, "height": 860})
        context = self._browser.new_context(**options)
        context.set_default_timeout(20_000)
        return context

    def open(self, ui, path="/", context=None, **options):
        """Open a page of a server: the first with its code, later ones with the token that the first kept."""
        context = context or self.context(**options)
        page = context.new_page()
        page.on("console", lambda message: self.said.append((message.type, message.text)))
        page.on("pageerror", lambda error: self.said.append(("error", str(error))))
        if not context.pages[1:]:
            page.goto(f"{ui.origin}{path}#code={ui.code}" if ui.code else ui.origin + path)
            ui.code = None
            page.wait_for_selector("h1")
            ui._token = page.evaluate("localStorage.getItem('holdfast-token')")
        else:
            page.goto(ui.origin + path)
        page.wait_for_selector("h1")
        return page

    def close(self):
        self._browser.close()


def picture(page, name):
    """Keep a picture of a screen: for a person to look at, and for the documents."""
    if os.environ.get("HOLDFAST_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        page.screenshot(path=PICTURES / f"{name}.png")


def violations(page):
    """Return what axe finds against accessibility rules."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (one["id"], node["html"][:160], node.get("failureSummary", "")[:200])
        for one in found["violations"]
        for node in one["nodes"][:3]
    ]
