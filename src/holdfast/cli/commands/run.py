"""Run a flow, or resume it from where its run stands: a YAML or JSON file, or a plan in Markdown with `sh` blocks.

The same line resumes it; give it the same workspace each time. A terminal is asked whether to resume, and what the run
waits for. Without one the run is resumed, and leaves with exit code 9 where a person must decide, saying what to type.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.amounts import parse_amount
from holdfast.cli.ask import YES_AND_NO
from holdfast.cli.errors import CommandInvalid
from holdfast.cli.json_values import value_or_text
from holdfast.cli.output import Paint
from holdfast.cli.script import start_again
from holdfast.cli.times import age, duration, number
from holdfast.errors import IntegrityError, NotFound
from holdfast.runtime.ledger import NEED_AMOUNT

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.engine import Holdfast
    from holdfast.flow.events import Event
    from holdfast.flow.model import Flow
    from holdfast.flow.result import FlowResult
    from holdfast.runtime.waits import Waiting

_CODES = {"completed": 0, "elsewhere": 4, "failed": 8, "waiting": 9, "cancelled": 10}
_COLOURS = {"completed": "green", "failed": "red", "cancelled": "red"}
_DONE = ("completed", "skipped")
_LATER = "later"
_PLANS = (".md", ".markdown")


def configure(parser: CommandParser) -> None:
    parser.add_argument("flow", metavar="FLOW", help="the flow's file, or a plan in Markdown")
    parser.add_argument(
        "--run-id",
        metavar="RUN",
        help="the run (the flow's run_id or name, with other parameters another; of a plan, one that its path gives)",
    )
    parser.add_argument(
        "--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter, JSON or text; may be repeated"
    )
    parser.add_argument("--workspace", metavar="DIR", help="the directory that it works in (the project's folder)")
    parser.add_argument("--no-files", action="store_true", help="keep that directory's files out of the checkpoints")
    parser.add_argument(
        "--import",
        metavar="MODULE",
        action="append",
        default=[],
        dest="modules",
        help="a Python module whose functions it may call, also one beside its file; may be repeated",
    )
    parser.add_argument(
        "--agent", metavar="COMMAND", help="of a plan: what does the phases without a command of theirs"
    )
    wait = parser.add_mutually_exclusive_group()
    wait.add_argument("--wait", action="store_true", help="where a person must decide, wait for the answer")
    wait.add_argument("--no-wait", action="store_true", help="leave and exit with 9 wherever it must wait")
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="say what it would do with each phase, and run nothing"
    )
    parser.add_argument("--from", metavar="PHASE", dest="from_phase", help="run this phase again, and all that follow")
    parser.add_argument(
        "--redo", metavar="PHASE[/TASK]", action="append", default=[],
        help="run a task again, and the phases that follow; may be repeated",
    )  # fmt: skip
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--resume", action="store_true", help="continue without asking")
    begin.add_argument("--fresh", action="store_true", help="set what is there aside, and start from the beginning")


def execute(arguments: Namespace, session: Session) -> int:
    """Resume it until it ends, waits or fails."""
    from holdfast.flow.functions import check_functions  # noqa: PLC0415 - help does without
    from holdfast.flow.load import bind_params  # noqa: PLC0415

    session.reveals = True
    file = Path(arguments.flow)
    params = params_of(arguments.param)
    flow, run = _read(file, arguments, params, session)
    _import(arguments.modules, beside=file)
    if file.suffix.lower() not in _PLANS:
        check_functions(flow, file)
    workspace = Path(arguments.workspace or session.root).absolute()
    options: dict[str, Any] = {
        "run_id": run,
        "params": params,
        "file": Path(os.path.relpath(file, session.root)).as_posix(),
        "workspace": None if arguments.no_files else workspace,
        "project": str(session.root.resolve()),
        "imports": arguments.modules,
        "agent": arguments.agent,
    }
    if arguments.run_id is None and session.place.is_there:
        run = options["run_id"] = _own_run(session, run, options["file"])
    if arguments.dry_run:
        return _tell_changes(flow, arguments, session, run_id=run, params=params, root=workspace)
    hf = session.open()
    options |= {"from_phase": arguments.from_phase, "redo": arguments.redo}
    if not arguments.workspace and not arguments.no_files:  # a fork works in its own
        workspace = options["workspace"] = session.directory_of(run, hf=hf).absolute()
    if _is_begun(hf, run) and _wants_fresh(hf, run, arguments, session):
        bind_params(flow, options["params"])  # what is wrong with them is said before anything is set aside
        hf.recovery.start_fresh(run)
        session.out.note(f"What was there is set aside; `holdfast log {run} -a` shows it.")
    with contextlib.chdir(workspace) if arguments.no_files else contextlib.nullcontext():
        result, unsaid = _resumed(hf, flow, arguments, session, options)
    _tell(hf, result, session, unsaid)
    return _CODES[result.status]


def _own_run(session: Session, run: str, file: str) -> str:
    """Return a run's name, or another one if that belongs to another flow file, or to another project in this store."""
    from holdfast.cli import script  # noqa: PLC0415
    from holdfast.flow.runner import origin_of  # noqa: PLC0415

    forked = session.place.project.run
    if forked is not None and (origin_of(session.open(), forked) or ("", ""))[1] == file:
        return forked  # this directory was made for it
    project, path = origin_of(session.open(), run) or (None, None)
    return script.own_run(session, run, session.root / file, project, is_other=path not in (None, file))


