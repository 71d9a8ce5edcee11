"""Every error that Holdfast raises, grouped by what the caller can do about it.

HoldfastError
├── UsageError            the call or the value is at fault: change it
│   ├── InvalidId         an id outside the grammar
│   ├── ValueRefused      a value that could not be restored equal
│   ├── SectionInvalid    a typed section that does not fit its type
│   ├── UnknownType       stored data names a type that the caller did not register
│   ├── LimitExceeded     larger than a limit that the caller may raise
│   ├── RestoreRefused    a restore that could not be safe
│   │   └── NoRoom        the file system has less room than the files need
│   ├── CaptureFailed     a registered object that gave no snapshot, or took none back
│   ├── SettingsInvalid   a settings file that cannot be followed
│   │   └── SettingsUntrusted  a repository's settings that need `holdfast trust`
│   ├── KeyRefused        an encrypted store without its key, or a key without its store
│   ├── Ambiguous         a name that fits several checkpoints
│   ├── IllegalTransition  a state that cannot be reached from the present one
│   ├── GraphInvalid      tasks that need each other, or one that is not there
│   ├── RunClosed         a call on a run that is closed
│   └── FlowInvalid       a flow file that cannot be followed
├── NotFound              there is no such run, checkpoint, section or file
│   └── PositionUnavailable  a journal number that cannot be gone to, and why
├── Conflict              somebody else was first: read again, then decide
│   ├── HeadMoved
│   ├── RunDiffers        another run has this id there
│   ├── LeaseHeld         another process has the right to move the run
│   ├── LeaseLost         this process had it, and has it no longer
│   └── PlanOutdated      the world moved since a recovery was planned
├── IntegrityError        stored bytes are not what was written: nothing of them is handed out
│   ├── ChunkCorrupt
│   ├── CheckpointCorrupt
│   ├── RunCorrupt
│   ├── StoreCorrupt
│   ├── DocumentInvalid   a JSON or YAML file that cannot be read, or is larger than it may be
│   └── FormatTooNew
├── StoreError            the medium refused: fix it, then repeat
│   ├── StoreUnavailable
│   ├── StoreFull
│   └── StoreBusy
├── Unprotected           a checkpoint failed, and the settings say not to continue like that
│   ├── RunPaused         fix the cause, then continue
│   └── RunStopped
├── RecoveryError         a run cannot continue as asked: decide, then ask again
│   ├── CannotResume      a checkpoint that blocks continuing from it
│   ├── RecoveryIncomplete  a recovery that was killed could be finished only in part
│   ├── EffectUncertain   a step may or may not have taken effect
│   ├── Divergence        the program does another thing than the record says
│   └── ReplayEnded       the record has no more steps
├── RunWaiting            the run waits for a person, a signal or a time, and its position is saved
├── RunCancelled          somebody ended the run
├── ReplanLimit           a phase was replanned too often
├── BudgetExhausted       a budget is used up, and nobody can be asked to raise it
├── StepTimeout           a step took longer than it may
├── CommandFailed         a command of an agent or a gate did not succeed
├── SubjectUnavailable    what a run works on cannot be asked for now
├── SessionOver           the session's time is up, and its position is saved
├── RestoreConflict       files are not what the plan saw: make a new plan
└── RestoreFailed         the file system refused in the middle of a restore
"""

from __future__ import annotations

