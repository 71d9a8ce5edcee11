"""Differences for people: unified diffs of text, a word for what is binary or large, a summary as of `diff --stat`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.workspace import paths
from holdfast.workspace.directory import FILE, LINK, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.workspace.compare import Change, Tree

MAX_DIFF_BYTES = 1024 * 1024
_BINARY_PROBE = 8000
_WIDTH = 50


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The difference of one path; `note` stands for a diff that is not shown."""

    change: Change
    text: str
    added: int
    removed: int
    note: str = ""


def is_binary(data: bytes) -> bool:
    """Return whether bytes are not text, as git decides it."""
    return b"\0" in data[:_BINARY_PROBE]


def diff(change: Change, old: Tree, new: Tree) -> FileDiff:
    """Return the unified diff of one change."""
    if (change.old and change.old.kind not in (FILE, LINK)) or (change.new and change.new.kind not in (FILE, LINK)):
        return FileDiff(change, "", 0, 0, "directory")
    before_path = change.before.path if change.before else change.path
    before = _content(old, before_path, change.old)
    after = _content(new, change.path, change.new)
    if before is None or after is None:
        return FileDiff(change, "", 0, 0, "large")
    if is_binary(before) or is_binary(after):
        return FileDiff(change, "", 0, 0, "binary")
    lines = _unified(
        before,
        after,
        f"a/{paths.in_a_line(before_path)}" if change.old else "/dev/null",
        f"b/{paths.in_a_line(change.path)}" if change.new else "/dev/null",
    )
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return FileDiff(change, "".join(_marked(line) for line in lines), added, removed)


def unified(before: bytes, after: bytes, old_name: str, new_name: str) -> str:
    """Return the unified diff of two texts; what is not UTF-8 in them is escaped as surrogates."""
    return "".join(_marked(line) for line in _unified(before, after, old_name, new_name))


def _unified(before: bytes, after: bytes, old_name: str, new_name: str) -> list[str]:
    return list(difflib.unified_diff(_lines(before), _lines(after), old_name, new_name))


def summary(diffs: Sequence[FileDiff]) -> str:
    """Return one line a file and the totals."""
    shown = [item for item in diffs if item.note != "directory"]
    width = max((len(_title(item.change)) for item in shown), default=0)
    most = max((item.added + item.removed for item in shown), default=0)
    lines = []
    for item in shown:
        count = item.added + item.removed
        scale = min(1.0, _WIDTH / most) if most else 1.0
        bar = "+" * _scaled(item.added, scale) + "-" * _scaled(item.removed, scale)
        amount = item.note or item.change.status if item.note or not count else f"{count} {bar}"
        lines.append(f" {_title(item.change):<{width}} | {amount}")
    added, removed = sum(item.added for item in shown), sum(item.removed for item in shown)
    plural = "" if len(shown) == 1 else "s"
    lines.append(f" {len(shown)} file{plural} changed, {added} insertions(+), {removed} deletions(-)")
    return "\n".join(lines)


def _content(tree: Tree, path: str, entry: Entry | None) -> bytes | None:
    if entry is None:
        return b""
    if entry.kind == LINK:
        return entry.target
    return tree.content(paths.raw(path), entry, MAX_DIFF_BYTES)


def _lines(data: bytes) -> list[str]:
    parts = data.decode("utf-8", "surrogateescape").split("\n")
    return [line + "\n" for line in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _marked(line: str) -> str:
    return line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"


def _title(change: Change) -> str:
    if change.status == "renamed" and change.before is not None:
        return f"{paths.in_a_line(change.before.path)} => {paths.in_a_line(change.path)}"
    return paths.in_a_line(change.path)


def _scaled(count: int, scale: float) -> int:
    return max(1, round(count * scale)) if count else 0
