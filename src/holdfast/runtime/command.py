"""A shell command or program as an agent or a gate: bounded in time and memory, and never left running unseen.

It runs in a process group of its own, which ends with it, at a timeout, and when this process dies, by kill -9 too
(`reaper`). Out of reach is what moves into a session or group of its own (a daemon).
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import re
import selectors
import shlex
import signal
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from holdfast.errors import CommandFailed, StepTimeout, UsageError
from holdfast.runtime.host import Alone
from holdfast.runtime.output import LIMIT_BYTES, KeptOutput
from holdfast.runtime.reaper import SHELL, WAIT_AT_GATE, reaper, unnamed_file
from holdfast.runtime.usage import Spent, spent_of, usage_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.model.sections import TokenUsage
    from holdfast.runtime.host import Host
    from holdfast.runtime.reaper import ReaperGate

    OnOutput = Callable[["Stream", str], object]

Stream = Literal["stdout", "stderr"]

_BEGIN = f"{WAIT_AT_GATE}; exec <"  # on the line that the command begins with, so that messages name the lines right
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BLOCK = 1 << 16
_GRACE_S = 2.0  # between asking a group to end and ending it, and for what is left behind to finish its output
_TICK_S = 0.1  # how soon a request to stop is seen
_POLL_S = 0.05  # how soon the end of a process is seen where it cannot be waited for together with its output
_FEW = 64  # processes that were started since a command began
_REPORT_WITHIN = 200  # so many lines before its end an agent reports what it used
_LONGEST_LINE = 500
_LONGEST_END = 1500  # of each stream, in an error
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command; output beyond the limit is left out in the middle, and the sizes are of all of it."""

    command: str
    exit_code: int
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int
    duration_s: float
    timed_out: bool = False
    stopped: bool = False
    timeout_s: float | None = None
    ended_with_it: tuple[str, ...] = ()
    """Programs that it left running in the background: they were ended when it was over."""

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself, with 0."""
        return self.exit_code == 0 and not self.timed_out and not self.stopped

    @property
    def problem(self) -> str:
        """What went wrong, in one line; empty if nothing did."""
        if self.succeeded:
            return ""
        if self.timed_out:
            return f"it took longer than {self.timeout_s:g} s"
        if self.stopped:
            return "it was stopped"
        said = _last_line(self.stderr) or _last_line(self.stdout)
        if self.exit_code == _NOT_FOUND:
            return f"a program was not found, so install it or name it by its path ({said})"
        if self.exit_code == _NOT_EXECUTABLE:
            return f"a program could not be executed, so look at its permissions ({said})"
        if self.exit_code < 0:
            return f"it was killed by signal {_signal_name(-self.exit_code)}" + (f" ({said})" if said else "")
        return said or "it printed nothing"

    @property
    def ends(self) -> str:
        """The end of both streams; empty if there is no more in them than one line."""
        streams = {"standard output": self.stdout.strip(), "standard error": self.stderr.strip()}
        if sum(len(text.splitlines()) for text in streams.values()) <= 1:
            return ""
        return "\n".join(f"{name}:\n{_tail(text)}" for name, text in streams.items() if text)

    def check(self) -> CommandResult:
        """Return the result if the command succeeded; StepTimeout or CommandFailed otherwise."""
        if self.succeeded:
            return self
        if self.timed_out and self.timeout_s is not None:
            raise StepTimeout(self.command, self.timeout_s)
        raise CommandFailed(self.command, self.exit_code, self.problem, printed=self.ends)

    def json(self) -> Any:
        """Return what was printed if it is JSON, or the JSON object on its last line; None if there is neither."""
        if not self.stdout or self.stdout.isspace():
            return None
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(self.stdout)
        last = _last_line(self.stdout, longest=None)
        if last.startswith("{"):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                return msgspec.json.decode(last)
        return None

    @property
    def output(self) -> Any:
        """What an agent is taken to have answered: `result` in a JSON object, the JSON itself, or the text."""
        found = self.json()
        if isinstance(found, dict):
            return found.get("result", found)
        return self.stdout if found is None else found

    @property
    def tokens(self) -> TokenUsage:
        """The tokens that it reports in a JSON object."""
        return usage_of(self.report)

    @property
    def report(self) -> Any:
        """The JSON that says what it used: what `json` finds, or before other text the last object that reports it."""
        found = self.json()
        if found is not None:
            return found
        lines = [line for line in self.stdout.splitlines()[-_REPORT_WITHIN:] if line.lstrip()[:1] == "{"]
        for line in reversed(lines):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                said = msgspec.json.decode(line)
                if spent_of(said) != Spent():
                    return said
        return None


class Command:
    """A command: text for the shell, or a program with its arguments."""

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        base_env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        stdin: str | None = None,
        keep_bytes: int = LIMIT_BYTES,
        output_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Describe the command; nothing runs yet.

        `env` is added to `base_env`, or to this process's own environment if that is not given. Of each stream
        `keep_bytes` are kept, half of them from its end; `output_file` gets all of both.
        """
        text, *argv = [command] if isinstance(command, str) else ['exec "$@"', *map(str, command)]
        if not (text if isinstance(command, str) else "".join(argv[:1])).strip():
            raise UsageError("an empty command: give a line for the shell, or a program and its arguments")
        if any("\0" in part for part in (text, *argv)):
            raise UsageError(f"the command {command!r:.200} has a NUL in it, which no program can be given")
        for name, value in (env or {}).items():
            if not _NAME.match(name):
                raise UsageError(f"{name!r} is not a name for an environment variable: use letters, digits and _")
            if not isinstance(value, str) or "\0" in value:
                raise UsageError(f"the environment variable {name} is not text without NUL: give one")
        if timeout_s is not None and not timeout_s > 0:
            raise UsageError(f"timeout_s={timeout_s!r}: give seconds, more than 0")
        self._text = text
        self._argv = argv
        self._shown = text if isinstance(command, str) else shlex.join(argv)
        self._cwd = None if cwd is None else Path(cwd)
        self._env = _encoded(env or {})
        self._base_env = None if base_env is None else _encoded(base_env)
        self._timeout_s = timeout_s
        self._stdin = stdin
        self._keep_bytes = keep_bytes
        self._output_file = None if output_file is None else Path(output_file)

    @property
    def location(self) -> str | None:
        """Where all of its output is written, if it is."""
        return None if self._output_file is None else str(self._output_file)

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"<Command {self._shown}>"

    def run(
        self,
        *,
        stdin: str | None = None,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        stop: threading.Event | None = None,
        host: Host | None = None,
        streams: Streams | None = None,
        before: Callable[[], object] | None = None,
    ) -> CommandResult:
        """Run it to its end and return what came of it, whatever that is; see `CommandResult.check`.

        `on_output` hears each piece of output as it comes; an error that it raises ends the command. So does `stop`,
        and a cancellation of the run that is its host: that is raised as RunCancelled. A command that Ctrl+C (SIGINT)
        ended raises KeyboardInterrupt, as a shell leaves its script. With `streams` it reads and writes those as well.
        `before` is called while its shell is being loaded: the command begins when that has returned.
        """
        host = host or Alone()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        with contextlib.ExitStack() as files:
            streams = streams or Streams()
            sinks = self._sinks(on_output, files, streams)
            cancelled = files.enter_context(host.watched())
            with self._started(self._stdin if stdin is None else stdin, streams, before) as process:
                watch = _Watch(process, sinks, host.monotonic, limit_s, [one for one in (stop, cancelled) if one])
                watch.follow()
                watch.look_behind()
        if watch.ended_for == "stop" and cancelled is not None and cancelled.is_set():
            host.raise_cancelled()
        if watch.ended_for is None and process.returncode == -signal.SIGINT:
            # Ctrl+C reaches a child that has not left this process's group yet: an interruption, not a failed task.
            raise KeyboardInterrupt
        out, err = (sink.kept for sink in sinks)
        return CommandResult(
            command=self._shown,
            exit_code=process.returncode,
            stdout=out.text(),
            stderr=err.text(),
            stdout_bytes=out.total_bytes,
            stderr_bytes=err.total_bytes,
            duration_s=watch.took_s,
            timed_out=watch.ended_for == "timeout",
            stopped=watch.ended_for == "stop",
            timeout_s=limit_s,
            ended_with_it=watch.left_behind if watch.ended_for is None else (),
        )

    def _sinks(self, on_output: OnOutput | None, files: contextlib.ExitStack, streams: Streams) -> tuple[_Sink, _Sink]:
        copies = []
        if self._output_file is not None:
            try:
                copies.append(files.enter_context(self._output_file.open("wb", buffering=0)).write)
            except OSError as error:
                raise UsageError(f"the output of {self._shown!r} cannot be written: {error}") from error
        out, err = KeptOutput(self._keep_bytes), KeptOutput(self._keep_bytes)
        return (
            _Sink("stdout", out, on_output, [*copies, *([streams.stdout] if streams.stdout else [])]),
            _Sink("stderr", err, on_output, [*copies, *([streams.stderr] if streams.stderr else [])]),
        )

    @contextlib.contextmanager
    def _started(
        self, stdin: str | None, streams: Streams, before: Callable[[], object] | None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start the process; whatever happens, its group has ended when this is left."""
        with _text_file(stdin) if stdin is not None else contextlib.nullcontext() as text:
            process, gate = self._spawn(text.fileno() if text is not None else streams.stdin, streams.terminal)
        try:
            try:
                if before is not None:
                    before()
                gate.open()
            finally:
                gate.close()
            yield process
        finally:
            _end(process)

    def _spawn(self, stdin: int | None, terminal: Terminal | None) -> tuple[subprocess.Popen[bytes], ReaperGate]:
        source = "/dev/null" if stdin is None else f"/dev/fd/{stdin}"
        output = subprocess.PIPE if terminal is None else terminal.slave
        if terminal is not None:
            source = os.ttyname(terminal.slave)  # the first terminal that a session's leader opens is its own

        def start(gate: int) -> subprocess.Popen[bytes]:
            return subprocess.Popen(  # noqa: S603 - running what it is given is what a command is for
                [SHELL, "-c", f"{_BEGIN}{source}; {self._text}", *([SHELL, *self._argv] if self._argv else [])],
                cwd=self._cwd,
                env=self._environment(),
                stdin=gate,
                stdout=output,
                stderr=output,
                pass_fds=() if stdin is None else (stdin,),
                start_new_session=True,
            )

        try:
            process, gate = reaper.spawn(start)
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._shown!r} cannot be started: {error}") from error
        if terminal is not None:
            os.close(terminal.slave)
            process.stdout = os.fdopen(os.dup(terminal.master), "rb", buffering=0)
        return process, gate

    def _environment(self) -> dict[bytes, bytes]:
        """Return all variables as bytes, which is how the system has them: nothing is decoded only to be encoded."""
        if self._base_env is None:
            own = getattr(os.environb, "_data", None)  # as bytes; copied item by item it takes longer than all else
            return {**(own if own is not None else os.environb), **self._env}
        return {**self._base_env, **self._env}


class Terminal(NamedTuple):
    """Both ends of a terminal made for a command; the command's end is closed once it has started."""

    master: int
    slave: int


class Streams(NamedTuple):
    """What a command reads and writes besides being followed: a descriptor to read, whole bytes as they come."""

    stdin: int | None = None
    stdout: Callable[[bytes], object] | None = None
    stderr: Callable[[bytes], object] | None = None
    terminal: Terminal | None = None
    """For a program that wants one: input, output and errors are all on it."""


class _Sink:
    """Where one stream of a command goes."""

    def __init__(
        self,
        stream: Stream,
        kept: KeptOutput,
        on_output: OnOutput | None,
        copies: Sequence[Callable[[bytes], object]],
    ) -> None:
        self.kept = kept
        self._stream = stream
        self._on_output = on_output
        self._copies = copies
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode

    def add(self, data: bytes, *, final: bool = False) -> None:
        """Take the next bytes, none at the end."""
        self.kept.add(data)
        for copy in self._copies:
            copy(data)
        if self._on_output is not None and (text := self._decode(data, final)):
            self._on_output(self._stream, text)


class _Deadline(NamedTuple):
    """When something is to be done about a command, and what for."""

    at_s: float
    reason: Literal["timeout", "stop", "kill", "leftovers", "lost"]


class _Watch:
    """Follows one process: takes its output as it comes, and ends it when its time is up."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        sinks: tuple[_Sink, _Sink],
        clock: Callable[[], float],
        limit_s: float | None,
        stops: Sequence[threading.Event],
    ) -> None:
        self.ended_for: str | None = None
        self.took_s = 0.0
        self.left_behind: tuple[str, ...] = ()
        self._process = process
        self._sinks = sinks
        self._clock = clock
        self._stops = stops
        self._began_s = clock()
        self._deadline = None if limit_s is None else _Deadline(self._began_s + limit_s, "timeout")

    def follow(self) -> None:
        """Return when the process has ended and its output is read."""
        process = self._process
        with selectors.DefaultSelector() as selector, _exit_descriptor(process.pid) as exited:
            for stream, sink in zip((process.stdout, process.stderr), self._sinks, strict=True):
                if stream is not None:  # on a terminal there is one for both
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_READ, sink)
            if exited is not None:
                selector.register(exited, selectors.EVENT_READ)
            is_over = False
            while not is_over or len(selector.get_map()) > 0:
                self._take(selector, self._patience_s(is_over, is_seen=exited is not None))
                if not is_over and _has_ended(process.pid):
                    is_over = True
                    self.took_s = self._clock() - self._began_s
                    self._deadline = _Deadline(self._clock() + _GRACE_S, "leftovers")
                    if exited is not None:
                        selector.unregister(exited)
                if self._act():
                    return  # something that is out of reach holds the output open

    def _take(self, selector: selectors.BaseSelector, patience_s: float | None) -> None:
        """Take what output there is, waiting for it this long."""
        for key, _events in selector.select(patience_s):
            if key.data is None:
                continue
            try:
                data = os.read(key.fd, _BLOCK)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                data = b""  # a terminal that nobody holds any more
            key.data.add(data, final=not data)
            if not data:
                selector.unregister(key.fileobj)

    def _patience_s(self, is_over: bool, *, is_seen: bool) -> float | None:  # noqa: FBT001 - a state, not an option
        waits = [] if is_over or is_seen else [_POLL_S]
        if self._deadline is not None:
            waits.append(max(0.0, self._deadline.at_s - self._clock()))
        if self._stops and not is_over:
            waits.append(_TICK_S)
        return min(waits, default=None)

    def _act(self) -> bool:
        """Do what is due; tell whether the rest of the output is given up."""
        if self._may_stop and any(stop.is_set() for stop in self._stops):
            self._deadline = _Deadline(self._clock(), "stop")
        if self._deadline is None or self._clock() < self._deadline.at_s:
            return False
        reason, self._deadline = self._deadline.reason, None
        if reason == "lost":
            return True
        if reason in ("timeout", "stop"):
            self.ended_for = reason
            _signal_group(self._process.pid, signal.SIGTERM)
            self._deadline = _Deadline(self._clock() + _GRACE_S, "kill")
            return False
        if reason == "leftovers":
            self.look_behind()
            self._deadline = _Deadline(self._clock() + _GRACE_S, "lost")
        _signal_group(self._process.pid, signal.SIGKILL)
        return False

    def look_behind(self) -> None:
        """Note what of its group still runs, before that is ended."""
        self.left_behind = self.left_behind or _running_in(self._process.pid)

    @property
    def _may_stop(self) -> bool:
        return self.ended_for is None and (self._deadline is None or self._deadline.reason == "timeout")


def _last_line(text: str, longest: int | None = _LONGEST_LINE) -> str:
    """Return the last line that says something: a stack, for one, begins with where and ends with what."""
    line = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    return line[:longest]


def _tail(text: str) -> str:
    return text if len(text) <= _LONGEST_END else f"[...] {text[-_LONGEST_END:]}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group of a process, and let go of all that belongs to it; the process is reaped last.

    Until then its id is its own, so that no stranger's group can be hit.
    """
    _signal_group(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    _has_ended(process.pid, is_awaited=True)
    reaper.ended(process.pid)
    process.wait()


def _running_in(group: int) -> tuple[str, ...]:
    """Return the names of the programs of a group whose leader has ended; none where processes cannot be listed."""
    return tuple(filter(None, (_program_in(group, process) for process in _younger_than(group))))


def _younger_than(process: int) -> Iterable[int]:
    """Return the ids of processes that may be younger than one: to list all costs more than a small command.

    The kernel hands ids out in order, and says which was the last. Between the two are few, often none.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123 - called for every command
            last = int(file.read().split()[-1])
        if 0 <= last - process <= _FEW:
            return range(process + 1, last + 1)
        return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return ()


def _program_in(group: int, process: int) -> str | None:
    """Return the program of a process if it runs in a group; None for a thread of another one, too."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123
            program, _, rest = file.read().partition(b"(")[2].rpartition(b") ")
        state, _parent, its_group = rest.split()[:3]
        if int(its_group) == group and state not in (b"Z", b"X"):
            with open(f"/proc/{process}/status", "rb") as file:  # noqa: PTH123
                leader = file.read().partition(b"\nTgid:")[2].split()[0]
            return program.decode(errors="replace") if int(leader) == process else None
    return None


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _has_ended(process: int, *, is_awaited: bool = False) -> bool:
    """Tell whether a child has ended, without reaping it; one that somebody else reaped has."""
    try:
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | (0 if is_awaited else os.WNOHANG)) is not None
    except ChildProcessError:
        return True


@contextlib.contextmanager
def _exit_descriptor(process: int) -> Iterator[int | None]:
    """Yield a descriptor that is readable once a process has ended, None where there is no such thing."""
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        yield None
        return
    try:
        descriptor = opener(process)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _text_file(text: str) -> Iterator[IO[bytes]]:
    """Yield a file without a name that holds a text."""
    with unnamed_file() as file:
        try:
            file.write(text.encode(errors="surrogateescape"))
        except UnicodeEncodeError:
            file.write(text.encode(errors="surrogatepass"))
        file.seek(0)
        yield file


def _encoded(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
