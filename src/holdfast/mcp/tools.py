"""Tools: what a model may call. Plain functions of a scope; the server only gives them names and schemas."""

from __future__ import annotations

import base64
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.documents import checkpoint_document, plain
from holdfast.errors import HoldfastError, UsageError
from holdfast.mcp.answers import answer
from holdfast.recovery.plan import RecoveryPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.mcp.confirm import ConfirmationDesk
    from holdfast.mcp.scope import Scope

_F = TypeVar("_F", bound="Callable[..., Any]")
MOST = 100
MAX_FILE_BYTES = 16 * 1024
_LONGEST_TEXT = 500


class ToolRefused(Exception):
    """A tool that did nothing, with the kind of error and a sentence that a model can act on."""


def typed(function: _F) -> _F:
    """Raise what goes wrong as ToolRefused, with its kind in front; anything else is a crash and shows no detail."""

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except HoldfastError as error:
            raise ToolRefused(f"{type(error).__name__}: {error}") from error
        except OSError as error:
            raise ToolRefused(f"StoreError: {error.strerror}") from error

    return called  # type: ignore[return-value]


class ReadTools:
    """Looking; nothing of these changes anything."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @typed
    def list_runs(self, limit: int = 20) -> dict[str, Any]:
        """List the runs of this project, the last begun first: id, checkpoints, when it last moved, status."""
        with self._scope.reading() as hf:
            found = []
            for record in self._scope.list_runs(hf, _limited(limit)):
                summary = hf.get(record.head).summary if record.head is not None else None
                found.append(
                    {
                        "run": record.id,
                        "checkpoints": record.checkpoints,
                        "updated_at": record.updated_at.isoformat(),
                        "status": summary.status if summary is not None else None,
                        "phase": summary.phase if summary is not None else None,
                    }
                )
            return answer(found)

    @typed
    def list_checkpoints(self, run: str, limit: int = 20) -> dict[str, Any]:
        """List the checkpoints of a run, newest first: id, number, trigger, reason, time, label."""
        with self._scope.reading() as hf:
            listed = hf.checkpoints(self._scope.run(hf, run), limit=_limited(limit))
            names = ("id", "seq", "trigger", "reason", "created_at", "label", "phase", "can_resume")
            documents = [checkpoint_document(one) for one in listed]
            return answer([{name: one[name] for name in names} for one in documents])

    @typed
    def show_checkpoint(self, checkpoint: str, section: str | None = None) -> dict[str, Any]:
        """Show a checkpoint (an id, RUN, RUN@7, RUN:label or latest): what it holds, or the value of one section."""
        with self._scope.reading() as hf:
            found = self._scope.checkpoint(hf, checkpoint)
            if section is not None:
                return answer(plain(found.plain_section(section)))
            files = (
                [one.path for one in found.files() if one.kind != "directory"] if "workspace" in found.sections else []
            )
            return answer({**checkpoint_document(found), "files": files[:500], "file_count": len(files)})

    @typed
    def diff(self, old: str, new: str, files: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - named by the client
        """Compare two checkpoints: what differs in their state, and in their files as unified diffs."""
        with self._scope.reading() as hf:
            before, after = (self._scope.checkpoint(hf, spec) for spec in (old, new))
            found = hf.diff(before, after)
            told = found.lines()
            if files and found.has_files:
                told += [one.text or one.note for one in found.file_diffs()]
            return answer("\n".join(told))

    @typed
    def read_file(self, checkpoint: str, path: str, offset: int = 0) -> dict[str, Any]:
        """Read a file of a checkpoint, 16 KB from an offset: text, or base64 where it is not text."""
        with self._scope.reading() as hf:
            data = self._scope.checkpoint(hf, checkpoint).read(path)
        piece = data[max(0, offset) : max(0, offset) + MAX_FILE_BYTES]
        following = max(0, offset) + len(piece)
        more = {"size_bytes": len(data), "next_offset": following if following < len(data) else None}
        try:
            return answer({"text": piece.decode(), **more})
        except UnicodeDecodeError:
            return answer({"base64": base64.b64encode(piece).decode(), **more})

    @typed
    def recovery_status(self, run: str) -> dict[str, Any]:
        """Tell whether and from where a run can be resumed, what blocks it, and what can be done about that."""
        with self._scope.reading() as hf:
            return answer(plain(hf.recovery.status(self._scope.run(hf, run))))


class WriteTools:
    """Adding; nothing of these takes anything away."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @typed
    def checkpoint_now(self, run: str, reason: str = "") -> dict[str, Any]:
        """Take a checkpoint of a run with the files of the project, so that it can be gone back to."""
        from holdfast.run_files import captured_for_others  # noqa: PLC0415 - loaded when it is used

        with self._scope.writing() as hf:
            opened = hf.run(self._scope.run(hf, run), workspace=self._scope.root)
            with captured_for_others(opened) as (edits, told):
                taken = opened.checkpoint(reason=_short(reason), sections=edits)
            more = {"warnings": list(told)} if told else {}
            return answer({"id": taken.id, "run": taken.run, "seq": taken.seq, **more})

    @typed
    def label(self, checkpoint: str, name: str) -> dict[str, Any]:
        """Give a checkpoint a name that it can be found by."""
        with self._scope.writing() as hf:
            found = self._scope.checkpoint(hf, checkpoint)
            if found.label is not None:
                raise UsageError(f"it has the label {found.label!r} already, and only a person may replace one")
            marked = hf.mark(found.id, label=_short(name))
            return answer({"id": marked.id, "label": marked.label})


