"""Hooks: a command or a webhook that tells a person that a run waits for a decision, failed or is unprotected.

Each event is sent at most once: that it is sent is stored first. Sending happens beside the run, which does not wait
for it; only the end of the run does, as long as the hook's `timeout`. Events come without secrets (`redaction`).
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.runtime.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.flow.events import Event
    from holdfast.flow.model import Flow, Hook
    from holdfast.run import Run

_LOG = "flow-hooks"
_LONGEST_TEXT = 8000


class HookSender:
    """Sends the events of one run that a person is to hear of."""

    def __init__(self, run: Run, flow: Flow, root: Path) -> None:
        self._run = run
        self._flow = flow
        self._root = root
        self._threads: list[tuple[threading.Thread, float]] = []
        self.failures: list[str] = []

    def take(self, event: Event) -> None:
        """Send an event if there is a hook for it; nothing here stops the run."""
        hooks = self._flow.hooks
        if event.kind == "waiting" and event.data.get("wait_kind") not in ("pause", "timer", "cooldown"):
            self._send(hooks.on_wait, "waiting", event, f"wait:{event.data.get('wait')}")
        elif event.kind == "flow_failed":
            self._send(hooks.on_failure, "failed", event, None)
        elif event.kind == "unprotected":
            self._send(hooks.on_failure, "unprotected", event, None)

    def _send(self, hook: Hook | None, what: str, event: Event, once: str | None) -> None:
        if hook is None:
            return
        if once is not None:
            sent = self._run.log(_LOG)
            if once in list(sent):
                return
            sent.append(once)
        told = {
            "run": self._run.id,
            "flow": self._flow.name,
            "event": what,
            "phase": event.phase or "",
            "task": event.task or "",
            "wait": event.data.get("wait") or "",
            "options": event.data.get("options") or [],
            "text": event.text[:_LONGEST_TEXT],
            "at": event.at.isoformat(),
        }
        thread = threading.Thread(target=self._deliver, args=(hook, told), name="holdfast-hook", daemon=True)
        thread.start()
        self._threads.append((thread, hook.timeout))

    def _deliver(self, hook: Hook, told: dict[str, Any]) -> None:
        try:
            if hook.run is not None:
                env = {f"HOLDFAST_{name.upper()}": _text(value) for name, value in told.items()}
                Command(hook.run, cwd=self._root, env=env, timeout_s=hook.timeout).run().check()
            if hook.url is not None:
                _post(hook.url, told, hook.timeout)
        except (HoldfastError, OSError, ValueError) as error:
            self.failures.append(f"nobody was told that {told['run']} is {told['event']}: {error}")

    def close(self) -> list[str]:
        """Wait for what is being sent, as long as it may take; return what went wrong."""
        for thread, timeout_s in self._threads:
            thread.join(timeout_s + 1)
        return self.failures


def _text(value: Any) -> str:
    return value.replace("\0", "") if isinstance(value, str) else " ".join(value)


def _post(url: str, told: dict[str, Any], timeout_s: float) -> None:
    import urllib.request  # noqa: PLC0415 - takes longer to load than all else here

    headers = {"Content-Type": "application/json", "User-Agent": "holdfast"}
    request = urllib.request.Request(url, msgspec.json.encode(told), headers, method="POST")  # noqa: S310 - checked
    with contextlib.closing(urllib.request.urlopen(request, timeout=timeout_s)):  # noqa: S310 - http and https alone
        pass
