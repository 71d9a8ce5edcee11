"""Repositories of every shape, made by git itself: a layout, and what is under way in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit.workspace.kit import git, repository, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TREE = {
    "a": "1\n2\n3\n",
    "b": "x\n",
    "d": {"c": "y\n", "e": {"f": "z\n"}},
    "s.sh": "#!/bin/sh\n",
    ".gitignore": "*.o\n",
}


def plain(root: Path) -> None:
    repository(root, TREE)
    for number in range(3):
        write(root, {"a": f"1\n2\n{number}\n", f"n{number}": "n\n"})
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"number {number}")


def branches_and_tags(root: Path) -> None:
    plain(root)
    git(root, "branch", "feature/with-a-slash", "HEAD~1")
    git(root, "tag", "light", "HEAD~2")
    git(root, "tag", "-a", "-m", "a tag", "heavy", "HEAD~1")
    git(root, "notes", "add", "-m", "noted")
    git(root, "checkout", "-q", "-b", "größe")
    write(root, {"b": "on a branch\n"})
    git(root, "commit", "-qam", "on a branch")
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "-m", "merged", "größe")


def packed(root: Path) -> None:
    branches_and_tags(root)
    git(root, "gc", "-q", "--prune=now")
    git(root, "pack-refs", "--all")


def cloned(root: Path) -> None:
    """Ahead of its remote, and behind it."""
    plain(root.parent / f"{root.name}-origin")
    git(root.parent, "clone", "-q", str(root.parent / f"{root.name}-origin"), str(root))
    write(root.parent / f"{root.name}-origin", {"b": "at the remote\n"})
    git(root.parent / f"{root.name}-origin", "commit", "-qam", "at the remote")
    git(root, "fetch", "-q")
    write(root, {"d": {"c": "ahead\n"}})
    git(root, "commit", "-qam", "ahead")


def shallow(root: Path) -> None:
    plain(root.parent / f"{root.name}-origin")
    git(root.parent, "clone", "-q", "--depth", "1", f"file://{root.parent}/{root.name}-origin", str(root))


def linked(root: Path) -> None:
    """A worktree of a repository that lies elsewhere."""
    plain(root.parent / f"{root.name}-main")
    git(root.parent / f"{root.name}-main", "worktree", "add", "-q", "-b", "beside", str(root))
    write(root, {"b": "in the worktree\n"})
    git(root, "commit", "-qam", "in the worktree")


def submodule(root: Path) -> None:
    plain(root.parent / f"{root.name}-library")
    plain(root)
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", f"../{root.name}-library", "lib")
    git(root, "commit", "-qam", "a library")
    write(root / "lib", {"a": "changed below\n"})


def nested(root: Path) -> None:
    plain(root)
    plain(root / "vendor/inner")
    write(root / "vendor/inner", {"b": "changed below\n", "u": "untracked below\n"})


def bare_below(root: Path) -> None:
    plain(root)
    git(root, "clone", "-q", "--bare", ".", "copy.git")


def sparse(root: Path) -> None:
    plain(root)
    git(root, "sparse-checkout", "set", "--no-cone", "/*", "!/d", "!/n1")


def sparse_index(root: Path) -> None:
    plain(root)
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index")


def lfs_pointers(root: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
    plain(root)
    write(root, {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "large.bin": pointer})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "large files")


def line_ends(root: Path) -> None:
    plain(root)
    git(root, "config", "core.autocrlf", "true")
    write(root, {"crlf": "one\r\ntwo\r\n", ".gitattributes": "*.x text eol=crlf\n", "y.x": "1\r\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "line ends")


def odd_names(root: Path) -> None:
    plain(root)
    write(root, {"with space": "1", "tab\tand\nline": "2", '"quoted"': "3", "größe": "4", "-n": "5", "l": ("a",)})
    (root / "d" / "x").mkdir()
    with open(bytes(root) + b"/d/x/\xff\xfe", "wb") as file:  # noqa: PTH123 - a name of bytes
        file.write(b"6")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "names")


def settings(root: Path) -> None:
    plain(root)
    git(root, "config", "core.fileMode", "false")
    git(root, "config", "core.pager", "touch RAN")
    git(root, "config", "filter.x.clean", "touch RAN; cat")
    (root / ".git/info/exclude").write_text("private*\n")
    write(root, {"private.txt": "1", "seen.txt": "2"})
    (root / "s.sh").chmod(0o755)


def sha256(root: Path) -> None:
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main", "--object-format=sha256")
    write(root, TREE)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    write(root, {"a": "2\n"})
    git(root, "commit", "-qam", "second")


def index_of_version_4(root: Path) -> None:
    plain(root)
    git(root, "update-index", "--index-version", "4")


LAYOUTS: list[Callable[[Path], None]] = [
    plain, branches_and_tags, packed, cloned, shallow, linked, submodule, nested, bare_below, sparse, sparse_index,
    lfs_pointers, line_ends, odd_names, settings, sha256, index_of_version_4,
]  # fmt: skip


def clean(root: Path) -> None:
    del root


def staged_and_not(root: Path) -> None:
    write(root, {"a": "staged\n", "new": "n\n"})
    git(root, "add", "a", "new")
    git(root, "rm", "-q", "--cached", "b")
    git(root, "mv", "s.sh", "moved.sh")
    write(root, {"a": "staged, then changed\n", "untracked": "u\n"})


def deleted(root: Path) -> None:
    (root / "b").unlink()
    git(root, "rm", "-q", "a")


def flags(root: Path) -> None:
    write(root, {"later": "l\n"})
    git(root, "add", "-N", "later")
    git(root, "update-index", "--assume-unchanged", "b")
    write(root, {"b": "not to be seen\n"})


def detached(root: Path) -> None:
    git(root, "checkout", "-q", "--detach")
    write(root, {"a": "loose\n"})
    git(root, "commit", "-qam", "on no branch")


def unborn(root: Path) -> None:
    git(root, "checkout", "-q", "--orphan", "nothing-yet")


def stashed(root: Path) -> None:
    for text in ("one\n", "two\n"):
        write(root, {"a": text})
        git(root, "stash", "push", "-q", "-m", f"stash {text.strip()}")


def _sides(root: Path) -> str:
    """Two branches that collide in `a`; return the one that is not checked out."""
    here = git(root, "rev-parse", "--abbrev-ref", "HEAD").strip()
    git(root, "checkout", "-q", "-b", "side")
    for text in ("side\n", "side again\n"):
        write(root, {"a": text})
        git(root, "commit", "-qam", f"to {text.strip()}")
    git(root, "checkout", "-q", here)
    write(root, {"a": "here\n"})
    git(root, "commit", "-qam", "here")
    return "side"


def merging(root: Path) -> None:
    git(root, "merge", "-q", _sides(root), check=False)


def merge_resolved(root: Path) -> None:
    merging(root)
    write(root, {"a": "both\n"})
    git(root, "add", "a")


def rebasing(root: Path) -> None:
    git(root, "rebase", _sides(root), check=False)


def rebasing_by_patches(root: Path) -> None:
    git(root, "rebase", "--apply", _sides(root), check=False)


def picking(root: Path) -> None:
    git(root, "cherry-pick", f"{_sides(root)}~1", "side", check=False)


def reverting(root: Path) -> None:
    _sides(root)
    git(root, "commit", "--allow-empty", "-q", "-m", "empty")
    write(root, {"a": "once more\n"})
    git(root, "commit", "-qam", "once more")
    git(root, "revert", "--no-edit", "HEAD~2", check=False)


def bisecting(root: Path) -> None:
    _sides(root)
    git(root, "bisect", "start")
    git(root, "bisect", "bad")
    git(root, "bisect", "good", "HEAD~1")


UNDER_WAY: list[Callable[[Path], None]] = [
    clean, staged_and_not, deleted, flags, detached, unborn, stashed, merging, merge_resolved, rebasing,
    rebasing_by_patches, picking, reverting, bisecting,
]  # fmt: skip
FEW = [(layout, clean) for layout in LAYOUTS] + [(plain, under_way) for under_way in UNDER_WAY[1:]]
ALL = [(layout, under_way) for layout in LAYOUTS for under_way in UNDER_WAY]


def no_commits(root: Path) -> None:
    repository(root)
    write(root, {"a": "1\n", "b": "2\n"})
    git(root, "add", "a")


def nothing_at_all(root: Path) -> None:
    repository(root)


FEW += [(no_commits, clean), (nothing_at_all, clean)]
ALL += [(no_commits, clean), (nothing_at_all, clean)]


def picture(root: Path) -> dict[str, str]:
    """Return all that git says of a repository and of those below it."""
    said: dict[str, str] = {}
    for place in [root, *sorted(path.parent for path in root.rglob(".git") if path.parent != root)]:
        where = str(place.relative_to(root))
        said[f"{where} status"] = git(
            place, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "--show-stash"
        )
        log = git(place, "log", "--format=%H %P %D %s", "--decorate=full", "--all", check=False)
        said[f"{where} log"] = "\n".join(sorted(log.splitlines()))  # commits of one second come in any order
        said[f"{where} refs"] = git(
            place, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags"
        )
        said[f"{where} index"] = git(place, "ls-files", "--stage", "-t")
        said[f"{where} staged"] = git(place, "diff", "--cached", "--no-ext-diff", "--no-textconv")
        said[f"{where} stash"] = git(place, "stash", "list", check=False)
        said[f"{where} fsck"] = git(place, "fsck", "--connectivity-only", "--no-dangling", check=False)
    return said
