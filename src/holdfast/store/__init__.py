"""Stores: checkpoints, journals and chunks on durable media, with every rule written once over a small port.

Words. A *row* is a key, a few list columns, a value and a *seal* that binds it to its table and key. A *line* is a
sequence of records and checkpoints of a run, numbered; a *head* its newest checkpoint. A *hold* is a run's claim on a
chunk. A *tombstone* is what a deleted checkpoint leaves, so that its child's link can be checked. A *medium* keeps rows
and chunks. A *lease* lets one owner move a run; its token *fences* the commits of an earlier owner. An *epoch* is the
time of one data key. A *witness* says, outside a log, how far it had come.

Order of work of a commit. `Store.write` prepares it against the line's row (`commit`), `RowCodec` seals and encrypts
the rows (`codec`), and the medium applies guards and writes in one transaction, with one sync. Whoever lost a race gets
`HeadMoved`, reads again and decides. Reading opens each row, checks its seal and its chain, then its chunks' hashes.

Invariants. A commit is all or nothing, and durable when it returns. Numbers rise and are never given twice. Every
stored byte is under a hash that is checked before it is used. A list that is shorter than it should be says so
(`Listing.damaged`). A chunk is deleted only when nobody holds it. A driver's errors are translated in one place for
each medium. A mirror is derived and never read for the truth.

Refused: a commit on another head (`HeadMoved`) or with an old token (`LeaseLost`), damaged or forged rows
(`IntegrityError`), a store that lost its keys or has older ones than this machine saw (`epoch_memory`), a folder or
file that somebody else could write to, a format that is too new.

Which file for which change
    a rule about runs, checkpoints  store, commit; reading a line: line_reader, journal, lineage; lists: queries
    a table or column               tables, codec; its SQL: sql/ (PostgreSQL's migrations, too)
    a new medium                    medium (the port), memory (the model); testing/contract.py must pass; then open
    SQLite                          sqlite, sqlite_file, heads (its witness)
    PostgreSQL                      postgres, postgres_rows, _pool, _errors, _notify, _schema, _role
    large chunks elsewhere          objects
    a folder of files               files, files_log, files_rows, files_disk
    keys                            keys, epoch_memory; leases: lease, owner
    damage                          inspection, repair; between stores: import_rows, run_copy
    readable documents              mirror
"""
