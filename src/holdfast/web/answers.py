"""Answers: what every route of the page returns and every event of its stream holds; the seam to the client.

The client's types (`web/src/answers.ts`) are generated from these by `make web`. A route's answer is the
return type of its handler. What is not declared here does not leave: a test compares real answers with these types.
"""

from typing import Any, Literal, NotRequired, TypedDict

Number = int | float
"""What a budget counts; a Decimal leaves as text."""


class Token(TypedDict):
    """What a code is exchanged for."""

    token: str


class ErrorAnswer(TypedDict):
    """Why a request was not carried out."""

    error: str
    sentence: str
    hint: str | None
    command: str | None


class About(TypedDict):
    """Which store this is, and what may be done."""

    url: str
    project: str
    workspace: str | None
    writes: bool
    user: str
    version: str
    triggers: list[str]


class BudgetLine(TypedDict):
    """One budget of a run."""

    name: str
    used: Number
    limit: Number | None
    raised: Number


class WaitRow(TypedDict):
    """One thing that a run waits for."""

    id: str
    kind: str
    question: str
    options: list[str]
    until: str | None
    details: dict[str, Any]


class RunRowAnswer(TypedDict):
    """What the list of runs says of one; a damaged one has its name, and what is wrong as its detail."""

    id: str
    shown: str
    status: str | None
    moving: bool
    detail: str
    last_seq: int
    checkpoints: int
    created_at: str
    updated_at: str
    waits: list[WaitRow]
    budget: list[BudgetLine]
    key: str | None
    attributes: dict[str, str | Number | bool | None]
    head: str | None
    phase: str | None
    state: str | None
    trigger: str | None
    reason: str | None
    can_resume: bool | None
    saved_at: str | None
    question: str | None
    files: bool
    unprotected: str | None


class RunPage(TypedDict):
    """A page of runs, with how many there are of each status."""

    runs: list[RunRowAnswer]
    total: int
    all: int
    counts: dict[str, int]
    offset: int


class CheckpointFacts(TypedDict):
    """What every list says of a checkpoint."""

    id: str
    run: str
    seq: int
    line: str
    number: int
    place: str
    capture_note: str | None
    key: str | None
    attributes: dict[str, str | Number | bool | None]
    parent: str | None
    trigger: str
    reason: str
    created_at: str
    status: str
    label: str | None
    pinned: bool
    readable_id: str
    phase: str | None
    state: str | None
    steps: int
    run_status: str | None
    can_resume: bool
    blockers: list[str]
    size_bytes: int
    stored_bytes: int


class CheckpointRowAnswer(CheckpointFacts):
    """A checkpoint in a list."""

    is_head: bool
    files: str | None
    budget_used: dict[str, Number]
    redacted: int


class CheckpointDocument(CheckpointFacts):
    """A checkpoint that was made or marked."""

    sections: list[str]


class RecoveryAnswer(TypedDict):
    """Whether a run can resume from a checkpoint, where, and what keeps it from it."""

    can_resume: bool
    resume_agent: str | None
    resume_state: str | None
    blockers: list[str]
    warnings: list[str]
    resume_phase: str | None
    resume_batch: int | None
    resume_task: str | None
    prerequisites: list[str]
    blocker_kinds: list[str]
    reset_to: str | None


class GateAnswer(TypedDict):
    """What one gate said."""

    task: str
    description: str
    command: str
    success: bool
    skipped: bool
    exit_code: int | None
    output: str


class Why(TypedDict):
    """Why a run failed."""

    detail: str
    gates: list[GateAnswer]


class PhaseAnswer(TypedDict):
    """One phase of a run."""

    name: str
    status: str
    attempt: int
    duration_s: Number | None
    summary: str


class OriginAnswer(TypedDict):
    """Where a run was forked from."""

    checkpoint: str
    run: str | None
    seq: int | None


