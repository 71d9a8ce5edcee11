"""Capture: from the live values of a run to one commit, and the decision when to make it.

Words. A *section* is one named value of a checkpoint; a *live* section comes from an object with `snapshot()` and
`restore(value)`. A *trigger* says what caused a checkpoint, a *strategy* when else one is due. A *delta* is what
changed in a section, small enough for a journal record. A run is *protected* while its newest position is stored.

Order of work.
1. `Watch.record` asks the rules and the strategy whether an event takes a checkpoint (`watch`, `triggers`, `strategy`).
2. The recorder of the run (`run_recorder.py`) takes live values under the run's lock (`live`, `lock`).
3. Sections are validated, with the path of what is wrong (`sections`, `marks`).
4. Packed values are scanned, and what may hold a secret is packed again without it (`redact`).
5. The directory is captured where the rule says so (`files`, over `holdfast.workspace`).
6. `Writer.stage_records` and its like encode, `Writer.flush` commits all that is staged (`writer`).

Invariants. There is one path to the store: the `Writer`. A checkpoint and the record of what caused it are one commit.
What the writer remembers for the next commit is believed only after the store took this one, and dropped after any
failure. A checkpoint that failed is never silent (`protection`). A signal never sees state in the middle of a change.

Refused: a section that does not fit its type, a value that could not be restored equal, a section over its limit.

Which file for which change
    when checkpoints are taken      strategy, triggers, watch; the table of rules is model/rules.py
    what counts as a secret         credentials (formats, data), names (telling names), patterns (name = value)
    how text is scanned             scan (native, a fast yes or no), secrets (exact), literals and compiled (its speed)
    what stands for a secret        markers; texts says where in a typed section a marker may stand
    Ctrl+C and SIGTERM              signals
    what a failed checkpoint does   protection decides, watch carries it out
"""