def _tell_changes(flow: Flow, arguments: Namespace, session: Session, *, run_id: str, **known: Any) -> int:
    """Say what running the flow would keep and do, by what its run has on record; no store is made for it."""
    from holdfast.flow.runner import preview  # noqa: PLC0415

    hf = session.open() if session.place.is_there else None
    changes = preview(hf, flow, run_id=run_id, from_phase=arguments.from_phase, redo=arguments.redo, **known)
    session.out.document({"run": run_id, "phases": msgspec.to_builtins(changes.phases)})
    for line in changes.lines():
        session.out.line(line)
    return 0


def _read(file: Path, arguments: Namespace, params: dict[str, Any], session: Session) -> tuple[Flow, str]:
    """Return the flow and its run's id."""
    from holdfast.flow.load import load_flow  # noqa: PLC0415 - help does without
    from holdfast.flow.markdown import flow_from_plan  # noqa: PLC0415
    from holdfast.flow.runner import run_name  # noqa: PLC0415
    from holdfast.flow.text import read_flow_file  # noqa: PLC0415

    if file.suffix.lower() not in _PLANS:
        if arguments.agent is not None:
            raise CommandInvalid("--agent is for plans in Markdown: a flow names its own agents")
        if not file.exists():
            raise NotFound("flow file", str(file))
        flow = load_flow(file)
        return flow, arguments.run_id or run_name(flow, params)
    if not file.exists():
        raise NotFound("plan", str(file))
    text = read_flow_file(file).decode("utf-8", "replace")
    flow = flow_from_plan(text, str(file), run=arguments.agent)
    return flow, arguments.run_id or default_run(file, flow.name, session)


def default_run(file: str | Path, flow: str, session: Session) -> str:
    """Return the run that a file is resumed in if none is named: the flow's name; of a plan, one by its path."""
    from holdfast.flow.markdown import plan_run_id  # noqa: PLC0415 - help does without

    return plan_run_id(file, root=session.root) if Path(file).suffix.lower() in _PLANS else flow


