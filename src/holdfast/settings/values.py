"""What a user can set, with the defaults; frozen values without I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from holdfast.capture.patterns import SECRET_KEYS
from holdfast.capture.protection import OnFailure
from holdfast.capture.triggers import DESTRUCTIVE_OPERATIONS, WORKSPACE_TRIGGERS
from holdfast.model.verdicts import Verdict
from holdfast.retain.policy import DEFAULT_RULES, RetentionPolicy, TriggerRule, check_policy

_MEGABYTE = 1 << 20

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every part of the settings shares: nothing unknown passes."""


class DestructiveSettings(Part, frozen=True):
    """Operations before which a checkpoint is taken."""

    operations: list[str] = []
    """Yours, beside the known ones."""


class StrategySettings(Part, frozen=True):
    """When an event leads to a checkpoint; without any of these, every trigger that is on does."""

    phases: list[str] | None = None
    """Only when one of these phases is complete; an empty list is any phase."""
    every_loops: Count | None = None
    on_budget_warning: bool = False
    every_s: Seconds | None = None


class SessionSettings(Part, frozen=True):
    """How a session ends."""

    signals: bool = True
    deadline_s: Seconds | None = None
    lead_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """How long before the deadline the position is saved."""


class RetentionSettings(Part, frozen=True):
    """What is kept; see docs/CAPTURE.md."""

    enabled: bool = True
    preset: Literal["workflow", "task"] = "workflow"
    """What holds where nothing below is set: for a workflow its rules per trigger, for a task the last five."""
    triggers: dict[str, int | TriggerRule] = {}
    live: Annotated[int, msgspec.Meta(ge=1)] | None = 50
    last: Annotated[int, msgspec.Meta(ge=1)] | None = None
    age_days: Annotated[float, msgspec.Meta(gt=0)] | None = 30
    total_mb: Annotated[float, msgspec.Meta(gt=0)] | None = None


class WorkspaceSettings(Part, frozen=True):
    """What is captured of a run's directory; patterns as in a .gitignore, see docs/WORKSPACE.md."""

    ignore: list[str] = []
    include: list[str] = []
    """Captured whatever any other rule says."""
    use_gitignore: bool = True
    use_git: bool = True
    max_files: Count = 200_000
    max_file_mb: Annotated[float, msgspec.Meta(gt=0)] = 512
    max_total_mb: Annotated[float, msgspec.Meta(gt=0)] = 8192


class RedactionSettings(Part, frozen=True):
    """What is kept out of checkpoints."""

    enabled: bool = True
    keys: list[str] = msgspec.field(default_factory=lambda: list(SECRET_KEYS))
    more_keys: list[str] = []
    paths: list[str] = []
    patterns: dict[str, str] = {}
    fill: dict[str, str] = {}
    """From a path to the environment variable that fills it again on restore."""
    fill_env: list[str] = []
    """Variables that a Secret(value, env=NAME) may be filled from."""


class RecoverySettings(Part, frozen=True):
    """What a plan says of things that moved outside the run since the checkpoint was taken."""

    verdicts: dict[str, Verdict] = {}
    """By kind of change, where it is not the default."""
    max_age_days: Annotated[float, msgspec.Meta(gt=0)] | None = None


class EncryptionSettings(Part, frozen=True):
    """Encryption at rest; a key file or variable switches it on."""

    key_file: str | None = None
    key_env: str | None = None
    sign: bool = False
    """Sign every checkpoint instead of encrypting: anyone may read, nobody without the key can alter."""


class Settings(Part, frozen=True):
    """All settings, with their defaults."""

    enabled: bool = True
    automatic: bool = True
    """Whether triggers, timer and retention act by themselves; a manual checkpoint always works."""
    location: str | None = None
    """Where the store is: a path or URL; {project} is the name of the settings file's folder, {root} its path."""
    compression: Literal["none", "zstd", "gzip", "lz4"] = "zstd"
    max_section_mb: Annotated[float, msgspec.Meta(gt=0, le=4096)] = 64
    interval_s: Seconds | None = 300
    triggers: dict[str, bool] = {}
    workspace_on: list[str] = msgspec.field(default_factory=lambda: sorted(WORKSPACE_TRIGGERS))
    on_checkpoint_failure: OnFailure = "continue"
    strategy: StrategySettings = StrategySettings()
    destructive: DestructiveSettings = DestructiveSettings()
    session: SessionSettings = SessionSettings()
    retention: RetentionSettings = RetentionSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    redaction: RedactionSettings = RedactionSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    recovery: RecoverySettings = RecoverySettings()

    @property
    def operations(self) -> tuple[str, ...]:
        """Every destructive operation, the known ones and the user's."""
        return tuple(dict.fromkeys((*DESTRUCTIVE_OPERATIONS, *self.destructive.operations)))

    @property
    def policy(self) -> RetentionPolicy:
        """The retention as a policy; a trigger's number is "the last so many", -1 is all."""
        retention = self.retention
        given = {
            name: rule if isinstance(rule, TriggerRule) else TriggerRule(rule, _is_per_phase(name))
            for name, rule in retention.triggers.items()
        }
        total = retention.total_mb
        base = RetentionPolicy.for_task() if retention.preset == "task" else RetentionPolicy()
        usual = RetentionSettings()
        return check_policy(
            RetentionPolicy(
                triggers={**base.triggers, **given},
                live=base.live if retention.live == usual.live else retention.live,
                last=base.last if retention.last == usual.last else retention.last,
                age_days=base.age_days if retention.age_days == usual.age_days else retention.age_days,
                total_bytes=None if total is None else max(1, int(total * _MEGABYTE)),
            )
        )


def _is_per_phase(trigger: str) -> bool:
    rule = DEFAULT_RULES.get(trigger)
    return rule is not None and rule.per_phase


_P = TypeVar("_P", bound=Part)


def merged(settings: _P, **given: Any) -> _P:
    """Return settings with what code gave put over them; None is not given."""
    changes = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(settings, **changes) if changes else settings
