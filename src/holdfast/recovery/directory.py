"""A run's directory while the run is open: whose each change is, a sign of life, and the tree captured at the start.

What people left is stored with the tree, so that going back later does not take it for the run's own work.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.errors import IntegrityError, NotFound
from holdfast.model.runtime_sections import Wait
from holdfast.model.triggers import Trigger
from holdfast.recovery.files import is_empty
from holdfast.run_files import heartbeat_file, side_lock, stamped
from holdfast.run_files import stamp as stamp_directory
from holdfast.workspace.decide import Decisions
from holdfast.workspace.git_create import Asked, announce, is_unfilled, put_git
from holdfast.workspace.heartbeat import Heartbeat, last_sign
from holdfast.workspace.restore import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.engine import Holdfast
    from holdfast.run import Run
    from holdfast.run_files import Changes
    from holdfast.workspace.heartbeat import SignOfLife
    from holdfast.workspace.snapshot import Snapshot

_log = logging.getLogger("holdfast")
_MOST_NAMED = 5


class OpenDirectory:
    """The directory of an open run."""

    def __init__(self, hf: Holdfast, run: Run, *, calls: Callable[[], Mapping[str, int]]) -> None:
        self._hf = hf
        self._run = run
        self._root = str(run.workspace.path)
        self._file = heartbeat_file(hf.store, run.id, self._root)
        self._side = side_lock(hf.store)
        self.heartbeat = Heartbeat(
            self._file,
            run.id,
            self._root,
            calls=calls,
            policies=run.host.policies_under_way,
            missing=run.workspace.capture.missing,
            lock=self._side.lock,
        )
        run.calls.told_policy = self.heartbeat.beat

    def last_sign(self) -> SignOfLife | None:
        """Return the process that worked here last."""
        return last_sign(self._file, self._run.id, self._root, unlock=self._side.unlock)

    def bring(self) -> None:
        """Bring the run's files to a directory that does not stand at its head: an empty one, or one that it left.

        What was edited there since is kept, or merged; what is overwritten is in a checkpoint first.
        """
        run, store = self._run, self._hf.store
        head = run.recorder.head_record
        wanted = run.workspace.capture.last(head)
        stamp = stamped(store, run.id, self._root)
        if head is None or wanted is None:
            return
        last = None
        if is_unfilled(self._root):  # also one whose files came and whose process was killed before its repository
            announce(self._root, wanted)
        if not is_empty(self._root):
            self._bring_git(wanted)
            if stamp is None or stamp.checkpoint == head.envelope.id:
                return  # at the head; or never this run's: what is there stays, and is captured as it is
            last = self._snapshot_at(stamp.checkpoint)
            if last is None or last.root == wanted.root:
                return
        plan = run.workspace.plan_of(wanted, last, Decisions(conflicts="keep", deleted="restore"))
        if plan.changes:
            counted = f"{len(plan.changes):,} path{'s' * (len(plan.changes) > 1)}"
            self._warn(
                f"{self._root} did not stand at {head.envelope.run}@{head.envelope.seq}: {counted} brought to it"
            )
            apply(plan, run.workspace.capture.reader, safety=self._save_stale if last is not None else None)
        self._bring_git(wanted)
        stamp_directory(store, head, self._root)

    def _bring_git(self, wanted: Snapshot) -> None:
        """Make the repositories that belong to files which were brought to an empty directory."""
        if not is_unfilled(self._root):
            return
        capture = self._run.workspace.capture
        made = put_git(self._root, wanted, capture.reader, Asked(clone=capture.workspace.options.clone))
        for text in (*made.words, *made.problems):
            self._warn(text)

    def _snapshot_at(self, checkpoint: str) -> Snapshot | None:
        try:
            return self._hf.get(checkpoint).workspace
        except (NotFound, IntegrityError):
            return None

    def _save_stale(self) -> None:
        """Keep the files as they are, beside the line: the head stays what it is."""
        run, head = self._run, self._run.head
        run.checkpoint(trigger=Trigger.BEFORE_DESTRUCTIVE, reason=f"{self._root} as it was, before it was brought up")
        if head is not None:
            run.checkpoint(trigger=Trigger.RECOVERY, reason="the files of the head", files=False, onto=head)

    def take_over(
        self, found: Changes | None, save: Callable[[str, dict[str, Any]], object], *, why: Sequence[str]
    ) -> None:
        """Keep or roll back what was interrupted, and `save` the tree if it changed, or for another reason `why`."""
        if found is None:
            save("the workspace as it is", {})
            return
        if not found.by_owner and not why:
            return
        interrupted = found.by_owner.get("interrupted", [])
        is_rolled_back = bool(interrupted) and self._policy(found, interrupted) == "roll_back"
        if interrupted:
            done = "rolled back" if is_rolled_back else "kept"
            what = found.ownership.interrupted
            self._warn(f"{what} was interrupted and had changed {_named(interrupted)}: {done}")
        life = found.ownership.life
        if life is not None and life.calls:
            from holdfast.recovery.gather import captured_beside  # noqa: PLC0415 - only after a kill

            for told in captured_beside(self._hf, self._run.recorder.head_record, life):
                self._warn(told)
        changed = [name for names in found.by_owner.values() for name in names]
        self._run.workspace.capture.before_entry = self._run.recorder.head_record
        capture = self._run.workspace.capture
        with capture.only_in(capture.looked(self._run.recorder.head_record)):
            save(f"changed since: {_named(changed)}" if changed else "; ".join(why), found.sections)
        if is_rolled_back:
            files = self._run.workspace
            files.restore(files.plan_of(found.last, found.last, Decisions(interrupted="roll_back"), found.ownership))

    def _policy(self, found: Changes, interrupted: list[str]) -> str:
        """Return what becomes of half-written files: as the calls say, or else the settings; a person may be asked."""
        life = found.ownership.life
        policy = life.policy if life is not None else None
        if policy != "ask":
            return policy or self._hf.settings.recovery.interrupted
        assert life is not None
        question = (
            f"{life.interrupted} was interrupted and had changed {_named(interrupted)}: keep that, or roll it back?"
        )
        wait = Wait(id=f"interrupted:{life.last_ns}", kind="approval", question=question, options=("keep", "roll_back"))
        return self._run.host.wait_for(wait).choice

    def _warn(self, text: str) -> None:
        _log.warning("run %s: %s", self._run.id, text)
        self._run.host.note("warning", text)


def _named(names: list[str]) -> str:
    """Return how many files there are, and the first of them."""
    count = "1 file" if len(names) == 1 else f"{len(names):,} files"
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return f"{count} ({', '.join(map(repr, sorted(names)[:_MOST_NAMED]))}{more})"