import inspect
import re
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
class HoldfastError(Exception):
    """What all errors of this package share: fields, a sentence made of them, and a hint what to do next.

    Fields are annotations, as in a dataclass; `dataclass` itself took a fifth of the first `open()` of a process for
    the sixty classes here.
    """

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    template: ClassVar[str] = ""
    """The sentence, with the names of fields in braces; a class whose sentence depends on more overrides it."""
    field_names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = [name for name, kind in inspect.get_annotations(cls).items() if "ClassVar" not in kind]
        cls.field_names = (*cls.field_names, *own)
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}

    def __init__(self, *given: Any, **named: Any) -> None:
        values = dict(zip(self.field_names, given, strict=False))
        known = {**self._defaults, **values, **named}
        if len(given) > len(self.field_names) or named.keys() & values.keys() or known.keys() != {*self.field_names}:
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.field_names) or 'no fields'}")
        for name, value in known.items():
            setattr(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Keep the fields as `args`, so that the error survives pickling."""
        self.args = tuple(getattr(self, name) for name in self.field_names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.field_names)})"

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self) -> str:
        """Say what happened and what to do next."""
        return self.template.format_map(vars(self)) or type(self).__name__


class UsageError(HoldfastError):
    """The call cannot be carried out as it was made."""

    exit_code: ClassVar[int] = 2

    detail: str
    template = "{detail}"


class InvalidId(UsageError):
    """An id outside the grammar."""

    kind: str

    def sentence(self) -> str:
        """Quote the id, with what cannot be printed escaped, and state the grammar."""
        shown = self.detail if len(self.detail) <= 80 else self.detail[:77] + "..."  # noqa: PLR2004
        if self.kind == "checkpoint":
            return (
                f"{shown!r} is not a checkpoint id: that is cp_ and 32 digits of 0-9a-f; hf.checkpoints(run) lists them"
            )
        if self.kind == "run" and self.detail.startswith("_holdfast."):
            return f"{shown!r} is not a run id: names that begin with _holdfast. are Holdfast's own; choose another"
        if self.kind == "run" and re.fullmatch(r"latest|before|cp_[0-9a-f]{32}", self.detail):
            return f"{shown!r} is not a run id: it means a checkpoint; choose another"
        signs = "_ . + = -" if self.kind == "run" else "_ . : @ + = -"
        return (
            f"{shown!r} is not a {self.kind} id: use 1 to 200 ASCII letters, digits and {signs} , "
            "beginning with a letter, a digit or _"
        )


class ValueRefused(UsageError):
    """A value that could not be restored equal to what went in."""

    path: str
    template = "{path}: {detail}"


class SectionInvalid(UsageError):
    """A typed section that does not fit its type."""

    section: str
    template = "section {section!r}: {detail}"


class UnknownType(UsageError):
    """Stored data names a type that the caller did not register; it is neither imported nor guessed."""

    where: str
    template = "{where}: holds a value of type {detail!r}; pass that class in holdfast.open(types=[...])"


class LimitExceeded(UsageError):
    """Something is larger than a limit that protects this process."""

    what: str
    size: int
    limit: int
    template = "{what}: {size:,} is over the limit of {limit:,}; {detail}"


class NotFound(HoldfastError):
    """There is no such run, checkpoint, section or file."""

    exit_code: ClassVar[int] = 3

    kind: str
    name: str
    hint: str = ""

    def sentence(self) -> str:
        """Name what was looked for, and what is near it."""
        named = f" {self.name!r}" if self.name else ""
        return f"there is no {self.kind}{named}" + (f": {self.hint}" if self.hint else "")


class PositionUnavailable(NotFound):
    """A journal number that cannot be gone to.

    `why` is "left", "compacted", "after the end" or "before the first checkpoint".
    """

    why: str = ""

    def sentence(self) -> str:
        """Say why, and what can be gone to instead."""
        return f"{self.kind} {self.name} is {self.why or 'not available'}" + (f": {self.hint}" if self.hint else "")


class Conflict(HoldfastError):
    """Somebody else was first."""

    exit_code: ClassVar[int] = 4
    retryable: ClassVar[bool] = True

    run: str
    template = "run {run!r}: somebody else was first; read it again"


class HeadMoved(Conflict):
    """Another writer moved the run's head since this one read it; nothing was written."""

    expected: str | None
    actual: str | None
    template = (
        "run {run!r}: another writer moved its head from {expected} to {actual}; nothing was "
        "written. Open the run again with hf.run(...) to continue from the new head"
    )


class RunDiffers(Conflict):
    """Two stores have a run of the same id that went different ways; nothing was copied."""

    retryable: ClassVar[bool] = False

    store: str
    template = (
        "run {run!r}: {store} has another run of this id, or continued it; nothing of it was copied. "
        "Copy into another store or tenant, or delete one of the two"
    )


class LeaseHeld(Conflict):
    """Another owner has the right to move this run; nothing was written."""

    owner: str
    until: str
    template = (
        "run {run!r}: {owner!r} has it until {until}; nothing was written. Wait, or take it over "
        "when the lease has lapsed"
    )


class LeaseLost(Conflict):
    """The right to move this run went to another owner; nothing was written."""

    retryable: ClassVar[bool] = False

    token: int
    owner: str | None = None

    def sentence(self) -> str:
        """Name who has it now."""
        now = f"{self.owner!r} took it over" if self.owner else "it was given back"
        return f"run {self.run!r}: lease {self.token} lapsed and {now}; nothing was written. Stop moving it from here"


class IntegrityError(HoldfastError):
    """Stored bytes are not what was written."""

    exit_code: ClassVar[int] = 5

    detail: str
    template = "{detail}"


class ChunkCorrupt(IntegrityError):
    """A chunk is missing or its bytes do not have its name; names the checkpoint and section it was read for."""

    chunk: str
    checkpoint: str | None = None
    section: str | None = None

    def sentence(self) -> str:
        """Name the section and checkpoint that need the chunk."""
        place = f"section {self.section!r} of checkpoint {self.checkpoint}: " if self.checkpoint else ""
        return (
            f"{place}chunk {self.chunk[:16]} {self.detail}. Other checkpoints stay readable: hf.verify() lists the "
            "damage, hf.latest(run, sound=True) finds the newest sound one"
        )


class CheckpointCorrupt(IntegrityError):
    """A checkpoint's record does not match its checksum, or is missing where another record names it."""

    checkpoint: str
    template = (
        "checkpoint {checkpoint}: {detail}. Other checkpoints stay readable: hf.verify() lists the "
        "damage, hf.latest(run, sound=True) finds the newest sound one"
    )


class RunCorrupt(IntegrityError):
    """A run's record does not match its checksum, or is missing while its checkpoints are there."""

    run: str
    template = "run {run!r}: {detail}. hf.verify() lists the damage, `holdfast repair` repairs what it can"


class StoreCorrupt(IntegrityError):
    """The store as a whole cannot be read, or is not one of ours."""

    store: str
    template = "store {store}: {detail}"


class DocumentInvalid(IntegrityError):
    """A JSON or YAML file that is not one, or is larger, deeper or fuller than it may be."""

    file: str
    template = "{file} {detail}"


class FormatTooNew(IntegrityError):
    """Written by a newer version of Holdfast."""

    found: int
    known: int
    template = "{detail} has format {found}, this program knows up to {known}: upgrade holdfast"


class StoreError(HoldfastError):
    """The medium refused."""

    exit_code: ClassVar[int] = 6

    store: str
    detail: str
    template = "store {store}: {detail}"


class StoreUnavailable(StoreError):
    """The store cannot be opened, read or written; nothing was acknowledged."""


class StoreFull(StoreError):
    """No room is left; nothing of the refused write remains."""


class StoreBusy(StoreError):
    """Other processes held the store for longer than the busy timeout."""

    retryable: ClassVar[bool] = True


class RestoreRefused(UsageError):
    """A restore that cannot be carried out safely; nothing was written."""

    template = "nothing was restored: {detail}"


class NoRoom(RestoreRefused):
    """The file system has less room than the files need; nothing was written."""


class RestoreConflict(HoldfastError):
    """Files on disk are not what the plan saw, or the plan leaves conflicts open; the tree is as it was before."""

    exit_code: ClassVar[int] = 4
    retryable: ClassVar[bool] = True

    paths: tuple[str, ...]
    detail: str

    def sentence(self) -> str:
        """Name the first paths."""
        shown = ", ".join(repr(path) for path in self.paths[:5]) + (" ..." if len(self.paths) > 5 else "")  # noqa: PLR2004
        return f"{self.detail}: {shown}. Nothing was changed; make a new plan and decide on these paths"


class RestoreFailed(HoldfastError):
    """The file system refused in the middle of a restore; nothing is half-done for good."""

    exit_code: ClassVar[int] = 6

    path: str
    detail: str
    template = "restore stopped at {path!r}: {detail}"


class CaptureFailed(UsageError):
    """A registered object raised while its snapshot was taken or put back; the others are as they were."""

    section: str
    template = "section {section!r}: {detail}. Nothing was saved, and no other section was touched"


class SettingsInvalid(UsageError):
    """A settings file that cannot be followed."""

    file: str
    template = "{file}: {detail}"


class SettingsUntrusted(SettingsInvalid):
    """A settings file that may come with a repository asks for what only its user may say."""

    wishes: tuple[str, ...]

    def sentence(self) -> str:
        """List what is asked for, and how to allow or avoid it."""
        return (
            f"{self.file} {self.detail}: {'; '.join(self.wishes)}. If you wrote or checked it, allow it with "
            "`holdfast trust`; if not, remove these lines. Your own holdfast.yaml in ~/.config/holdfast needs no trust"
        )


class KeyRefused(UsageError):
    """A store is encrypted and the key is missing or another one, or a key is given for a store that is not."""

    store: str
    template = "store {store}: {detail}"


class Unprotected(HoldfastError):
    """A checkpoint failed, and the settings say not to continue without one."""

    exit_code: ClassVar[int] = 7

    run: str
    since: str
    detail: str
    template = "run {run!r} is unprotected since {since}: {detail}"


class RunPaused(Unprotected):
    """The run waits until a checkpoint succeeds again."""

    retryable: ClassVar[bool] = True

    def sentence(self) -> str:
        """Say how to continue."""
        return f"{Unprotected.sentence(self)}. It is paused: fix the cause, then call run.checkpoint() to continue"


class RunStopped(Unprotected):
    """The run ends here."""

    def sentence(self) -> str:
        """Say from where to continue."""
        return f"{Unprotected.sentence(self)}. It is stopped: fix the cause, then open the run again"


class SessionOver(HoldfastError):
    """The session's deadline has passed; the run's position was saved before."""

    run: str
    detail: str
    template = "run {run!r}: the session is over, {detail}. Open the run again in a new session to continue"


class Ambiguous(UsageError):
    """A name that fits several checkpoints."""

    matches: tuple[str, ...]

    def sentence(self) -> str:
        """List the first that it could be."""
        shown = ", ".join(self.matches[:5]) + (" ..." if len(self.matches) > 5 else "")  # noqa: PLR2004
        return f"{self.detail} fits {len(self.matches)} of them: {shown}. Give more of it"


class IllegalTransition(UsageError):
    """A state that cannot be reached from the present one."""

    state: str
    wanted: str
    allowed: tuple[str, ...]

    def sentence(self) -> str:
        """List the legal ones."""
        legal = f"legal are {', '.join(self.allowed)}" if self.allowed else "it is final"
        return f"from state {self.state} to {self.wanted}: {self.detail}; {legal}"


class GraphInvalid(UsageError):
    """Tasks that need each other in a circle, or one that is not there."""


class RunClosed(UsageError):
    """A call on a run that is closed."""

    run: str
    template = "run {run!r} is closed, so {detail}: open it again with hf.run({run!r})"


class FlowInvalid(UsageError):
    """A flow file that cannot be followed; all its problems at once."""

    file: str
    problems: tuple[str, ...]

    def sentence(self) -> str:
        """List the problems, one a line."""
        return f"{self.file}: {self.detail}" + "".join(f"\n  {problem}" for problem in self.problems)


class PlanOutdated(Conflict):
    """The world moved since a recovery was planned; nothing was touched."""

    changed: tuple[str, ...]

    def sentence(self) -> str:
        """Say what moved."""
        shown = "; ".join(self.changed[:5])
        return (
            f"run {self.run!r}: the plan is out of date ({shown}); nothing was touched. Make a new one with hf.plan()"
        )


class RecoveryError(HoldfastError):
    """A run cannot continue as asked; nothing was touched."""

    exit_code: ClassVar[int] = 8

    run: str
    template = "run {run!r} cannot continue as asked"


class CannotResume(RecoveryError):
    """A checkpoint that blocks continuing from it."""

    checkpoint: str
    blockers: tuple[str, ...]
    suggestions: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Give every blocker, and what can be typed against it."""
        advice = f" Try {' or '.join(self.suggestions)}" if self.suggestions else ""
        return f"run {self.run!r} cannot continue from {self.checkpoint}: {'; '.join(self.blockers)}.{advice}"


class RecoveryIncomplete(RecoveryError):
    """A recovery that was killed is finished now but for a part; this is raised once, and stored with the run."""

    checkpoint: str
    problems: tuple[str, ...]

    def sentence(self) -> str:
        """Say what is done, what is not, and both ways on."""
        return (
            f"run {self.run!r}: the interrupted recovery from {self.checkpoint} is finished, but not all of it: "
            f"{'; '.join(self.problems)}. Put that right and open the run again, or hf.undo({self.run!r}) goes back"
        )


class EffectUncertain(RecoveryError):
    """A step with an outside effect began and has no recorded end: nobody here knows whether it happened."""

    step: str
    detail: str
    template = (
        "run {run!r}: step {step!r} began and has no recorded end, so {detail} may or may not have "
        "happened. Look, then decide: retry or skip"
    )


class Divergence(RecoveryError):
    """The program asks for another thing than the record holds under this name."""

    step: str
    expected: str
    got: str
    template = (
        "run {run!r}, step {step!r}: the record has {expected}, the program asks for {got}. "
        "Give a changed step a new name, or fork the run before it"
    )


class ReplayEnded(RecoveryError):
    """The record has no more steps."""

    template = "run {run!r}: its record ends here. Continue live from here with replay.fork(new_run)"


class RunWaiting(HoldfastError):
    """The run waits for a person, a signal or a time; its position is saved, and the process may end."""

    exit_code: ClassVar[int] = 9
    retryable: ClassVar[bool] = True

    run: str
    wait: str
    kind: str
    question: str
    template = "run {run!r} waits ({kind} {wait!r}): {question}"


class RunCancelled(HoldfastError):
    """Somebody ended the run."""

    exit_code: ClassVar[int] = 10

    run: str
    by: str
    note: str = ""

    def sentence(self) -> str:
        """Say who, and why."""
        return f"run {self.run!r} was cancelled by {self.by or 'somebody'}" + (f": {self.note}" if self.note else "")


class ReplanLimit(HoldfastError):
    """A phase was replanned too often."""

    exit_code: ClassVar[int] = 11

    run: str
    phase: str
    limit: int
    history: tuple[str, ...]

    def sentence(self) -> str:
        """Give the reasons so far."""
        return (
            f"run {self.run!r}: phase {self.phase!r} was replanned {self.limit:,} times already "
            f"({'; '.join(self.history)}). Fix the cause by hand, or raise the limit"
        )


class BudgetExhausted(HoldfastError):
    """A budget is used up, and nobody can be asked to raise it."""

    exit_code: ClassVar[int] = 9

    run: str
    budget: str
    used: float
    limit: float
    template = "run {run!r}: {budget} used {used:,} of {limit:,}. Raise the limit to continue"


class CommandFailed(HoldfastError):
    """A command of an agent or a gate did not succeed."""

    command: str
    status: int
    detail: str
    retry_after: float | None = None
    """In how many seconds it wants to be asked again, if it says so."""
    printed: str = ""
    """The end of what it printed, if that is more than `detail` says."""

    def sentence(self) -> str:
        """Name the command, how it ended and what it said, on the first line; below it the end of what it printed."""
        later = f" (it asks for a pause of {self.retry_after:g} s)" if self.retry_after is not None else ""
        below = f"\n{self.printed}" if self.printed else ""
        return f"{self.command!r} ended with {self.status}: {self.detail}{later}{below}"


class StepTimeout(HoldfastError):
    """A step took longer than it may."""

    retryable: ClassVar[bool] = True

    step: str
    timeout_s: float
    template = "step {step!r} took longer than {timeout_s:,} s"


class SubjectUnavailable(HoldfastError):
    """What the run works on cannot be read as it is now, so nobody knows whether it changed."""

    retryable: ClassVar[bool] = True

    subject: str
    detail: str
    template = "subject {subject!r} cannot be read: {detail}"
