"""What a run is about and has learned: project, session, task, work breakdown, artifacts, lessons, decisions.

A program that runs again from its start says the same things again: each lesson, decision and artifact is kept once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.sections import typed
from holdfast.errors import UsageError
from holdfast.model.sections import Artifact, Decision
from holdfast.model.sections import Context as ContextSection
from holdfast.runtime.artifacts import artifact_of, changed
from holdfast.runtime.host import Alone
from holdfast.runtime.recorded import digest_of, kept

if TYPE_CHECKING:
    import os

    from holdfast.runtime.artifacts import ArtifactChange
    from holdfast.runtime.host import Host

_REDACTED = "[redacted:"  # what stands in a stored text where a secret was
_SETTABLE = ("project", "session", "task", "work_breakdown")


class Context:
    """The context of a run, as a live section; `root` is what artifact paths are relative to."""

    gives_typed = True

    def __init__(
        self,
        host: Host | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        session: str | None = None,
        **about: Any,
    ) -> None:
        self._host: Host = host or Alone()
        self._root = None if root is None else Path(root)
        self._section = ContextSection(session=session)
        self.changes = 0
        if about:
            self.set(**about)

    @property
    def project(self) -> str | None:
        """The project's name."""
        return self._section.project

    @property
    def session(self) -> str | None:
        """The session's name."""
        return self._section.session

    @property
    def task(self) -> str | None:
        """What is to be done, in words."""
        return self._section.task

    @property
    def work_breakdown(self) -> Any:
        """The parts that the task was taken apart into, as a copy."""
        return kept(self._section.work_breakdown)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What the run made."""
        return tuple(self._section.artifacts)

    @property
    def lessons(self) -> tuple[str, ...]:
        """What was learned."""
        return tuple(self._section.lessons)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What was decided, oldest first."""
        return tuple(self._section.decisions)

    @property
    def metadata(self) -> dict[str, Any]:
        """Whatever else was noted, as a copy."""
        copied: dict[str, Any] = kept(self._section.metadata)
        return copied

    def set(self, **about: Any) -> None:
        """Say what the run is about: `project`, `session`, `task`, `work_breakdown`."""
        unknown = [name for name in about if name not in _SETTABLE]
        if unknown:
            raise UsageError(f"a context has no {unknown[0]!r}: set {', '.join(_SETTABLE)}, or use note() for the rest")
        for name in _SETTABLE[:-1]:
            if not isinstance(about.get(name), str | None):
                raise UsageError(f"{name}={about[name]!r}: give a text")
        with self._host.lock:
            news = {
                name: self._host.keep(value, f"context {name}")
                for name, value in about.items()
                if getattr(self._section, name) != value
            }
            if news:
                self._replace(**news)

    def note(self, **metadata: Any) -> None:
        """Note anything else under names of your own."""
        with self._host.lock:
            self._replace(metadata={**self._section.metadata, **self._host.keep(metadata, "context metadata")})

    def add_artifact(
        self,
        path: str | os.PathLike[str],
        *,
        type: str = "file",  # noqa: A002 - the field's name
        id: str | None = None,  # noqa: A002 - the field's name
    ) -> Artifact:
        """Keep a file's path with its checksum of now; one of the same id is replaced."""
        artifact = artifact_of(path, type=type, id=id, root=self._root)
        with self._host.lock:
            if artifact not in self._section.artifacts:
                others = {known.id: known for known in self._section.artifacts}
                self._replace(artifacts=list({**others, artifact.id: artifact}.values()))
        return artifact

    def check(self) -> list[ArtifactChange]:
        """Return the artifacts whose file is gone or no longer what it was."""
        return changed(self._section.artifacts, self._root)

    def learn(self, lesson: str) -> bool:
        """Keep a lesson; tell whether it was new."""
        if not isinstance(lesson, str):
            raise UsageError(f"a lesson of {lesson!r:.80}: give a text")
        digest = digest_of(lesson) or ""
        with self._host.lock:
            known = self._section
            if lesson in known.lessons or digest in known.lesson_digests:
                return False
            self._replace(lessons=[*known.lessons, lesson], lesson_digests=[*known.lesson_digests, digest])
            return True

    def decide(self, decision: str, rationale: str = "", *, id: str | None = None) -> Decision:  # noqa: A002 - as above
        """Keep a decision and why it was taken; the same one again is the one that is there.

        With an id of your own, another decision under it is an error: a decision is taken back by a new one.
        """
        name = id or f"d-{digest_of([decision, rationale])}"
        with self._host.lock:
            known = next((one for one in self._section.decisions if one.id == name), None)
            if known is None:
                known = Decision(id=name, decision=decision, rationale=rationale, made_at=self._host.now())
                self._replace(decisions=[*self._section.decisions, known])
            elif id is not None and known.decision != decision and _REDACTED not in known.decision:
                raise UsageError(f"decision {name!r} is {known.decision!r} already: give the new one an id of its own")
            return known

    def snapshot(self) -> ContextSection:
        """Return all of it as a section."""
        return self._section

    def restore(self, value: Any) -> None:
        """Take a section back."""
        section: ContextSection = typed("context", value)
        own = msgspec.structs.replace(
            section, work_breakdown=kept(section.work_breakdown), metadata=kept(section.metadata)
        )
        with self._host.lock:
            self._section = own
            self.changes += 1

    def _replace(self, **fields: Any) -> None:
        self._section = msgspec.structs.replace(self._section, **fields)
        self.changes += 1
