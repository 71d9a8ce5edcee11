"""Wheel and sdist, built from a clean checkout and installed into an environment of their own: `make test-package`."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
UV = ROOT / ".venv/bin/uv"


def run(*line, cwd, env=None):
    done = subprocess.run([str(word) for word in line], cwd=cwd, env=env, capture_output=True, check=False, text=True)
    assert done.returncode == 0, f"{line}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def without_node():
    """Return an environment in which neither node nor npm is found."""
    return {**os.environ, "PATH": str(Path(sys.executable).parent)}


def build(source, into, *, env=None):
    run(sys.executable, "-m", "hatchling", "build", "-d", into, cwd=source, env=env)
    return next(into.glob("*.whl")), next(into.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The tracked files of this checkout and its built page, as a release has them."""
    source = tmp_path_factory.mktemp("source")
    files = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    page = [str(path.relative_to(ROOT)) for path in (ROOT / "src/holdfast/web/static").rglob("*") if path.is_file()]
    assert page, "the page is not built: run `make web` first"
    for name in (*files, *page):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    return source, *build(source, tmp_path_factory.mktemp("dist"), env=without_node())


def test_the_wheel_works_in_a_fresh_environment(built, tmp_path):
    _source, wheel, _sdist = built
    run(UV, "venv", "--quiet", "--python", sys.executable, "fresh", cwd=tmp_path)
    environment = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "fresh")}
    run(UV, "pip", "install", "--quiet", f"{wheel}[web]", cwd=tmp_path, env=environment)
    programs = tmp_path / "fresh/bin"
    assert run(programs / "holdfast", "--version", cwd=tmp_path) == run(programs / "hold", "--version", cwd=tmp_path)
    assert not (programs / "hf").exists()
    assert "sound" in run(programs / "holdfast", "demo", cwd=tmp_path)
    page = (
        "import holdfast.web, pathlib; print((pathlib.Path(holdfast.web.__file__).parent / 'static/app.js').is_file())"
    )
    assert run(programs / "python", "-c", page, cwd=tmp_path).strip() == "True"


def test_the_wheel_holds_licence_types_and_page_and_no_tests(built):
    _source, wheel, _sdist = built
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        metadata = file.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {"holdfast/py.typed", "holdfast/web/static/app.js"} <= set(names)
    assert not [name for name in names if name.startswith("tests/")]
    assert "License-Expression: Apache-2.0" in metadata
    assert "Provides-Extra: all" in metadata


@pytest.mark.parametrize("address", ["", "https://example.org/v{version}"])
def test_no_link_of_the_description_is_dead_on_a_package_index(built, tmp_path, address):
    _source, _wheel, sdist = built
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    settings = (source / "pyproject.toml").read_text()
    (source / "pyproject.toml").write_text(settings.replace('source = ""', f'source = "{address}"'))
    wheel, _ = build(source, tmp_path / "dist", env=without_node())
    with zipfile.ZipFile(wheel) as file:
        metadata = file.read(next(name for name in file.namelist() if name.endswith("METADATA"))).decode()
    links = re.findall(r"\]\(([^)#]+)\)", metadata)
    assert bool(links) == bool(address)
    assert [link for link in links if not link.startswith("https://example.org/v0.")] == []
    assert ("Project-URL: Source, https://example.org/v0." in metadata) == bool(address)


def test_the_sdist_gives_the_same_wheel_without_node(built, tmp_path):
    _source, wheel, sdist = built
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again, _ = build(source, tmp_path / "dist", env=without_node())
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(wheel.read_bytes()).digest()