class RunDetail(RunRowAnswer):
    """How a run stands; what its head says is missing where that cannot be read."""

    owner: str | None
    deleted: list[int]
    forks: dict[str, list[str]]
    head_row: NotRequired[CheckpointRowAnswer]
    recovery: NotRequired[RecoveryAnswer]
    why: NotRequired[Why | None]
    phases: NotRequired[list[PhaseAnswer]]
    lineage: NotRequired[list[OriginAnswer]]
    can_undo: NotRequired[bool]
    number: NotRequired[int]
    problem: NotRequired[str]


class CheckpointPage(TypedDict):
    """A page of a run's checkpoints by place, newest first; or what was found, and how far it was looked for."""

    run: str
    rows: list[CheckpointRowAnswer]
    head: NotRequired[str | None]
    total: NotRequired[int]
    last_seq: NotRequired[int]
    offset: NotRequired[int]
    damaged: NotRequired[list[str]]
    looked_at: NotRequired[int]
    next: NotRequired[int | None]


class ChainAnswer(TypedDict):
    """Checkpoints below one another in one lane: stretches of numbers from the top down, and what it joins."""

    lane: int
    ranges: list[tuple[int, int]]
    joins: int | None
    gaps: list[int]


class LanesAnswer(TypedDict):
    """The lanes of a run's graph."""

    run: str
    chains: list[ChainAnswer]


class Sample(TypedDict):
    """What was used at one checkpoint."""

    seq: int
    at: str
    used: dict[str, Number]
    trigger: str
    phase: str | None
    files: str | None


class Samples(TypedDict):
    """Checkpoints evenly over a run."""

    run: str
    samples: list[Sample]
    last_seq: int


class BarFacts(TypedDict, total=False):
    """What only some bars have."""

    phase: str | None
    task: str
    tokens: int
    by: str | None
    error: str | None


_Span = TypedDict("_Span", {"from": str | None, "to": str | None})


class TimeBar(BarFacts, _Span):
    """A bar of a timeline; what is under way has no end."""

    lane: Literal["phase", "agent", "task", "wait"]
    name: str
    status: str


class Mark(TypedDict):
    """Something that happened."""

    at: str
    kind: str
    what: str
    phase: str | None
    by: str | None
    duration_s: Number | None
    error: Any


class Spans(TypedDict):
    """The timeline of a run."""

    run: str
    bars: list[TimeBar]
    bars_left_out: int
    marks: list[Mark]
    idle: list[tuple[str, str]]
    is_cut: bool
    """Whether its journal is so long that only the newest part was read."""


class Touched(TypedDict):
    """How many files each of some checkpoints created, modified, deleted: by number, by what became of them."""

    run: str
    touched: dict[str, dict[str, int]]


class RunEvent(TypedDict):
    """One line of what happened in a run."""

    at: str
    kind: str
    what: str
    phase: str | None
    by: str | None
    duration_s: Number | None
    details: dict[str, Any]


class EventPage(TypedDict):
    """A page of what happened, newest first."""

    run: str
    total: int
    offset: int
    is_cut: bool
    events: list[RunEvent]


class TaskOutputAnswer(TypedDict):
    """What the tasks of a run print, and the end of what one of them printed."""

    run: str
    is_kept: bool
    tasks: list[str]
    task: str | None
    is_cut: bool
    text: str


class FileVersionAnswer(TypedDict):
    """One version of a path, and the checkpoint that first had it."""

    id: str
    run: str
    seq: int
    parent: str | None
    at: str
    trigger: str
    reason: str
    phase: str | None
    status: Literal["created", "modified", "deleted"]
    size: int
    mode: int


class DamagedVersion(TypedDict):
    """A checkpoint whose files cannot be read."""

    damaged: str
    seq: int


class FileHistoryAnswer(TypedDict):
    """Every version of one path."""

    run: str
    path: str
    versions: list[FileVersionAnswer]
    damaged: list[DamagedVersion]
    looked_at: int
    next: int | None


class Blame(TypedDict):
    """The lines of a file, each with the place of its version in the list."""

    run: str
    path: str
    versions: list[FileVersionAnswer]
    lines: list[tuple[int, str]]
    note: str | None


class SectionSize(TypedDict):
    """A section's name and size."""

    name: str
    size: int


class RedactedAnswer(TypedDict):
    """Where something was kept out, and by which rule."""

    path: str
    rule: str


