"""Bytes that are stored and read exactly as they are: a pickle, an image, an archive, a framework's own format."""

from __future__ import annotations


class Opaque(bytes):
    """Bytes that redaction never looks into or edits; they are restored as Opaque, equal to the bytes that went in.

    Plain bytes are edited where they are text and hold a secret. Keeping secrets out of what is wrapped is up to you.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Opaque({super().__repr__()})"
