"""Tools of a commit: what an adapter that makes commits of its own takes from the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.capture.redact import RedactionRules
    from holdfast.encode.chunks import ChunkReader
    from holdfast.encode.compress import Compressor
    from holdfast.encode.types import TypeRegistry


class Tools(NamedTuple):
    """How values become chunks and rows in one store, by its settings."""

    types: TypeRegistry
    rules: RedactionRules | None
    """What redaction takes out; None if it is switched off."""
    compressor: Compressor
    reader: ChunkReader
    clock: Callable[[], float]
    entropy: Callable[[int], bytes]
    max_section_bytes: int
