"""What a user can set, with the defaults; frozen values without I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec

from holdfast.capture.protection import OnFailure
from holdfast.capture.secret_keys import SECRET_KEYS
from holdfast.capture.triggers import DESTRUCTIVE_OPERATIONS
from holdfast.model.rules import RULES, Keep, Rules
from holdfast.model.verdicts import Verdict
from holdfast.retain.policy import RetentionPolicy, check_policy
from holdfast.settings.presets import preset_under

_MEGABYTE = 1 << 20

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class SettingsPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every part of the settings shares: nothing unknown passes."""


class DestructiveSettings(SettingsPart, frozen=True):
    """Operations before which a checkpoint is taken."""

    operations: list[str] = []
    """Yours, beside the known ones."""


class StrategySettings(SettingsPart, frozen=True):
    """When an event leads to a checkpoint; without any of these, every trigger that is on does, or none."""

    otherwise: Literal["all", "none"] = "all"
    """What leads to one where nothing below is set."""

    phases: list[str] | None = None
    """Only when one of these phases is complete; an empty list is any phase."""
    every_loops: Count | None = None
    on_budget_warning: bool = False
    every_s: Seconds | None = None


class SessionSettings(SettingsPart, frozen=True):
    """How a session ends."""

    signals: bool = True
    deadline_s: Seconds | None = None
    lead_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """How long before the deadline the position is saved."""


class RetentionSettings(SettingsPart, frozen=True):
    """What is kept; see docs/CAPTURE.md."""

    enabled: bool = True
    triggers: dict[str, int | Keep | None] = {}
    live: Annotated[int, msgspec.Meta(ge=1)] | None = 50
    last: Annotated[int, msgspec.Meta(ge=1)] | None = None
    age_days: Annotated[float, msgspec.Meta(gt=0)] | None = 30
    total_mb: Annotated[float, msgspec.Meta(gt=0)] | None = None


class WorkspaceSettings(SettingsPart, frozen=True):
    """What is captured of a run's directory; patterns as in a .gitignore, see docs/WORKSPACE.md."""

    ignore: list[str] = []
    include: list[str] = []
    """Captured whatever any other rule says."""
    use_gitignore: bool = True
    use_git: bool = True
    max_files: Count = 200_000
    max_file_mb: Annotated[float, msgspec.Meta(gt=0)] = 512
    max_total_mb: Annotated[float, msgspec.Meta(gt=0)] = 8192
    git_history_mb: Annotated[float, msgspec.Meta(ge=0)] = 64
    """A repository's history up to this size is kept, so that it can be put back elsewhere; with 0 nothing of it."""
    clone: bool = False
    """Whether putting a repository back may fetch from the remote that the checkpoint names what was too large."""


class RedactionSettings(SettingsPart, frozen=True):
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
    reversible: bool = False
    """Keep what is taken out under the key of an encrypted store: a program that resumes gets it, nobody else does."""


class RecoverySettings(SettingsPart, frozen=True):
    """What a resume does about what moved outside the run, and about work that was interrupted."""

    verdicts: dict[str, Verdict] = {}
    """By kind of change, where it is not the default."""
    max_age_days: Annotated[float, msgspec.Meta(gt=0)] | None = None
    interrupted: Literal["ask", "keep", "roll_back"] = "ask"
    """What becomes of files that an interrupted call had changed; where nobody can be asked they are kept."""


class EncryptionSettings(SettingsPart, frozen=True):
    """Encryption at rest; a key file or variable switches it on."""

    key_file: str | None = None
    key_env: str | None = None
    sign: bool = False
    """Sign every checkpoint instead of encrypting: anyone may read, nobody without the key can alter."""


class MirrorSettings(SettingsPart, frozen=True):
    """A readable mirror of the store: documents that people read, written after each checkpoint."""

    form: Literal["off", "yaml", "json", "task"] = "off"
    location: str = ""
    """A path with {run}, {task} or {issue} (of run issue-42: 42) in it; {root} and {project} are known too."""


class WorkerSettings(SettingsPart, frozen=True):
    """What delivers submitted runs to workers."""

    engine: Literal["absurd", "temporal"] = "absurd"
    """`absurd` is a queue in the store's PostgreSQL, `temporal` a server of your own."""
    temporal: str | None = None
    """The address of Temporal, host:port."""


class Settings(SettingsPart, frozen=True):
    """All settings, with their defaults."""

    enabled: bool = True
    automatic: bool = True
    """Whether triggers, timer and retention act by themselves; a manual checkpoint always works."""
    location: str | None = None
    """Where the store is: a path or URL; {project} is the name of the settings file's folder, {root} its path."""
    compression: Literal["none", "zstd", "gzip", "lz4"] = "zstd"
    max_section_mb: Annotated[float, msgspec.Meta(gt=0, le=4096)] = 64
    interval_s: Seconds | None = 300
    lease_s: Seconds = 30
    """How long a process that says nothing keeps a run; another one may take it over after that."""
    triggers: dict[str, bool] = {}
    workspace_on: list[str] = msgspec.field(
        default_factory=lambda: sorted(trigger for trigger, rule in RULES.rows.items() if rule.files)
    )
    on_checkpoint_failure: OnFailure = "continue"
    strategy: StrategySettings = StrategySettings()
    destructive: DestructiveSettings = DestructiveSettings()
    session: SessionSettings = SessionSettings()
    retention: RetentionSettings = RetentionSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    redaction: RedactionSettings = RedactionSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    recovery: RecoverySettings = RecoverySettings()
    workers: WorkerSettings = WorkerSettings()
    mirror: MirrorSettings = MirrorSettings()

    @property
    def operations(self) -> tuple[str, ...]:
        """Every destructive operation, the known ones and the user's."""
        return tuple(dict.fromkeys((*DESTRUCTIVE_OPERATIONS, *self.destructive.operations)))

    @classmethod
    def preset(cls, name: str, **given: Any) -> Self:
        """Return the settings that suit one kind of work, with what is given put over them; see docs/CAPTURE.md."""
        return msgspec.convert(preset_under({"preset": name, **given}), cls)

    @property
    def rules(self) -> Rules:
        """What each event causes."""
        rules = RULES.switched(self.triggers if self.automatic else {"*": False})
        return rules.capturing_files(self.workspace_on).keeping(self.retention.triggers)

    @property
    def policy(self) -> RetentionPolicy:
        """How much is kept."""
        kept = self.retention
        total_bytes = None if kept.total_mb is None else max(1, int(kept.total_mb * _MEGABYTE))
        return check_policy(
            RetentionPolicy(
                rules=self.rules, live=kept.live, last=kept.last, age_days=kept.age_days, total_bytes=total_bytes
            )
        )

    @property
    def max_section_bytes(self) -> int:
        """How large a section may be."""
        return int(self.max_section_mb * _MEGABYTE)


_P = TypeVar("_P", bound=SettingsPart)


def merged(settings: _P, **given: Any) -> _P:
    """Return settings with what code gave put over them; None is not given."""
    changes = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(settings, **changes) if changes else settings
