CREATE TABLE run (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    record BLOB NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

CREATE TABLE checkpoint (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    envelope BLOB NOT NULL,
    checksum BLOB NOT NULL,
    marks BLOB NOT NULL,
    marks_checksum BLOB NOT NULL,
    UNIQUE (run, seq)
) STRICT;

CREATE TABLE tombstone (
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    checksum BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE chunk (
    n INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    codec INTEGER NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE hold (
    run INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    PRIMARY KEY (run, chunk)
) STRICT, WITHOUT ROWID;

CREATE INDEX hold_chunk ON hold (chunk);
