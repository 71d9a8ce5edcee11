"""Which words of a command are read as code, as far as a list of programs can know it.

Known are shells and interpreters, programs that run their words, and prefixes before any of these. What is not in
these lists is taken for a program whose words are data: docs/FLOWS.md says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

HOLE = "\0"
"""Stands for a value in a word."""

Role = Literal["data", "program", "code"]

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_UNKNOWN = re.compile(r"[$*?\[]")  # a program whose name only the shell knows
_LISTS = ("for", "select")
OPENING = frozenset({"{", "if", "while", "until", *_LISTS})
CLOSING = frozenset({"}", "fi", "done"})
_RESERVED = OPENING.difference(_LISTS) | CLOSING | {"!", "then", "else", "elif", "do", "coproc", "function"}


class _Prefix(NamedTuple):
    """A program that runs its words; behind an option that is not here, its command is not looked for."""

    operands: int = 0  # before the command
    takes: str = ""  # short options with an argument
    bare: str = ""  # short options without one
    long: str = ""  # long options without one


_PREFIXES = {
    "env": _Prefix(0, "uC", "i0v", "ignore-environment null debug block-signal default-signal ignore-signal"),
    "nice": _Prefix(0, "n", "0123456789"),
    "timeout": _Prefix(1, "ks", "fpv", "foreground preserve-status verbose"),
    "sudo": _Prefix(
        0, "ugpCDRThrtU", "AbBEeHiKklNnPSsvV",
        "askpass background bell login non-interactive preserve-env preserve-groups set-home shell stdin",
    ),
    "doas": _Prefix(0, "uC", "Lns"),
    "exec": _Prefix(0, "a", "cl"),
    "command": _Prefix(0, "", "p"),
    "builtin": _Prefix(),
    "time": _Prefix(0, "fo", "apqv", "append portability quiet verbose"),
    "nohup": _Prefix(),
    "setsid": _Prefix(0, "", "cfw", "ctty fork wait"),
    "stdbuf": _Prefix(0, "ioe"),
    "xargs": _Prefix(
        0, "aIdELnPs", "0eiloprtx",
        "eof exit interactive max-lines no-run-if-empty null open-tty replace show-limits verbose",
    ),
    "ionice": _Prefix(0, "cnpPu", "t", "ignore"),
    "chroot": _Prefix(1, "", "", "skip-chdir"),
    "flock": _Prefix(1, "wE", "sxeunoFc", "shared exclusive unlock nonblock nb close no-fork verbose"),
    "taskset": _Prefix(1, "p", "ac", "all-tasks cpu-list"),
    "chrt": _Prefix(1, "pTPD", "abdfimorRv", "all-tasks batch deadline fifo idle other reset-on-fork rr verbose"),
    "busybox": _Prefix(),
    "strace": _Prefix(0, "eopsEuabIOPSXU", "cCfFiknqrtTvwxyzZ"),
    "unshare": _Prefix(
        0, "SGRw", "muinpUCTfrc",
        "fork mount uts ipc net pid user cgroup time map-root-user map-current-user mount-proc keep-caps kill-child",
    ),
    "unbuffer": _Prefix(0, "", "p"),
    "noglob": _Prefix(),
}  # fmt: skip
_IDLE: tuple[list[str], ...] = ([], ["xargs"], ["exec"])  # prefixes that run no shell if no command follows
_SPLIT = "--split-string"  # of env: its argument is the command
_RUN_ALL = frozenset({
    "eval", "trap", "alias", "source", ".", "let", "[[", "read", "unset", "declare", "typeset",
    "ssh", "rsh", "mosh", "watch", "parallel", "su", "runuser", "script", "tmux", "screen", "pwsh", "powershell",
    "osascript", "deno",
})  # fmt: skip
_RUN_INPUT = frozenset({
    "at", "batch", "crontab", "parallel", "eval", "su", "runuser", "script", "tmux", "screen", "pwsh", "powershell",
    "osascript", "deno",
})  # fmt: skip
_SOURCES = (".", "source")
_SHELL_VARIABLE = re.compile(r"\$\{?(?:SHELL|BASH)\b")
_PLAIN = re.compile(r"[\w./+-]+")
_SSH_TAKES = "BbcDEeFIiJLlmOopQRSWw"
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


class _Language(NamedTuple):
    """How an interpreter is given its program: by an option, in a file that the first operand names, or as input."""

    code: str = ""  # short options whose argument is code, or a file with it
    takes: str = ""  # short options with another argument
    module: str = ""  # short options whose argument names the program: the rest is data
    long_code: tuple[str, ...] = ()
    is_filter: bool = False  # the first operand is code, unless an option gives it; options may follow operands


class _Shell(NamedTuple):
    """A shell: -c is a flag, and the first operand behind all options is the code."""

    takes: str = "oO"
    long_takes: tuple[str, ...] = ("--rcfile", "--init-file")
    is_filter: bool = False


_LUA = _Language(code="eEc", takes="l")
_ANY = _Language(code="ce", long_code=("--eval", "--command"))
_LANGUAGES: tuple[tuple[re.Pattern[str], _Language | _Shell], ...] = (
    (re.compile(r"(?:r?ba|da|[zakc]|mk|pdk|ya|tc|o)?sh[0-9.-]*"), _Shell()),
    (re.compile(r"(?:i?python|pypy)[0-9.]*"), _Language(code="c", takes="WX", module="m")),
    (re.compile(r"perl[0-9.]*"), _Language(code="eE", takes="I")),
    (re.compile(r"ruby[0-9.]*"), _Language(code="e", takes="IrCEFKTWx")),
    (re.compile(r"node|nodejs|bun"), _Language(code="epr", long_code=("--eval", "--print", "--require", "--import"))),
    (re.compile(r"php[0-9.]*"), _Language(code="rBRE", takes="dcztSF", module="f", long_code=("--run",))),
    (re.compile(r"fish"), _Language(code="cC", takes="do", long_code=("--command", "--init-command"))),
    (re.compile(r"lua(?:jit)?[0-9.]*|R|Rscript|julia|groovy|elixir|scala|raku|guile|tclsh|expect|xonsh|nu"), _LUA),
    (re.compile(r"g?sed"), _Language(code="ef", takes="l", long_code=("--expression", "--file"), is_filter=True)),
    (re.compile(r"[gmn]?awk"), _Language(code="eEf", takes="Fv", long_code=("--source", "--file"), is_filter=True)),
)


class Reading(NamedTuple):
    """What each word of a command is to the program that gets it."""

    roles: list[Role]
    runs_input: bool
    """Whether standard input is read as code."""


def read_command(words: Sequence[str]) -> Reading:
    """Return what is code in a command, behind all prefixes that are known."""
    roles: list[Role] = ["data"] * len(words)
    at = behind_own(words)
    if "coproc" in words[:at]:  # its first word is a name or a program
        _mark_from(roles, words.index("coproc"))
    prefixes: list[str] = []
    replaces = False
    while at < len(words):
        if HOLE in words[at]:
            roles[at] = "program"
            return Reading(roles, runs_input=False)
        name = _name(words[at])
        if name not in _PREFIXES or words[at : at + 2] in (["command", "-v"], ["command", "-V"]):
            return _read_program(words, at, roles, is_given="xargs" in prefixes, replaces=replaces)
        begin = at
        at, is_known = _past_prefix(words, at + 1, roles, _PREFIXES[name])
        if not is_known:
            _mark_from(roles, at)
            return Reading(roles, runs_input=True)
        replaces = replaces or (name == "xargs" and _replaces(words[begin + 1 : at]))
        prefixes.append(name)
    return Reading(roles, runs_input=prefixes not in _IDLE)


def leading(words: Sequence[str]) -> Sequence[str]:
    """Return the words of the shell's own that a command begins with: `if`, `{`, `done`."""
    at = behind_own(words)
    own = _RESERVED.union(_LISTS)
    return [word for word in words[: at + 1] if word in own]


