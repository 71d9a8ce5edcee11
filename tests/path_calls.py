"""Calls that write, delete or list files by their path, looked for in the package: `make lint` runs it.

A path is followed through every link on its way, and whoever wrote into a project (a repository, an agent, a set-up
command) may have put one there. What lies in a project is written, deleted and listed through descriptors, name by
name: `holdfast.own_folder`, `holdfast.workspace.descriptors`. Where a module does otherwise, MAY says with which calls
and why that is safe; a call that it no longer makes is to be taken out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent / "src" / "holdfast"

OF_A_PATH = {
    "unlink", "rmdir", "rename", "write_text", "write_bytes", "mkdir", "symlink_to", "hardlink_to", "chmod", "lchmod",
    "touch", "iterdir", "glob", "rglob",
}  # fmt: skip
OF_OS = {
    "chmod", "chown", "lchown", "link", "listdir", "makedirs", "mkdir", "mkfifo", "mknod", "open", "remove",
    "removedirs", "rename", "renames", "replace", "rmdir", "scandir", "setxattr", "symlink", "truncate", "unlink",
    "utime", "walk",
}  # fmt: skip
OF_SHUTIL = {
    "chown", "copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "move", "rmtree", "unpack_archive",
}  # fmt: skip
BY_DESCRIPTOR = {"dir_fd", "src_dir_fd", "dst_dir_fd"}
# Calls of our own: of a class, a workspace's through descriptors, a files store's disk; and a team is no file.
OTHERS = re.compile(r"(^self|(^|[._])(ops|disk|team))$")
WRITES = re.compile(r"[wax+]")
READS_ONLY = re.compile(r"(?<![A-Z])O_RDONLY|\b_?(OPEN_DIRECTORY|OPEN_FILE|DIRECTORY|FOLDER|READ)\b")

_LISTED = "a descriptor is listed"
_MADE = "a temporary folder that it made itself"
_NAMED = "the path that the user named for this"
_OF_USER = "a folder of this user's own, outside of every project"
_PACKAGE = "files of this package"
_STORE = "a store's own folders: no link is one of them when it is opened (private_folder)"
MAY: dict[str, tuple[str, str]] = {
    "capture/compiled.py": (".mkdir os.listdir", _OF_USER),
    "cli/commands/demo.py": (".mkdir .write_text shutil.rmtree", f"{_MADE}, or {_NAMED}, which must be new"),
    "cli/commands/init.py": (".open os.open", "new and by no link (O_EXCL, O_NOFOLLOW), in the present directory"),
    "cli/commands/store.py": ("os.open", f"{_NAMED}; only made new (O_EXCL)"),
    "cli/commands/worker.py": (".mkdir", _NAMED),
    "cli/guard_rules.py": ("os.walk", "counts; follows no link below, and is not called for one"),
    "cli/main.py": ("open os.open", "/dev/null"),
    "cli/shims.py": (".chmod .mkdir .unlink .write_text os.mkfifo os.open shutil.rmtree", _MADE),
    "flow/actions.py": (".mkdir .write_text", "resolved first, and refused outside of the workspace"),
    "flow/advance.py": (".mkdir", _NAMED),
    "flow/digests.py": (".glob", "names only: what they hold is read through descriptors"),
    "flow/task_output.py": ("os.listdir", _LISTED),
    "flow/tasks.py": (".glob", "names only"),
    "flow/variables.py": (".write_bytes shutil.rmtree", _MADE),
    "home.py": (".mkdir", _OF_USER),
    "hook/install.py": (".mkdir", "the user's own, or in a project, where a link on the way is refused first"),
    "own_folder.py": ("os.listdir", _LISTED),
    "recovery/apply.py": (".mkdir", _NAMED),
    "recovery/files.py": ("os.listdir os.scandir", "tells whether there is any file; nothing is changed"),
    "recovery/fork.py": (".iterdir .mkdir", _NAMED),
    "run_files.py": (".mkdir", _NAMED),
    "runtime/command.py": (".open os.listdir", f"{_NAMED}; /proc"),
    "settings/trust.py": (".iterdir .unlink os.open", _OF_USER),
    "store/epoch_memory.py": (".unlink os.open", _OF_USER),
    "store/files.py": (".rglob .unlink os.open", _STORE),
    "store/files_disk.py": (".chmod .glob .mkdir .replace .rmdir .unlink os.open", _STORE),
    "store/files_rows.py": ("os.scandir", _STORE),
    "store/heads.py": ("os.open", "beside a store's file; no link (O_NOFOLLOW)"),
    "store/mirror.py": (
        ".iterdir .mkdir .replace .symlink_to .unlink os.open",
        "each folder below the root is looked at before, and no file is written in place",
    ),
    "store/postgres_schema.py": (".glob", _PACKAGE),
    "store/private_folder.py": ("os.scandir", "looks for links; nothing is changed"),
    "store/sqlite_file.py": (
        ".chmod .glob .mkdir .replace .unlink os.link os.listdir os.open",
        f"{_STORE}, and no store is opened through a link",
    ),
    "testing/faults.py": (".chmod .mkdir .write_bytes", _NAMED),
    "transfer/bundle.py": (".unlink os.link", f"{_NAMED}; no bundle is opened through a link"),
    "worker/delivery.py": (".mkdir", "below the worker's root, where a link is refused"),
    "worker/trial.py": (".glob .open .touch os.chown shutil.rmtree", _MADE),
    "workspace/git.py": ("open os.mkdir os.scandir", f"{_MADE}; {_LISTED}"),
    "workspace/git_create.py": (
        "os.listdir os.unlink shutil.rmtree",
        f"a repository of a name that it drew; {_LISTED}",
    ),
    "workspace/git_history.py": ("os.scandir", _LISTED),
    "workspace/gitdir.py": ("os.listdir os.scandir", _LISTED),
    "workspace/known_directory.py": ("os.listdir", "names only, of what is no link"),
    "workspace/merge.py": (".write_bytes", _MADE),
    "workspace/objects.py": ("os.listdir", _LISTED),
    "workspace/ops.py": ("os.utime", "a descriptor"),
    "workspace/ownership.py": ("os.scandir", "times only; nothing is changed"),
    "workspace/planning.py": ("os.listdir", _LISTED),
    "workspace/restore.py": ("os.listdir os.scandir", _LISTED),
    "workspace/scan.py": ("os.scandir", _LISTED),
    "workspace/stamp.py": (".glob", "names only: what they hold is read through no link"),
    "workspace/swap.py": ("os.listdir", _LISTED),
    "workspace/user_key.py": ("os.makedirs", _OF_USER),
    "workspace/worktree.py": (".mkdir .open shutil.rmtree", f"{_NAMED}; it was empty or not there"),
}


def named(call: ast.Call) -> str:
    """Return the call as MAY has it, if it writes, deletes or lists by a path; else nothing."""
    given = {keyword.arg for keyword in call.keywords}
    function = call.func
    if given & BY_DESCRIPTOR:
        return ""
    if isinstance(function, ast.Name):
        return "open" if function.id == "open" and _writes(call, 1) else ""
    if not isinstance(function, ast.Attribute):
        return ""
    name, owner = function.attr, ast.unparse(function.value)
    if owner in ("os", "shutil"):
        return "" if owner == "os" and name == "open" and _only_reads(call) else _of_module(owner, name)
    if OTHERS.search(owner):
        return ""
    is_moved = name == "replace" and len(call.args) == 1 and not given  # a text's takes two
    return f".{name}" if name in OF_A_PATH or is_moved or (name == "open" and _writes(call, 0)) else ""


def _of_module(module: str, name: str) -> str:
    return f"{module}.{name}" if name in {"os": OF_OS, "shutil": OF_SHUTIL}.get(module, ()) else ""


def _writes(call: ast.Call, position: int) -> bool:
    """Tell whether an `open` writes; a descriptor is judged where it was opened."""
    if position and call.args and ast.unparse(call.args[0]).startswith("os.open("):
        return False
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] + call.args[position : position + 1]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(WRITES.search(text) for text in texts) or bool(position and len(texts) < len(modes))


def _only_reads(call: ast.Call) -> bool:
    text = ast.unparse(call)
    return READS_ONLY.search(text) is not None and "O_CREAT" not in text


def found(root: Path = ROOT) -> Iterator[tuple[str, int, str]]:
    """Yield the module, the line and the name of each such call, also where it is only handed to another."""
    for path in sorted(root.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            names: list[str] = []
            if isinstance(node, ast.Call):
                names = [named(node)]
            elif isinstance(node, ast.ImportFrom):
                names = [_of_module(node.module or "", one.name) for one in node.names]
            elif isinstance(node, ast.Attribute) and id(node) not in called:
                names = [_of_module(ast.unparse(node.value), node.attr)]
            yield from ((str(path.relative_to(root)), getattr(node, "lineno", 0), name) for name in names if name)


def problems(root: Path = ROOT, may: dict[str, tuple[str, str]] = MAY) -> Iterator[str]:
    """Yield a line for each call that MAY does not have, and for each of its that is not made any more."""
    made: dict[str, set[str]] = defaultdict(set)
    for module, line, name in found(root):
        made[module].add(name)
        if name not in may.get(module, ("", ""))[0].split():
            yield (
                f"{root.name}/{module}:{line}: {name} follows links by a path: use holdfast.own_folder or "
                "workspace.descriptors, or say in tests/path_calls.py why it is safe"
            )
    for module, (names, _reason) in may.items():
        for name in sorted(set(names.split()) - made[module]):
            yield f"tests/path_calls.py: {module} makes no call {name} any more"


if __name__ == "__main__":
    lines = list(problems())
    print("\n".join(lines), end="\n" if lines else "")
    sys.exit(bool(lines))
