"""Holdfast: checkpoint and recovery for AI-agent workflows.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast
    from holdfast.capture.protection import UnprotectedWarning
    from holdfast.capture.strategy import Every, On, OnBudgetWarning, OnLoopComplete, OnPhaseComplete, When
    from holdfast.checkpoint import Checkpoint
    from holdfast.encode.encrypt import generate_key
    from holdfast.encode.types import TypeRegistry
    from holdfast.engine import DamageWarning, Holdfast, open  # noqa: A004 - holdfast.open() reads well
    from holdfast.errors import (
        Ambiguous,
        BudgetExhausted,
        CannotResume,
        CaptureFailed,
        CheckpointCorrupt,
        ChunkCorrupt,
        CommandFailed,
        Conflict,
        Divergence,
        DocumentInvalid,
        EffectUncertain,
        FlowInvalid,
        FormatTooNew,
        GraphInvalid,
        HeadMoved,
        HoldfastError,
        IllegalTransition,
        IntegrityError,
        InvalidId,
        KeyRefused,
        LeaseHeld,
        LeaseLost,
        LimitExceeded,
        NoRoom,
        NotFound,
        PlanOutdated,
        PositionUnavailable,
        RecoveryError,
        RecoveryIncomplete,
        ReplanLimit,
        ReplayEnded,
        RestoreConflict,
        RestoreFailed,
        RestoreRefused,
        RunCancelled,
        RunClosed,
        RunCorrupt,
        RunDiffers,
        RunPaused,
        RunStopped,
        RunWaiting,
        SectionInvalid,
        SessionOver,
        SettingsInvalid,
        SettingsUntrusted,
        StepTimeout,
        StoreBusy,
        StoreCorrupt,
        StoreError,
        StoreFull,
        StoreUnavailable,
        SubjectUnavailable,
        UnknownType,
        Unprotected,
        UsageError,
        ValueRefused,
    )
    from holdfast.flow.advance import advance
    from holdfast.flow.load import load_flow
    from holdfast.flow.runner import run_flow
    from holdfast.model.redaction import Redacted, Secret
    from holdfast.model.sections import TokenUsage
    from holdfast.model.triggers import Trigger
    from holdfast.retain.policy import RetentionPolicy
    from holdfast.run import Run
    from holdfast.runtime.agents import AgentOutput
    from holdfast.runtime.calls import current_step
    from holdfast.runtime.checks import Gate
    from holdfast.runtime.command import Command
    from holdfast.runtime.gates import Response
    from holdfast.settings.values import Settings
    from holdfast.workspace.decide import Decisions

_HOMES = {
    "AgentOutput": "holdfast.runtime.agents",
    "AsyncHoldfast": "holdfast.aio",
    "Checkpoint": "holdfast.checkpoint",
    "Command": "holdfast.runtime.command",
    "DamageWarning": "holdfast.engine",
    "Decisions": "holdfast.workspace.decide",
    "Every": "holdfast.capture.strategy",
    "Gate": "holdfast.runtime.checks",
    "Holdfast": "holdfast.engine",
    "On": "holdfast.capture.strategy",
    "OnBudgetWarning": "holdfast.capture.strategy",
    "OnLoopComplete": "holdfast.capture.strategy",
    "OnPhaseComplete": "holdfast.capture.strategy",
    "Redacted": "holdfast.model.redaction",
    "Response": "holdfast.runtime.gates",
    "RetentionPolicy": "holdfast.retain.policy",
    "Run": "holdfast.run",
    "Secret": "holdfast.model.redaction",
    "Settings": "holdfast.settings.values",
    "TokenUsage": "holdfast.model.sections",
    "Trigger": "holdfast.model.triggers",
    "TypeRegistry": "holdfast.encode.types",
    "UnprotectedWarning": "holdfast.capture.protection",
    "When": "holdfast.capture.strategy",
    "advance": "holdfast.flow.advance",
    "current_step": "holdfast.runtime.calls",
    "generate_key": "holdfast.encode.encrypt",
    "load_flow": "holdfast.flow.load",
    "open": "holdfast.engine",
    "run_flow": "holdfast.flow.runner",
}

__all__ = [
    "AgentOutput",
    "Ambiguous",
    "AsyncHoldfast",
    "BudgetExhausted",
    "CannotResume",
    "CaptureFailed",
    "Checkpoint",
    "CheckpointCorrupt",
    "ChunkCorrupt",
    "Command",
    "CommandFailed",
    "Conflict",
    "DamageWarning",
    "Decisions",
    "Divergence",
    "DocumentInvalid",
    "EffectUncertain",
    "Every",
    "FlowInvalid",
    "FormatTooNew",
    "Gate",
    "GraphInvalid",
    "HeadMoved",
    "Holdfast",
    "HoldfastError",
    "IllegalTransition",
    "IntegrityError",
    "InvalidId",
    "KeyRefused",
    "LeaseHeld",
    "LeaseLost",
    "LimitExceeded",
    "NoRoom",
    "NotFound",
    "On",
    "OnBudgetWarning",
    "OnLoopComplete",
    "OnPhaseComplete",
    "PlanOutdated",
    "PositionUnavailable",
    "RecoveryError",
    "RecoveryIncomplete",
    "Redacted",
    "ReplanLimit",
    "ReplayEnded",
    "Response",
    "RestoreConflict",
    "RestoreFailed",
    "RestoreRefused",
    "RetentionPolicy",
    "Run",
    "RunCancelled",
    "RunClosed",
    "RunCorrupt",
    "RunDiffers",
    "RunPaused",
    "RunStopped",
    "RunWaiting",
    "Secret",
    "SectionInvalid",
    "SessionOver",
    "Settings",
    "SettingsInvalid",
    "SettingsUntrusted",
    "StepTimeout",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "SubjectUnavailable",
    "TokenUsage",
    "Trigger",
    "TypeRegistry",
    "UnknownType",
    "Unprotected",
    "UnprotectedWarning",
    "UsageError",
    "ValueRefused",
    "When",
    "__version__",
    "advance",
    "current_step",
    "generate_key",
    "load_flow",
    "open",
    "run_flow",
]


def __getattr__(name: str) -> object:
    """Load a public name from where it is defined; errors are the rest."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES.get(name, "holdfast.errors")), name)
    return value
