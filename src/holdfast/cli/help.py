"""The overview of all commands, from the table alone."""

from __future__ import annotations

from holdfast.cli.table import COMMANDS
from holdfast.version import __version__


def overview() -> str:
    """Return what `holdfast --help` shows."""
    lines = [
        f"holdfast {__version__}: checkpoint and recovery for AI-agent workflows",
        "",
        "usage: holdfast COMMAND ... [--json] [--store URL] [-C DIR] [-q] [-v] [--yes] [--no-color] [--debug]",
    ]
    for group in dict.fromkeys(command.group for command in COMMANDS if command.group):
        lines += ["", f"{group}:"]
        lines += [f"  {one.name:<12}{one.help}" for one in COMMANDS if one.group == group]
    lines += [
        "",
        "`holdfast COMMAND --help` tells more. A checkpoint is named by its id or a part of it, its label, RUN (the",
        "newest of a run), RUN@7 (its seventh), RUN~2 (two before the newest) or RUN#812 (a position in its journal).",
        "A path counts from the folder you are in; behind CHECKPOINT: it counts from the top, unless it begins with ./",
        "or ../",
    ]
    return "\n".join(lines) + "\n"
