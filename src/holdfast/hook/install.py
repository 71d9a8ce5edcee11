"""Hooks in an assistant's own configuration: the change as text first, then written in one piece."""

from __future__ import annotations

import difflib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.encode.documents import read_regular
from holdfast.errors import DocumentInvalid, UsageError
from holdfast.own_folder import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.hook.dialects import Dialect, DialectRule

_MAX_BYTES = 8 * 1024 * 1024


class InstallChange(NamedTuple):
    """What an installation would write, and what is there now."""

    file: Path
    before: str | None
    after: str

    @property
    def is_needed(self) -> bool:
        """Whether anything would change."""
        return self.before != self.after

    def diff(self) -> str:
        """Return the change as a unified diff."""
        old = (self.before or "").splitlines(keepends=True)
        name = str(self.file)
        lines = difflib.unified_diff(old, self.after.splitlines(keepends=True), name if old else "/dev/null", name)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def write(self) -> None:
        """Replace the file in one piece; its mode stays."""
        target = self.file.resolve()  # of the user's own folders; in a project there is no link on the way
        try:
            if _read(target) != self.before:
                raise UsageError(f"{self.file} was changed since it was read: install again")
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o644 if self.before is None else target.stat().st_mode & 0o777
            write_whole(target, self.after.encode(), mode=mode)
        except OSError as error:
            raise UsageError(
                f"{self.file} cannot be written ({error.strerror}): put that right, or add it by hand"
            ) from error


def plan_install(dialect: Dialect, file: Path, command: str) -> InstallChange:
    """Return the change to an assistant's configuration in a file; hooks of others stay as they are."""
    before = _read(file)
    if dialect.layout == "plugin":
        return InstallChange(
            file, before, _PLUGIN.replace("COMMAND", json.dumps([*shlex.split(command), "--from", dialect.name]))
        )
    settings = _parsed(file, before)
    hooks = settings.setdefault("hooks", {})
    if not isinstance(hooks, dict):
        raise UsageError(f"'hooks' in {file} is not an object: put that right, then install again")
    if dialect.layout == "flat":
        settings.setdefault("version", 1)
    for event, rule in dialect.events.items():
        entries = hooks.get(event, [])
        if not isinstance(entries, list):
            raise UsageError(f"'hooks.{event}' in {file} is not a list: put that right, then install again")
        kept = [one for one in entries if not any(map(_is_ours, _commands(one)))]
        hooks[event] = [*kept, _entry(dialect, rule, command)]
    return InstallChange(file, before, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def installed_events(dialect: Dialect, file: Path) -> list[str]:
    """Return the events of an assistant's configuration that call us."""
    before = _read(file)
    if dialect.layout == "plugin":
        return list(dialect.events) if before is not None and '"hook"' in before else []
    hooks = _parsed(file, before).get("hooks", {})
    found = hooks.items() if isinstance(hooks, dict) else ()
    return [
        name for name, entries in found
        if isinstance(entries, list) and any(_is_ours(text) for one in entries for text in _commands(one))
    ]  # fmt: skip


def _entry(dialect: Dialect, rule: DialectRule, command: str) -> dict[str, Any]:
    line, timeout = f"{command} --from {dialect.name}", rule.timeout or dialect.timeout
    if dialect.layout == "flat":
        return {"command": line, "timeout": timeout}
    hook: dict[str, Any] = {"type": "command", "command": line, "timeout": timeout}
    if not rule.waits:
        hook["async"] = True
    return {"matcher": rule.matcher, "hooks": [hook]} if rule.matcher else {"hooks": [hook]}


def _commands(entry: Any) -> Iterator[str]:
    """Yield the commands of one entry, in either layout."""
    if isinstance(entry, dict):
        for one in [entry, *(entry["hooks"] if isinstance(entry.get("hooks"), list) else [])]:
            if isinstance(one, dict) and isinstance(one.get("command"), str):
                yield one["command"]


def _is_ours(command: str) -> bool:
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return "hook" in words and any(Path(word).name in ("holdfast", "hold") for word in words)


def _read(file: Path) -> str | None:
    try:
        return read_regular(file, limit=_MAX_BYTES, follow=True).decode()
    except DocumentInvalid as error:
        raise UsageError(f"{file} {error.detail}: that is not a settings file") from None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read ({error}): put that right, then install again") from error


def _parsed(file: Path, text: str | None) -> dict[str, Any]:
    if text is None or not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON ({error}): put that right, then install again") from None
    if not isinstance(found, dict):
        raise UsageError(f"{file} is not a JSON object: put that right, then install again")
    return found


_PLUGIN = """\
// Written by `holdfast hook install opencode`: tells Holdfast what happens in a session.
const command = COMMAND

export const Holdfast = async ({ directory, client }) => {
  const tell = async (event, sessionID, more = {}) => {
    if (!sessionID) return
    try {
      const child = Bun.spawn(command, { stdin: "pipe", stdout: "pipe", stderr: "ignore" })
      child.stdin.write(JSON.stringify({ opencode: 1, event, session_id: sessionID, cwd: directory, ...more }))
      child.stdin.end()
      const answer = JSON.parse((await new Response(child.stdout).text()) || "{}")
      if (answer.message) await client.tui.showToast({ body: { message: answer.message, variant: "warning" } })
    } catch {
      // an assistant is never stopped by its checkpoints
    }
  }
  return {
    event: async ({ event }) => {
      const session = event.properties?.sessionID ?? event.properties?.info?.id
      if (["session.created", "session.idle", "session.error"].includes(event.type)) await tell(event.type, session)
    },
    "chat.message": async (input, output) => {
      const prompt = (output.parts ?? []).map((part) => part.text ?? "").join(" ")
      await tell("chat.message", input.sessionID, { prompt })
    },
    "tool.execute.before": async (input, output) => {
      await tell("tool.execute.before", input.sessionID, { tool: input.tool, args: output.args })
    },
    "tool.execute.after": async (input) => {
      await tell("tool.execute.after", input.sessionID, { tool: input.tool })
    },
  }
}
"""