class LeftOut(TypedDict):
    """What was not captured, and why."""

    counts: dict[str, int]
    listed: list[tuple[str, str]]


class Git(TypedDict):
    """The repository of a captured directory."""

    head: str
    branch: str | None
    commit: str | None
    dirty: bool


class ChangedPath(TypedDict):
    """What became of a path since the parent."""

    path: str
    status: str


class Captured(TypedDict):
    """The files of a checkpoint in figures."""

    files: int
    directories: int
    size_bytes: int
    left_out: LeftOut
    git: Git
    changed: list[ChangedPath]
    changed_total: int


class PlaceAnswer(TypedDict):
    """Where a checkpoint is."""

    run: str
    seq: int
    id: str


class CheckpointDetail(CheckpointFacts):
    """One checkpoint: what it is, its sections, its files in figures."""

    is_head: bool
    has_later_entries: bool
    checksum: str
    codec: str
    program_version: str
    recovery: RecoveryAnswer
    budget_used: dict[str, Number]
    redacted_count: int
    redacted: list[RedactedAnswer]
    sections: list[SectionSize]
    workspace: Captured | None
    workspace_problem: str | None
    parent_at: PlaceAnswer | None
    parent_problem: str | None
    last_seq: int


class Child(TypedDict):
    """What a page says of one value inside another."""

    key: str | int
    kind: str
    preview: str
    count: NotRequired[int]


class ValuePage(TypedDict):
    """A page of a value: its children, or a stretch of its text."""

    kind: str
    total: int
    offset: int
    text: NotRequired[str]
    items: NotRequired[list[Child]]


class SectionPage(ValuePage):
    """A page of one place in a section."""

    id: str
    seq: int
    section: str


class WholeSection(TypedDict):
    """A section as JSON, to be edited."""

    name: str
    value: Any


class FileEntry(TypedDict):
    """One entry of a captured directory."""

    path: str
    name: str
    kind: str
    size: int
    mode: int
    target: str | None
    entries: int | None
    change: str | None


class DirectoryPage(TypedDict):
    """A page of one captured directory."""

    id: str
    seq: int
    under: str
    total: int
    offset: int
    entries: list[FileEntry]
    deleted: list[str]


class FileText(TypedDict):
    """A stretch of a captured file; binary ones have no text."""

    path: str
    size: int
    mode: int
    offset: int
    binary: bool
    text: str | None


class SectionChange(TypedDict):
    """How many differences one section has."""

    name: str
    kind: Literal["added", "removed", "changed"]
    count: int


class BudgetChange(TypedDict):
    """What became of one budget."""

    name: str
    used_before: Number | str | None
    used_after: Number | str | None
    limit_before: Number | str | None
    limit_after: Number | str | None
    spent: Number


class AgentChange(TypedDict):
    """What became of one agent."""

    id: str
    status_before: str | None
    status_after: str | None
    attempts: int
    tokens_input: int
    tokens_output: int


class FileChange(TypedDict):
    """What became of one path."""

    path: str
    status: str
    old_path: str | None
    kind: str
    old_size: int | None
    size: int | None


class Comparison(TypedDict):
    """What differs between two points, and where both came from."""

    a: CheckpointRowAnswer
    b: CheckpointRowAnswer | None
    now: str | None
    sections: list[SectionChange]
    unchanged: list[str]
    budget: list[BudgetChange]
    agents: list[AgentChange]
    files: list[FileChange]
    files_total: int
    files_counts: dict[str, int]
    ancestor: PlaceAnswer | None
    seconds: float | None
    steps: tuple[int, int]
    since: dict[str, str]
    """Other first points for the later one: where its phase began, where it stood at the last answer."""
    command: str


class DifferenceAnswer(TypedDict):
    """One place at which two values differ."""

    path: str
    kind: Literal["added", "removed", "changed"]
    old: NotRequired[str]
    old_kind: NotRequired[str]
    new: NotRequired[str]
    new_kind: NotRequired[str]


class MessageAnswer(TypedDict):
    """What somebody said: a person, a model, an agent to another, or a tool."""

    place: str
    """Where it is stored."""
    by: str
    to: str | None
    note: str
    text: str
    cut: bool


