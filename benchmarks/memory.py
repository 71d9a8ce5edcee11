"""Peak resident memory of a stretch of code, where the kernel lets us reset the peak."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class PeakMemory:
    """Growth from the resident size at the start to the highest one inside the `with` block."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.growth_bytes: int | None = None
        self._start_bytes: int | None = None

    def __enter__(self) -> Self:
        """Forget the peak so far."""
        with suppress(OSError):
            _CLEAR_REFS.write_text(_RESET_PEAK)
            self._start_bytes = _status_bytes("VmRSS")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Note the peak."""
        if self._start_bytes is not None:
            self.growth_bytes = max(0, _status_bytes("VmHWM") - self._start_bytes)

    def in_units_of(self, size_bytes: int) -> float | None:
        """Return the growth as a multiple of a size, or None where it cannot be measured."""
        return None if self.growth_bytes is None else self.growth_bytes / size_bytes


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1_024
    raise OSError(f"{_STATUS} has no {field}")
