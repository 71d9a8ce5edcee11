"""The examples in the documents run as they stand."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

import pytest

import holdfast
from api_reference import reference as python_reference
from error_reference import error_reference
from flow_reference import flow_reference
from postgres_server import shared_server
from screens import PAGES, comparable, rewritten
from settings_reference import settings_reference

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "document",
    [
        "README.md", "docs/WORKSPACE.md", "docs/RUNTIME.md", "docs/RECOVERY.md", "docs/adapters/otel.md",
        "docs/howto/own-state-machine.md", "docs/howto/from-checkpoints-json.md",
        "docs/howto/episodes-on-postgresql.md",
    ],
)  # fmt: skip
def test_the_examples_of_a_document_run_as_they_stand(document, tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print(1)\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=n", "-c", "user.email=n@example.invalid"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    if "postgresql" in document:
        monkeypatch.setenv("DATABASE_URL", shared_server().database())
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, document, "exec"), names)
    hf = names["hf"]
    hf.close()


def test_the_first_example_pays_once_when_it_is_started_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)[1]
    cut = first.replace("    run.complete()\n", "    raise KeyboardInterrupt\n")
    assert cut != first
    for example in (cut, cut, first, first):
        with contextlib.suppress(KeyboardInterrupt):
            exec(compile(example, "README.md", "exec"), {})
    with holdfast.open() as hf:
        assert hf.latest("episode-42").section("budget").spending["tokens"].used == 812


def test_the_links_of_the_documents_lead_somewhere():
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


@pytest.mark.parametrize("page", PAGES)
def test_the_screens_of_a_page_are_what_its_commands_show(page, tmp_path):
    """Run `make docs` after a change on purpose."""
    text = (ROOT / page).read_text()
    assert comparable(rewritten(text, tmp_path)) == comparable(text)


@pytest.mark.parametrize("page", ["README.md", "docs/FLOWS.md", "docs/TUTORIAL.md", "docs/howto/flow-file.md"])
def test_the_flows_of_a_page_can_be_followed(page, tmp_path):
    flows = re.findall(r"^```yaml[^\n]*\n(flow: .*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert flows
    for number, flow in enumerate(flows):
        file = tmp_path / f"{number}.yaml"
        file.write_text(flow)
        assert holdfast.load_flow(file).phases


@pytest.mark.parametrize(
    ("page", "made"),
    [
        ("errors", error_reference),
        ("flow", flow_reference),
        ("python", python_reference),
        ("settings", lambda: settings_reference((ROOT / "holdfast.example.yaml").read_text())),
    ],
)
def test_the_reference_is_up_to_date(page, made):
    assert (ROOT / "docs" / "reference" / f"{page}.md").read_text() == made(), "make docs"


def test_every_error_has_advice_of_its_own_or_of_its_kind():
    drawn = set(re.findall(r"─ (\w+)", str(holdfast.errors.__doc__))) | {"HoldfastError"}
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert set(re.findall(r"^\| (?:· )*`(\w+)`", page, re.MULTILINE)) == drawn
