"""Write src/holdfast/aio_methods.pyi: the methods of the asynchronous classes, read off the synchronous ones.

python tests/aio_stub.py > src/holdfast/aio_methods.pyi
"""

from __future__ import annotations

import ast
import builtins
import copy
from pathlib import Path

from holdfast import aio

SOURCE = Path(__file__).parents[1] / "src" / "holdfast"
PARTS = {
    "Agents": "runtime/agents.py",
    "Budget": "runtime/budget.py",
    "Conflict": "runtime/conflicts.py",
    "Conflicts": "runtime/conflicts.py",
    "Context": "runtime/context.py",
    "Control": "control.py",
    "Keys": "engine.py",
    "Recovery": "recovery/facade.py",
    "RunHistory": "recovery/facade.py",
    "Transfer": "transfer/facade.py",
    "GatedTask": "runtime/gates.py",
    "Gates": "runtime/gates.py",
    "Knowledge": "runtime/knowledge.py",
    "Mailbox": "runtime/mailbox.py",
    "Phase": "runtime/phase.py",
    "Phases": "runtime/phases.py",
    "StateMachine": "runtime/machine.py",
    "TaskGraph": "runtime/graph.py",
}
BLOCK = """
async def __aenter__(self) -> Self: ...
async def __aexit__(
    self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> bool | None: ...
"""


class Module:
    """One source file, and where each name in it comes from."""

    def __init__(self, path: str) -> None:
        self.name = "holdfast." + path.removesuffix(".py").replace("/", ".")
        self.tree = ast.parse((SOURCE / path).read_text())
        self.homes: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    renamed = f" as {alias.asname}" if alias.asname else ""
                    self.homes[alias.asname or alias.name] = f"from {node.module} import {alias.name}{renamed}"
            elif isinstance(node, ast.Import):
                self.homes.update({alias.name: f"import {alias.name}" for alias in node.names})
        for node in self.tree.body:
            named = getattr(node, "name", None) or next(
                (one.id for one in getattr(node, "targets", []) if isinstance(one, ast.Name)), None
            )
            if named and not isinstance(node, ast.Import | ast.ImportFrom):
                self.homes[named] = f"from {self.name} import {named}"

    def class_named(self, name: str) -> ast.ClassDef:
        return next(node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def marks(method: ast.FunctionDef) -> set[str]:
    return {one.id for one in method.decorator_list if isinstance(one, ast.Name)}


def is_property(method: ast.FunctionDef) -> bool:
    return bool(marks(method) & {"property", "cached_property"})


def for_asyncio(annotation: ast.expr | None) -> ast.expr | None:
    """Return what a method gives to asynchronous code: parts and blocks in their asynchronous form."""
    if isinstance(annotation, ast.Name) and annotation.id in (*PARTS, "Run"):
        return ast.Name(f"Async{annotation.id}")
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "AbstractContextManager":
        return ast.Subscript(ast.Name("AbstractAsyncContextManager"), annotation.slice)
    return annotation


def signature(method: ast.FunctionDef, *, is_awaited: bool) -> ast.stmt:
    made = copy.deepcopy(method)
    made.body = [ast.Expr(ast.Constant(...))]
    given = made.args
    given.defaults = [ast.Constant(...) for _ in given.defaults]
    given.kw_defaults = [None if one is None else ast.Constant(...) for one in given.kw_defaults]
    made.returns = for_asyncio(made.returns)
    if is_property(made):
        made.decorator_list = [ast.Name("property")]
    if not is_awaited:
        return made
    return ast.AsyncFunctionDef(**{name: getattr(made, name) for name in (*made._fields, *made._attributes)})


def methods_of(kind: ast.ClassDef, awaited, skipped=()) -> list[ast.stmt]:
    made = []
    overloaded = {node.name for node in kind.body if isinstance(node, ast.FunctionDef) and "overload" in marks(node)}
    for node in kind.body:
        if not isinstance(node, ast.FunctionDef) or (node.name.startswith("_") and node.name != "__getitem__"):
            continue
        is_body = node.name in overloaded and "overload" not in marks(node)
        if node.name not in skipped and not is_body and "contextmanager" not in marks(node):
            made.append(signature(node, is_awaited=not is_property(node) and awaited(node.name)))
    return made


def attributes(*pairs: tuple[str, str]) -> list[ast.stmt]:
    return ast.parse("\n".join(f"{name}: {kind}" for name, kind in pairs)).body


def class_of(name: str, body: list[ast.stmt]) -> ast.ClassDef:
    return ast.ClassDef(name=name, bases=[], keywords=[], body=body, decorator_list=[], type_params=[])


def written_in(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")} | {"sync"}


def opening(engine: Module) -> ast.stmt:
    """Return `holdfast.open` as the class method that opens a store for asyncio code."""
    found = next(node for node in engine.tree.body if isinstance(node, ast.FunctionDef) and node.name == "open")
    made = signature(found, is_awaited=True)
    assert isinstance(made, ast.AsyncFunctionDef)
    made.args.args.insert(0, ast.arg("cls"))
    made.returns, made.decorator_list = ast.Name("Self"), [ast.Name("classmethod")]
    return made


def classes() -> tuple[list[ast.ClassDef], list[Module]]:
    engine, run = Module("engine.py"), Module("run.py")
    every = lambda _name: True  # noqa: E731
    hf = [
        *attributes(("settings", "Settings"), ("store", "Store"), ("internals", "Internals")),
        *attributes(("control", "AsyncControl"), ("recovery", "AsyncRecovery"), ("files", "AsyncRunHistory")),
        *attributes(("transfer", "AsyncTransfer"), ("keys", "AsyncKeys")),
        opening(engine),
        *methods_of(engine.class_named("Holdfast"), every, {"close"}),
    ]
    plain = aio._RUN_MAKES | aio._RUN_PARTS | aio._RUN_VALUES
    runs = [
        *attributes(("id", "str"), ("lock", "RunLock")),
        *methods_of(run.class_named("Run"), lambda name: name not in plain, written_in(aio.AsyncRun)),
    ]
    found, modules = [class_of("HoldfastMethods", hf)], [engine, run]
    found.append(class_of("RunMethods", runs))
    for name, path in PARTS.items():
        module = Module(path)
        kind = module.class_named(name)
        body = methods_of(kind, aio.AWAITED[name].__contains__)
        if any(getattr(node, "name", "") == "__enter__" for node in kind.body):
            body += ast.parse(BLOCK).body
        found.append(class_of(f"Async{name}", [*attributes(("sync", name)), *body]))
        modules.append(module)
    return found, modules


def stub() -> str:
    found, modules = classes()
    homes = {
        "Self": "from typing import Self",
        "TracebackType": "from types import TracebackType",
        "AbstractAsyncContextManager": "from contextlib import AbstractAsyncContextManager",
        "RunLock": "from holdfast.capture.lock import RunLock",
        "AsyncRun": "from holdfast.aio import AsyncRun",
    }
    for module in reversed(modules):
        homes.update(module.homes)
    used = {node.id for kind in found for node in ast.walk(kind) if isinstance(node, ast.Name)}
    own = {kind.name for kind in found} | set(dir(builtins)) - {"open"}
    imports = sorted({homes[name] for name in used - own if name in homes})
    text = "\n\n".join(ast.unparse(ast.fix_missing_locations(kind)) for kind in found)
    return f"# Generated by tests/aio_stub.py from the synchronous classes.\n{chr(10).join(imports)}\n\n{text}\n"


if __name__ == "__main__":
    print(stub(), end="")
