"""Print a completion script: `eval "$(holdfast completion bash)"` in your shell's start-up file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session

_BASH = """\
_holdfast() {
    local IFS=$'\\n' current="${COMP_WORDS[COMP_CWORD]}" line="${COMP_LINE:0:COMP_POINT}" words
    COMPREPLY=()
    # bash cuts words at : @ =, which our names hold; so the line is cut at blanks here.
    IFS=' ' read -r -a words <<< "$line"
    [[ "$line" == *' ' ]] && words+=("")
    local full="${words[${#words[@]}-1]}" offered
    while IFS=$'\\t' read -r offered _; do
        [[ -n "$offered" ]] && COMPREPLY+=("${offered:$((${#full} - ${#current}))}")
    done < <("${words[0]}" __complete -- "${words[@]:1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 0 ]] && compopt -o default
    [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[:=] ]] && compopt -o nospace
}
complete -F _holdfast holdfast hold
"""
_ZSH = """\
#compdef holdfast hold
_holdfast() {
    local -a offered
    local name meaning
    while IFS=$'\\t' read -r name meaning; do
        offered+=("${name//:/\\\\:}${meaning:+:$meaning}")
    done < <("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#offered} )); then _describe holdfast offered; else _files; fi
}
compdef _holdfast holdfast hold
"""
_FISH = """\
function __holdfast_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l offered ($words[1] __complete -- $words[2..-1] 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c holdfast -f -a '(__holdfast_complete)'
complete -c hold -f -a '(__holdfast_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def configure(parser: CommandParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="your shell")


def execute(arguments: Namespace, session: Session) -> int:
    session.out.document({"shell": arguments.shell, "script": SCRIPTS[arguments.shell]})
    session.out.block(SCRIPTS[arguments.shell])
    return 0
