"""The house rules that hold the layers apart, checked on the source itself."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "holdfast"
FILES = sorted(path for path in ROOT.rglob("*.py") if ".mypy_cache" not in path.parts)

# What each part may import; a part is a folder or module of src/holdfast.
BASE = {"version", "errors", "model", "lazy", "home", "own_folder"}
STORE = BASE | {"encode", "store"}
ENGINE = STORE | {
    "workspace",
    "capture",
    "journal",
    "verify",
    "retain",
    "transfer",
    "settings",
    "runtime",
    "checkpoint",
    "run",
    "run_files",
    "run_host",
    "run_recorder",
    "control",
    "recovery",
    "engine",
    "internals",
}
FLOW = ENGINE | {"flow"}
MAY_IMPORT = {
    "version": set(),
    "errors": set(),
    "lazy": set(),
    "home": set(),
    "own_folder": set(),
    "model": BASE,
    "encode": BASE | {"encode"},
    "store": STORE,
    "workspace": STORE | {"workspace"},
    "capture": STORE | {"capture", "workspace", "recovery.analyse"},
    "journal": STORE | {"journal", "capture"},
    "verify": STORE | {"verify"},
    "retain": STORE | {"retain", "journal"},
    "transfer": STORE | {"transfer"},
    "settings": BASE | {"settings", "capture", "retain", "encode.documents"},
    "checkpoint": ENGINE,
    "run": ENGINE,
    "run_files": ENGINE,
    "run_host": ENGINE,
    "run_recorder": ENGINE,
    "control": ENGINE,
    "internals": ENGINE,
    "recovery": ENGINE,
    "engine": ENGINE | {"worker.wake", "worker.submit", "flow.model"},
    "documents": ENGINE,
    "flow": FLOW,
    "runtime": STORE | {"runtime", "capture", "journal"},
    "aio": FLOW | {"aio", "aio_methods"},
    "adapters": FLOW | {"aio", "adapters"},
    "worker": FLOW | {"worker"},
    "hook": ENGINE | {"hook"},
    "telemetry": ENGINE | {"telemetry"},
    "mcp": ENGINE | {"hook", "mcp", "documents"},
    "cli": FLOW | {"aio", "cli", "documents", "web", "adapters", "hook", "mcp", "telemetry", "worker"},
    "web": FLOW | {"aio", "documents", "web"},
    "testing": FLOW | {"aio", "testing"},
    "__main__": {"cli"},
}
OUTSIDE = {"cli"}  # the one part that reads the environment and prints
NAMED = {  # they read only what the caller names: for a key or a refill, and what a flow says that it needs
    "settings.environment": {"os.environ"},
    "flow.runner": {"os.environ"},
}
CACHE = {
    "capture.compiled": {"os.environ"},  # where the user's cache is: what is there changes no answer
    "flow.task_output": {"os.environ"},  # where the user's state directory is: for looking, no decision rests on it
}
PASSED_ON = (
    NAMED
    | CACHE
    | {"workspace.git": {"os.environ"}, "runtime.command": {"os.environb"}, "worker.trial": {"os.environ"}}
)
# They hand it to git, to a user's own commands and to the workers of a trial, and decide nothing by it.


def dotted(path):
    """Return a file's module below holdfast: "store.sqlite", or "" for the package itself."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def part(module):
    return module.split(".")[0]


def modules_named(path, tree):
    """Yield the module of ours that each import in a file names, those for type checkers included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"relative import in {path}"]
        else:
            continue
        yield from (name.removeprefix("holdfast.") for name in names if name.startswith(("holdfast.", "relative")))


def names_used(tree):
    """Yield every dotted name that a file reads or calls, and every module that it imports."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            yield ast.unparse(node)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parsed(path):
    return ast.parse(path.read_text(), str(path))


def offences_against_direction(path):
    allowed = MAY_IMPORT[part(dotted(path))]
    return [
        name
        for name in modules_named(path, parsed(path))
        if part(name) not in allowed
        and not any(f"{name}.".startswith(f"{whole}.") for whole in allowed if "." in whole)
    ]


@pytest.mark.parametrize("path", [path for path in FILES if dotted(path)], ids=dotted)
def test_imports_go_one_way(path):
    assert offences_against_direction(path) == []


@pytest.mark.parametrize("path", [path for path in FILES if part(dotted(path)) not in OUTSIDE], ids=dotted)
def test_only_the_command_line_reads_the_environment_and_prints(path):
    forbidden = {"os.environ", "os.getenv", "os.environb", "print", "input", "sys.argv", "sys.exit"}
    assert forbidden & set(names_used(parsed(path))) <= PASSED_ON.get(dotted(path), set())


@pytest.mark.parametrize("path", FILES, ids=dotted)
def test_nothing_that_runs_stored_data_is_used(path):
    """Threat 1: no pickle, marshal, shelve, yaml.load, eval, exec."""
    forbidden = {
        "pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle", "yaml.load", "yaml.unsafe_load",
        "yaml.full_load", "yaml.Loader", "yaml.UnsafeLoader", "eval", "exec", "compile", "__import__", "tarfile",
    }  # fmt: skip
    assert forbidden.isdisjoint(names_used(parsed(path)))


def test_modules_are_imported_by_name_only_where_the_package_loads_its_own():
    """Threat 1: nothing is imported because data names it."""
    users = [dotted(path) for path in FILES if "importlib.import_module" in set(names_used(parsed(path)))]
    # `lazy` loads what an import statement of this package names. The command line loads its commands by a table of its
    # own, and what a person names with --import or --functions.
    assert set(users) <= {"", "lazy", "cli.main", "cli.commands.run", "cli.commands.worker"}


@pytest.mark.parametrize("path", FILES, ids=dotted)
def test_every_part_has_a_place_in_the_house(path):
    assert not dotted(path) or part(dotted(path)) in MAY_IMPORT


@pytest.mark.parametrize(
    ("file", "source", "offence"),
    [
        ("model/x.py", "from holdfast.encode import values", "encode.values"),
        ("encode/x.py", "import holdfast.store.api", "store.api"),
        ("store/x.py", "from holdfast.engine import Holdfast", "engine.Holdfast"),
        ("capture/x.py", "from holdfast.recovery.plan import make", "recovery.plan.make"),
        ("retain/x.py", "if True:\n    from holdfast.capture.sections import plain", "capture.sections.plain"),
    ],
)
def test_this_check_finds_what_it_is_for(tmp_path, monkeypatch, file, source, offence):
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(source)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert offences_against_direction(path) == [offence]
