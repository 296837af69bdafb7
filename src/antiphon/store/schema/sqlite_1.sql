-- Sessions in SQLite, version 1. Numbers (n) are what the other tables name a thing by.

CREATE TABLE tenant (
    n INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE session (
    n INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    id TEXT NOT NULL,
    redactions INTEGER NOT NULL,
    salt BLOB NOT NULL,
    snapshots INTEGER NOT NULL DEFAULT 0, -- how many
    latest INTEGER,                       -- the newest snapshot
    latest_at INTEGER,                    -- its created_at
    UNIQUE (tenant, id)
);
CREATE INDEX session_latest ON session (tenant, latest_at, id);

CREATE TABLE snapshot (
    n INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    id TEXT NOT NULL,
    session INTEGER NOT NULL,
    created_at INTEGER NOT NULL, -- microseconds since 1970
    revision INTEGER NOT NULL,
    status TEXT NOT NULL,
    agent TEXT,
    idempotency_key TEXT,
    record BLOB NOT NULL,        -- everything, in MessagePack
    UNIQUE (tenant, id)
);
CREATE INDEX snapshot_latest ON snapshot (session, created_at, id);
CREATE UNIQUE INDEX snapshot_key ON snapshot (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- AUTOINCREMENT: a line's number is never used again.
CREATE TABLE line (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL
);
CREATE INDEX line_session ON line (session);

-- With a rowid: without one, a body over 1 KB would leave the tree for pages of its own.
CREATE TABLE message (
    place INTEGER PRIMARY KEY, -- line << 32 | position
    body BLOB NOT NULL
);

CREATE TABLE blob (
    n INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    address BLOB NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (session, address)
);

CREATE TABLE mask (
    session INTEGER NOT NULL,
    digest BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (session, digest)
);

CREATE TABLE note (
    tenant INTEGER NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Has a row while forgotten bytes may still be in the file or in its log.
CREATE TABLE scrub (
    wanted INTEGER PRIMARY KEY
);
