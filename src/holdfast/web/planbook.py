"""The plans that were shown: made here, kept by their digest, and carried out exactly as they are or not at all."""

from __future__ import annotations

import shlex
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.documents import plain
from holdfast.encode.chunks import ChunkReader
from holdfast.errors import Conflict, HoldfastError, IntegrityError, NotFound, UsageError
from holdfast.recovery.finish import end_undone, recorded_workspace
from holdfast.recovery.gather import world_moved
from holdfast.recovery.undo import plan_undo
from holdfast.web import answers
from holdfast.web.site import RequestRefused, short_place
from holdfast.workspace import paths
from holdfast.workspace.decide import Decisions
from holdfast.workspace.diff import is_binary
from holdfast.workspace.directory import FILE, Entry
from holdfast.workspace.merge import merge
from holdfast.workspace.tree import DiskTree, pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.recovery.plan import RecoveryPlan
    from holdfast.web.site import Handle, Site
    from holdfast.workspace.plan import PlanItem
    from holdfast.workspace.restore import RestoreReport
    from holdfast.workspace.state import State

PAGE = 200
_MOST_PLANS = 20
_SIDE_BYTES = 200_000
SAVED = "decisions.json"
"""The name under which the page hands out what was decided, for `holdfast resume --decisions`."""
_OPTIONS = frozenset({"skip_failed", "reset_to", "files", "git"})
_NOT_SHOWN = "(not shown: it is larger than 200 kB)"


