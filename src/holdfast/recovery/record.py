"""What a recovery leaves in the run: the section `recovery`, and in an undo point what is about to be done."""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.model.sections import WORKSPACE

if TYPE_CHECKING:
    from holdfast.model.checkpoint import CheckpointRecord

SECTION = "recovery"
INTENT = "recovering"  # in an undo point: the plan that was being carried out, so that a kill leaves nothing half done
TRIGGER = "recovery"
_MAX_BYTES = 256 * 1024 * 1024


class RecoveryRecord(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """The last recovery of a line: from which checkpoint, and which one to go back to in order to undo it."""

    source: str | None
    undo: str | None
    at: datetime
    plan: str = ""
    kind: Literal["recover", "undo", "fresh", "fork"] = "recover"
    run: str = ""  # of a fork: the run that it came from
    workspace: str = ""  # the directory whose files it put back; none if it left files alone
    git: bool = False  # whether it put the git position back, too
    warnings: tuple[str, ...] = ()
    skipped_agents: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    """How the repository had moved when a person confirmed it, where the recovery captured nothing."""
    mark: str = ""
    """Under this user's own key: that this user recovered the run so, in that directory; see `marked`."""

    def marked(self, run: str, undo: CheckpointRecord | None) -> RecoveryRecord:
        """Return it under this user's mark: its directory, and what an undo puts there, may be believed later."""
        from holdfast.workspace.user_key import user_mark  # noqa: PLC0415 - who only lists needs no key

        return msgspec.structs.replace(self, mark=user_mark("recovery", *self._stated(run, undo)))

    def is_own(self, run: str, undo: CheckpointRecord | None) -> bool:
        """Tell whether this user made this recovery of a run, with this checkpoint to go back to."""
        from holdfast.workspace.user_key import is_user_mark  # noqa: PLC0415

        return is_user_mark(self.mark, "recovery", *self._stated(run, undo))

    def _stated(self, run: str, undo: CheckpointRecord | None) -> tuple[object, ...]:
        checksum = undo.checksum.hex() if undo is not None else None
        return run, self.kind, self.source, self.undo, checksum, self.workspace, self.git

    def value(self) -> dict[str, Any]:
        """Return it as the section's value."""
        plain: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(datetime,))
        return plain | {name: list(getattr(self, name)) for name in ("warnings", "skipped_agents", "accepted")}


def read_record(value: Any) -> RecoveryRecord | None:
    """Return a stored section as a record, None if it is none: what is stored is not trusted."""
    try:
        return msgspec.convert(value, RecoveryRecord)
    except msgspec.ValidationError:
        return None


def accepted_name(record: CheckpointRecord, detail: str) -> str:
    """Return the name under which it is accepted that a repository moved so since a checkpoint captured it."""
    root = next((section.root.hex() for section in record.envelope.sections if section.name == WORKSPACE), "")
    return blake3(f"{root} {detail}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_undo_point(record: CheckpointRecord) -> bool:
    """Tell whether a checkpoint was taken before a recovery, with what was about to be done."""
    envelope = record.envelope
    return envelope.trigger == TRIGGER and any(section.name == INTENT for section in envelope.sections)


def intent_value(plan: bytes) -> dict[str, Any]:
    """Return a plan as JSON as the section's value: packed, so that redaction has no text to change in it."""
    from holdfast.workspace.user_key import user_mark  # noqa: PLC0415

    return {"plan": zlib.compress(plan), "mark": user_mark("intent", blake3(plan).hexdigest())}


class Intent(NamedTuple):
    """What was about to be done, and whether this user was about to do it."""

    plan: bytes
    is_own: bool


def read_intent(value: Any) -> Intent | None:
    """Return the plan's JSON of a stored section, None if there is none: what is stored is not trusted."""
    packed = value.get("plan") if isinstance(value, dict) else None
    if not isinstance(packed, bytes):
        return None
    try:
        plan = zlib.decompressobj().decompress(packed, _MAX_BYTES)
    except zlib.error:
        return None
    from holdfast.workspace.user_key import is_user_mark  # noqa: PLC0415

    mark = value.get("mark")
    return Intent(plan, isinstance(mark, str) and is_user_mark(mark, "intent", blake3(plan).hexdigest()))