def params_of(given: list[str]) -> dict[str, Any]:
    """Return parameters; a value that is not JSON is text."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise CommandInvalid(f"--param {one!r}: write NAME=VALUE")
        found[name] = value_or_text(value)
    return found


def _import(modules: list[str], *, beside: Path) -> None:
    """Import what the person names: a flow alone does not decide what is imported."""
    from importlib import import_module  # noqa: PLC0415 - only with --import

    if modules:
        sys.path.insert(0, str(beside.resolve().parent))
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise CommandInvalid(f"--import {module!r}: it cannot be imported ({error})") from error


def _is_begun(hf: Holdfast, run: str) -> bool:
    from holdfast.flow.runner import standing  # noqa: PLC0415 - help does without
    from holdfast.recovery.fork import is_fresh  # noqa: PLC0415

    try:
        head = standing(hf, run)
        return head is not None and bool(head.sections) and not is_fresh(head)
    except IntegrityError:
        return True


def _wants_fresh(hf: Holdfast, run: str, arguments: Namespace, session: Session) -> bool:
    """Say what is there, and ask whether to continue from it."""
    if arguments.fresh:
        return True
    found = hf.find(run)
    if found.skipped:
        raise IntegrityError(f"{found.skipped[0]}. `holdfast resume {run}` goes back to the newest that is whole")
    if arguments.resume or found.summary.status in ("completed", "cancelled"):
        return False
    session.out.note(_stands(found, session))
    question = "Resume it (n sets it aside and starts over)?"
    return not session.ask.confirmed(question, unasked="the run is resumed; --fresh starts it again")


def _stands(found: Checkpoint, session: Session) -> str:
    """Return where a run stands, in words."""
    when = age(found.created_at, session.now())
    if "phases" not in found.sections:
        return f"Found a checkpoint, {when}."
    book = found.section("phases")
    done = [name for name in book.order if name in book.phases and book.phases[name].status in _DONE]
    count = f"{len(done)} of {number(len(book.order), 'phase')} done"
    return f"Found a checkpoint, {when}: {count}" + (f" ({', '.join(done)})." if done else ".")


def _resumed(
    hf: Holdfast, flow: Flow, arguments: Namespace, session: Session, options: dict[str, Any]
) -> tuple[FlowResult, Callable[[str], str]]:
    """Run the flow; what it waits for is asked here if a person is there.

    Returned with it is what leaves out of a text the failures that were shown on the way.
    """
    from holdfast.capture.signals import Terminated  # noqa: PLC0415
    from holdfast.flow.printing import redirected  # noqa: PLC0415
    from holdfast.flow.runner import run_flow  # noqa: PLC0415

    asks = session.ask.can_ask and not (arguments.wait or arguments.no_wait)
    waiting: Waiting = "block" if arguments.wait else "leave" if arguments.no_wait else "decide"
    shown, before = _Shown(session), None
    while True:
        shown.run = options["run_id"] if waiting != "leave" else None
        shown.leaves = waiting != "block"
        try:
            with shown as progress, redirected():
                result = run_flow(hf, flow, observer=progress, waiting=waiting, **options)
        except KeyboardInterrupt as interrupt:
            interrupt.args = (start_again(options["run_id"]),)
            raise
        except Terminated:
            with contextlib.suppress(OSError):  # the terminal may be closed
                session.out.note(f"Ended by a signal; {start_again(options['run_id'])}.")
            raise
        result = before = _since(before, result)
        if not asks or result.status != "waiting":
            return result, shown.unsaid
        answered = _answered(hf, result, session)
        if answered is None:
            waiting = "block"  # a signal: nothing that can be chosen here
        elif not answered:
            return result, shown.unsaid


def _since(before: FlowResult | None, result: FlowResult) -> FlowResult:
    """Return a result that counts what this process did before it asked, too: that is done, not kept."""
    if before is None:
        return result
    return msgspec.structs.replace(
        result,
        changes=before.changes,
        tasks_done=before.tasks_done + result.tasks_done,
        tasks_kept=before.tasks_kept,
        saved_s=before.saved_s,
        saved_tokens=before.saved_tokens,
    )


def _answered(hf: Holdfast, result: FlowResult, session: Session) -> bool | None:
    """Let a person choose what the run waits for; None if there is nothing to choose, False if they will later."""
    from holdfast.cli.people import me  # noqa: PLC0415

    wait = next((one for one in hf.control.waiting(result.run) if one.id == result.waits_for), None)
    if wait is None or not wait.options:
        return None
    choices = [*((option, "") for option in wait.options), (_LATER, "leave the run waiting")]
    choice = session.ask.choose(wait.question, choices, safe=_LATER, aliases=YES_AND_NO)
    if choice == _LATER:
        return False
    value = None
    if wait.kind == "budget" and choice in NEED_AMOUNT:
        value = _amount(wait.details["budget"], choice, session)
        if value is None:
            return False
    hf.control.answer(result.run, choice, wait=wait.id, by=me(session.out.environment), value=value)
    return True


def _amount(budget: str, choice: str, session: Session) -> float | None:
    """Ask for the amount that an answer to a budget's question needs; None if none is given."""
    prompt = f"Raise {budget} by how much? " if choice == "raise" else f"The new limit of {budget}? "
    return session.ask.parsed(prompt, partial(parse_amount, budget))


