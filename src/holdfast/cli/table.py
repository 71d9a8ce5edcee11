"""Every command with its file and one line of help; a plain table, so that help and completion load nothing else."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """One command; `module` is its file in cli/commands, `group` its heading in the help, `json` what --json does."""

    name: str
    module: str
    group: str
    help: str
    json: str = "one JSON document on standard output"


LOOK = "Look"
KEEP = "Save and restore"
RUNS = "Runs"
SCRIPTS = "For scripts"
MACHINES = "Many machines"
STORES = "Stores"
SETUP = "Set up"
HIDDEN = ""

COMMANDS = (
    Command("ls", "ls", LOOK, "list the runs and where each stands"),
    Command("log", "log", LOOK, "show a run's checkpoints as a graph"),
    Command("show", "show", LOOK, "show a checkpoint, or sections of it"),
    Command("files", "files", LOOK, "list the files of a checkpoint"),
    Command("cat", "cat", LOOK, "write a file of a checkpoint to standard output"),
    Command("diff", "diff", LOOK, "compare two checkpoints, or one with the directory now"),
    Command("history", "history", LOOK, "tell which call made each version of a file"),
    Command("blame", "blame", LOOK, "tell which call wrote each line of a file"),
    Command("patch", "patch", LOOK, "show what one call changed, as a patch or a commit"),
    Command("bisect", "bisect", LOOK, "find the call since which a command fails"),
    Command("stats", "stats", LOOK, "count what is stored"),
    Command("ui", "ui", LOOK, "show it all as a page in your browser"),
    Command("checkpoint", "checkpoint", KEEP, "take a checkpoint of a run"),
    Command("restore", "restore", KEEP, "put files of a checkpoint back"),
    Command("label", "label", KEEP, "give a checkpoint a name"),
    Command("pin", "pin", KEEP, "keep a checkpoint whatever the retention says"),
    Command("mark", "mark", KEEP, "change a checkpoint's status"),
    Command("delete", "delete", KEEP, "delete checkpoints or whole runs"),
    Command("prune", "prune", KEEP, "delete and archive by the retention rules"),
    Command(
        "run",
        "run",
        RUNS,
        "run a flow, or resume it",
        json="one JSON line an event, the result last; with --dry-run one JSON document",
    ),
    Command(
        "guard",
        "guard",
        RUNS,
        "run any command, and be able to put back what it did",
        json="no notes; the command prints what it always prints",
    ),
    Command(
        "flow",
        "flow",
        RUNS,
        "check a flow file, or print the schema of flow files",
        json="one JSON document of `check`; the schema is JSON anyway",
    ),
    Command(
        "logs",
        "logs",
        RUNS,
        "show what a run's tasks print, also while they run",
        json="one JSON document; with -f one JSON line for each line printed",
    ),
    Command("cost", "cost", RUNS, "tell what a run cost: tokens, money, time"),
    Command("status", "status", RUNS, "tell where a run stands, and what it waits for"),
    Command(
        "resume",
        "resume",
        RUNS,
        "put a run back so that it can continue",
        json="one JSON document; where a flow continues, one JSON line an event",
    ),
    Command("undo", "undo", RUNS, "undo the last recovery of a run"),
    Command("fork", "fork", RUNS, "begin a new run from a checkpoint"),
    Command("replay", "replay", RUNS, "step through a run by its record"),
    Command(
        "events",
        "events",
        RUNS,
        "tell what happened in a run, and when",
        json="one JSON document; with -f one JSON line an event",
    ),
    Command("pause", "pause", RUNS, "ask a run to stop at its next boundary and wait"),
    Command("cancel", "cancel", RUNS, "ask a run to end"),
    Command("approve", "approve", RUNS, "say yes to what a run waits for"),
    Command("reject", "reject", RUNS, "say no to what a run waits for"),
    Command("answer", "answer", RUNS, "answer what a run waits for"),
    Command("signal", "signal", RUNS, "send a run a signal"),
    Command("budget", "budget", RUNS, "add to the limits of a run's budgets, or set them"),
    Command("submit", "submit", MACHINES, "hand a flow to workers on other machines"),
    Command(
        "worker",
        "worker",
        MACHINES,
        "advance submitted runs on this machine",
        json="no notes; nothing is written to standard output",
    ),
    Command("queue", "queue", MACHINES, "list the runs of a queue, try one again, take one out"),
    Command("advance", "advance", MACHINES, "advance one run by hand, as a worker would"),
    Command("begin", "begin", SCRIPTS, "begin the run of a plan file, or resume it"),
    Command("phase", "phase", SCRIPTS, "a phase starts, is done, failed, is skipped"),
    Command("replan", "replan", SCRIPTS, "a phase is replanned, within its limit"),
    Command("save", "save", SCRIPTS, "save a script's own state"),
    Command(
        "load",
        "load",
        SCRIPTS,
        "write a script's own state to standard output",
        json="no change: the value is JSON with and without it",
    ),
    Command("verify", "verify", STORES, "check every record and every byte"),
    Command("repair", "repair", STORES, "mark what is damaged, and go back to what is sound"),
    Command("copy", "copy", STORES, "copy runs from one store to another"),
    Command("export", "export", STORES, "write runs into one file"),
    Command("import", "import_", STORES, "take over the runs of an exported file"),
    Command("store", "store", STORES, "change a store's schema and keys"),
    Command("init", "init", SETUP, "begin a project here"),
    Command("trust", "trust", SETUP, "allow what this project's settings ask for"),
    Command("demo", "demo", SETUP, "watch an agent being killed and continue"),
    Command("doctor", "doctor", SETUP, "check this machine and this project"),
    Command(
        "hook",
        "hook",
        SETUP,
        "take a checkpoint at an event of a coding assistant",
        json="one JSON document of `install` and `status`; events are answered in JSON anyway",
    ),
    Command(
        "mcp",
        "mcp",
        SETUP,
        "serve this project's runs to an MCP client",
        json="no change: what is served is JSON anyway",
    ),
    Command("completion", "completion", SETUP, "print a completion script for your shell"),
    Command("__complete", "complete", HIDDEN, "offer words to the shell", json="no change"),
)
OTHER_NAMES = {
    "rewind": "`holdfast resume RUN@7` goes back to a checkpoint; `holdfast log` lists them",
    "rollback": "`holdfast resume RUN@7` goes back to a checkpoint; `holdfast restore RUN@7` puts only files back",
    "revert": "`holdfast resume RUN@7` goes back to a checkpoint; `holdfast undo` undoes the last recovery",
    "reset": "`holdfast resume RUN@7` goes back to a checkpoint; `holdfast restore RUN@7 --exact` puts all files back",
    "back": "`holdfast resume RUN@7` goes back to a checkpoint; `holdfast log` lists them",
    "continue": "`holdfast resume` continues a run",
    "restart": "`holdfast resume` continues a run; `holdfast run FLOW --fresh` begins it again",
    "retry": "`holdfast resume --retry-failed` tries again what failed; `holdfast queue retry RUN` a submitted run",
    "redo": "`holdfast run FLOW --redo PHASE/TASK` does a task again",
    "rm": "`holdfast delete` deletes checkpoints or whole runs",
    "remove": "`holdfast delete` deletes checkpoints or whole runs",
    "gc": "`holdfast prune` deletes by the retention rules",
    "stop": "`holdfast pause` stops a run at its next boundary, `holdfast cancel` ends it",
    "kill": "`holdfast cancel` ends a run",
    "abort": "`holdfast cancel` ends a run",
    "unpause": "`holdfast resume` lets a paused run continue",
    "validate": "`holdfast verify` checks a store, `holdfast flow check FILE` a flow file",
    "check": "`holdfast verify` checks a store, `holdfast flow check FILE` a flow file",
    "fsck": "`holdfast verify` checks a store, `holdfast repair` repairs it",
    "compare": "`holdfast diff` compares two checkpoints, or one with the directory now",
    "watch": "`holdfast events -f` and `holdfast logs -f` follow a run, `holdfast ui` shows all of them",
    "tail": "`holdfast logs -f` follows what a run's tasks print",
    "follow": "`holdfast events -f` follows a run",
    "list": "`holdfast ls` lists the runs, `holdfast log RUN` its checkpoints",
    "ps": "`holdfast ls` lists the runs and where each stands",
    "runs": "`holdfast ls` lists the runs",
    "top": "`holdfast ls` lists the runs and where each stands, `holdfast ui` shows them live",
    "inspect": "`holdfast show` shows what is in a checkpoint, `holdfast status` where a run stands",
    "describe": "`holdfast show` shows what is in a checkpoint, `holdfast status` where a run stands",
    "info": "`holdfast status` tells where a run stands, `holdfast show` what is in a checkpoint",
    "snapshot": "`holdfast checkpoint RUN` takes a checkpoint",
    "commit": "`holdfast checkpoint RUN` takes a checkpoint",
    "backup": "`holdfast export` writes runs into one file, `holdfast copy` into another store",
    "branch": "`holdfast fork` begins a new run from a checkpoint",
    "start": "`holdfast run FLOW` runs a flow, `holdfast begin PLAN.md` begins a script's run",
    "web": "`holdfast ui` shows it all as a page in your browser",
    "tag": "`holdfast label` gives a checkpoint a name",
}
"""What people call things elsewhere, and what does it here."""
BY_NAME = {command.name: command for command in COMMANDS}
