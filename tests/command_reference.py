"""docs/CLI.md, made from the parsers themselves, so that it cannot say what is not so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.documents import CHECKPOINT, DOCUMENTS, RUN
from holdfast.cli.errors import EXIT_CODES
from holdfast.cli.main import load, make_parser
from holdfast.cli.parser import GLOBALS
from holdfast.cli.table import COMMANDS, Command

if TYPE_CHECKING:
    from argparse import Action
    from collections.abc import Iterable, Iterator

    from holdfast.cli.parser import CommandParser

_INTRODUCTION = """\
# The command line

`holdfast`, or `hold` for short. This page is made from the program: `make docs`.

## Naming things
A run is named by its id: letters, digits and `_ . + = -`. A checkpoint is named by its id or a part of it (as lists
show it), its label, `RUN` (the newest of a run), `RUN@7` (its seventh), `RUN~2` (two resumable ones before it),
`RUN:label`, `RUN:before:phase`, or `latest`. What is not there comes with the nearest that is. Completion offers
runs, labels and ids: `eval "$(holdfast completion bash)"`.

`RUN#812` is a position: record 812 of the run's journal (`holdfast log --positions` and `holdfast replay --list`
show the numbers). It stands for the newest checkpoint at or before it and the records up to it; state, files and
registered objects are those of that checkpoint, and the output says so. A number is never used twice: one on a segment
that the run went back from can be shown, compared, replayed and forked, not resumed.

A path counts from the folder you are in, as with git. Behind `CHECKPOINT:` it counts from the top of what was
captured, unless it begins with `./` or `../`. Lists name paths from the top.

## Where the store is
`--store`, else the variable `HOLDFAST_STORE`, else `location` in the settings, else `.holdfast/` of the project: this
folder, or the nearest above it that has `holdfast.yaml`, `[tool.holdfast]` in pyproject.toml or a store, and is yours.
Looking never makes a store, and one that cannot be written is opened for reading.

## For scripts
`--json` writes one document to standard output, and nothing else; what runs or follows something writes lines (see
"Documents of --json"). An error is `{"error": {"kind", "message", "exit_code"}}`. Times are ISO 8601, sizes bytes, ids
whole. Warnings are in `warnings`, or on standard error where no document carries them.
Fields are added, not renamed. Values of sections are readable, not exact: times and bytes (base64) become text, tuples
and sets become lists. Nothing destructive is done without a terminal, unless `--yes` agrees beforehand; `--dry-run`
shows the same plan. Notes and questions go to standard error.

A whole workflow in plain bash; killed anywhere, it continues where it was:
```bash
holdfast begin PLAN.md --resume                       # headings `## Phase 1: Research` name the phases
for phase in $(holdfast status --left); do
    holdfast phase start "$phase"
    if claude -p "@prompts/$phase.md" > "notes/$phase.md"
    then holdfast phase done "$phase" --artifact "notes/$phase.md"
    else holdfast phase fail "$phase" --error "exit $?"; exit 1
    fi
done
```
"""


def reference() -> str:
    """Return the whole page."""
    lines = [_INTRODUCTION]
    lines += ["## Exit codes", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES]
    lines += [
        "",
        "## Everywhere on the line",
        *_table((f"{name} {value}".strip(), text) for name, value, text in GLOBALS),
    ]
    lines += ["", "## Documents of --json", "What stands at the top of each.", ""]
    lines += ["| command | fields |", "|---|---|", *_documents()]
    lines += ["", "Commands that write something else, too:", ""]
    usual = Command._field_defaults["json"]
    lines += ["| command | what --json does |", "|---|---|"]
    lines += [f"| `{one.name}` | {one.json} |" for one in COMMANDS if one.json != usual and one.group]
    for group in dict.fromkeys(command.group for command in COMMANDS if command.group):
        lines += ["", f"## {group}"]
        for command in COMMANDS:
            if command.group == group:
                lines += ["", *_command(command.name, make_parser(command), str(load(command).__doc__))]
    return "\n".join(lines) + "\n"


def _documents() -> Iterator[str]:
    yield f"| a checkpoint, in every list | {_fields(CHECKPOINT)} |"
    yield f"| a run, in `ls` | {_fields(RUN)} |"
    for name, fields in DOCUMENTS.items():
        own = tuple(field for field in fields if field not in CHECKPOINT)
        shown = _fields(fields)
        if set(fields) >= set(CHECKPOINT):
            shown = "those of a checkpoint" + (f", {_fields(own)}" if own else "")
        yield f"| `{name}` | {shown} |"


def _fields(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _command(name: str, parser: CommandParser, about: str) -> list[str]:
    usage = " ".join([f"holdfast {name}", *map(_usage, parser.arguments)])
    lines = [f"### {name}"]
    if not parser.parts:
        lines.append(f"`{usage}`")
    lines += ["", *about.strip().splitlines()]
    lines += _arguments(parser)
    for part, below in parser.parts.items():
        lines += ["", *_part(f"{name} {part}", below)]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _part(name: str, parser: CommandParser) -> Iterator[str]:
    if parser.parts:
        for part, below in parser.parts.items():
            yield from _part(f"{name} {part}", below)
        return
    usage = " ".join([f"holdfast {name}", *map(_usage, parser.arguments)])
    yield f"`{usage}`: {parser.description}"
    yield from _arguments(parser)
    yield ""


def _arguments(parser: CommandParser) -> list[str]:
    rows = [(_name(action), str(action.help)) for action in parser.arguments]
    return ["", *_table(rows)] if rows else []


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows)]


def _name(action: Action) -> str:
    value = _value(action)
    return ", ".join(action.option_strings) + (f" {value}" if value else "") if action.option_strings else value


def _value(action: Action) -> str:
    if action.nargs == 0:
        return ""
    name = str(action.metavar) if action.metavar is not None else "\\|".join(map(str, action.choices or (action.dest,)))
    name = name.replace("|", "\\|") if "\\|" not in name else name
    return f"[{name}]" if action.option_strings and action.nargs == "?" else name


def _usage(action: Action) -> str:
    value = _value(action).replace("\\|", "|")
    if action.option_strings:
        whole = f"{action.option_strings[-1]} {value}".strip()
        return whole if action.required else f"[{whole}]"
    return {"?": f"[{value}]", "*": f"[{value} ...]", "+": f"{value} ..."}.get(str(action.nargs), value)


if __name__ == "__main__":
    import sys

    sys.stdout.write(reference())