def behind_own(words: Sequence[str]) -> int:
    """Return where a command goes on behind words of the shell's own, assignments, and a name that is given to it."""
    at = 0
    while at < len(words) and (words[at] in _RESERVED or _ASSIGNMENT.match(words[at])):
        is_named = words[at] == "function" or (words[at] == "coproc" and OPENING.intersection(words[at + 2 : at + 3]))
        at += 1
        if is_named and at < len(words) and HOLE not in words[at]:
            at += 1
    return at


def _read_program(words: Sequence[str], at: int, roles: list[Role], *, is_given: bool, replaces: bool) -> Reading:
    """Read a command from its program on; xargs may have given it its input as words, or put it into its words."""
    name = _name(words[at])
    runs_input = (
        name in _RUN_INPUT
        or (name in ("ssh", "rsh") and _operands(words[at + 1 :], _SSH_TAKES) < 2)  # noqa: PLR2004
        or (name in _SOURCES and not set(_STDIN).isdisjoint(words))
        or (replaces and not _PLAIN.fullmatch(words[at]))
    )
    if name in _RUN_ALL:
        _mark_from(roles, at + 1)
        return Reading(roles, runs_input or is_given)
    language = _language(words[at])
    if language is not None:
        takes_code = _read_language(language, words, at + 1, roles)
        return Reading(roles, takes_code or (replaces and not language.is_filter))
    if _UNKNOWN.search(words[at]):
        _read_language(_ANY, words, at + 1, roles, is_certain=False)
    for other in range(at + 1, len(words)):
        found = _language(words[other].partition(":")[0])  # `docker run python:3`
        if found is not None and not found.is_filter:  # behind a prefix that is not known: `docker exec box sh -c`
            takes_code = _read_language(found, words, other + 1, roles, is_certain=False)
            runs_input = runs_input or takes_code or replaces
        if words[other - 1] in _FIND_RUNS and HOLE in words[other]:
            roles[other] = "program"
    return Reading(roles, runs_input)


