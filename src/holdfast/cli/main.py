"""The command line's entry: finds the command, loads its file alone, and turns errors into sentences and exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType
    from typing import TextIO

    from holdfast.cli.output import Output
    from holdfast.cli.parser import CommandParser, Globals
    from holdfast.cli.table import Command

INTERRUPTED = 130
PIPE_CLOSED = 141
NOT_WRITTEN = 6


def main(words: Sequence[str] | None = None) -> int:
    """Carry out one line and return the exit code."""
    line = list(sys.argv[1:] if words is None else words)
    if sys.stdout is None or sys.stderr is None:  # closed by who started this
        _replace_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _carried_out(line)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _let_go(sys.stdout)
        return PIPE_CLOSED
    except KeyboardInterrupt as interrupt:
        sys.stderr.write("; ".join(("\nholdfast: interrupted", *map(str, interrupt.args))) + "\n")
        return INTERRUPTED
    except OSError as error:  # a full disk, say: what was written is not all there
        _let_go(sys.stdout)
        sys.stderr.write(f"holdfast: standard output cannot be written ({error.strerror})\n")
        return NOT_WRITTEN
    return code


def _carried_out(line: list[str]) -> int:
    if line in (["--version"], ["-V"]):
        sys.stdout.write(f"holdfast {__version__}\n")
        return 0
    if line[:1] == ["hook"]:
        from holdfast.cli.commands.hook import answered  # noqa: PLC0415 - only what a line needs is loaded

        code = answered(line)
        if code is not None:
            return code
    if not line or line in (["--help"], ["-h"], ["help"]):
        from holdfast.cli.help import overview  # noqa: PLC0415

        sys.stdout.write(overview())
        return 0
    from holdfast.cli.errors import report  # noqa: PLC0415
    from holdfast.cli.output import Output  # noqa: PLC0415
    from holdfast.cli.parser import Globals, split_globals  # noqa: PLC0415
    from holdfast.errors import HoldfastError  # noqa: PLC0415

    options = Globals(json="--json" in line)
    try:
        options, rest = split_globals(line)
    except HoldfastError as error:
        return report(error, Output(sys.stdout, sys.stderr, json=options.json))
    out = Output(
        sys.stdout,
        sys.stderr,
        json=options.json,
        quiet=options.quiet,
        verbose=options.verbose,
        no_color=options.no_color,
    )
    try:
        with contextlib.chdir(options.directory or "."), _warnings_to(out):
            return _command(rest, options, out, line)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, a person gets a sentence and a code
        return report(error, out, debug=options.debug)
    finally:
        out.finish()


def _command(rest: list[str], options: Globals, out: Output, line: list[str]) -> int:
    from holdfast.cli.ask import Prompt  # noqa: PLC0415
    from holdfast.cli.session import Session  # noqa: PLC0415
    from holdfast.cli.table import BY_NAME  # noqa: PLC0415

    if not rest:
        from holdfast.cli.help import overview  # noqa: PLC0415

        out.stdout.write(overview())
        return 0
    name, *words = rest
    if name == "help":
        name, words = (words[0], ["--help"]) if words else ("--help", [])
    if name in ("--version", "--help", "-h", "-V"):
        return _carried_out([name])
    if name not in BY_NAME:
        _refuse(name)
    command = BY_NAME[name]
    module = load(command)
    parser = make_parser(command)
    parser.check_dashes(line[line.index(rest[0]) + 1 :])
    try:
        arguments = parser.parsed(words)
    except SystemExit as left:  # argparse has shown its help
        return int(left.code or 0)
    session = Session(options, out, Prompt(out, sys.stdin, yes=options.yes))
    with _log_to(out, options):
        try:
            code: int = module.execute(arguments, session)
        finally:
            session.close()
    out.flush()
    return code


def load(command: Command) -> ModuleType:
    """Return the module of a command: one of the fixed table, never one that data names."""
    from importlib import import_module  # noqa: PLC0415

    return import_module(f"holdfast.cli.commands.{command.module}")


def make_parser(command: Command) -> CommandParser:
    """Return the parser of a command."""
    from holdfast.cli.parser import CommandParser, globals_help  # noqa: PLC0415

    module = load(command)
    parser = CommandParser(
        prog=f"holdfast {command.name}", description=module.__doc__, epilog=globals_help(command.json)
    )
    module.configure(parser)
    return parser


def _refuse(name: str) -> None:
    from holdfast.cli.errors import CommandInvalid, nearest  # noqa: PLC0415
    from holdfast.cli.table import COMMANDS, OTHER_NAMES  # noqa: PLC0415

    if name.startswith("-"):
        raise CommandInvalid(f"there is no option {name!r} before a command; `holdfast --help` lists all")
    if name in OTHER_NAMES:
        raise CommandInvalid(f"there is no command {name!r}: {OTHER_NAMES[name]}")
    near = nearest(name, [command.name for command in COMMANDS if command.group])
    raise CommandInvalid(f"there is no command {name!r}{near or '; `holdfast --help` lists all'}")


@contextlib.contextmanager
def _warnings_to(out: Output) -> Iterator[None]:
    """Show the library's warnings as sentences."""
    import warnings  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", category=UserWarning)
        warnings.showwarning = lambda message, *_args, **_options: out.warn(str(message))
        yield


@contextlib.contextmanager
def _log_to(out: Output, options: Globals) -> Iterator[None]:
    """Show the library's log: its warnings as ours, and all of it with --verbose and --debug."""
    import logging  # noqa: PLC0415

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                out.warn(record.getMessage())
            else:
                out.note(f"{record.levelname} {record.name}: {record.getMessage()}")

    handler = Told()
    log = logging.getLogger("holdfast")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG if options.debug else logging.INFO if options.verbose else logging.WARNING)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _replace_closed() -> None:
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for as long as the process lives
    sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere


def _let_go(stream: TextIO) -> None:
    """Point a closed pipe elsewhere, so that the interpreter's last flush does not complain."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    raise SystemExit(main())
