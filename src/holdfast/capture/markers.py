"""What stands for a secret that was taken out, as a value that can be packed and is restored.

Where the store keeps secrets reversibly, the value itself stands locked beside its marker or cleaned text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.model.redaction import Redacted, Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.encode.types import TypeRegistry


class KeptValue(NamedTuple):
    """What is shown for a value, and the value locked under the store's key; packed, it is never restored as such."""

    shown: Any
    locked: bytes


def register_markers(
    types: TypeRegistry,
    fill: Callable[[str], str | None] | None = None,
    unlock: Callable[[bytes], Any] | None = None,
) -> None:
    """Let Secret, Redacted and Kept be packed; a Secret leaves its value behind, whatever else is switched off.

    On the way back they are a Redacted marker, or what `fill` returns for the variable that the marker names; of what
    was kept, what is shown for it, or with `unlock` the value, unless that returns None.
    """

    def put_together(parts: Any) -> Any:
        marker = _marker(parts)
        value = fill(marker.env) if fill is not None and marker.env is not None else None
        return marker if value is None else value

    def opened(parts: Any) -> Any:
        shown, locked = parts
        if not isinstance(locked, bytes):
            raise TypeError("a kept value with odd parts")
        value = unlock(locked) if unlock is not None else None
        return shown if value is None else value

    types.register(Redacted, name="holdfast.Redacted", take_apart=_marker_parts, put_together=put_together)
    types.register(Secret, name="holdfast.Secret", take_apart=_secret_parts, put_together=put_together)
    types.register(KeptValue, name="holdfast.Kept", take_apart=list, put_together=opened)


def _marker_parts(marker: Redacted) -> list[Any]:
    return [marker.rule, marker.env]


def _secret_parts(secret: Secret[Any]) -> list[Any]:
    return ["marked", secret.env]


def _marker(parts: Any) -> Redacted:
    rule, env = parts
    if not isinstance(rule, str) or not (env is None or isinstance(env, str)):
        raise ValueError("a redaction marker with odd parts")
    return Redacted(rule, env)
