"""What is kept out of a checkpoint: values marked as secret, and the marker that stands in their place."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Secret(Generic[T]):
    """A value that is never stored or shown; `env` names the variable that can bring it back on restore."""

    __slots__ = ("_value", "env")

    def __init__(self, value: T, *, env: str | None = None) -> None:
        self._value = value
        self.env = env

    def reveal(self) -> T:
        """Return the value itself."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if isinstance(self._value, str) and isinstance(other._value, str):
            from hmac import compare_digest  # noqa: PLC0415 - it loads OpenSSL, which few need

            return compare_digest(self._value.encode(errors="surrogatepass"), other._value.encode())
        return bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash(("holdfast.Secret", self.env))

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> Any:
        """Refuse to be pickled: a copy on disk is what this class is there to prevent."""
        raise TypeError("a Secret is not pickled; pass secret.reveal() where it is needed")


class Redacted(msgspec.Struct, frozen=True):
    """Stands where a secret was: which rule took it out, and the variable that can bring it back."""

    rule: str
    env: str | None = None

    def __str__(self) -> str:
        return f"[redacted:{self.rule}]"


class Redaction(msgspec.Struct, frozen=True, array_like=True):
    """One removal, by place and rule; never by value."""

    path: str
    rule: str
