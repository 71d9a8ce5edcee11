"""What a run works on, as it was when it was last looked at: an issue, a task, an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.sections import typed
from holdfast.errors import UsageError
from holdfast.model.sections import Subject as SubjectSection
from holdfast.runtime.host import Alone
from holdfast.runtime.recorded import kept

if TYPE_CHECKING:
    from holdfast.runtime.host import Host

_COMPARED = ("id", "title", "body", "labels", "assignees", "branch")


class Subject:
    """The subject of a run, as a live section; its id is the run's unless given."""

    gives_typed = True

    def __init__(self, host: Host | None = None, *, session: str | None = None, **about: Any) -> None:
        self._host: Host = host or Alone()
        self._section = SubjectSection(id=self._host.id, session=session)
        self.changes = 0
        if about:
            self.update(**about)

    @property
    def value(self) -> SubjectSection:
        """The subject as it is known."""
        return self._section

    def update(self, **about: Any) -> SubjectSection:
        """Keep what the subject looks like now; return it. A field that a subject does not have is named."""
        unknown = [name for name in about if name not in SubjectSection.__struct_fields__]
        if unknown:
            fields = ", ".join(SubjectSection.__struct_fields__)
            raise UsageError(f"a subject has no {unknown[0]!r}: it has {fields}; anything else goes into metadata")
        with self._host.lock:
            merged = msgspec.structs.replace(self._section, **{name: _listed(item) for name, item in about.items()})
            seen = {} if "seen_at" in about else {"seen_at": self._host.now()}
            self._section = typed(
                "subject",
                msgspec.structs.replace(merged, metadata=self._host.keep(merged.metadata, "subject metadata"), **seen),
            )
            self.changes += 1
            return self._section

    def differences(self, now: SubjectSection | dict[str, Any]) -> list[str]:
        """Return the fields in which the subject of today is no longer what is kept here."""
        today: SubjectSection = typed("subject", now)
        return [name for name in _COMPARED if _order(getattr(today, name)) != _order(getattr(self._section, name))]

    def snapshot(self) -> SubjectSection:
        """Return it as a section."""
        return self._section

    def restore(self, value: Any) -> None:
        """Take a section back."""
        section: SubjectSection = typed("subject", value)
        with self._host.lock:
            self._section = msgspec.structs.replace(section, metadata=kept(section.metadata))
            self.changes += 1


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | set | frozenset | list) else value


def _order(value: Any) -> Any:
    """Return labels and assignees without the order in which they were listed."""
    return sorted(value) if isinstance(value, list) else value