class RecoveryTools:
    """Going back: planned by anyone, carried out only with a person's confirmation outside of the client."""

    def __init__(self, scope: Scope, desk: ConfirmationDesk) -> None:
        self._scope = scope
        self._desk = desk

    @typed
    def plan_recovery(self, checkpoint: str, run: str | None = None) -> dict[str, Any]:
        """Tell exactly what going back to a checkpoint would do to the run and its files; nothing is touched.

        Where a restore is allowed, the answer has a token for it, and the command by which the person confirms it.
        """
        with self._scope.reading() as hf:
            found = self._scope.checkpoint(hf, checkpoint)
            if run is not None:
                self._scope.run(hf, run)
            spec = found.place if "#" in checkpoint else found.id
            plan = hf.plan(spec, run=run or found.run, workspace=self._scope.root)
        told = {"plan": plan.lines(), "can_resume": plan.can_resume}
        if not plan.can_resume:
            return answer(told)
        return answer({**told, **self._asked("recover", plan.run, tuple(plan.lines()), plan.to_json().decode())})

    @typed
    def plan_undo(self, run: str) -> dict[str, Any]:
        """Ask to undo the last recovery of a run: the answer has a token, as that of plan_recovery."""
        with self._scope.reading() as hf:
            head = hf.latest(self._scope.run(hf, run), required=True).id
        lines = (f"run {run}: go back to before its last recovery, files too (its head is {head})",)
        return answer({"plan": lines, **self._asked("undo", run, lines, head)})

    @typed
    def restore(self, token: str) -> dict[str, Any]:
        """Carry out a plan that the person has confirmed in their own terminal; the present state is saved first."""
        pending = self._desk.take(token)
        if not self._scope.has(pending.run):
            raise UsageError("this plan is of a run outside of this server's scope")
        with self._scope.writing() as hf:
            if pending.kind == "undo":
                if hf.latest(pending.run, required=True).id != pending.body:
                    raise UsageError(f"run {pending.run} moved since: make a new plan")
                result = hf.undo(pending.run, workspace=self._scope.root)
            else:
                result = hf.recover(RecoveryPlan.from_json(pending.body))
        if not result.success:
            raise UsageError("; ".join(result.errors) or "nothing was restored")
        return answer({"done": result.lines(), "undo": result.undo})

    def _asked(self, kind: str, run: str, lines: tuple[str, ...], body: str) -> dict[str, Any]:
        if not self._scope.grants.restore:
            return {"token": None, "why": "this server was not started with --allow-restore; a person can run "
                    f"`holdfast resume {run}` themselves"}  # fmt: skip
        token = self._desk.ask(kind, run, lines, body)
        code = token.partition(".")[0]
        return {"token": token, "confirm": f"ask the person to run `holdfast mcp confirm {code}` in their own terminal"}


def _limited(limit: int) -> int:
    return max(1, min(limit, MOST))


def _short(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_TEXT]
