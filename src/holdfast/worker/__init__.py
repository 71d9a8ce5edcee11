"""Workers: runs on many machines, placed by an engine that exists.

Holdfast keeps position, files, leases and fencing. An engine delivers each submitted run to one live worker, again
after a crash, later when it must wait. Holdfast has no scheduler, queue or cluster of its own.

Words: a run is *submitted* to a *queue* of an *engine*; a worker *claims* it (a *delivery*), brings its files into a
directory of its own, advances it, and says how the delivery ended (an *outcome*): done, later at a time, until its
inbox gets a new entry, or again. A run that no worker can advance is *parked*: it waits for a person's answer.

Order of work: `submit` stores the run without doing anything of it and tells the engine. `Worker.handle` turns one
delivery into an outcome. What is said to a run (answers, signals, cancel, budgets) wakes it through the engine, by the
number of its inbox entry, so that no wake-up is lost between the run's leaving and its registration.

Invariants: the engine's claim decides who tries, the store's lease decides who may write; a worker that lost either
stops its commands. Nothing of a run's outcome is kept in the engine.

Refused by `submit`: a store that workers cannot reach, a secret in the flow itself. A run that cannot be advanced here
is parked with the reason, never tried in a circle.

Which file for which change
    a new engine                    port (what it delivers, what a worker answers), then a file beside absurd, temporal
    what a delivery does            delivery; how a run is stored for it: submit
    wake-ups                        wake
    `holdfast worker --trial`       trial; the commands are cli/commands/worker.py, submit.py, queue.py, advance.py
"""
