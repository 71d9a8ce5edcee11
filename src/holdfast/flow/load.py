"""A flow from a file, a text or plain data; whatever is wrong with it is said at once, with line and path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import FlowInvalid, UsageError
from holdfast.flow.check import problems_of
from holdfast.flow.model import Flow
from holdfast.flow.read import Problem, nearest, read_part
from holdfast.flow.text import Document, quoted, read_flow_file, read_text

if TYPE_CHECKING:
    import os

_MOST_PROBLEMS = 50
PLAN_SUFFIXES = (".md", ".markdown")
"""Of files that are plans in Markdown."""


def load_flow(file: str | os.PathLike[str]) -> Flow:
    """Read a flow file, YAML or JSON."""
    return _made(read_document(file), str(Path(file)))


def read_flow(file: str | os.PathLike[str]) -> tuple[Flow, Document]:
    """Read a flow file or a plan in Markdown; return it with the line of everything in it."""
    if Path(file).suffix.lower() in PLAN_SUFFIXES:
        from holdfast.flow.markdown import flow_from_plan  # noqa: PLC0415 - it builds on this module

        text = read_flow_file(Path(file)).decode("utf-8", "replace")
        return flow_from_plan(text, str(file), run=': "$HOLDFAST_INPUT"'), Document(None)
    document = read_document(file)
    return _made(document, str(Path(file))), document


def read_document(file: str | os.PathLike[str]) -> Document:
    """Return what a flow file says, with the line of everything in it."""
    return read_text(read_flow_file(Path(file)), str(Path(file)))


def parse_flow(text: str | bytes, file: str = "flow") -> Flow:
    """Return the flow that a text describes; FlowInvalid with every problem."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return _made(read_text(data, file), file)


def flow_from(data: Any, file: str = "flow") -> Flow:
    """Return a flow from plain data of a file's shape; FlowInvalid with every problem."""
    return _made(Document(data), file)


def check_flow(flow: Flow, file: str | None = None) -> Flow:
    """Return a flow that was made in Python, checked like a file: constructing a value checks nothing."""
    if not isinstance(flow, Flow):
        raise UsageError(
            f"a flow is wanted, not {quoted(flow)}: make one with holdfast.load_flow(FILE), "
            "holdfast.flow.load.parse_flow(TEXT) or holdfast.flow.model.Flow(name=..., phases=...)"
        )
    file = file or flow.name
    try:
        data = msgspec.to_builtins(flow)
    except (TypeError, RecursionError) as error:
        raise FlowInvalid("it holds what no file could say", file, (str(error),)) from None
    return flow_from(data, file)


def bind_params(flow: Flow, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameters of a run: the given ones over the defaults; FlowInvalid for unknown and missing ones."""
    given = given or {}
    problems = [
        f"params.{name}: there is no such parameter{nearest(name, flow.params)}"
        for name in given
        if name not in flow.params
    ]
    values: dict[str, Any] = {}
    for name, param in flow.params.items():
        value = given.get(name, param.default)
        if value is msgspec.UNSET:
            described = f" ({param.description})" if param.description else ""
            problems.append(f"params.{name}: it has no default, so it must be given{described}")
        values[name] = value
    if problems:
        raise FlowInvalid("its parameters do not fit", flow.name, tuple(problems))
    return values


def _made(document: Document, file: str) -> Flow:
    problems = [Problem(path, detail) for path, detail in document.problems]
    flow = read_part(Flow, document.data, (), problems)
    if flow is None and isinstance(document.data, dict):  # without its name, the rest can still be looked at
        flow = read_part(Flow, {**document.data, "flow": "unnamed"}, (), [])
    if flow is not None and flow.phases:
        refused = {problem.path[:end] for problem in problems for end in range(len(problem.path) + 1)}
        problems += [problem for problem in problems_of(flow) if problem.path not in refused]
    elif flow is not None and not problems:
        problems.append(Problem(("phases",), "a flow has at least one phase"))
    if problems or flow is None:
        raise invalid("it cannot be followed", file, problems, document)
    return flow


def invalid(detail: str, file: str, problems: list[Problem], document: Document | None = None) -> FlowInvalid:
    """Return the error that says what is wrong with a flow: each problem with its path, and its line where known."""
    said = sentences(problems, document or Document(None))
    rest = (f"and {len(said) - _MOST_PROBLEMS} more",) if len(said) > _MOST_PROBLEMS else ()
    count = "1 problem" if len(said) == 1 else f"{len(said)} problems"
    return FlowInvalid(f"{detail}: {count}", file, (*said[:_MOST_PROBLEMS], *rest))


def sentences(problems: list[Problem], document: Document) -> list[str]:
    """Return each problem with its path, and its line where known, in the order of the file."""
    return list(dict.fromkeys(_said(problem, document) for problem in _sorted(problems, document)))


def _sorted(problems: list[Problem], document: Document) -> list[Problem]:
    return sorted(problems, key=lambda problem: document.line(problem.path) or 0)


def _said(problem: Problem, document: Document) -> str:
    line = document.line(problem.path)
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.path).lstrip(".")
    where = ", ".join(part for part in (f"line {line}" if line else "", repr(place)[1:-1]) if part)
    return f"{where}: {problem.detail}" if where else problem.detail
