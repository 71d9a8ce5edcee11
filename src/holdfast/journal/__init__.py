"""The journal of a run: what happened, as numbered records, and where a run stands at one of them.

Words. An *entry* is the body of a record: what caused it, what it adds to logs, and what it changes about the parts of
the run. A *position* is a journal number with the state there: the newest checkpoint at or before it, and the entries
since. Order of work: parts change in memory, an entry is made of what changed, it is committed (alone, or with the
checkpoint that it causes), and only then counts as journaled. Invariants: an entry is applied whole or not at all; what
cannot be stored is refused before it is in the journal; what does not fit what it changes is damage, never guessed.
"""