class PlanBook:
    """Plans by digest; the oldest go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: OrderedDict[str, tuple[RecoveryPlan, str, answers.AskedAnswer]] = OrderedDict()
        self._begun: set[str] = set()

    def make(self, site: Site, handle: Handle, body: dict[str, Any]) -> answers.PlanAnswer:
        """Make a plan of what was asked for; nothing is touched."""
        if isinstance(body.get("undo"), str):
            plan, command = self._undo(site, handle, body["undo"])
        else:
            plan, command = self._recover(site, handle, body)
        asked: Any = {"options": {}, "decisions": {}, "unknown": {}}
        asked |= {name: body[name] for name in answers.AskedAnswer.__annotations__ if body.get(name)}
        with self._lock:
            self._plans[plan.digest] = (plan, command, asked)
            self._plans.move_to_end(plan.digest)
            self._begun.discard(plan.digest)
            while len(self._plans) > _MOST_PLANS:
                self._plans.popitem(last=False)
        return self.document(handle, plan.digest, offset=0, limit=PAGE)

    def _recover(self, site: Site, handle: Handle, body: dict[str, Any]) -> tuple[RecoveryPlan, str]:
        spec = body.get("spec")
        options = body.get("options") or {}
        if not isinstance(spec, str) or not isinstance(options, dict) or not options.keys() <= _OPTIONS:
            raise UsageError("give spec, options (skip_failed, reset_to, files, git), decisions and unknown")
        decisions = None
        try:
            if body.get("decisions"):
                decisions = msgspec.convert(body["decisions"], Decisions)
            unknown = msgspec.convert(body.get("unknown") or {}, dict[str, str])
        except msgspec.ValidationError as error:
            raise UsageError(f"decisions: {error}") from None
        plan = handle.hf.plan(
            spec,
            workspace=site.workspace,
            decisions=decisions,
            unknown=unknown,  # type: ignore[arg-type]  # checked by the plan
            files=options.get("files", "auto"),
            git=bool(options.get("git")),
            skip_failed=bool(options.get("skip_failed")),
            reset_to=options.get("reset_to"),
        )
        return plan, _command(plan, spec)

    def _undo(self, site: Site, handle: Handle, run: str) -> tuple[RecoveryPlan, str]:
        place = None if recorded_workspace(handle.hf, run) is not None else site.workspace
        return plan_undo(handle.hf, run, workspace=place), f"holdfast undo {shlex.quote(run)}"

    def get(self, digest: str) -> tuple[RecoveryPlan, str, answers.AskedAnswer]:
        """Return a plan that was made here; 404 for any other."""
        with self._lock:
            found = self._plans.get(digest)
        if found is None:
            raise RequestRefused(
                404, "NotFound", "there is no such plan here: make it again", hint="plans are kept in memory"
            )
        return found

    def document(self, handle: Handle, digest: str, *, offset: int, limit: int) -> answers.PlanAnswer:
        """Return a plan with a page of its files, and whether it still holds."""
        plan, command, asked = self.get(digest)
        items = plan.files.items if plan.files is not None else ()
        shown = sorted(items, key=lambda item: (item.action != "conflict", item.path))[offset : offset + limit]
        lease = handle.hf.store.leases.running(plan.run)
        facts = {name: plain(getattr(plan, name)) for name in answers.PlanFacts.__annotations__}
        return {
            "digest": digest,
            "asked": asked,
            "plan": cast("answers.PlanFacts", facts),
            "lines": [handle.clean_text(line) for line in plan.lines()],
            "files": {
                "target": short_place(plan.files.target),
                "counts": plan.files.counts(),
                "items": [_item(item) for item in shown],
                "offset": offset,
                "total": len(items),
                "overwrites": plan.files.overwrites,
            }
            if plan.files is not None
            else None,
            "head_seq": _seq_of_head(handle, plan),
            "moved": self._moved(handle, plan),
            "owner": lease.owner if lease is not None else None,
            "command": command,
        }

    def _moved(self, handle: Handle, plan: RecoveryPlan) -> list[str]:
        """Return what is no longer as the plan saw it."""
        try:
            stands = handle.hf.store.run(plan.run)
            if stands.head != plan.head or stands.number != plan.end:
                return [f"run {plan.run} has moved on since"]
            return world_moved(handle.hf, plan, None)[:20]
        except HoldfastError as error:
            return [str(error)]

    def sides(self, handle: Handle, digest: str, path: str) -> answers.PlanSides:
        """Return what one file is in the checkpoint, was when the run last knew it, is on disk, and would become."""
        plan, _, _ = self.get(digest)
        item = next((one for one in (plan.files.items if plan.files is not None else ()) if one.path == path), None)
        if item is None or plan.files is None:
            raise NotFound("file in this plan", path)
        reader = ChunkReader(handle.hf.store.fetch)
        stored, last = (_stored(reader, state) for state in (item.checkpoint, item.last))
        disk = _on_disk(plan.files.target, reader, item)
        result, note = _result(item, stored, last, disk)
        return {
            "path": path,
            "action": item.action,
            "reason": item.reason,
            "beside": item.beside,
            "note": note,
            "sides": {
                "checkpoint": _text(handle, stored),
                "last": _text(handle, last),
                "disk": _text(handle, disk),
                "result": _text(handle, result),
            },
        }

    def carry_out(self, handle: Handle, digest: str, progress: Callable[[int, int], None]) -> answers.PlanDone:
        """Do exactly what was shown, once; PlanOutdated if the world moved, and nothing is touched then."""
        plan, _, _ = self.get(digest)
        with self._lock:
            if digest in self._begun:
                raise RequestRefused(409, "PlanUsed", "this plan is being carried out already, or was: look at the run")
            self._begun.add(digest)
        try:
            if plan.kind == "undo":
                end_undone(handle.hf, plan.run, plan.request.workspace)
            result = handle.hf.recover(plan, progress=progress)
        except Conflict:
            with self._lock:
                self._begun.discard(digest)
            raise
        if not result.success:
            raise RequestRefused(409, "NotRecovered", f"nothing is changed: {'; '.join(result.errors)}")
        return {
            "run": result.run,
            "checkpoint": getattr(result.checkpoint, "id", None),
            "restored_from": result.restored_from,
            "restored_sections": list(result.restored_sections),
            "warnings": list(result.warnings),
            "undo": result.undo,
            "files": _files_done(result.files) if result.files is not None else None,
            "command": f"holdfast undo {shlex.quote(result.run)}",
        }


def _seq_of_head(handle: Handle, plan: RecoveryPlan) -> int | None:
    """Return the number of the head that the plan would leave, None where there is none or it is damaged."""
    try:
        return handle.hf.store.checkpoint(plan.head).envelope.seq if plan.head is not None else None
    except HoldfastError:
        return None


def _command(plan: RecoveryPlan, spec: str) -> str:
    """Return the line that does the same."""
    request = plan.request
    words = ["holdfast", "resume", f"{plan.run}@{plan.seq}" if spec != plan.run else plan.run]
    words += ["--skip-failed"] if request.skip_failed else []
    words += ["--reset-to", request.reset_to] if request.reset_to else []
    words += ["--git"] if request.git else []
    words += [word for step, how in request.unknown.items() if how != "ask" for word in (f"--{how}", step)]
    words += ["--no-files"] if not request.files and "workspace" in plan.sections else []
    words += ["--decisions", SAVED] if request.decisions is not None else []
    return shlex.join(words)


def _files_done(report: RestoreReport) -> answers.FilesDone:
    return {
        "written": report.written,
        "replaced": report.replaced,
        "deleted": report.deleted,
        "kept": report.kept,
    }


def _item(item: PlanItem) -> answers.PlanItemAnswer:
    sides = {"checkpoint": item.checkpoint, "last": item.last, "disk": item.disk}
    return {
        "path": item.path,
        "action": item.action,
        "reason": item.reason,
        "beside": item.beside,
        "kinds": {name: state.kind if state is not None else None for name, state in sides.items()},
        "sizes": {name: state.size for name, state in sides.items() if state is not None and state.kind == "file"},
    }


def _stored(reader: ChunkReader, state: State | None) -> bytes | str | None:
    if state is None or state.kind == "absent":
        return None
    if state.kind != "file":
        return f"({state.kind}{f' to {state.target}' if state.target else ''})"
    if state.size > _SIDE_BYTES:
        return _NOT_SHOWN
    try:
        return b"".join(pieces(reader, state.ref()))
    except IntegrityError as error:
        return f"({error})"


def _on_disk(target: str, reader: ChunkReader, item: PlanItem) -> bytes | str | None:
    if item.disk.kind == "absent":
        return None
    if item.disk.kind != "file":
        return f"({item.disk.kind})"
    ref = item.disk.ref()
    if ref is None:
        return b""
    try:
        entry = Entry(b"", FILE, item.disk.mode, ref)
        data = DiskTree(target, reader, ref).content(paths.raw(item.path), entry, _SIDE_BYTES)
    except NotFound as error:
        return f"({error})"
    return data if data is not None else _NOT_SHOWN


def _result(
    item: PlanItem, stored: bytes | str | None, last: bytes | str | None, disk: bytes | str | None
) -> tuple[bytes | str | None, str]:
    """Return what will be at the path, and a sentence about it."""
    if item.action in ("write", "replace", "mode"):
        return stored, "the checkpoint's version is written"
    if item.action == "delete":
        return None, "it is deleted: it is not in the checkpoint"
    if item.action == "merge" and isinstance(stored, bytes) and isinstance(last, bytes) and isinstance(disk, bytes):
        merged = merge(last, disk, stored)
        return (merged.data if merged is not None else "(cannot be merged)"), "both changes are merged"
    if item.action == "both":
        return disk, f"it stays, and the checkpoint's version is written beside it as {item.beside}"
    if item.action == "conflict":
        return "", "decide: take the checkpoint's, keep yours, merge, or keep both"
    return disk, "it stays as it is"


def _text(handle: Handle, data: bytes | str | None) -> answers.Side:
    if data is None:
        return {"kind": "absent", "text": ""}
    if isinstance(data, str):
        return {"kind": "note", "text": data}
    if is_binary(data):
        return {"kind": "note", "text": f"(binary, {len(data):,} bytes)"}
    return {"kind": "text", "text": handle.clean_text(data.decode("utf-8", "surrogateescape"))}
