-- Ids are compared by bytes (COLLATE "C"), as Python compares strings by code points. Times are microseconds since 1970.
-- Bodies are bytes: JSON as it was encoded, which jsonb would refuse (\u0000) or rewrite (numbers, the order of keys), or
-- a NUL and the address of a blob.

CREATE TABLE sessions (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    redactions bigint NOT NULL,
    salt       bytea NOT NULL,
    snapshots  bigint NOT NULL DEFAULT 0,
    -- The newest row, so that a list of sessions reads no others.
    newest_at  bigint,
    newest_id  text COLLATE "C",
    UNIQUE (tenant, session_id)
);

CREATE TABLE snapshots (
    tenant          text COLLATE "C" NOT NULL,
    snapshot_id     text COLLATE "C" NOT NULL,
    session         bigint NOT NULL,
    created_at      bigint NOT NULL,
    status          text COLLATE "C" NOT NULL,
    agent_id        text COLLATE "C",
    idempotency_key text COLLATE "C",
    revision        bigint NOT NULL,
    record          bytea NOT NULL,  -- everything of the row but its ids and its messages (store/record.py)
    PRIMARY KEY (tenant, snapshot_id)
);

CREATE UNIQUE INDEX snapshots_key ON snapshots (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE messages (
    session bigint NOT NULL,
    line    bigint NOT NULL,
    seq     integer NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (session, line, seq)
);

CREATE TABLE blobs (
    session bigint NOT NULL,
    address bytea NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (session, address)
);

CREATE TABLE masks (
    session     bigint NOT NULL,
    digest      bytea NOT NULL,
    replacement bytea NOT NULL,
    PRIMARY KEY (session, digest)
);

CREATE TABLE notes (
    tenant text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    value  bytea NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Numbers of lines. A sequence gives none twice, whatever is rolled back or deleted.
CREATE SEQUENCE line_numbers;
