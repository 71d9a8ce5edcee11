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
OPENING = frozenset({"{", "if", "while", "until", "for"})
CLOSING = frozenset({"}", "fi", "done"})
_RESERVED = OPENING - {"for"} | CLOSING | {"!", "then", "else", "elif", "do", "coproc"}

_PREFIXES = {  # the operands before the command, and the short options with an argument
    "env": (0, "uC"), "nice": (0, "n"), "timeout": (1, "ks"), "sudo": (0, "ugpCDRThr"), "doas": (0, "uC"),
    "exec": (0, "a"), "command": (0, ""), "builtin": (0, ""), "time": (0, "fo"), "nohup": (0, ""), "setsid": (0, ""),
    "stdbuf": (0, "ioe"), "xargs": (0, "aIdELnPs"), "ionice": (0, "cnp"), "chroot": (1, ""), "flock": (1, "wE"),
    "taskset": (1, "p"), "chrt": (1, "p"), "busybox": (0, ""), "strace": (0, "eopsEu"), "unshare": (0, ""),
    "unbuffer": (0, ""), "noglob": (0, ""),
}  # fmt: skip
_RUN_ALL = frozenset({
    "eval", "trap", "alias", "source", ".", "let", "[[", "read", "unset", "declare", "typeset",
    "ssh", "rsh", "mosh", "watch", "parallel", "su", "runuser", "script", "tmux", "screen", "pwsh", "powershell",
    "osascript", "deno",
})  # fmt: skip
_RUN_INPUT = frozenset({"at", "batch", "crontab", "parallel"})
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
    at = _past(words, 0, _RESERVED)
    prefixes: list[str] = []
    replaces = False
    while at < len(words):
        if HOLE in words[at]:
            roles[at] = "program"
            return Reading(roles, runs_input=False)
        name = _name(words[at])
        if name not in _PREFIXES or words[at : at + 2] in (["command", "-v"], ["command", "-V"]):
            return _read_program(words, at, roles, replaces=replaces)
        begin, at = at, _past_prefix(words, at + 1, roles, *_PREFIXES[name])
        replaces = replaces or (name == "xargs" and _replaces(words[begin + 1 : at]))
        prefixes.append(name)
    return Reading(roles, runs_input="xargs" in prefixes[:-1])  # its input names the program


def leading(words: Sequence[str]) -> Sequence[str]:
    """Return the words of the shell's own that a command begins with: `if`, `{`, `done`."""
    if words[:1] == ["for"]:
        return words[:1]
    return [word for word in words[: _past(words, 0, _RESERVED)] if word in _RESERVED]


def _read_program(words: Sequence[str], at: int, roles: list[Role], *, replaces: bool) -> Reading:
    name = _name(words[at])
    runs_input = name in _RUN_INPUT or (name == "ssh" and _operands(words[at + 1 :], _SSH_TAKES) < 2)  # noqa: PLR2004
    if name in _RUN_ALL:
        roles[at + 1 :] = ["code"] * (len(words) - at - 1)
        return Reading(roles, runs_input)
    language = _language(words[at])
    if language is not None:
        takes_code = _read_language(language, words, at + 1, roles)
        return Reading(roles, takes_code or (replaces and not language.is_filter))
    if _UNKNOWN.search(words[at]):
        _read_language(_ANY, words, at + 1, roles, is_certain=False)
    for other in range(at + 1, len(words)):
        found = _language(words[other])
        if found is not None and not found.is_filter:  # behind a prefix that is not known: `docker exec box sh -c`
            _read_language(found, words, other + 1, roles, is_certain=False)
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
                has_code = True
                _mark(roles, at)
            if kind == "module":
                return False
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


def _past(words: Sequence[str], at: int, more: frozenset[str] = frozenset()) -> int:
    """Return where a command goes on behind assignments, and words of the shell's own."""
    while at < len(words) and (words[at] in more or _ASSIGNMENT.match(words[at])):
        at += 1
    return at


def _past_prefix(words: Sequence[str], at: int, roles: list[Role], operands: int, takes: str) -> int:
    """Return where the command of a prefix begins; a value in one of the prefix's options is no data."""
    while at < len(words):
        word = words[at]
        if word[:1] == "-":
            if HOLE in word:
                roles[at] = "code"
            at += word[:2] != "--" and word[-1] in takes
        elif not _ASSIGNMENT.match(word):
            if operands == 0:
                return at
            operands -= 1
        at += 1
    return at


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
    name = _name(word)
    return next((language for pattern, language in _LANGUAGES if pattern.fullmatch(name)), None)
