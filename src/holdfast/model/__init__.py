"""The model: frozen values without I/O, shared by every package.

Words. An *envelope* is the small record of a checkpoint: its parent, its sections by name and root, its trigger; its
checksum covers its parent's. *Marks* (status, pin, label) are what may change about a checkpoint afterwards. A *rule*
says what an event causes. A *blocker* is a reason why a checkpoint cannot be resumed from. A *verdict* says what
follows for a resume from something that moved outside.

Invariants. Nothing here opens a file, reads a clock or imports another package but `errors`. Every value is frozen: a
change is a new value. Unknown fields are refused where a person writes the value. A section may be given as one of
these types or as plain data of the same shape; either is validated before it is stored. `state` has no type: it is the
user's.

Refused: ids outside the grammar (`InvalidId`): a run's id is a name that people type, so it holds neither `@` nor `:`
and does not begin with `_holdfast.`.

Which file for which change
    ids of runs and checkpoints     ids
    the envelope, marks, a run      checkpoint (its format is in docs/FORMAT.md)
    sections that users give        sections (agents, budget, progress, tasks, ...)
    sections that a run keeps       runtime_sections (status, waits, steps, journal)
    a new trigger                   triggers, and its row in rules
    what is kept per trigger        rules; presets and settings compile to them
    what stands for a secret        redaction
    defaults of a resume            verdicts; what a checkpoint says of resuming: recovery
    errors as they are stored       failure
"""
