"""Bisect: the first checkpoint of a run at whose files a command fails, by binary search in a scratch directory.

What each checkpoint came to is kept beside the caches, so that a search that was killed continues where it was.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import msgspec
from blake3 import blake3

from holdfast.encode.documents import read_own
from holdfast.errors import DocumentInvalid, UsageError
from holdfast.own_folder import write_whole
from holdfast.recovery.history import Author, FileHistory
from holdfast.workspace.scratch_tree import ScratchTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.engine import Holdfast
    from holdfast.recovery.history import Moment

_MAX_BYTES = 64 << 20
Outcome = Literal["good", "bad", "skip"]
_SKIP = 125  # as with git bisect run
_NOT_RUN = (126, 127)


class Bisected(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found: the first bad checkpoint and who made it, or why there is none."""

    run: str
    command: tuple[str, ...]
    first_bad: Author | None = None
    last_good: Author | None = None
    suspects: tuple[Author, ...] = ()
    """Where some could not be tried: all that may be the first bad one."""
    tried: int = 0
    trees: int = 0
    files_written: int = 0
    reason: str = ""

    def lines(self) -> list[str]:
        """Say it in words, a line each."""
        if self.first_bad is None:
            return [f"run {self.run}: {self.reason}"]
        told = [f"run {self.run}: fails since checkpoint {self.first_bad.seq}, made by {self.first_bad}"]
        if self.first_bad.prompt:
            told.append(f"  it was given: {self.first_bad.prompt!r}")
        if self.last_good is not None:
            told.append(f"  the last good one is checkpoint {self.last_good.seq}")
        told += [f"  or since checkpoint {one.seq}, made by {one}" for one in self.suspects[:-1]]
        told.append(f"  {self.tried} of {self.trees} trees tried, {self.files_written:,} files written")
        return told

    def __str__(self) -> str:
        return "\n".join(self.lines())


def bisect(
    hf: Holdfast,
    run: str,
    command: Sequence[str],
    *,
    tell: Callable[[int, Outcome], object] = lambda _seq, _outcome: None,
    timeout_s: float | None = None,
) -> Bisected:
    """Return the first checkpoint of a run at whose files a command fails; nothing of the user's is touched.

    The command runs in a directory of its own with the files of each checkpoint tried; 125 says that it cannot be tried
    there. UsageError if it cannot be run at all.
    """
    if isinstance(command, str) or not command:
        raise UsageError("bisect needs a command as a list: ['pytest', '-q']")
    history = FileHistory(hf, run)
    moments = history.moments
    known = _Known(hf, run, tuple(command))
    with TemporaryDirectory(prefix="holdfast-bisect-") as place:
        search = _Search(ScratchTree(place, history.reader), tuple(command), known, tell, timeout_s)
        if search.outcome(moments[-1]) != "bad":
            return search.result(run, moments, reason="the command does not fail at its newest files")
        if search.outcome(moments[0]) == "bad":
            reason = "the command fails at its oldest files already"
            return search.result(run, moments, reason=reason)
        good, bad = 0, len(moments) - 1
        while bad - good > 1:
            found = search.middle(moments, good, bad)
            if found is None:
                break
            number, outcome = found
            good, bad = (number, bad) if outcome == "good" else (good, number)
        suspects = tuple(history.author(moments[number]) for number in range(good + 1, bad + 1))
        return msgspec.structs.replace(
            search.result(run, moments),
            first_bad=suspects[-1],
            last_good=history.author(moments[good]),
            suspects=suspects,
        )


class _Search:
    def __init__(
        self,
        scratch: ScratchTree,
        command: tuple[str, ...],
        known: _Known,
        tell: Callable[[int, Outcome], object],
        timeout_s: float | None,
    ) -> None:
        self._scratch = scratch
        self._command = command
        self._known = known
        self._tell = tell
        self._timeout_s = timeout_s
        self._tried = 0

    def middle(self, moments: list[Moment], good: int, bad: int) -> tuple[int, Outcome] | None:
        """Return the tree nearest to the middle that can be tried, and what it came to; None if there is none."""
        middle = (good + bad) // 2
        for number in sorted(range(good + 1, bad), key=lambda number: abs(number - middle)):
            outcome = self.outcome(moments[number])
            if outcome != "skip":
                return number, outcome
        return None

    def outcome(self, moment: Moment) -> Outcome:
        """Return what the command comes to at the files of a checkpoint."""
        root = moment.snapshot.root.id.hex()
        outcome = self._known.get(root)
        if outcome is None:
            self._scratch.bring(moment.snapshot)
            outcome = self._run()
            self._known.put(root, outcome)
        self._tried += 1
        self._tell(moment.record.envelope.seq, outcome)
        return outcome

    def _run(self) -> Outcome:
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                self._command, cwd=self._scratch.root, check=False, timeout=self._timeout_s, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return "bad"
        except OSError as error:
            raise UsageError(f"{self._command[0]!r} cannot be run: {error.strerror or error}") from error
        if done.returncode in _NOT_RUN:
            raise UsageError(f"{self._command[0]!r} ended with {done.returncode}: it could not be run there")
        return "good" if done.returncode == 0 else "skip" if done.returncode == _SKIP else "bad"

    def result(self, run: str, moments: list[Moment], *, reason: str = "") -> Bisected:
        return Bisected(
            run=run,
            command=self._command,
            tried=self._tried,
            trees=len(moments),
            files_written=self._scratch.written,
            reason=reason,
        )


class _Known:
    """What trees came to in an earlier search for the same command, kept in the store's folder where it has one."""

    def __init__(self, hf: Holdfast, run: str, command: tuple[str, ...]) -> None:
        name = blake3("\0".join((run, *command)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        folder = hf.store.folder
        self._file: Path | None = folder.resolve() / f"bisect-{name}.json" if folder is not None else None
        self._outcomes: dict[str, Outcome] = {}
        if self._file is not None:
            with suppress(OSError, DocumentInvalid, msgspec.DecodeError):
                self._outcomes = msgspec.json.decode(
                    read_own(self._file, limit=_MAX_BYTES).data, type=dict[str, Outcome]
                )

    def get(self, root: str) -> Outcome | None:
        return self._outcomes.get(root)

    def put(self, root: str, outcome: Outcome) -> None:
        self._outcomes[root] = outcome
        if self._file is not None:
            with suppress(OSError):
                write_whole(self._file, msgspec.json.encode(self._outcomes))
