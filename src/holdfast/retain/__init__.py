"""Retention: which checkpoints and runs stay, which are archived or deleted, and the sweep of chunks after it.

Words. A *policy* holds limits: per trigger and phase, live ones, age, bytes. A *decision* is keep, archive or delete
for one checkpoint, with its reason. *Archived* ones leave the daily list and can still be restored. *Expired* ones are
marked for deletion by age. A *sweep* releases chunks that no remaining checkpoint or record of a run reaches.
*Compaction* removes journal records that no kept checkpoint, fork point or head needs.

Order of work. `prune` reads rows, `policy.decide` decides, marks and deletions follow in small slices, then `sweep`
and `compact`. `worker` does the same from a thread after commits of this process, with a `with` block or without, when
they have been quiet for a moment. `expiry` does it for a few other runs that nobody moved for long, at each sweep.

Invariants. Deciding is pure, and by number: a clock that was set back ages nothing wrongly. What age alone deletes is
marked by one sweep and deleted by another a day later. The head, pinned ones, fork points and what a recovery needs
stay. A commit waits for one slice at most. Damage in a run stops its sweep: better to keep too much. A sweep that meets
a writer gives way and looks at what is new.

Refused: a policy that would delete everything.

Which file for which change
    a new limit or a reason         policy (the setting: settings/values.py, the rows: model/rules.py)
    how much goes at once           prune, sweep
    when it runs by itself          worker
    journal records                 compact
    runs as a whole                 finished
"""
