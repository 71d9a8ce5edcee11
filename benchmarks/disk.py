"""What a subject leaves on disk, and what kind of disk it is."""

from __future__ import annotations

from pathlib import Path


def stored_bytes(directory: Path) -> int:
    """Return the size of all files below a directory."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())


def file_system(directory: Path) -> str:
    """Return the type of the file system that holds a directory, or "unknown"."""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    target, best, kind = directory.resolve(), Path(), "unknown"
    for mount in mounts:
        _, point, mount_kind, *_ = mount.split()
        if target.is_relative_to(point) and len(point) >= len(str(best)):
            best, kind = Path(point), mount_kind
    return kind
