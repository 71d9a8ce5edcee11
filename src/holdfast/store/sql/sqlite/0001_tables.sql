CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
    begun INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    n INTEGER NOT NULL,
    project TEXT,
    key TEXT,
    status TEXT,
    updated_at REAL,
    forked_from TEXT,
    value BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX run_n ON run (n);
CREATE INDEX run_key ON run (project, key) WHERE key IS NOT NULL;
CREATE INDEX run_status ON run (status, updated_at);
CREATE INDEX run_updated ON run (updated_at);

CREATE TABLE line (
    run TEXT NOT NULL,
    name TEXT NOT NULL,
    n INTEGER NOT NULL,
    value BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX line_n ON line (n);

CREATE TABLE record (
    n INTEGER PRIMARY KEY,
    path INTEGER,
    key INTEGER,
    value BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;
CREATE INDEX record_path ON record (path, n) WHERE path IS NOT NULL;
CREATE INDEX record_key ON record (key, n) WHERE key IS NOT NULL;

CREATE TABLE gap (
    n INTEGER PRIMARY KEY,
    value BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;

CREATE TABLE checkpoint (
    run TEXT NOT NULL,
    line TEXT NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    trigger TEXT,
    phase TEXT,
    status TEXT,
    created_at REAL,
    key TEXT,
    value BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (run, line, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX checkpoint_id ON checkpoint (id);
CREATE INDEX checkpoint_trigger ON checkpoint (run, line, trigger, seq);
CREATE INDEX checkpoint_key ON checkpoint (run, line, key) WHERE key IS NOT NULL;

CREATE TABLE tombstone (
    run TEXT NOT NULL,
    line TEXT NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    value BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (run, line, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstone_id ON tombstone (id);

CREATE TABLE lease (
    run TEXT NOT NULL,
    line TEXT NOT NULL,
    value BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (run, line)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    run TEXT NOT NULL,
    number INTEGER NOT NULL,
    key TEXT,
    value BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX inbox_key ON inbox (run, key) WHERE key IS NOT NULL;

CREATE TABLE account (
    run TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE chunk (
    n INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    codec INTEGER NOT NULL,
    size INTEGER NOT NULL,
    holders INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE hold (
    run INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    PRIMARY KEY (run, chunk)
) STRICT, WITHOUT ROWID;
CREATE INDEX hold_chunk ON hold (chunk);

CREATE TABLE wake (
    run TEXT NOT NULL PRIMARY KEY,
    times INTEGER NOT NULL
) STRICT, WITHOUT ROWID
