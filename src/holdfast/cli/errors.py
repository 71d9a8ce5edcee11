"""From an error to one or two sentences and an exit code; a traceback only for those who ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, UsageError
from holdfast.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.cli.output import Output

UNEXPECTED = 1
DECLINED = 12
ALREADY_DONE = 13
START_PROGRAM = 14

EXIT_CODES = (
    (0, "done"),
    (1, "something unexpected, or `doctor` found a problem, or `diff --exit-code` found a difference"),
    (2, "the call cannot be carried out as it was made: change it"),
    (3, "there is no such store, run, checkpoint, section or file"),
    (4, "somebody else was first, or files are not as the plan saw them: look again, then repeat"),
    (5, "stored bytes are damaged, or of a newer version; `verify` found faults"),
    (6, "the store or the file system refused"),
    (7, "a checkpoint failed, and the settings say not to continue like that"),
    (8, "the run cannot continue as asked: decide, then ask again"),
    (9, "the run waits for a person, a signal, a time or a budget"),
    (10, "the run was cancelled"),
    (11, "a phase was replanned too often"),
    (12, "nothing was done, because nobody agreed: answer the question, or give --yes"),
    (13, "this phase is done already, so there is nothing to start"),
    (14, "the run can continue: start its own program, which `resume` cannot do"),
    (130, "interrupted by Ctrl+C"),
    (141, "the reader of the output went away"),
)

# What the library calls a thing, and what a person types for it.
_SAID_BY_COMMANDS = (
    ("hf.verify()", "`holdfast verify`"),
    (
        "hf.latest(run, sound=True) finds the newest sound one",
        "`holdfast resume RUN` continues from the newest sound one",
    ),
    (
        "pass that class in holdfast.open(types=[...])",
        "only a program with that class in holdfast.open(types=[...]) reads it",
    ),
    ("hf.control.waiting(run)", "`holdfast status RUN`"),
    ("hf.mark(...)", "`holdfast label`, `pin` or `mark`"),
    ("hf.checkpoints(run)", "`holdfast log RUN`"),
    ("hf.plan()", "`holdfast resume --dry-run`"),
    ("holdfast.generate_key()", "`holdfast store key new FILE`"),
    ("with hf.run(...)", "by repeating the command"),
    ("holdfast.open(path)", "--store PATH"),
    (
        "it was opened read-only; open it without read_only to write",
        "it cannot be written; check the permissions of its file and folder",
    ),
    (
        'decisions=Decisions(conflicts="keep"), or "take", "both", "merge"; paths={"path": "take"} for some',
        "--keep, --take, --both or --merge",
    ),
    ("pass allow_outside_links to create it", "--allow-outside-links creates it"),
    ("holdfast.open(place, key_file=...)", "encryption.key_file in holdfast.yaml"),
    (
        "give its key with key_file=, key_env= or in the settings",
        "name its key in holdfast.yaml, encryption: {key_file: FILE}",
    ),
    ("keys with key=", "keys with --key-file FILE"),
    ("use hf.delete_run(...)", "delete it with `holdfast delete --run RUN`"),
    ("workspace=..., or into=... for another one", "--workspace DIR, or --into DIR for another one"),
    ("name their place, workspace=...", "name their place with --workspace DIR"),
    ("hf.run(..., workspace=directory)", "--workspace DIR"),
    ("then call run.checkpoint() to continue", "then repeat the command"),
    ("together=True gives", "--together gives"),
)
_SAID_WITH_A_NAME = (
    (pattern(r"hf\.recover\(hf\.plan\('([^']*)'\)\)"), r"`holdfast resume \1`"),
    (pattern(r"hf\.undo\('([^']*)'\)"), r"`holdfast undo \1`"),
    (pattern(r", or hf\.run\('[^']*', workspace=[^)]*\),"), ""),
    (pattern(r"open it with hf\.run\('[^']*', workspace=directory\)"), "name it with --workspace DIR"),
    (pattern(r"open it again with hf\.run\('[^']*'\)"), "repeat the command"),
    (pattern(r"unknown=\{('[^']*'): ('[^']*'|\.\.\.)\}"), r"step \1"),
    (pattern(r"\bkeep=(\d+) would"), r"--keep \1 would"),
)


class Declined(HoldfastError):
    """Nobody agreed, so nothing was done."""

    exit_code = DECLINED
    template = "nothing was done, because nobody agreed; --yes agrees beforehand"


class CommandInvalid(UsageError):
    """Arguments that a command does not take."""


def told(error: HoldfastError) -> str:
    """Return an error's sentence with commands where the library names calls."""
    return told_text(str(error))


def told_text(text: str) -> str:
    """Return text of the library with commands where it names calls."""
    for call, command in _SAID_BY_COMMANDS:
        text = text.replace(call, command)
    for named, command in _SAID_WITH_A_NAME:
        text = named.sub(command, text)
    return text


def report(error: BaseException, out: Output, *, debug: bool = False) -> int:
    """Say what went wrong, as text or as a JSON document, and return the exit code."""
    if isinstance(error, HoldfastError):
        kind, text, code = type(error).__name__, told(error), error.exit_code
    elif isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        kind, text, code = type(error).__name__, f"{place}{error.strerror or error}", 6
    else:
        kind, text, code = type(error).__name__, f"unexpected {type(error).__name__}: {error}", UNEXPECTED
        if not debug:
            text += ". Repeat with --debug to see where"
    if out.json:
        out.document({"error": {"kind": kind, "message": text, "exit_code": code}})
    trace = ""
    if debug:
        import traceback  # noqa: PLC0415 - only for --debug

        trace = "".join(traceback.format_exception(error))
    if not out.json or trace:
        out.fail(text, trace=trace)
    return code


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" for the names that are most like this one, or nothing."""
    import difflib  # noqa: PLC0415 - only when something is not found

    near = difflib.get_close_matches(name, list(known), n=3)
    return f"; did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