def _read_language(
    language: _Language | _Shell, words: Sequence[str], at: int, roles: list[Role], *, is_certain: bool = True
) -> bool:
    """Mark what an interpreter reads as code; tell whether it reads standard input as code.

    If it is not certain that this is one, only what an option says to be code is marked.
    """
    if isinstance(language, _Shell):
        return _read_shell(language, words, at, roles, is_certain=is_certain)
    has_code = False
    while at < len(words):
        word = words[at]
        if _is_option(word):
            kind, is_apart = _option(language, word)
            if kind == "code" or (HOLE in word and is_certain):
                roles[at] = "code"
            at += is_apart
            if kind in ("code", "module"):
                has_code = at < len(words)  # if not, xargs puts its input there
                _mark(roles, at)
            if kind == "module":
                return not has_code
        elif word != "--":
            if not has_code and is_certain:
                _mark(roles, at)
            if not language.is_filter:
                return not has_code and word in _STDIN
            has_code = True
        at += 1
    return not has_code


def _read_shell(shell: _Shell, words: Sequence[str], at: int, roles: list[Role], *, is_certain: bool) -> bool:
    is_flagged = reads_on = False
    while at < len(words) and _is_option(words[at], "-+"):
        word = words[at]
        if HOLE in word and is_certain:
            roles[at] = "code"
        if word.startswith("--"):
            at += word in shell.long_takes
        else:
            is_flagged = is_flagged or (word[0] == "-" and "c" in word)
            reads_on = reads_on or "s" in word
            at += sum(letter in shell.takes for letter in word)
        at += 1
    at += at < len(words) and words[at] in ("-", "--")
    if is_flagged or is_certain:
        _mark(roles, at)
    return reads_on or at >= len(words) or (words[at] in _STDIN and not is_flagged)


def _is_option(word: str, signs: str = "-") -> bool:
    return len(word) > 1 and word[0] in signs and word != "--"


def _option(language: _Language, word: str) -> tuple[str, bool]:
    """Return what an option has as its argument (code, module, another one, none), and whether that is a word apart."""
    if word.startswith("--"):
        is_code = word.partition("=")[0] in language.long_code
        return "code" if is_code else "", is_code and "=" not in word
    for at, letter in enumerate(word[1:], 1):
        is_apart = at == len(word) - 1
        if letter in language.code:
            return "code", all(rest in language.code for rest in word[at:])  # `-pe` is -p and -e
        if letter in language.module:
            return "module", is_apart
        if letter in language.takes:
            return "other", is_apart
    return "", False


def _mark(roles: list[Role], at: int) -> None:
    if at < len(roles):
        roles[at] = "code"


def _mark_from(roles: list[Role], at: int) -> None:
    roles[at:] = ["code"] * len(roles[at:])


def _past_prefix(words: Sequence[str], at: int, roles: list[Role], prefix: _Prefix) -> tuple[int, bool]:
    """Return where the command of a prefix begins, or an option that is not known, and whether all were known.

    A value in one of the prefix's options is no data.
    """
    operands = prefix.operands
    while at < len(words):
        word = words[at]
        if word[:1] == "-":
            if HOLE in word:
                roles[at] = "code"
            is_known, is_apart = _prefix_option(prefix, word)
            if not is_known:
                return at, False
            at += is_apart
        elif not _ASSIGNMENT.match(word):
            if operands == 0:
                break
            operands -= 1
        at += 1
    return at, True


def _prefix_option(prefix: _Prefix, word: str) -> tuple[bool, bool]:
    """Return whether an option of a prefix is known, and whether its argument is a word apart."""
    if word == "--":
        return True, False
    if word.startswith("--"):
        name, is_joined, _ = word.partition("=")
        return (not _SPLIT.startswith(name) if is_joined else name[2:] in prefix.long.split()), False
    for at, letter in enumerate(word[1:], 1):
        if letter in prefix.takes:
            return True, at == len(word) - 1
        if letter not in prefix.bare:
            return False, False
    return True, False


def _replaces(options: Sequence[str]) -> bool:
    """Tell whether xargs puts its input into the words of its command."""
    return any(re.match(r"-[A-Za-z0-9]*[Ii]|--replace", word) for word in options)


def _operands(words: Sequence[str], takes: str) -> int:
    count = at = 0
    while at < len(words):
        is_option = words[at][:1] == "-"
        at += 2 if is_option and words[at][-1] in takes and words[at][:2] != "--" else 1
        count += not is_option
    return count


def _name(word: str) -> str:
    return word.rpartition("/")[2] or word


def _language(word: str) -> _Language | _Shell | None:
    name = "sh" if _SHELL_VARIABLE.match(word) else _name(word)
    return next((language for pattern, language in _LANGUAGES if pattern.fullmatch(name)), None)
