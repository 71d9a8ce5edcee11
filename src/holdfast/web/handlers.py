"""What each route does: plain functions of the site, a handle and what was asked, which return plain data."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.documents import plain
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.model.ids import check_run_id
from holdfast.model.sections import WORKSPACE
from holdfast.model.triggers import Trigger
from holdfast.version import __version__
from holdfast.web import approvals, comparing, files, history, values
from holdfast.web import messages as said
from holdfast.web.history import document_of, facts_of
from holdfast.web.overview import forks_of, summary_of
from holdfast.web.planbook import PAGE as PLAN_PAGE
from holdfast.web.site import RequestRefused, found, short_place
from holdfast.web.task_output import task_output
from holdfast.web.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.checkpoint import Checkpoint
    from holdfast.web import answers
    from holdfast.web.feed import PageFeed
    from holdfast.web.overview import Overview
    from holdfast.web.planbook import PlanBook
    from holdfast.web.site import Handle, PageRequest, Site
    from holdfast.web.storage import Storage

_MOST_ROWS = 200
_MOST_LOOKED = 60
_MOST_DELETED = 5000
_MOST_EDITED = 1 << 20


@dataclass(frozen=True, slots=True)
class Desk:
    """All that handlers share."""

    site: Site
    overview: Overview
    feed: PageFeed
    plans: PlanBook
    storage: Storage


class Handler(NamedTuple):
    """A function, and whether it needs the handle that may write."""

    call: Callable[[Desk, Handle, PageRequest], Any]
    writes: bool = False


def about(desk: Desk, handle: Handle, _ask: PageRequest) -> answers.About:
    """Return which store this is, and what may be done."""
    store = handle.hf.store
    return {
        "url": short_place(store.url) if not store.url.startswith("postgres") else "postgresql",
        "project": desk.site.workspace.name if desk.site.workspace else "",
        "workspace": short_place(str(desk.site.workspace)) if desk.site.workspace else None,
        "writes": desk.site.writes,
        "user": desk.site.user,
        "version": __version__,
        "triggers": [str(one) for one in Trigger],
    }


def runs(desk: Desk, _handle: Handle, ask: PageRequest) -> answers.RunPage:
    """Return a page of runs."""
    return desk.overview.page(
        status=ask.text("status"),
        text=ask.text("q"),
        order=ask.text("order", "moved"),
        offset=ask.number("offset", 0, most=1 << 31),
        limit=ask.number("limit", 50, most=_MOST_ROWS),
    )


def run(desk: Desk, handle: Handle, ask: PageRequest) -> answers.RunDetail:
    """Return how a run stands: where, why, what it waits for, who moves it, where it came from."""
    name = check_run_id(ask.path["run"])
    hf = handle.hf
    hf.store.run(name)
    summary = summary_of(handle, name)
    lease = hf.store.leases.running(name)
    stands = {
        **summary,
        "owner": lease.owner if lease is not None else None,
        "deleted": [one.seq for one in hf.store.tombstones(name)[:_MOST_DELETED]] if _has_gaps(summary) else [],
        "forks": desk.site.looks.of(("forks", len(desk.overview.all())), lambda: forks_of(hf, desk.overview)),
    }
    told = cast("answers.RunDetail", stands)
    try:
        head = hf.latest(name, required=True)
        told["head_row"] = history.row_document(hf, head.record, head=head.id)
        told["recovery"] = plain(head.recovery)
        told["why"] = _why(handle, head)
        told["phases"] = _phases(handle, head)
        told["lineage"] = [plain(one) for one in hf.recovery.lineage(name)]
        told["can_undo"] = _can_undo(head)
        told["number"] = head.number
    except HoldfastError as error:
        told["problem"] = str(error)
    return told


def _has_gaps(told: answers.RunRowAnswer) -> bool:
    return told["checkpoints"] < told["last_seq"]


def _can_undo(head: Checkpoint) -> bool:
    from holdfast.recovery.record import SECTION, read_record  # noqa: PLC0415 - with the rest of a recovery

    done = read_record(head.section(SECTION)) if SECTION in head.sections else None
    return done is not None and done.undo is not None


def _why(handle: Handle, head: Checkpoint) -> answers.Why | None:
    """Return why a run failed: what it says itself, and what the gate said that stopped it."""
    if head.summary.status not in ("failed", "cancelled"):
        return None
    status = head.section("status") if "status" in head.sections else {}
    gates = [one for one in approvals.gates_of(handle, head) if not one["success"] and not one["skipped"]]
    return {"detail": handle.clean_text(str(status.get("detail", ""))[:4000]), "gates": gates}


def _phases(handle: Handle, head: Checkpoint) -> list[answers.PhaseAnswer]:
    if "phases" not in head.sections:
        return []
    book = head.section("phases")
    rows = [
        {
            "name": name,
            "status": book.phases[name].status if name in book.phases else "pending",
            "attempt": book.phases[name].attempt if name in book.phases else 0,
            "duration_s": book.phases[name].duration_s if name in book.phases else 0,
            "summary": book.phases[name].summary[:300] if name in book.phases else "",
        }
        for name in [*book.order, *(name for name in book.phases if name not in book.order)]
    ]
    cleaned: list[answers.PhaseAnswer] = handle.clean(rows, "phases")
    return cleaned


def output(_desk: Desk, handle: Handle, ask: PageRequest) -> answers.TaskOutputAnswer:
    """Return what the tasks of a run print: their names, and the end of one task's text."""
    return task_output(handle, check_run_id(ask.path["run"]), ask.text("task"))


