"""How a run stands: running, waiting, paused, ended, completed, failed, cancelled."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.model.runtime_sections import Status, StatusValue

if TYPE_CHECKING:
    from holdfast.runtime.host import Host

FINAL = frozenset({"completed", "cancelled"})


class RunStatus:
    """The status of one run, as a live section."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._value: StatusValue | None = None
        self.changes = 0

    @property
    def status(self) -> Status | None:
        """How it stands, None before it began."""
        return self._value.status if self._value else None

    @property
    def detail(self) -> str:
        """Why."""
        return self._value.detail if self._value else ""

    def set(self, status: Status, detail: str = "") -> None:
        """Change it; stored with the next checkpoint."""
        if self._value is not None and (self._value.status, self._value.detail) == (status, detail):
            return
        self._value = StatusValue(status=status, since=self._host.now(), detail=detail)
        self.changes += 1

    def snapshot(self) -> Any:
        """Return it as plain data."""
        value = self._value or StatusValue(status="running", since=self._host.now())
        return msgspec.to_builtins(value, builtin_types=(datetime,))

    def restore(self, value: Any) -> None:
        """Take it back."""
        self._value = value if isinstance(value, StatusValue) else msgspec.convert(value, StatusValue)
        self.changes += 1
