"""Files that a run made, each with the checksum that it had then."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.encode.documents import blocks, open_regular
from holdfast.errors import DocumentInvalid, UsageError
from holdfast.model.sections import Artifact

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from holdfast.encode.documents import Stream

_MAX_BYTES = 16 << 30


class ArtifactChange(msgspec.Struct, frozen=True):
    """An artifact that is no longer what it was."""

    artifact: Artifact
    change: Literal["changed", "missing"]


def artifact_of(
    path: str | os.PathLike[str],
    *,
    type: str = "file",  # noqa: A002 - the field's name
    id: str | None = None,  # noqa: A002 - the field's name
    root: Path | None = None,
) -> Artifact:
    """Return a file as an artifact; its path is kept relative to the root, so that it holds on another machine."""
    given = Path(path)
    place = given if root is None else root / given
    try:
        checksum = checksum_of(place, follow=True)
    except (OSError, ValueError, DocumentInvalid) as error:
        raise UsageError(f"{str(given)!r} cannot become an artifact: {error}; write the file first") from error
    if root is not None and place.is_absolute() and place.is_relative_to(root):
        place = place.relative_to(root)
    shown = place.as_posix() if root is not None and not place.is_absolute() else given.as_posix()
    return Artifact(id=id or shown, type=type, path=shown, checksum=checksum)


def checksum_of(path: Path, *, follow: bool = False) -> str:
    """Return a file's checksum, as `sha256sum` would show it behind the colon; DocumentInvalid if it is not a file."""
    return f"sha256:{digest_of(path, open_regular(path, follow=follow))}"


def digest_of(path: Path | str, stream: Stream) -> str:
    """Return the SHA-256 of an open file, and close it; DocumentInvalid if it is larger than is read."""
    digest = hashlib.sha256()
    for block in blocks(path, stream, _MAX_BYTES):
        digest.update(block)
    return digest.hexdigest()


def changed(artifacts: Iterable[Artifact], root: Path | None = None) -> list[ArtifactChange]:
    """Return the artifacts whose file is gone or has another content; a checksum of another kind is not judged."""
    found: list[ArtifactChange] = []
    for artifact in artifacts:
        if not artifact.checksum.startswith("sha256:"):
            continue
        try:
            now = checksum_of(Path(artifact.path) if root is None else root / artifact.path)
        except (OSError, ValueError, DocumentInvalid):  # the path comes from the store: a link or pipe is not a file
            found.append(ArtifactChange(artifact, "missing"))
            continue
        if now != artifact.checksum:
            found.append(ArtifactChange(artifact, "changed"))
    return found
