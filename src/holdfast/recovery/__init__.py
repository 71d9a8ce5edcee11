"""From a store to a running workflow again, in the order of the work.

find      what a person types (`specs`) to a checkpoint, past damage, along a run's `line`
inspect   can it continue: `analyse` (blockers, from the sections), `freshness` (what moved outside: git, files, the
          `subject`), `verdict` (resume, warn, ask, fresh: the one place that enforces it), `suggest` (what to type)
plan      `gather` reads, `plan` holds the request and the plan: a frozen value that is shown, saved and carried out
apply     an undo point, then `files`, then one commit with the restored `sections`; `finish` ends what was killed
undo      the same, back to the undo point
fork      a new run from a checkpoint; a run that starts fresh
replay    the record of a run, stepped through
compare   two checkpoints: `differences` of values (`align`, `fingerprints`, `short_form`), files by content
history   which call made each version and line of a file; `bisect` which one broke a command
enter     what happens when a run is opened again: the same verdicts, and its `directory` taken over
recover_all  every run whose process is gone

Nothing is touched before a plan was made, a plan is carried out exactly or not at all, and whatever was done can be
undone. What is refused: a plan that is no longer true (PlanOutdated), a checkpoint that blocks (a result that says
so), a world that moved too far (RunWaiting, CannotResume) unless a person confirmed it.

Words. A *spec* is what a person types for a checkpoint. A *verdict* is what follows from what moved outside: resume,
warn, ask or fresh. An *undo point* is the checkpoint that is taken before a recovery touches anything. `facade` is what
`hf.recovery` and `hf.files` offer; `prerequisites`, `outcomes` and `result` are the values that they return.
"""
