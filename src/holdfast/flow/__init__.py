"""Flows: a workflow declared in a file, a plan or Python, and the runner that executes it.

Words. A *flow* has *phases*, a phase has *tasks*, a task has an *action* (a command, a function or an agent), *gates*
that check it and perhaps an *approve* before it. A *fact* is what a template, a condition or an environment variable
finds behind a name. A *digest* covers all that decides what a task does. The *walk* is the way through the phases. A
*conversation* is what agents say to each other: messages, conflicts, knowledge.

Order of work.
1. `load` reads the file (`text`, `read`, `markdown`) into frozen values (`model`); `check` finds every problem at once.
2. `runner.run_flow` opens the run; `resume` compares digests where the file changed: what is kept, runs or is gone.
3. `walk` decides which phase is next from what is recorded; `phase_tasks` runs its tasks, several at once.
4. `tasks` does one task: question, action (`actions`), gates, artifacts, summary. Each is a call (runtime/calls.py).
5. `reporter` emits events, without secrets (`redaction`), to `progress`, to JSON lines and to hooks (`hooks`).

Invariants. The same call begins a flow and resumes it. A task that is done runs again only if its digest, what it
needs, its artifacts or its gates changed. The text of a shell is never put together from values: they are passed as
variables (`variables`). Every decision is made from what is recorded, so a walk after a crash ends where it would have.

Refused, with line and path, before anything runs (`FlowInvalid`): unknown keys and names, tasks that need each other,
values in places where a shell would read them as code. A function that the program neither gave nor imported is not
imported.

Which file for which change
    a new key of a flow file        model, keys (its line of help), check; then `make docs`
    names in templates, conditions  names, facts; their syntax: template, condition
    what runs again and why         digests, resume, preview (`run -n`)
    retries, on_failure, routes     walk, phase_tasks, states
    messages, conflicts, knowledge  conversation
    what a person sees              view (pure), progress (terminal); `holdfast logs`: task_output
    a run without its program       advance (what workers call)
"""