class MessagePage(TypedDict):
    """Messages up to a point, oldest first; `offset` counts from the newest."""

    run: str
    total: int
    offset: int
    messages: list[MessageAnswer]


class MessageChange(TypedDict):
    """A message that one of two points has."""

    kind: Literal["added", "removed"]
    message: MessageAnswer


class MessageChanges(TypedDict):
    """The messages that only one of two points has."""

    added: int
    removed: int
    kept: int
    offset: int
    changes: list[MessageChange]


class DifferencePage(TypedDict):
    """A page of what differs in one section."""

    name: str
    total: int
    offset: int
    differences: list[DifferenceAnswer]


class FileDiffAnswer(FileChange):
    """How one file differs, as a unified diff."""

    added: int
    removed: int
    note: str | None
    diff: str
    cut: bool


class Evidence(TypedDict):
    """What an answer can be based on; only a problem where that cannot be read."""

    head: NotRequired[str]
    base: NotRequired[str | None]
    files: NotRequired[dict[str, int] | None]
    gates: NotRequired[list[GateAnswer]]
    paths: NotRequired[list[str]]
    problem: NotRequired[str]


class WaitCard(WaitRow):
    """Something that waits for a person, with the evidence."""

    run: str
    phase: str | None
    since: str | None
    evidence: Evidence


class Answered(TypedDict):
    """An answer that somebody gave."""

    run: str
    wait: str
    choice: str
    by: str
    note: str
    at: str


class Inbox(TypedDict):
    """What waits for a person over all runs, the longest wait first; and what was answered in the last day."""

    waiting: list[WaitCard]
    total: int
    answered: list[Answered]


class GivenAnswer(TypedDict):
    """An answer as it was recorded."""

    run: str
    wait: str
    question: str
    choice: str
    by: str


class Told(TypedDict):
    """What a run was asked to do."""

    run: str
    asked: str
    by: str


class Stats(TypedDict):
    """The store in figures."""

    url: str
    engine: str
    runs: int
    checkpoints: int
    chunks: int
    chunk_bytes: int
    stored_bytes: int
    file_bytes: int
    oldest_at: str | None
    newest_at: str | None


class RunSize(TypedDict):
    """What one run added."""

    run: str
    bytes: int
    checkpoints: int


class FaultAnswer(TypedDict):
    """One thing that verification found."""

    kind: str
    detail: str
    run: NotRequired[str | None]
    checkpoint: NotRequired[str | None]
    section: NotRequired[str | None]


class Verified(TypedDict):
    """What the last verification found."""

    sound: bool
    faults: list[FaultAnswer]
    at: float
    runs: NotRequired[int]
    checkpoints: NotRequired[int]
    chunks: NotRequired[int]
    problem: NotRequired[str]


class StorageAnswer(TypedDict):
    """What takes room."""

    stats: Stats
    keys: list[str]
    runs: list[RunSize]
    runs_total: int
    not_counted: int
    by_trigger: list[tuple[str, int]]
    by_day: list[tuple[str, int]]
    retention: dict[str, Any]
    verified: Verified | None
    verifying: bool


class PruneDecision(TypedDict):
    """What happens to one checkpoint, and why."""

    id: str
    seq: int
    action: str
    reason: str
    is_by_age: bool


class PrunePlan(TypedDict):
    """What pruning would do."""

    digest: str
    counts: dict[str, int]
    reasons: list[tuple[str, str, int]]
    decisions: list[PruneDecision]
    command: str


class PruneDone(TypedDict):
    """What pruning did."""

    deleted: int
    archived: int


class Job(TypedDict):
    """A job, and whether this request began it."""

    job: str
    begun: bool


class PlanFindingAnswer(TypedDict):
    """Something outside the run that is not as it was."""

    kind: str
    verdict: str
    detail: str


class UnknownStepAnswer(TypedDict):
    """A step that began and has no recorded end."""

    step: str
    treated: Literal["ask", "retry", "skip"]
    effect: str | None
    key: str | None
    decided: bool


