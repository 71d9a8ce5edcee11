"""Storage: what takes room, what retention would delete and why, whether all is sound."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from blake3 import blake3

from holdfast.documents import plain
from holdfast.errors import HoldfastError
from holdfast.web import answers
from holdfast.web.events import EventIndex
from holdfast.web.history import LaneIndex, RunIndex
from holdfast.web.site import RequestRefused, short_place

if TYPE_CHECKING:
    from holdfast.retain.prune import Pruned
    from holdfast.store.api import StoreStats
    from holdfast.web.feed import PageFeed
    from holdfast.web.overview import Overview
    from holdfast.web.site import Handle, Site

_COUNTED_S = 1.5
_MOST_RUNS = 50
_MOST_DECISIONS = 500


class Storage:
    """Counts of runs, kept up; the last verification; what pruning was shown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: dict[str, RunIndex] = {}
        self._lanes: dict[str, LaneIndex] = {}
        self._events: dict[str, EventIndex] = {}
        self._verified: answers.Verified | None = None
        self._verifying = False
        self._shown: dict[str, str | None] = {}

    def index(self, run: str) -> RunIndex:
        """Return the light index of a run."""
        with self._lock:
            return self._indexes.setdefault(run, RunIndex(run))

    def lanes(self, run: str) -> LaneIndex:
        """Return the lanes of a run, as far as they are known."""
        with self._lock:
            return self._lanes.setdefault(run, LaneIndex(run))

    def events(self, run: str) -> EventIndex:
        """Return what happened in a run, as far as it is known."""
        with self._lock:
            return self._events.setdefault(run, EventIndex(run))

    def document(self, handle: Handle, overview: Overview) -> answers.StorageAnswer:
        """Return what takes room; runs that could not be counted in time are named as such and counted next time."""
        hf = handle.hf
        ends = time.monotonic() + _COUNTED_S
        runs = sorted(overview.all(), key=lambda run: str(run["updated_at"]), reverse=True)
        by_trigger: Counter[str] = Counter()
        by_day: Counter[str] = Counter()
        rows: list[answers.RunSize] = []
        left = 0
        for run in runs:
            if time.monotonic() > ends:
                left += 1
                continue
            index = self.index(run["id"])
            try:
                index.update(hf.store)
            except HoldfastError:
                continue
            by_trigger.update(index.by_trigger)
            by_day.update(index.by_day)
            rows.append({"run": run["id"], "bytes": index.stored_bytes, "checkpoints": run["checkpoints"]})
        rows.sort(key=lambda row: row["bytes"], reverse=True)
        stats = hf.stats()
        return {
            "stats": cast("answers.Stats", _stats(stats)),
            "keys": hf.keys.ids(),
            "runs": rows[:_MOST_RUNS],
            "runs_total": len(runs),
            "not_counted": left,
            "by_trigger": by_trigger.most_common(20),
            "by_day": sorted(by_day.items())[-60:],
            "retention": plain(hf.settings.policy),
            "verified": self._verified,
            "verifying": self._verifying,
        }

    def prune_plan(self, handle: Handle, run: str | None) -> answers.PrunePlan:
        """Return what pruning by the settings would do, and why; nothing is touched."""
        pruned = handle.hf.prune(run, dry_run=True)
        digest = _digest(pruned)
        with self._lock:
            self._shown[digest] = run
            while len(self._shown) > 20:  # noqa: PLR2004 - as many as plans of recoveries
                del self._shown[next(iter(self._shown))]
        counts: Counter[str] = Counter(one.action for one in pruned.decisions)
        reasons = Counter((one.action, one.reason) for one in pruned.decisions)
        doomed = [one for one in pruned.decisions if one.action != "keep"][:_MOST_DECISIONS]
        command = f"holdfast prune {run}" if run else "holdfast prune"
        return {
            "digest": digest,
            "counts": dict(counts),
            "reasons": [(action, reason, count) for (action, reason), count in reasons.most_common(40)],
            "decisions": [plain(one) for one in doomed],
            "command": f"{command} --dry-run",
        }

    def prune(self, handle: Handle, digest: str, typed: object) -> answers.PruneDone:
        """Prune exactly what was shown; refused if the plan would be another one now."""
        with self._lock:
            if digest not in self._shown:
                raise RequestRefused(404, "NotFound", "there is no such plan here: look again what would be deleted")
            run = self._shown[digest]
        if typed != (run or "prune"):
            raise RequestRefused(422, "NotConfirmed", f"type {run or 'prune'!r} to delete")
        now = handle.hf.prune(run, dry_run=True)
        if _digest(now) != digest:
            raise RequestRefused(409, "PlanOutdated", "the runs moved on since: look again what would be deleted")
        done = handle.hf.prune(run)
        with self._lock:
            self._shown.pop(digest, None)
        return {"deleted": len(done), "archived": len(done.archived)}

    def verify(self, site: Site, feed: PageFeed) -> answers.Job:
        """Begin to check everything in the background; one at a time."""
        with self._lock:
            if self._verifying:
                return {"job": "verify", "begun": False}
            self._verifying = True
        threading.Thread(target=self._verify, args=(site, feed), name="holdfast-verify", daemon=True).start()
        return {"job": "verify", "begun": True}

    def _verify(self, site: Site, feed: PageFeed) -> None:
        told = {"at": 0.0}

        def progress(what: str, count: int) -> None:
            if time.monotonic() - told["at"] > 0.2:  # noqa: PLR2004 - five times a second is enough to see
                told["at"] = time.monotonic()
                feed.tell({"type": "job", "cursor": "", "job": "verify", "what": what, "count": count, "done": False})

        try:
            with site.handles.read() as handle:
                report = handle.hf.verify(progress=progress)
            result: answers.Verified = {
                "sound": report.sound,
                "runs": report.runs,
                "checkpoints": report.checkpoints,
                "chunks": report.chunks,
                "faults": [plain(one) for one in report.faults[:200]],
                "at": time.time(),
            }
        except HoldfastError as error:
            result = {"sound": False, "problem": str(error), "faults": [], "at": time.time()}
        with self._lock:
            self._verified, self._verifying = result, False
        feed.tell({"type": "job", "cursor": "", "job": "verify", "done": True, "result": result})


def _stats(stats: StoreStats) -> dict[str, Any]:
    told = plain(stats) | {"url": short_place(stats.url)}
    return {name: told[name] for name in answers.Stats.__annotations__}


def _digest(pruned: Pruned) -> str:
    lines = "\n".join(f"{one.id} {one.action}" for one in pruned.decisions if one.action != "keep")
    return blake3(lines.encode()).hexdigest()
