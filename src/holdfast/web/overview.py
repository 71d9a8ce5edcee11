"""Overview of all runs: where each stands, kept up by looking only at the lines that moved."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, cast

import msgspec

from holdfast.documents import is_moving, plain, run_document
from holdfast.errors import HoldfastError
from holdfast.flow.task_output import run_folder, unprotected_since
from holdfast.model.ids import is_reserved
from holdfast.store.lineage import head_of
from holdfast.store.tables import LINE, MAIN

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.web import answers
    from holdfast.web.site import Handle

LIVE = ("running", "waiting", "paused")
_LOOK_AT_LEASES_S = 1.0


class Overview:
    """What the list of runs shows, by run."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._seals: dict[str, bytes] = {}
        self._runs: dict[str, answers.RunRowAnswer] = {}
        self._leases_at = 0.0

    def refresh(self, handle: Handle) -> list[str]:
        """Look at the lines that moved, and now and then at who moves the live ones; return the runs that changed."""
        with self._lock:
            with handle.hf.store.medium.read() as reader:
                rows = {str(row[0]): row[-1] for row in reader.scan(LINE) if row[1] == MAIN}
            rows = {run: seal for run, seal in rows.items() if not is_reserved(run)}
            changed = [run for run, seal in rows.items() if self._seals.get(run) != seal]
            gone = [run for run in self._seals if run not in rows]
            for run in changed:
                self._runs[run] = summary_of(handle, run)
                self._seals[run] = rows[run]  # type: ignore[assignment]  # a seal is bytes
            for run in gone:
                del self._runs[run], self._seals[run]
            moved = self._refresh_live(handle, set(changed))
            return [*changed, *gone, *moved]

    def _refresh_live(self, handle: Handle, known: set[str]) -> list[str]:
        """Look again at runs that are under way: a lease that lapsed or an answer moves no line."""
        if time.monotonic() < self._leases_at:
            return []
        self._leases_at = time.monotonic() + _LOOK_AT_LEASES_S
        live = [run for run, told in self._runs.items() if told["status"] in LIVE and run not in known]
        changed: list[str] = []
        for run in live:
            now = summary_of(handle, run)
            if now != self._runs[run]:
                self._runs[run] = now
                changed.append(run)
        return changed

    def look_again(self, handle: Handle, run: str) -> None:
        """Look at one run now: somebody said something to it."""
        with self._lock:
            if run in self._runs:
                self._runs[run] = summary_of(handle, run)

    def of(self, run: str) -> answers.RunRowAnswer | None:
        """Return what is known of a run."""
        with self._lock:
            return self._runs.get(run)

    def all(self) -> list[answers.RunRowAnswer]:
        """Return what is known of every run."""
        with self._lock:
            return list(self._runs.values())

    def page(self, *, status: str, text: str, order: str, offset: int, limit: int) -> answers.RunPage:
        """Return a page of runs, with how many there are of each status."""
        everything = self.all()
        if text:
            wanted = text.casefold()
            words = ("id", "phase", "state", "reason", "detail", "question")
            everything = [run for run in everything if any(wanted in str(run.get(w) or "").casefold() for w in words)]
        counts: dict[str, int] = {}
        for run in everything:
            counts[run["shown"]] = counts.get(run["shown"], 0) + 1
        found = [run for run in everything if not status or run["shown"] == status]
        if order == "name":
            found.sort(key=lambda run: str(run["id"]))
        else:
            found.sort(key=lambda run: str(run["created_at" if order == "begun" else "updated_at"]), reverse=True)
        return {
            "runs": found[offset : offset + limit],
            "total": len(found),
            "all": len(everything),
            "counts": counts,
            "offset": offset,
        }


def summary_of(handle: Handle, run: str) -> answers.RunRowAnswer:
    """Return what the list says of a run; one that is damaged says so."""
    try:
        return _summary(handle, run)
    except HoldfastError as error:
        return {
            "id": run, "shown": "damaged", "status": None, "moving": False, "detail": str(error), "last_seq": 0,
            "created_at": "", "updated_at": "", "checkpoints": 0, "waits": [], "budget": [],
            "key": None, "attributes": {}, "head": None, "phase": None, "state": None, "trigger": None, "reason": None,
            "can_resume": None, "saved_at": None, "question": None, "files": False, "unprotected": None,
        }  # fmt: skip


def _summary(handle: Handle, run: str) -> answers.RunRowAnswer:
    hf = handle.hf
    record = hf.store.run(run)
    head = head_of(hf.store, record)
    present = hf.internals.present(run, head)
    envelope = None
    if head is not None or record.number:
        envelope = msgspec.structs.replace(present.record.envelope, summary=present.summary)
    status = envelope.summary.status if envelope is not None else None
    moving = status in LIVE and is_moving(hf.store, run)
    waits = waits_of(handle, run) if status in LIVE else []
    document = run_document(record, envelope, moving=moving) | {
        "shown": shown_status(status, moving=moving),
        "saved_at": head.envelope.created_at.isoformat() if head is not None else None,
        "detail": _detail(handle, present),
        "budget": budget_of(present),
        "waits": waits,
        "question": waits[0]["question"] if waits else None,
        "unprotected": _unprotected(hf, run) if moving else None,
        "files": envelope is not None and any(one.name == "workspace" for one in envelope.sections),
    }
    return cast("answers.RunRowAnswer", document)


def _unprotected(hf: Holdfast, run: str) -> str | None:
    folder = run_folder(hf, run)
    return unprotected_since(folder) if folder is not None else None


def shown_status(status: str | None, *, moving: bool) -> str:
    """Return the word that the page shows: a run under way that no process moves is open."""
    if status == "running":
        return "moving" if moving else "open"
    return status or "saved"


def _detail(handle: Handle, present: Checkpoint) -> str:
    """Return the first line of what the run says about how it stands."""
    if "status" not in present.sections:
        return ""
    text = str(present.section("status").get("detail", ""))
    return handle.clean_text(text.partition("\n")[0][:400])


def budget_of(present: Checkpoint) -> list[answers.BudgetLine]:
    """Return the budgets of the run that have a limit or were used."""
    if "budget" not in present.sections:
        return []
    section = present.section("budget")
    return [
        {"name": name, "used": plain(one.used), "limit": plain(one.limit), "raised": plain(one.raised)}
        for name, one in section.spending.items()
    ]


def waits_of(handle: Handle, run: str) -> list[answers.WaitRow]:
    """Return what a run waits for, redacted."""
    found: list[answers.WaitRow] = handle.clean(
        [msgspec.structs.asdict(wait) for wait in handle.hf.control.waiting(run)], "waits"
    )
    return found


def forks_of(hf: Holdfast, overview: Overview) -> dict[str, list[str]]:
    """Return the runs that were begun from another one's checkpoint, by that checkpoint."""
    points: dict[str, list[str]] = {}
    for run in overview.all():
        try:
            first = hf.store.checkpoint_at(run["id"], 1)
        except HoldfastError:
            continue
        if first is not None and first.envelope.parent is not None:
            points.setdefault(first.envelope.parent, []).append(run["id"])
    return points
