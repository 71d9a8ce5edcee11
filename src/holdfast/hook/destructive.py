"""Shell commands that may destroy work: recognised by their words, and when in doubt, taken for one."""

from __future__ import annotations

import re
import shlex

_REMOVERS = frozenset({
    "rm", "rmdir", "unlink", "shred", "truncate", "mv", "dd", "patch", "ed", "ex", "git-clean", "srm", "trash", "wipe",
    "mkfs", "unzip", "7z", "dropdb",
})  # fmt: skip
"""Programs that remove, move or overwrite files whatever their options are."""
_ONLY_WITH = {
    "sed": re.compile(r"^(-[a-zA-Z]*i|--in-place)"),
    "gsed": re.compile(r"^(-[a-zA-Z]*i|--in-place)"),
    "perl": re.compile(r"^-[a-zA-Z]*i"),
    "ruby": re.compile(r"^-[a-zA-Z]*i"),
    "awk": re.compile(r"^(-i|inplace|--include)"),
    "gawk": re.compile(r"^(-i|inplace|--include)"),
    "make": re.compile(r"^(clean|distclean|mrproper|reset|purge|.*clean.*)$"),
    "just": re.compile(r".*(clean|reset|purge).*"),
    "ninja": re.compile(r"^(-t|clean)$"),
    "terraform": re.compile(r"^(apply|destroy)$"),
    "tar": re.compile(r"^-?[a-zA-Z]*x[a-zA-Z]*$|^--(extract|get)"),
    "cp": re.compile(r""),
    "install": re.compile(r""),
    "tee": re.compile(r""),
    "rsync": re.compile(r""),
    "find": re.compile(r"^-(delete|exec|execdir|ok|okdir|fprint.*|fls)$"),
}
_GIT = frozenset({
    "reset", "checkout", "clean", "stash", "restore", "switch", "rebase", "merge", "pull", "rm", "mv", "revert",
    "cherry-pick", "am", "apply", "filter-branch", "filter-repo", "gc", "prune", "reflog", "worktree", "submodule",
    "update-ref", "branch", "tag", "read-tree", "bisect",
})  # fmt: skip
PROGRAMS = tuple(sorted({*_REMOVERS, *_ONLY_WITH, "git"}))
"""Every program that may destroy work by itself."""
_WRAPPERS = frozenset({
    "sudo", "doas", "env", "nice", "ionice", "nohup", "time", "timeout", "stdbuf", "command", "builtin", "exec",
    "xargs", "parallel", "busybox", "setsid", "unbuffer", "strace", "if", "then", "else", "elif", "do", "while",
    "until", "!", "{", "(",
})  # fmt: skip
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "eval", "source", "."})
_ENDS = frozenset(";|&\n()")
_MOST_LEVELS = 4
_MOST_CHARACTERS = 100_000


def destructive(command: str, level: int = 0) -> str | None:
    """Return the part of a command that may destroy work, None if none does; what cannot be read may."""
    if level > _MOST_LEVELS or len(command) > _MOST_CHARACTERS:
        return command[:80]
    try:
        lexer = shlex.shlex(command.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=";|&()<>")
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(lexer)
    except ValueError:
        return command[:80]
    for found in re.finditer(r"\$\(([^()]*)\)|`([^`]*)`", command):
        inner = str(found[1] or found[2] or "")
        if destructive(inner, level + 1) is not None:
            return inner[:80]
    part: list[str] = []
    for word in [*words, ";"]:
        if word and set(word) <= _ENDS:
            if _destroys(part, level):
                return " ".join(part)[:80]
            part = []
        else:
            part.append(word)
    return None


def _destroys(words: list[str], level: int) -> bool:
    """Tell whether one simple command may destroy work."""
    for place, word in enumerate(words[:-1]):
        if set(word) <= set("<>&|") and ">" in word and ">>" not in word and not _harmless(words[place + 1]):
            return True
    rest = [word for word in words if not set(word) <= set("<>&|")]
    while rest and (rest[0] in _WRAPPERS or "=" in rest[0].partition("/")[0] or rest[0].startswith("-")):
        is_wrapper = rest[0] in _WRAPPERS
        rest = rest[1:]
        while is_wrapper and rest and (rest[0].startswith("-") or rest[0].replace(".", "").rstrip("smhd").isdigit()):
            rest = rest[1:]
    if not rest:
        return False
    program, arguments = rest[0].rpartition("/")[2], rest[1:]
    if program in _SHELLS:
        scripts = [word for word in arguments if not word.startswith("-")]
        return any(destructive(script, level + 1) is not None for script in scripts)
    if program == "git":
        return _git(arguments)
    wanted = _ONLY_WITH.get(program)
    if wanted is not None:
        return any(wanted.match(word) for word in arguments)
    # what stands behind a wrapper that was not known is looked for as a word of its own
    return program in _REMOVERS or any(word in ("rm", "rmdir", "unlink", "shred") for word in arguments)


def _git(arguments: list[str]) -> bool:
    """Tell whether a git command may move, drop or overwrite work."""
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word in ("-C", "-c", "--git-dir", "--work-tree", "--namespace"):
            skip = True
        elif not word.startswith("-"):
            return word in _GIT or (word == "push" and any(one.startswith(("-f", "--force")) for one in arguments))
    return False


def _harmless(target: str) -> bool:
    """Tell whether output that goes there overwrites nothing."""
    return target in ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "1", "2", "&1", "&2")