class _Shown:
    """A flow's progress on standard output: events as JSON, a live view, or lines.

    It may be entered again after a question. With `run`, the one that blocks where it waits, each wait is shown with
    the command that ends it.
    """

    def __init__(self, session: Session) -> None:
        from holdfast.flow.progress import Progress  # noqa: PLC0415

        out = session.out
        self._out = out
        self.run: str | None = None
        self.leaves = False
        self._progress = Progress(
            self._write,
            style="json" if out.json else "live" if self._is_live() else "lines",
            width=lambda: out.width or 0,
            height=lambda: shutil.get_terminal_size().lines,
            monotonic=time.monotonic,
            output=out.verbose,
        )

    def unsaid(self, text: str) -> str:
        """Return a text without the failures that were shown already."""
        return self._progress.unsaid(text)

    def __enter__(self) -> Any:
        return None if self._out.quiet and not self._out.json else self._show

    def __exit__(self, *_: object) -> None:
        if not self._out.quiet:
            self._progress.close()

    def _show(self, event: Event) -> None:
        waits = event.kind == "waiting" and self.run is not None
        is_left = self.leaves and event.data.get("wait_kind") != "pause"  # the closing lines say what to type
        hint = way_on(event, str(self.run)) if waits and not is_left else ""
        self._progress(msgspec.structs.replace(event, data={**event.data, "hint": hint}) if hint else event)

    def _is_live(self) -> bool:
        return self._out.interactive and self._out.environment.get("TERM", "") not in ("", "dumb")

    def _write(self, text: str) -> None:
        self._out.stdout.write(text)
        self._out.stdout.flush()


def way_on(event: Event, run: str) -> str:
    """Return the command that lets a run continue that waits; nothing if only time does."""
    run, wait = shlex.quote(run), shlex.quote(event.data["wait"])
    kind = event.data["wait_kind"]
    if kind == "budget":
        return f"`holdfast budget {run} {event.data['budget']}+=MORE` raises it."
    if kind == "pause":
        return f"`holdfast resume {run}` lets it continue."
    if kind == "signal" and event.data["wait"].startswith("answer:"):  # of a message
        return f"`holdfast answer TEXT {run} --wait {wait}` answers."
    if not event.data["options"]:
        return ""
    choice, *others = event.data["options"]
    is_of_task = event.task is not None or kind == "uncertain"  # tasks run at once, and so may their questions
    which = f" --wait {wait}" if is_of_task else ""
    return f"`holdfast answer {choice} {run}{which}` answers" + (f", or with {' or '.join(others)}." if others else ".")


def _closing(hf: Holdfast, result: FlowResult) -> str:
    """Return what lets a run continue that was left waiting."""
    from holdfast.flow.reporter import wait_event  # noqa: PLC0415

    wait = next((one for one in hf.control.waiting(result.run) if one.id == result.waits_for), None)
    if wait is None:
        return "That is answered by now: run it again."
    if wait.kind == "pause":
        return f"`holdfast resume {result.run}` continues it."
    command = way_on(wait_event(wait), result.run)
    if command:
        return f"{command.removesuffix('.')}; then run it again."
    return (
        f"Run it again after {wait.until:%Y-%m-%d %H:%M:%S %Z}." if wait.until else "Run it again when that is there."
    )


def _tell(hf: Holdfast, result: FlowResult, session: Session, unsaid: Callable[[str], str]) -> None:
    """Say how it ended, and what was not done twice."""
    from holdfast.documents import without_secrets  # noqa: PLC0415 - help does without

    out, packer = session.out, hf.internals.journal_packer()
    result = msgspec.structs.replace(result, detail=without_secrets(packer, result.detail, "detail"))
    if out.json:
        shown = without_secrets(packer, result.results, "results")
        data = {"kind": "result", **msgspec.to_builtins(result), "results": shown, "exit_code": _CODES[result.status]}
        out.stdout.write(msgspec.json.encode(data, enc_hook=str).decode() + "\n")
        return
    detail = unsaid(result.detail)
    told = f": {detail}" if detail else ""
    out.line(Paint(result.status, _COLOURS.get(result.status, "yellow")), f" {result.run}{told}")
    if result.tasks_done or result.tasks_kept:
        saved = f" ({duration(result.saved_s)} of work" if result.tasks_kept else ""
        saved += f", {result.saved_tokens:,} tokens" if saved and result.saved_tokens else ""
        kept = f", {result.tasks_kept} kept from before{saved})" if saved else ""
        out.note(f"{number(result.tasks_done, 'task')} done{kept}.")
    if result.status == "waiting":
        out.note(_closing(hf, result))
    elif result.status == "failed":
        out.note(f"Run it again to try the phase again, or `holdfast status {result.run}`.")
    elif result.status == "completed" and not result.tasks_done:
        out.note("There was nothing left to do; --fresh starts it again.")
