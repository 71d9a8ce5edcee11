"""Entering a run: what moved outside it is looked at first, then its directory is taken over.

A blocked run is blocked here as in a recovery, and the verdicts are the same. What passes is taken over: the subject as
it is now, and with the tree the place where the repository stands.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.errors import CannotResume, IntegrityError
from holdfast.model.runtime_sections import Wait
from holdfast.model.verdicts import OF_FILES, OF_POSITION
from holdfast.recovery.record import SECTION, read_record
from holdfast.recovery.suggest import suggestions
from holdfast.recovery.verdict import Freshness, enforced, wait_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.recovery.directory import OpenDirectory
    from holdfast.recovery.freshness import Finding, FreshnessFacts
    from holdfast.run import Run
    from holdfast.run_files import Changes

_log = logging.getLogger("holdfast")
_TAKEN_OVER = ("title", "body", "labels", "assignees", "branch", "url")


class OpenRun:
    """What happens when a run is entered and left."""

    def __init__(self, hf: Holdfast, run: Run, *, freshness: Freshness, calls: Callable[[], Mapping[str, int]]) -> None:
        self._hf = hf
        self._run = run
        self._freshness = freshness
        self._calls = calls
        self._directory: OpenDirectory | None = None

    def enter(self, save: Callable[[str, dict[str, Any]], object], *, is_new: bool) -> None:
        """Refuse, ask or warn by what moved; then take the directory over, and `save` it if it is not as it was."""
        run = self._run
        is_looked_at = self._hf.settings.enabled and not is_new
        changes = None
        if run.host.has_workspace:
            from holdfast.recovery.directory import OpenDirectory  # noqa: PLC0415 - only runs with files pay for it
            from holdfast.run_files import changes_by_owner  # noqa: PLC0415 - the same

            self._directory = OpenDirectory(self._hf, run, calls=self._calls)
            if is_looked_at:
                self._directory.bring()
                changes = changes_by_owner(run)
        found = self._inspect(changes, is_new=is_new) if self._hf.settings.enabled else ()
        self._follow_label(found, save)
        if self._directory is not None:
            if is_looked_at:
                moved = [one.detail for one in found if one.verdict != "resume"]
                self._directory.take_over(changes, save, why=moved)
            self._directory.heartbeat.start()

    def _follow_label(self, found: tuple[Finding, ...], save: Callable[[str, dict[str, Any]], object]) -> None:
        """Let the phase follow the state label of the issue, if its labels changed; a flow says itself what is next."""
        head = self._run.head
        if head is None or "phases" not in head.sections or "flow" in head.sections:
            return
        if not any(one.kind == "labels-changed" for one in found):
            return
        from holdfast.runtime.phases import following_label  # noqa: PLC0415 - few runs have an issue

        known = head.section("subject").labels if "subject" in head.sections else ()
        labels = self._run.subject.value.labels
        moved = following_label(head.section("phases"), labels, self._run.host.now(), before=known)
        if moved is not None:
            save(f"its labels say {moved[0]}", {"phases": moved[1]})

    def leave(self) -> None:
        """Say that this process is no longer at work."""
        if self._directory is not None:
            self._directory.heartbeat.stop()

    def _inspect(self, changes: Changes | None, *, is_new: bool) -> tuple[Finding, ...]:
        run = self._run
        head = run.head if not is_new else None
        if head is None:
            self._take_subject(None)
            return ()
        if head.summary.status == "completed":
            return ()
        check_blockers(head)
        if not self._is_worth_a_look():
            return ()
        from holdfast.recovery.freshness import facts_now, facts_then, findings, without_accepted  # noqa: PLC0415

        life = self._directory.last_sign() if self._directory is not None else None
        then = facts_then(head, flow=self._freshness.flow_then)
        place = str(run.workspace.path) if run.host.has_workspace else None
        now = facts_now(
            then,
            place,
            at=run.host.now(),
            changed_paths=changes.theirs if changes is not None else None,
            provider=self._freshness.subject,
            flow=self._freshness.flow,
            worked_until_ns=life.last_ns if life is not None else None,
        )
        chosen = self._freshness
        found = findings(then, now, verdicts=chosen.verdicts, older_than=chosen.older_than)
        found = without_accepted(found, head, head.record)
        if _is_new_fork(head):  # its directory has a branch of its own: killed before that was captured
            found = tuple(one for one in found if one.kind not in OF_POSITION)
        ask_or_refuse(run, head, found)
        for one in found:
            if one.verdict == "warn":
                _log.warning("run %s: %s", run.id, one.detail + (_hint(head) if one.kind in OF_FILES else ""))
                run.host.note("warning", one.detail)
        self._take_subject(now)
        return found

    def _is_worth_a_look(self) -> bool:
        """Tell whether anything could have moved that is looked at: most runs have neither files nor a subject."""
        freshness = self._freshness
        has_subject = freshness.subject is not None
        return (
            self._run.host.has_workspace
            or has_subject
            or freshness.older_than is not None
            or freshness.flow is not None
        )

    def _take_subject(self, now: FreshnessFacts | None) -> None:
        """Keep the subject as it is now: new labels are the run's from here on."""
        source = self._freshness.subject
        if source is None:
            return
        seen = now.subject if now is not None else None
        if now is None or (seen is None and not now.is_subject_known and now.subject_problem is None):
            seen = source.first()
        if seen is not None:
            taken = {name: getattr(seen, name) for name in _TAKEN_OVER}
            self._run.subject.update(id=seen.id, **taken)


def _hint(head: Checkpoint) -> str:
    """Say what becomes of changed files, and what to type: who reads it has a run that just died."""
    spec = f"{head.run}@{head.seq}"
    return (
        f". The changes are kept: `holdfast diff {spec}` shows them, `holdfast restore {spec} --exact` puts back the "
        "files of that checkpoint"
    )


def ask_or_refuse(run: Run, head: Checkpoint, found: Sequence[Finding]) -> None:
    """Raise CannotResume where to start fresh is the verdict; where it is to ask, let a person decide.

    The answer is stored, and holds as long as nothing else moves.
    """
    if enforced(run.id, head.id, found) != "ask":
        return
    wait, question = wait_of(found)
    reply = run.host.wait_for(Wait(id=wait, kind="approval", question=question, options=("resume", "stop")))
    if reply.choice != "resume":
        raise CannotResume(run.id, head.id, (question,), (f"`holdfast resume {run.id} --fresh`",))


def _is_new_fork(head: Checkpoint) -> bool:
    """Tell whether a run is a fork that was not entered yet."""
    told = read_record(head.section(SECTION)) if head.seq == 1 and SECTION in head.sections else None
    return told is not None and told.kind == "fork"


def check_blockers(checkpoint: Checkpoint) -> None:
    """Raise CannotResume if what a checkpoint says of itself blocks the run, with what can be done about it."""
    try:
        info = checkpoint.recovery
    except IntegrityError:
        return  # what is damaged is told by who reads it
    if info.blockers and "cancelled" not in info.blocker_kinds:  # that one has an error of its own
        ways = suggestions(info, spec=checkpoint.run, checkpoint=checkpoint.id)
        raise CannotResume(checkpoint.run, checkpoint.id, info.blockers, tuple(map(str, ways)))
