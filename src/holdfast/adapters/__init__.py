"""Adapters: the frameworks that people already use, on a Holdfast store.

Words. A *thread*, session or conversation of a framework is a run; what it calls a namespace or a sub-agent is a line
of that run. What it calls a checkpoint is a checkpoint, found by the framework's own id (its key). What it appends
(writes of a task, messages, transcript entries) are records of the line's journal.

Order of work. `FrameworkRuns` opens the store and names runs and lines after whatever text the framework uses;
`FrameworkLine` appends records and commits checkpoints, and reads again where another process was faster. The module of
a framework holds only what that framework's interface needs.

Invariants. A call of a framework's interface that returned is durable. Values are stored in plain form, or as
registered types, so that they can be shown, compared and redacted, and loading them runs no code that the data names;
what only the framework's own serializer can take is stored opaque and never edited. A module imports its framework only
when it is imported itself, and says so if the framework is missing or of a version it was not tested with.

Refused: a framework that is missing. A version that was not tested gives a warning (`UntestedVersionWarning`).

Which file for which change
    a new framework                 a module of its own over framework_runs; a page in docs/adapters, tests/adapters
    ids, lines, commits by key      framework_runs
    values, secrets, cost of lists  packing; reading sections again: content_reader
    LangGraph                       langgraph (the saver), langgraph_state (channels), langgraph_types (messages)
    tested versions                 requirement
"""
