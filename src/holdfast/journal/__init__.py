"""The journal of a run: what happened, as numbered records, and where a run stands at one of them.

Words. A *record* is a row of the journal; an *entry* is its body: what caused it, what it adds to logs, and what it
changes about the parts of the run. A *call record* says how one piece of work stands, by its path; the newest one of a
path counts. A *log* is a growing collection whose items are records. A *position* is a journal number with the state
there: the newest checkpoint at or before it, and the entries since. A *segment* is a stretch of numbers between two
times that the run went back. The *feed* is what all processes committed, from a cursor on.

Order of work. Parts change in memory, an entry is made of what changed, it is committed (alone, or with the checkpoint
that it causes), and only then counts as journaled. Reading starts at a checkpoint and applies the entries after it.

Invariants. An entry is applied whole or not at all. A number is one record for ever: after going back, numbers continue
after the highest that was ever used. A cursor is a number per line, so a feed misses nothing that was committed while
nobody followed. Adding to a log costs what is added.

Refused: what cannot be stored, before it is in the journal; an entry that does not fit what it changes, as damage and
never guessed; a position that was compacted away or never was (`PositionUnavailable`).

Which file for which change
    what an entry may hold          entry (encoding), capture/delta.py (what changed in a section)
    states of a call                call_record; deciding by them is runtime/calls.py
    `RUN#812`                       position
    results in sections             outcomes
    logs (messages, transcripts)    run_log
    followers: page, telemetry      feed
"""