class PlanDamage(TypedDict):
    """What was lost to damage."""

    run: str
    seq: int
    checkpoint: str | None
    detail: str
    lost: str
    steps: int | None


class PlanFacts(TypedDict):
    """What a recovery would do, its files apart."""

    run: str
    checkpoint: str
    seq: int
    head: str | None
    made_at: str
    created_at: str
    kind: Literal["recover", "undo"]
    verdict: str
    state: str | None
    phase: str | None
    task: str | None
    agent: str | None
    sections: list[str]
    steps_done: int
    rerun: list[str]
    pending_agents: list[str]
    skipped_agents: list[str]
    unknown: list[UnknownStepAnswer]
    git: list[str]
    findings: list[PlanFindingAnswer]
    warnings: list[str]
    blockers: list[str]
    suggestions: list[str]
    damage: list[PlanDamage]


class PlanItemAnswer(TypedDict):
    """What becomes of one file."""

    path: str
    action: str
    reason: str
    beside: str | None
    kinds: dict[str, str | None]
    sizes: dict[str, int]


class PlanFiles(TypedDict):
    """What becomes of the files, a page of them: conflicts first."""

    target: str
    counts: dict[str, int]
    items: list[PlanItemAnswer]
    offset: int
    total: int
    overwrites: bool


class Decided(TypedDict):
    """What a person decided about files, as `holdfast resume --decisions` reads it."""

    conflicts: NotRequired[str]
    edits: NotRequired[str]
    deleted: NotRequired[str]
    created: NotRequired[str]
    paths: NotRequired[dict[str, str]]


class AskedAnswer(TypedDict):
    """What a plan was made from: with another decision in it, it makes the next plan."""

    spec: NotRequired[str]
    undo: NotRequired[str]
    options: dict[str, Any]
    decisions: Decided
    unknown: dict[str, str]


class PlanAnswer(TypedDict):
    """A plan, and whether it still holds."""

    digest: str
    asked: AskedAnswer
    plan: PlanFacts
    lines: list[str]
    files: PlanFiles | None
    head_seq: int | None
    moved: list[str]
    owner: str | None
    command: str


class Side(TypedDict):
    """One version of a file: its text, a note instead, or nothing."""

    kind: Literal["text", "note", "absent"]
    text: str


class Sides(TypedDict):
    """The three versions of a file, and the result."""

    checkpoint: Side
    last: Side
    disk: Side
    result: Side


class PlanSides(TypedDict):
    """The sides of one file of a plan."""

    path: str
    action: str
    reason: str
    beside: str | None
    note: str
    sides: Sides


class FilesDone(TypedDict):
    """What was done to files, in numbers."""

    written: int
    replaced: int
    deleted: int
    kept: int


class PlanDone(TypedDict):
    """What came of a plan."""

    run: str
    checkpoint: str | None
    restored_from: str | None
    restored_sections: list[str]
    warnings: list[str]
    undo: str | None
    files: FilesDone | None
    command: str


# Events of the live stream


class ResetEvent(TypedDict):
    """The stream begins, and what was known before may be old."""

    type: Literal["reset"]
    cursor: str


class HelloEvent(TypedDict):
    """The stream begins where the cursor stands: nothing was missed."""

    type: Literal["hello"]
    cursor: str


class RunMoved(TypedDict):
    """A run moved, or is gone."""

    type: Literal["run"]
    cursor: str
    run: str
    summary: RunRowAnswer | None


class MarksChanged(TypedDict):
    """A checkpoint was labelled or pinned."""

    type: Literal["marks"]
    cursor: str
    run: str
    seq: int


class OutputCame(TypedDict):
    """A task of a run printed something."""

    type: Literal["output"]
    cursor: str
    run: str


class JobMoved(TypedDict):
    """A job continued, or ended."""

    type: Literal["job"]
    cursor: str
    job: str
    done: bool
    count: NotRequired[int]
    total: NotRequired[int]
    what: NotRequired[str]
    result: NotRequired[Verified]


LiveEvent = ResetEvent | HelloEvent | RunMoved | MarksChanged | OutputCame | JobMoved
