"""Write docs/reference/python.md: every public name of the package, with its signature and what its docstring says.

python tests/api_reference.py > docs/reference/python.md
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[1] / "src" / "holdfast"
PARTS = {  # of a run and of a handle, by the attribute that gives them
    "hf.control": ("control.py", "Control"),
    "hf.files": ("recovery/facade.py", "RunHistory"),
    "hf.keys": ("engine.py", "Keys"),
    "hf.recovery": ("recovery/facade.py", "Recovery"),
    "hf.transfer": ("transfer/facade.py", "Transfer"),
    "run.agents": ("runtime/agents.py", "Agents"),
    "run.budget": ("runtime/budget.py", "Budget"),
    "run.context": ("runtime/context.py", "Context"),
    "run.gates": ("runtime/gates.py", "Gates"),
    "run.gates.task(...)": ("runtime/gates.py", "GatedTask"),
    "run.graph(...)": ("runtime/graph.py", "TaskGraph"),
    "run.knowledge": ("runtime/knowledge.py", "Knowledge"),
    "run.machine(...)": ("runtime/machine.py", "StateMachine"),
    "run.mailbox": ("runtime/mailbox.py", "Mailbox"),
    "run.mailbox.conflicts": ("runtime/conflicts.py", "Conflicts"),
    "run.phase(...)": ("runtime/phase.py", "Phase"),
    "run.phases": ("runtime/phases.py", "Phases"),
    "run.team(...)": ("runtime/team.py", "Team"),
    "run.workspace": ("run_files.py", "RunFiles"),
}
HEAD = """# Python

Every public name, made from the source by `make docs`. What they are for, with examples that are executed:
[RUNTIME.md](../RUNTIME.md), [CAPTURE.md](../CAPTURE.md), [RECOVERY.md](../RECOVERY.md), [FLOWS.md](../FLOWS.md).
Errors have [a page of their own](errors.md). The asynchronous classes (`AsyncHoldfast` and what it gives) have the same
methods under the same names, to be awaited. A name that is not here may change in any release; one that is here changes
only with a new number before the first point, and warns for one release before it goes.
"""


def reference() -> str:
    """Return the page."""
    homes = _homes()
    parts = [HEAD]
    functions = [name for name in holdfast.__all__ if name[0].islower()]
    parts.append("## Functions of `holdfast`\n\n" + "\n".join(_function(_node(*homes[name])) for name in functions))
    parts.extend(_class(f"`{name}`", *homes[name]) for name in ("Holdfast", "Run", "Checkpoint"))
    parts.extend(_class(f"`{attribute}`", path, name) for attribute, (path, name) in PARTS.items())
    known = {"Holdfast", "Run", "Checkpoint", "AsyncHoldfast"}
    rest = [name for name in holdfast.__all__ if name[0].isupper() and name not in known]
    parts.extend(_class(f"`holdfast.{name}`", *homes[name]) for name in rest if homes[name][0] != "errors.py")
    return "\n".join(parts)


def _homes() -> dict[str, tuple[str, str]]:
    """Return the file and the name there of each public name."""
    found = {}
    for node in ast.walk(ast.parse((SOURCE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("holdfast."):
            path = node.module.removeprefix("holdfast.").replace(".", "/")
            for alias in node.names:
                found[alias.asname or alias.name] = (f"{path}.py", alias.name)
    return found


def _node(path: str, name: str) -> ast.ClassDef | ast.FunctionDef | ast.Assign:
    file = SOURCE / path
    if not file.exists():
        file = SOURCE / path.removesuffix(".py") / "__init__.py"
    tree = ast.parse(file.read_text())
    for node in tree.body:
        if getattr(node, "name", None) == name:
            return node  # type: ignore[return-value]
        if isinstance(node, ast.ImportFrom) and node.module and any(one.name == name for one in node.names):
            return _node(node.module.removeprefix("holdfast.").replace(".", "/") + ".py", name)
    raise LookupError(f"{name} is not in {path}")


def _class(title: str, path: str, name: str) -> str:
    node = _node(path, name)
    assert isinstance(node, ast.ClassDef), name
    lines = [f"## {title}\n", _text(ast.get_docstring(node)), ""]
    for base in node.bases:  # a class of ours that it extends is part of what it offers
        home = _imported(path, ast.unparse(base))
        if home is not None:
            lines += _members(_node(home, ast.unparse(base)))
    lines += _members(node)
    return "\n".join(lines).rstrip() + "\n"


def _imported(path: str, name: str) -> str | None:
    """Return the file of ours that a name in a file is imported from."""
    for node in ast.parse((SOURCE / path).read_text()).body:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if module.startswith("holdfast.") and any(one.name == name for one in node.names):  # type: ignore[attr-defined]
            return module.removeprefix("holdfast.").replace(".", "/") + ".py"
    return None


def _members(node: ast.ClassDef | ast.FunctionDef | ast.Assign) -> Iterator[str]:
    assert isinstance(node, ast.ClassDef)
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            default = f" = {ast.unparse(one.value)}" if one.value is not None else ""
            yield f"- `{one.target.id}: {ast.unparse(one.annotation)}{default}`"
        elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id.isupper():
            yield f"- `{ast.unparse(one)}`"
        elif isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            words = {ast.unparse(word) for word in one.decorator_list}
            yield from () if "overload" in words else (_function(one),)


def _function(node: ast.ClassDef | ast.FunctionDef | ast.Assign) -> str:
    assert isinstance(node, ast.FunctionDef)
    words = {ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in node.decorator_list}
    said = _text(ast.get_docstring(node))
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    if words & {"property", "cached_property"}:
        return f"- `{node.name}{returns.replace(' -> ', ': ')}`: {said}"
    taken = node.args
    own = [*taken.posonlyargs, *taken.args]
    if own and own[0].arg in ("self", "cls"):
        (taken.posonlyargs or taken.args).pop(0)
    return f"- `{node.name}({ast.unparse(taken)}){returns}`: {said}"


def _text(docstring: str | None) -> str:
    """Return the first paragraph on one line."""
    return re.sub(r"\s+", " ", (docstring or "").split("\n\n")[0]).strip()


if __name__ == "__main__":
    print(reference(), end="")