def checkpoints(_desk: Desk, handle: Handle, ask: PageRequest) -> answers.CheckpointPage:
    """Return a page of a run's checkpoints, by place or by what is searched for."""
    name = ask.path["run"]
    limit = ask.number("limit", 100, most=_MOST_ROWS)
    wanted = {key: ask.text(key) for key in ("trigger", "phase", "q") if ask.text(key)}
    before = ask.number("before", 0, most=1 << 48) or None
    if ask.text("path"):
        return _touching(handle, name, ask.text("path"), wanted, before=before)
    if wanted:
        return history.search(handle.hf, name, wanted, before=before, limit=limit)
    offset = ask.number("offset", 0, most=1 << 31)
    if ask.text("around"):
        seq = ask.number("around", 0, most=1 << 48)
        offset = max(0, history.place_of(handle.hf, name, seq) - limit // 2)
    return history.page(handle.hf, name, offset=offset, limit=limit)


def _touching(
    handle: Handle, name: str, path: str, wanted: dict[str, str], *, before: int | None
) -> answers.CheckpointPage:
    """Return the checkpoints that first had a version of one file, and fit what else is wanted."""
    told = files.history(handle, name, path, before=before)
    head = handle.hf.store.run(name).head
    records = [handle.hf.store.checkpoint(one["id"]) for one in told["versions"]]
    rows = [history.row_document(handle.hf, one, head=head) for one in records if history.fits(one, wanted)]
    return {"run": name, "rows": rows, "looked_at": told["looked_at"], "next": told["next"]}


def lanes(desk: Desk, handle: Handle, ask: PageRequest) -> answers.LanesAnswer:
    """Return the lanes of a run's graph."""
    name = check_run_id(ask.path["run"])
    chains = desk.storage.lanes(name).chains(handle.hf.store)
    return {
        "run": name,
        "chains": [
            {
                "lane": one.lane,
                "ranges": [(high, low) for high, low in one.ranges],
                "joins": one.joins,
                "gaps": one.gaps,
            }
            for one in chains
        ],
    }


def samples(_desk: Desk, handle: Handle, ask: PageRequest) -> answers.Samples:
    """Return the budgets over the run."""
    return history.samples(handle.hf, ask.path["run"], ask.number("n", 300, most=1000))


def spans(desk: Desk, handle: Handle, ask: PageRequest) -> answers.Spans:
    """Return the timeline of a run."""
    return timeline(handle, desk.storage.events(check_run_id(ask.path["run"])))


def touched(desk: Desk, handle: Handle, ask: PageRequest) -> answers.Touched:
    """Return how many files each of some checkpoints touched."""
    name = check_run_id(ask.path["run"])
    ends = time.monotonic() + history.SEARCH_S
    counted: dict[str, dict[str, int]] = {}
    for seq in ask.text("seqs").split(",")[:_MOST_LOOKED]:
        if not seq.isdigit() or time.monotonic() > ends:
            continue
        try:
            record = handle.hf.store.checkpoint_at(name, int(seq))
        except HoldfastError:
            continue
        if record is None:
            continue
        one = handle.hf.internals.opened(record)
        counts: dict[str, int] = {}
        for change in desk.site.looks.of(("changed", one.id), lambda one=one: files.changed_paths(one)):  # type: ignore[misc]
            counts[change.status] = counts.get(change.status, 0) + 1
        counted[seq] = counts
    return {"run": name, "touched": counted}


def events(desk: Desk, handle: Handle, ask: PageRequest) -> answers.EventPage:
    """Return what happened in a run, newest first, a page at a time."""
    name = check_run_id(ask.path["run"])
    offset, limit = ask.number("offset", 0, most=1 << 31), ask.number("limit", 100, most=500)
    index = desk.storage.events(name)
    everything = index.of(handle)[1]
    shown = handle.clean(everything[::-1][offset : offset + limit], "events")
    return {"run": name, "total": len(everything), "offset": offset, "is_cut": index.is_cut, "events": shown}


def checkpoint(desk: Desk, handle: Handle, ask: PageRequest) -> answers.CheckpointDetail:
    """Return one checkpoint: what it is, its sections, its files in figures, whether the run can continue from it."""
    one = found(handle, ask.path["spec"])
    head = handle.hf.store.run(one.run).head
    envelope = one.record.envelope
    sizes = {part.name: part.size for part in envelope.sections}
    parent, parent_problem = _parent(handle, one)
    work, work_problem = _workspace(desk, one) if WORKSPACE in one.sections else (None, None)
    return {
        **facts_of(one),
        "is_head": one.id == head,
        "has_later_entries": one.number > one.record.number,
        "checksum": one.checksum,
        "codec": envelope.codec,
        "program_version": envelope.program_version,
        "recovery": plain(one.recovery),
        "budget_used": one.summary.budget_used,
        "redacted_count": one.redacted_count,
        "redacted": [plain(part) for part in one.redacted[:100]],
        "sections": [{"name": name, "size": sizes.get(name, 0)} for name in one.sections if name != WORKSPACE],
        "workspace": work,
        "workspace_problem": work_problem,
        "parent_at": parent,
        "parent_problem": parent_problem,
        "last_seq": handle.hf.store.run(one.run).last_seq,
    }


def _workspace(desk: Desk, one: Checkpoint) -> tuple[answers.Captured | None, str | None]:
    """Return the files in figures, or why they cannot be told."""
    try:
        shot, git, left = one.workspace, one.git, files.left_out(one)
    except HoldfastError as error:
        return None, str(error)
    changed = desk.site.looks.of(("changed", one.id), lambda: files.changed_paths(one))
    told: answers.Captured = {
        "files": shot.files,
        "directories": shot.directories,
        "size_bytes": shot.size_bytes,
        "left_out": left,
        "git": {"head": git.head, "branch": git.branch, "commit": git.commit, "dirty": git.dirty},
        "changed": [{"path": change.path, "status": change.status} for change in changed[:500]],
        "changed_total": len(changed),
    }
    return told, None


def _parent(handle: Handle, one: Checkpoint) -> tuple[answers.PlaceAnswer | None, str | None]:
    """Return where the parent is, or why that cannot be told."""
    if one.parent is None:
        return None, None
    try:
        parent = handle.hf.store.checkpoint(one.parent).envelope
    except HoldfastError as error:
        return None, str(error)
    return {"run": parent.run, "seq": parent.seq, "id": parent.id}, None


def section(desk: Desk, handle: Handle, ask: PageRequest) -> answers.SectionPage:
    """Return a page of one place in a section; one that is damaged says which."""
    one = found(handle, ask.path["spec"])
    name = ask.path["name"]
    if name not in one.sections or name == WORKSPACE:
        raise NotFound("section", name)
    steps = values.steps_of(ask.text("path"))
    offset, limit = ask.number("offset", 0, most=1 << 40), ask.number("limit", 50, most=values.MOST_ITEMS)
    value = values.at(desk.site.section(one, name), steps)
    shown = values.excerpt(handle, name, value, steps, offset=offset, limit=limit)
    return {**values.page(value, shown, offset=offset), "id": one.id, "seq": one.seq, "section": name}


def whole_section(desk: Desk, handle: Handle, ask: PageRequest) -> answers.WholeSection:
    """Return a whole section as JSON, for editing; one that is too large to edit is refused."""
    one = found(handle, ask.path["spec"])
    name = ask.path["name"]
    if name not in one.sections or name == WORKSPACE:
        raise NotFound("section", name)
    if next((part.size for part in one.record.envelope.sections if part.name == name), 0) > _MOST_EDITED:
        raise RequestRefused(
            413, "TooLarge", "this section is more than a megabyte: edit it with `holdfast fork --section`"
        )
    return {"name": name, "value": handle.clean(desk.site.section(one, name), name)}


def directory(desk: Desk, handle: Handle, ask: PageRequest) -> answers.DirectoryPage:
    """Return a page of one captured directory."""
    one = found(handle, ask.path["spec"])
    changed = desk.site.looks.of(("changed", one.id), lambda: files.changed_paths(one))
    offset, limit = ask.number("offset", 0, most=1 << 31), ask.number("limit", 200, most=500)
    return files.directory(handle.hf, one.record, ask.text("under"), offset=offset, limit=limit, changed=changed)


def file(_desk: Desk, handle: Handle, ask: PageRequest) -> answers.FileText:
    """Return a captured file as text."""
    one = found(handle, ask.path["spec"])
    return files.file_text(handle, one.record, ask.text("path"), offset=ask.number("offset", 0, most=1 << 48))


def file_history(_desk: Desk, handle: Handle, ask: PageRequest) -> answers.FileHistoryAnswer:
    """Return every version of one path."""
    before = ask.number("before", 0, most=1 << 48) or None
    return files.history(handle, ask.path["run"], ask.text("path"), before=before)


def blame(_desk: Desk, handle: Handle, ask: PageRequest) -> answers.Blame:
    """Return which checkpoint each line of a file came with."""
    return files.blame(handle, ask.path["run"], ask.text("path"))


def compare(desk: Desk, handle: Handle, ask: PageRequest) -> answers.Comparison:
    """Return what differs between two points."""
    return comparing.compare(desk.site, handle, ask.text("a"), ask.text("b"))


def compare_section(desk: Desk, handle: Handle, ask: PageRequest) -> answers.DifferencePage:
    """Return a page of what differs in one section."""
    offset, limit = ask.number("offset", 0, most=1 << 31), ask.number("limit", 100, most=200)
    return comparing.section(
        desk.site, handle, ask.text("a"), ask.text("b"), ask.text("name"), offset=offset, limit=limit
    )


def messages(desk: Desk, handle: Handle, ask: PageRequest) -> answers.MessagePage:
    """Return what was said in a run, up to a checkpoint or up to now."""
    name, at = check_run_id(ask.path["run"]), ask.number("at", 0, most=1 << 48) or None
    offset, limit = ask.number("offset", 0, most=1 << 31), ask.number("limit", 50, most=200)
    return said.page(desk.site, handle, name, at, offset=offset, limit=limit)


def compare_messages(desk: Desk, handle: Handle, ask: PageRequest) -> answers.MessageChanges:
    """Return the messages that only one of two points has."""
    offset, limit = ask.number("offset", 0, most=1 << 31), ask.number("limit", 50, most=200)
    return said.compare(desk.site, handle, ask.text("a"), ask.text("b"), offset=offset, limit=limit)


def compare_file(desk: Desk, handle: Handle, ask: PageRequest) -> answers.FileDiffAnswer:
    """Return how one file differs."""
    return comparing.file(desk.site, handle, ask.text("a"), ask.text("b"), ask.text("path"))


def make_plan(desk: Desk, handle: Handle, ask: PageRequest) -> answers.PlanAnswer:
    """Make a plan; nothing is touched."""
    return desk.plans.make(desk.site, handle, ask.body)


def plan(desk: Desk, handle: Handle, ask: PageRequest) -> answers.PlanAnswer:
    """Return a plan with a page of its files, and whether it still holds."""
    offset, limit = ask.number("offset", 0, most=1 << 31), ask.number("limit", PLAN_PAGE, most=1000)
    return desk.plans.document(handle, ask.path["digest"], offset=offset, limit=limit)


def plan_item(desk: Desk, handle: Handle, ask: PageRequest) -> answers.PlanSides:
    """Return the sides of one file of a plan, and the result."""
    return desk.plans.sides(handle, ask.path["digest"], ask.text("path"))


def run_plan(desk: Desk, handle: Handle, ask: PageRequest) -> answers.PlanDone:
    """Carry out exactly the plan that was shown."""
    if ask.body:
        raise UsageError("a plan is carried out as it was shown: send nothing with it, or make another plan")
    digest = ask.path["digest"]

    def progress(done: int, total: int) -> None:
        desk.feed.tell(
            {"type": "job", "cursor": "", "job": digest, "done": done >= total, "count": done, "total": total}
        )

    return desk.plans.carry_out(handle, digest, progress)


def fork(_desk: Desk, handle: Handle, ask: PageRequest) -> answers.CheckpointDocument:
    """Begin a new run from a checkpoint, with edited sections."""
    spec, name = ask.given("spec", str), ask.given("name", str)
    sections = ask.given("sections", dict, {})
    if spec is None or name is None or len(sections) > 100:  # noqa: PLR2004 - a checkpoint has few sections
        raise UsageError("give spec, name and sections")
    first = handle.hf.fork(spec, name, sections=sections, label=ask.given("label", str))
    return document_of(first)


def tell(desk: Desk, handle: Handle, ask: PageRequest) -> answers.Told:
    """Say something to a run: pause, unpause, cancel, or a larger budget."""
    name, what = check_run_id(ask.path["run"]), ask.path["what"]
    note = ask.given("note", str, "")
    by = desk.site.user
    if what == "budget":
        more = ask.given("more", dict, {})
        handle.hf.control.raise_budget(name, more, by=by, note=note)
    elif what in ("pause", "unpause", "cancel"):
        {"pause": handle.hf.control.pause, "unpause": handle.hf.control.unpause, "cancel": handle.hf.control.cancel}[
            what
        ](name, by=by, note=note)
    else:
        raise RequestRefused(404, "NotFound", f"a run cannot be told {what!r}")
    handle.hf.store.wake(name)
    desk.overview.look_again(handle, name)
    desk.feed.tell_run(name)
    return {"run": name, "asked": what, "by": by}


def answer(desk: Desk, handle: Handle, ask: PageRequest) -> answers.GivenAnswer:
    """Answer what a run waits for."""
    name = check_run_id(ask.path["run"])
    told = approvals.answer(desk.site, handle, name, ask.path["wait"], ask.body)
    desk.overview.look_again(handle, name)
    desk.feed.tell_run(name)
    return told


def inbox(desk: Desk, handle: Handle, _ask: PageRequest) -> answers.Inbox:
    """Return what waits for a person."""
    return approvals.inbox(handle, desk.overview)


def marks(desk: Desk, handle: Handle, ask: PageRequest) -> answers.CheckpointDocument:
    """Give a checkpoint a label, or pin it."""
    one = found(handle, ask.path["spec"])
    changes: dict[str, Any] = {}
    if "label" in ask.body:
        changes["label"] = ask.given("label", str) or None
    if "pinned" in ask.body:
        changes["pinned"] = ask.given("pinned", bool)
    marked = handle.hf.mark(one.id, **changes)
    desk.feed.tell({"type": "marks", "cursor": "", "run": one.run, "seq": one.seq})
    return document_of(marked)


def storage(desk: Desk, handle: Handle, _ask: PageRequest) -> answers.StorageAnswer:
    """Return what takes room."""
    return desk.storage.document(handle, desk.overview)


def plan_prune(desk: Desk, handle: Handle, ask: PageRequest) -> answers.PrunePlan:
    """Return what retention would delete."""
    return desk.storage.prune_plan(handle, ask.given("run", str))


def prune(desk: Desk, handle: Handle, ask: PageRequest) -> answers.PruneDone:
    """Delete exactly what was shown."""
    return desk.storage.prune(handle, ask.path["digest"], ask.body.get("typed"))


def verify(desk: Desk, _handle: Handle, _ask: PageRequest) -> answers.Job:
    """Begin to check everything."""
    return desk.storage.verify(desk.site, desk.feed)


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/api/about", Handler(about)),
    ("GET", "/api/runs", Handler(runs)),
    ("GET", "/api/runs/{run}", Handler(run)),
    ("GET", "/api/runs/{run}/checkpoints", Handler(checkpoints)),
    ("GET", "/api/runs/{run}/lanes", Handler(lanes)),
    ("GET", "/api/runs/{run}/samples", Handler(samples)),
    ("GET", "/api/runs/{run}/spans", Handler(spans)),
    ("GET", "/api/runs/{run}/touched", Handler(touched)),
    ("GET", "/api/runs/{run}/events", Handler(events)),
    ("GET", "/api/runs/{run}/messages", Handler(messages)),
    ("GET", "/api/runs/{run}/output", Handler(output)),
    ("GET", "/api/runs/{run}/file-history", Handler(file_history)),
    ("GET", "/api/runs/{run}/blame", Handler(blame)),
    ("GET", "/api/c/{spec}", Handler(checkpoint)),
    ("GET", "/api/c/{spec}/section/{name}", Handler(section)),
    ("GET", "/api/c/{spec}/whole/{name}", Handler(whole_section)),
    ("GET", "/api/c/{spec}/files", Handler(directory)),
    ("GET", "/api/c/{spec}/file", Handler(file)),
    ("GET", "/api/compare", Handler(compare)),
    ("GET", "/api/compare/section", Handler(compare_section)),
    ("GET", "/api/compare/file", Handler(compare_file)),
    ("GET", "/api/compare/messages", Handler(compare_messages)),
    ("GET", "/api/waits", Handler(inbox)),
    ("GET", "/api/storage", Handler(storage)),
    ("POST", "/api/plans", Handler(make_plan)),
    ("GET", "/api/plans/{digest}", Handler(plan)),
    ("GET", "/api/plans/{digest}/item", Handler(plan_item)),
    ("POST", "/api/plans/{digest}/run", Handler(run_plan, writes=True)),
    ("POST", "/api/fork", Handler(fork, writes=True)),
    ("POST", "/api/runs/{run}/tell/{what}", Handler(tell, writes=True)),
    ("POST", "/api/waits/{run}/{wait:path}", Handler(answer, writes=True)),
    ("POST", "/api/c/{spec}/marks", Handler(marks, writes=True)),
    ("POST", "/api/prune", Handler(plan_prune)),
    ("POST", "/api/prune/{digest}/run", Handler(prune, writes=True)),
    ("POST", "/api/verify", Handler(verify)),
)
