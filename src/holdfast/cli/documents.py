"""What the documents of --json hold at their top, by command; a promise that a test keeps."""

from __future__ import annotations

CHECKPOINT = (
    "id", "run", "seq", "parent", "trigger", "reason", "created_at", "status", "label", "pinned", "phase", "state",
    "steps", "run_status", "can_resume", "blockers", "sections", "size_bytes", "stored_bytes",
    "readable_id", "key", "attributes", "line", "number", "place", "capture_note",
)  # fmt: skip
RUN = (
    "id", "head", "checkpoints", "last_seq", "created_at", "updated_at", "status", "moving", "phase", "state",
    "trigger", "reason", "can_resume", "key", "attributes", "lines",
)  # fmt: skip
PHASES = (
    "plan", "current", "next", "left", "done", "saved_s", "phases", "replans", "current_phase", "completed_phases",
    "replan_count",
)  # fmt: skip
RECOVERY = ("recovered", "plan", "digest", "result")

DOCUMENTS: dict[str, tuple[str, ...]] = {
    "ls": ("runs", "after"),
    "log": ("run", "head", "checkpoints"),
    "show": (
        *CHECKPOINT, "checksum", "format_version", "program_version", "codec", "agents", "budget_used", "recovery",
        "redacted", "workspace",
    ),
    "show SECTION": ("id", "run", "seq", "sections"),
    "files": ("id", "files"),
    "files --left-out": ("id", "counts", "left_out"),
    "cat": ("id", "path", "base64", "size_bytes"),
    "diff": ("old", "new", "old_place", "new_place", "state", "files"),
    "stats": (
        "url", "engine", "runs", "checkpoints", "chunks", "chunk_bytes", "stored_bytes", "file_bytes", "oldest_at",
        "newest_at", "keys",
    ),
    "ui": ("address", "write"),
    "checkpoint": CHECKPOINT,
    "save": CHECKPOINT,
    "label": CHECKPOINT,
    "pin": CHECKPOINT,
    "mark": CHECKPOINT,
    "restore": ("checkpoint", "restored", "plan", "git", "report"),
    "delete": ("deleted", "checkpoints", "runs"),
    "prune": ("done", "counts", "runs", "decisions"),
    "status": (
        "run", "status", "moving", "head", "waits", "answered", "budget", "protection", "suggestions", "artifact_paths",
        "context_metadata", *PHASES,
    ),
    "begin": ("run", "new", *PHASES),
    "phase": ("run", "phase", *PHASES),
    "replan": ("run", "phase", "count", "left", "limit"),
    "resume": RECOVERY,
    "undo": RECOVERY,
    "fork": (*CHECKPOINT, "origin", "origin_place", "files_written", "directory"),
    "cost": ("run", "calls", "agents", "phases", "on_path", "in_all", "outside"),
    "patch": ("run", "call", "with_calls", "paths", "since", "until", "patch", "commit"),
    "history": ("run", "path", "versions"),
    "blame": ("run", "path", "lines"),
    "bisect": (
        "run", "command", "first_bad", "last_good", "suspects", "tried", "trees", "files_written", "reason",
    ),
    "replay": ("run", "steps"),
    "events": ("run", "events", "savings"),
    "pause": ("run", "asked"),
    "submit": ("run", "queue"),
    "queue": ("queue", "counts", "runs"),
    "advance": ("run", "outcome"),
    "cancel": ("run", "asked"),
    "approve": ("run", "wait", "question", "choice"),
    "reject": ("run", "wait", "question", "choice"),
    "answer": ("run", "wait", "question", "choice"),
    "signal": ("run", "signal"),
    "flow check": ("flow", "phases", "problems"),
    "logs": ("run", "tasks"),
    "budget": ("run", "wait", "raised", "limits"),
    "verify": ("sound", "runs", "checkpoints", "chunks", "faults", "notes"),
    "repair": ("sound", "rebuilt", "rebuilt_records", "marked", "set_back", "left", "done"),
    "copy": ("runs",),
    "export": ("runs",),
    "import": ("runs",),
    "store migrate": ("applied",),
    "store key ls": ("keys",),
    "store key new": ("key", "file"),
    "init": ("directory", "written", "git"),
    "trust": ("file", "wishes", "trusted"),
    "doctor": ("healthy", "findings"),
    "demo": ("kept_steps", "repeated_steps", "files_restored", "sound"),
    "completion": ("shell", "script"),
    "hook install": ("assistant", "file", "changed"),
    "hook status": ("installed", "sessions"),
}  # fmt: skip
