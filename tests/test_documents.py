"""The examples in the documents run as they stand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("document", ["README.md", "docs/WORKSPACE.md", "docs/RUNTIME.md", "docs/RECOVERY.md"])
def test_the_examples_of_a_document_run_as_they_stand(document, tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print(1)\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=n", "-c", "user.email=n@example.invalid"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, document, "exec"), names)
    hf = names["hf"]
    hf.close()


def test_the_links_of_the_documents_lead_somewhere():
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"
