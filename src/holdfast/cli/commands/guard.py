"""Run any command under protection: files and git are captured before it, at intervals and after it.

So they are before programs that may destroy work (rm, mv, git reset ...), where the command finds them on its PATH.
Its output is kept, too (`holdfast logs RUN`). The exit code is the command's. Whatever it did, and however it or this
process ended, the line that is shown puts files and git back as they were before it.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import guard_rules
from holdfast.cli.errors import CommandInvalid
from holdfast.cli.output import Paint, is_terminal
from holdfast.cli.times import number
from holdfast.errors import CommandFailed, HoldfastError, StoreUnavailable, UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.flow.task_output import OutputFiles
    from holdfast.model.triggers import Trigger
    from holdfast.run import Run
    from holdfast.runtime.command import CommandResult, Streams

_SIGNALLED = 128
_EVERY = "60s"
_STORE_BYTES = 64 << 10  # of each stream, in the store; `logs` has more


def configure(parser: CommandParser) -> None:
    parser.words_before = 0
    parser.add_argument("command", metavar="COMMAND", nargs="+", help="the program and its arguments, after --")
    parser.add_argument("--run-id", metavar="RUN", help="a name for the run (guard- and the time)")
    parser.add_argument("--workspace", metavar="DIR", help="the directory that is captured (the project's folder)")
    parser.add_argument(
        "--accept-ignored", action="store_true",
        help="start it although ignore rules leave most of the directory unprotected",
    )  # fmt: skip
    parser.add_argument(
        "--every", metavar="TIME", default=_EVERY, help=f"how often changed files are captured meanwhile ({_EVERY})"
    )


def execute(arguments: Namespace, session: Session) -> int:
    """Capture, run the command, capture, and say how all of it is put back."""
    from holdfast.flow.duration import parse_duration  # noqa: PLC0415 - help does without

    every_s = parse_duration(arguments.every)
    if every_s <= 0:
        raise CommandInvalid(f"--every {arguments.every}: give a time, as 30s or 5m")
    hf = session.open()
    name = arguments.run_id or f"guard-{session.now():%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
    if hf.has(name):
        raise UsageError(f"there is a run {name!r} already: choose another --run-id")
    run = hf.run(name, workspace=Path(arguments.workspace or session.root).absolute(), waiting="leave")
    run_command = _Guarded(run, arguments.command, session, every_s, accepts_ignored=arguments.accept_ignored)
    try:
        with run:
            run_command.protect()
            run_command.carry_out()
    except CommandFailed as failed:
        code = failed.status if failed.status >= 0 else _SIGNALLED - failed.status
        run_command.tell(f"ended with {code}")
        return code
    except (KeyboardInterrupt, SystemExit):
        run_command.tell("was interrupted")
        raise
    except HoldfastError:
        run_command.tell("ended, and what it did could not be stored")
        raise
    run_command.tell("is done")
    return 0


class _Guarded:
    """One command, and the run that protects it."""

    def __init__(
        self, run: Run, command: list[str], session: Session, every_s: float, *, accepts_ignored: bool
    ) -> None:
        self._run = run
        self._command = command
        self._session = session
        self._every_s = every_s
        self._accepts_ignored = accepts_ignored
        self._before: Checkpoint | None = None
        self._watched = guard_rules.Watched.of(run.workspace.path)
        self._settings_changed = False
        self._is_partial = False
        self._has_git = (run.workspace.path / ".git").exists()  # elsewhere than at its root git is not put back

    def protect(self) -> None:
        """Make sure that how things were is stored; a command that could not be put back is not started."""
        head = self._run.head
        if head is None or self._run.protection.since is not None:
            detail = self._run.protection.detail or "checkpointing is disabled in the settings (enabled: false)"
            raise StoreUnavailable(
                self._run.holdfast.store.url,
                f"{self._command[0]!r} was not started, for nothing could be captured: {detail}",
            )
        guard_rules.freeze(self._run, head)
        if not self._accepts_ignored:
            guard_rules.check_rules(head, self._run)
        self._before = head
        is_repository, self._has_git = self._has_git, self._has_git and head.git.commit is not None
        self._run.holdfast.mark(head.id, pinned=True)  # whatever the retention says, this is the way back
        self._run.host.note("guarded", shlex.join(self._command))
        what = "files and git" if self._has_git else "the files of this directory"
        self._session.out.note(Paint("guarded: ", "dim"), f"{self._way_back} puts {what} back as they are now")
        out = self._session.out
        left_out = guard_rules.unprotected(head)
        self._is_partial = bool(left_out) or is_repository != self._has_git
        if left_out:
            out.warn(f"not protected: {left_out}")
        if is_repository and not self._has_git:
            why = head.git.problem or "it has no commit yet, or could not be read"
            out.warn(f"git is not protected ({why}): branches and commits stay as the command leaves them")
        top = guard_rules.around(self._run.workspace.path)
        if top is not None:
            out.warn(
                f"git is not protected: this directory is part of the repository {top}. To protect it, too: "
                f"`holdfast guard --workspace {shlex.quote(top)} -- COMMAND`"
            )

    @property
    def _way_back(self) -> str:
        assert self._before is not None
        store = self._session.options.store
        where = f" --store {shlex.quote(store)}" if store else ""
        if self._settings_changed:  # they may name another store, or be broken
            where = f" --store {shlex.quote(store or self._run.holdfast.store.url)} --no-settings"
        place = self._run.workspace.path
        if place != self._session.root.resolve():  # a directory that is deleted is no longer known by its run
            where = f" --workspace {shlex.quote(str(place))}{where}"
        git = " --git" if self._has_git else ""
        return f"`holdfast restore {self._run.id}@{self._before.seq} --exact{git}{where}`"

    def tell(self, ended: str) -> None:
        """Say how the command ended, and how what it did is undone."""
        if self._before is None:
            return
        try:
            changed = len(self._run.holdfast.latest(self._run.id, required=True).changes(self._before))
        except HoldfastError:  # what could not be stored last is said already
            changed = 0
        self._tell_changed()
        what = f"{self._command[0]} {ended}" + (f", and {number(changed, 'path')} changed" if changed else "")
        back = "what is protected" if self._is_partial else "everything"
        self._session.out.note(Paint("guarded: ", "dim"), f"{what}; {self._way_back} puts {back} back")

    def _tell_changed(self) -> None:
        """Name what decides over the protection, or over git, and was changed by the command."""
        out = self._session.out
        try:
            rules, git = self._watched.changed(guard_rules.Watched.of(self._run.workspace.path))
        except OSError as error:  # the way back matters more, and is said next
            place = shlex.quote(str(self._run.workspace.path))
            first = f"; for the way back make it first: `mkdir -p {place}`" if error.errno == errno.ENOENT else ""
            out.warn(f"{place} cannot be read ({os.strerror(error.errno or 0)}){first}")
            self._settings_changed = True
            return
        if rules:
            out.warn(f"the command changed {', '.join(rules)}: for the way back they count as they were before it")
        self._settings_changed = any(name.startswith("holdfast.y") or name == "pyproject.toml" for name in rules)
        if git:
            out.warn(f"the command changed {', '.join(git)}: a restore does not put that back, so look at it yourself")

    def carry_out(self) -> None:
        """Run the command as one call of the run; CommandFailed if it failed."""
        from holdfast.capture.timer import Timer, Timers  # noqa: PLC0415
        from holdfast.cli.shims import Shims  # noqa: PLC0415
        from holdfast.model.triggers import Trigger  # noqa: PLC0415

        timer = Timer(
            timers=Timers(),
            interval_s=self._every_s,
            tick=lambda: self._capture(Trigger.TIME_INTERVAL, f"every {self._every_s:g} s"),
        )
        with Shims(lambda what: self._capture(Trigger.BEFORE_DESTRUCTIVE, f"before {what}")) as shims:
            timer.start()
            try:
                self._run.step(Path(self._command[0]).name, lambda: self._do(shims.path), wrote_files=True)
            finally:
                timer.stop()
        self._run.complete()

    def _capture(self, trigger: Trigger, reason: str) -> None:
        """Take a checkpoint if anything changed; what fails is warned about and stops nothing."""
        run = self._run
        try:
            with run.lock:
                if not run.workspace.capture.is_as(run.recorder.head_record):
                    run.checkpoint(trigger=trigger, reason=reason)
        except HoldfastError as error:
            self._session.out.warn(f"run {run.id}: a checkpoint failed, and the command continues: {error}")

    def _do(self, path: str) -> dict[str, Any]:
        from holdfast.flow.task_output import OutputFiles  # noqa: PLC0415
        from holdfast.runtime.command import Command  # noqa: PLC0415
        from holdfast.runtime.output import cut  # noqa: PLC0415

        run = self._run
        outputs = OutputFiles.of(run.holdfast, run.id)
        kept = _KeptOutput(run, outputs, Path(self._command[0]).name) if outputs is not None else None
        env = {"PATH": path, "HOLDFAST_RUN": run.id}
        with ExitStack() as stack:
            if kept is not None:
                stack.callback(kept.close)
            command = Command(self._command, env=env)
            streams = _streams(stack)
            result: CommandResult = command.run(
                host=run.host, on_output=kept.take if kept is not None else None, streams=streams
            )
        result.check()
        return {
            "exit_code": result.exit_code,
            "output": cut(result.stdout, _STORE_BYTES),
            "stderr": cut(result.stderr, _STORE_BYTES),
        }


class _KeptOutput:
    """Hands what the command prints to the files that `logs` reads, without secrets."""

    def __init__(self, run: Run, outputs: OutputFiles, program: str) -> None:
        from holdfast.capture.redact import text_redactor  # noqa: PLC0415
        from holdfast.flow.redaction import EventRedactor  # noqa: PLC0415
        from holdfast.settings.apply import redaction_rules  # noqa: PLC0415

        self._run = run
        self._outputs = outputs
        self._program = program
        self._redactor = EventRedactor(
            text_redactor(run.holdfast.internals.types, redaction_rules(run.holdfast.settings.redaction))
        )

    def take(self, stream: str, text: str) -> None:
        """Take a piece of output."""
        from holdfast.flow.events import Event  # noqa: PLC0415

        at, data = self._run.host.now(), {"stream": stream}
        printed = Event(kind="task_output", at=at, phase="guard", task=self._program, text=text, data=data)
        for event in self._redactor.take(printed):
            self._outputs.take(event)

    def close(self) -> None:
        """Write what is left."""
        for event in self._redactor.end():
            self._outputs.take(event)
        self._outputs.close()


def _streams(stack: ExitStack) -> Streams:
    """Return what the command reads and writes: a terminal of its own if a person sits at this one, else ours."""
    from holdfast.runtime.command import Streams  # noqa: PLC0415

    if is_terminal(sys.stdin) and is_terminal(sys.stdout):
        from holdfast.cli.pseudo_terminal import pseudo_terminal  # noqa: PLC0415

        terminal = stack.enter_context(pseudo_terminal(sys.stdin.fileno()))
        return Streams(stdout=_writer(sys.stdout.fileno()), terminal=terminal)
    return Streams(stdin=_input(stack), stdout=_writer(sys.stdout.fileno()), stderr=_writer(sys.stderr.fileno()))


def _writer(descriptor: int) -> Callable[[bytes], object]:
    def write(data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]

    return write


def _input(stack: ExitStack) -> int | None:
    """Return a descriptor for the command's input: opened again by its name, a file would begin at its beginning."""
    try:
        descriptor = os.dup(0)
    except OSError:
        return None  # closed
    stack.callback(os.close, descriptor)
    if stat.S_ISREG(os.fstat(descriptor).st_mode) and os.lseek(descriptor, 0, os.SEEK_CUR) > 0:
        rest = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the stack
        with os.fdopen(os.dup(descriptor), "rb") as file:
            rest.write(file.read())
        rest.flush()
        return rest.fileno()
    return descriptor
