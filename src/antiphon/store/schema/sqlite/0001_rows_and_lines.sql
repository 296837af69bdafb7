-- Sessions, rows and lines. Numbers (n) are what other tables name a thing by.

CREATE TABLE tenant (
    name TEXT PRIMARY KEY,
    n INTEGER NOT NULL -- from 1; never used again, since no tenant is removed
) WITHOUT ROWID;

CREATE TABLE session (
    n INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    id TEXT NOT NULL,
    redactions INTEGER NOT NULL,
    salt BLOB NOT NULL,
    UNIQUE (tenant, id)
);

CREATE TABLE snapshot (
    n INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    id TEXT NOT NULL,
    session INTEGER NOT NULL,
    created_at INTEGER NOT NULL, -- microseconds since 1970
    revision INTEGER NOT NULL,
    status INTEGER NOT NULL,     -- 0 completed, 1 pending, 2 aborting, 3 failed, 4 aborted
    agent TEXT,
    idempotency_key TEXT,
    record BLOB NOT NULL,        -- everything else, in MessagePack
    UNIQUE (tenant, id)
);
CREATE INDEX snapshot_newest ON snapshot (session, created_at);
CREATE UNIQUE INDEX snapshot_key ON snapshot (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- The newest row of each session. Apart from `session`, so that a turn rewrites one page and not two.
CREATE TABLE newest (
    tenant INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    session INTEGER NOT NULL,
    snapshot INTEGER NOT NULL,
    PRIMARY KEY (tenant, created_at, session)
) WITHOUT ROWID;

CREATE TABLE line (
    session INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (session, n)
) WITHOUT ROWID;

-- With a rowid: without one, a body over 1 KB would leave the tree for pages of its own.
CREATE TABLE message (
    place INTEGER PRIMARY KEY, -- line << 32 | position: a range of a line is a range of the table
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
) WITHOUT ROWID;

-- Notes of tenant 0 are about the database: `line`, the last number given to a line; `scrub`, there while forgotten bytes
-- may still be in the file (1) or in its log (2).
CREATE TABLE note (
    tenant INTEGER NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
