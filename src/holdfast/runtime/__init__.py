"""The runtime: the live parts of a run. Each is captured and restored as a section, and usable without a run.

Words. A *call* is a piece of work whose outcome is kept under a *path*; steps, agents, gates, fixes, tasks, questions,
timers, phases and replans are all calls. A *part* is an object with a section of its own (budget, mailbox, graph, ...).
The *host* is the run as its parts see it; `Alone` stands in where there is none. An *inbox* holds what other processes
say to a run. A *lease* is the right to move a run.

Order of work of a call (`calls`). `begin` finds the newest record of the path and decides: kept, of unknown outcome, or
due. Where something rests on the start it is stored first. Retries, timeouts and budgets surround the work. `finish` or
`fail` stores the end, in one commit with all that the call changed about the run.

Invariants. A result has one owner, the record of its call; sections refer to it. A kept result is valid while the
call's identity and the versions of all that it depends on are the same; that rule is in `calls` and nowhere else. A
part changes under the run's lock and saves through its host. What was spent is never given back by going back. A
command runs in a process group that ends with it, at its timeout, and with this process, by kill -9 too (`reaper`).

Refused: a call that would begin while its start or reservation cannot be stored (`RunStopped`), an answer to a question
that lapsed, a transition that the machine does not allow, tasks that need each other.

Which file for which change
    what is kept, retried, redone   calls, attempt (retries and pauses); arguments of a step: steps, signature
    agents and their usage          agents, usage, team; between agents: mailbox, message, conflicts, knowledge
    commands                        command, output, reaper, cancel_watch
    tasks with gates                gates, checks; graphs: graph, graphs, batches
    phases and replans              phases, phase, replans; the state machine: machine
    questions, signals, timers      waits, inbox, wait_limit
    budgets and cost                budget, ledger, amounts, cost, audit
    what a run is about             context, subject, artifacts, status
    what parts see of their run     host
    leases                          lease (renewing here; rows and fencing are store/lease.py)
    threads and coroutines          threads, parallel, coroutines
"""
