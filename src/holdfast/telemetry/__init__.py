"""Telemetry: OpenTelemetry spans and metrics of runs, from the feed of a store.

Words. A *fact* is one thing that the feed tells, with nothing in it but ids, names, counts and times: a run began, was
resumed or ended, a call ended, a phase began or ended, a checkpoint was taken, a run went back. A *span step* starts or
ends a span; which ones a list of facts makes is decided by one pure function.

Order of work. The observer follows the feed, in a thread of its own or when asked, so a run does not wait for it and
does not know of it: what a killed process committed is told by whoever follows next. The trace of a run follows from
its id and its beginning, so all processes that ever move it, and all observers, add to the same trace. What no commit
tells, the handle tells its listeners: an observer is one while its block lasts.

Invariants. Only the API of OpenTelemetry is used, and only when an observer is made; without the package nothing is
imported and nothing costs. No content: no prompts, results, reasons, messages or paths of files.

Which file for which change
    what may be shown               facts (everything else is left behind there)
    which spans there are           spans (pure)
    following and exporting         observer
"""
