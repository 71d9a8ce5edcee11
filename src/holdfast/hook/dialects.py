"""Dialects: how each coding assistant names its events and fields, as a table of data."""

from __future__ import annotations

from typing import Literal, NamedTuple

Do = Literal["attach", "capture", "destructive", "keep", "close"]
Path = tuple[str | int, ...]


class DialectRule(NamedTuple):
    """What an event causes: what is done, the trigger of its checkpoint, why in words, and how the assistant runs it.

    `attach` begins or resumes the session's run, `capture` takes what changed, `destructive` does so before shell
    commands that may destroy work, `keep` takes the transcript too, `close` only ends. `waits` says that the assistant
    waits for the answer, so that a person can be told something; `matcher` limits the event to some tools.
    """

    do: Do
    trigger: str
    why: str
    waits: bool = True
    matcher: str = ""
    timeout: int | None = None
    """How long the assistant lets it take, where it allows less than for other events."""


class Dialect(NamedTuple):
    """One assistant: its fields as ways into the JSON object, its events, how it is told, where it is configured."""

    name: str
    title: str
    tried: str
    """The version that this was tried against; empty if it was not."""
    marks: tuple[str, ...]
    """Fields that only this assistant has, in the events of which no name is given."""
    session: Path
    event: Path
    cwd: Path
    command: Path
    message: Path
    config: str
    """Its settings file, from the project's folder or the home directory."""
    layout: Literal["nested", "flat", "plugin"]
    timeout: int
    events: dict[str, DialectRule]
    prompt: Path = ("prompt",)
    tool: Path = ("tool_name",)
    transcript: Path = ("transcript_path",)
    agent: Path = ("agent_id",)
    agent_transcript: Path = ("agent_transcript_path",)
    context: str = "hookSpecificOutput"
    """Under what the start of a session is answered with context for the model; empty if it cannot be."""
    home_config: str = ""
    """Its settings file from the home directory, where that is another."""
    shells: tuple[str, ...] = ()
    """The tools that run shell commands; empty where the event is one of commands only."""


_SHELL_OF_CLAUDE = "Bash"
_AFTER = "after tools"
_PROMPT = DialectRule("capture", "phase_transition", "before a prompt")
_STOP = DialectRule("keep", "session_end", "the turn ended")

CLAUDE = Dialect(
    name="claude",
    title="Claude Code",
    tried="2.1.197",
    marks=(),
    session=("session_id",),
    event=("hook_event_name",),
    cwd=("cwd",),
    command=("tool_input", "command"),
    message=("systemMessage",),
    config=".claude/settings.json",
    layout="nested",
    timeout=30,
    shells=("Bash", "PowerShell"),
    events={
        "SessionStart": DialectRule("attach", "state_transition", "the session started"),
        "UserPromptSubmit": _PROMPT,
        "PreToolUse": DialectRule("destructive", "before_destructive", "before", matcher=_SHELL_OF_CLAUDE),
        "PostToolBatch": DialectRule("capture", "step_complete", _AFTER, waits=False),
        "PreCompact": DialectRule("keep", "state_transition", "before the conversation is compacted"),
        "SubagentStop": DialectRule("keep", "agent_complete", "a subagent ended", waits=False),
        "Stop": _STOP,
        "StopFailure": DialectRule("keep", "error_occurred", "the turn failed"),
        "SessionEnd": DialectRule("close", "session_end", "the session ended"),
    },
)
CODEX = CLAUDE._replace(
    name="codex",
    title="Codex",
    tried="0.169.0",
    marks=("turn_id",),
    config=".codex/hooks.json",
    shells=("Bash", "shell", "exec_command", "local_shell"),
    events={
        "SessionStart": DialectRule("attach", "state_transition", "the session started"),
        "UserPromptSubmit": _PROMPT,
        "PreToolUse": DialectRule("destructive", "before_destructive", "before", matcher=_SHELL_OF_CLAUDE),
        "PostToolUse": DialectRule("capture", "step_complete", _AFTER),
        "PreCompact": DialectRule("keep", "state_transition", "before the conversation is compacted"),
        "SubagentStop": DialectRule("keep", "agent_complete", "a subagent ended"),
        "Stop": _STOP,
        "Interrupt": DialectRule("keep", "user_interrupt", "the turn was interrupted", timeout=3),
        "SessionEnd": DialectRule("close", "session_end", "the session ended", timeout=3),
    },
)
GEMINI = CLAUDE._replace(
    name="gemini",
    title="Gemini CLI",
    tried="0.61.0",
    marks=("timestamp",),
    config=".gemini/settings.json",
    timeout=30_000,  # milliseconds
    shells=("run_shell_command",),
    events={
        "SessionStart": DialectRule("attach", "state_transition", "the session started"),
        "BeforeAgent": _PROMPT,
        "BeforeTool": DialectRule("destructive", "before_destructive", "before", matcher="run_shell_command"),
        "AfterTool": DialectRule("capture", "step_complete", _AFTER),
        "PreCompress": DialectRule("keep", "state_transition", "before the conversation is compacted"),
        "AfterAgent": _STOP,
        "SessionEnd": DialectRule("close", "session_end", "the session ended"),
    },
)
CURSOR = Dialect(
    name="cursor",
    title="Cursor",
    tried="",
    marks=("conversation_id",),
    session=("conversation_id",),
    event=("hook_event_name",),
    cwd=("workspace_roots", 0),
    command=("command",),
    message=("user_message",),
    config=".cursor/hooks.json",
    layout="flat",
    timeout=30,
    context="additional_context",
    events={
        "sessionStart": DialectRule("attach", "state_transition", "the session started"),
        "beforeSubmitPrompt": _PROMPT,
        "beforeShellExecution": DialectRule("destructive", "before_destructive", "before"),
        "afterShellExecution": DialectRule("capture", "step_complete", _AFTER),
        "afterFileEdit": DialectRule("capture", "step_complete", _AFTER),
        "preCompact": DialectRule("keep", "state_transition", "before the conversation is compacted"),
        "subagentStop": DialectRule("keep", "agent_complete", "a subagent ended"),
        "stop": _STOP,
        "sessionEnd": DialectRule("close", "session_end", "the session ended"),
    },
)
OPENCODE = Dialect(
    name="opencode",
    title="OpenCode",
    tried="1.18.33",
    marks=("opencode",),
    session=("session_id",),
    event=("event",),
    cwd=("cwd",),
    command=("args", "command"),
    message=("message",),
    config=".opencode/plugin/holdfast.js",
    layout="plugin",
    timeout=30,
    tool=("tool",),
    shells=("bash",),
    context="",
    home_config=".config/opencode/plugin/holdfast.js",
    events={
        "session.created": DialectRule("attach", "state_transition", "the session started"),
        "chat.message": _PROMPT,
        "tool.execute.before": DialectRule("destructive", "before_destructive", "before"),
        "tool.execute.after": DialectRule("capture", "step_complete", _AFTER),
        "session.idle": _STOP,
        "session.error": DialectRule("keep", "error_occurred", "the turn failed"),
    },
)

DIALECTS = {one.name: one for one in (CLAUDE, CODEX, GEMINI, CURSOR, OPENCODE)}
