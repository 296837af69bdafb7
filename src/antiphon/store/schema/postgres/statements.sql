-- Each statement has a name, and its arguments too. Tables are found by the search path of the transaction.

-- name: set_up_read
-- Every look here walks along an index. Left to itself, the planner sorts whole tables while it has no statistics of them.
SELECT set_config('search_path', %(search_path)s, true), set_config('enable_sort', 'off', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)

-- name: set_up_write
-- The same; durable although the server may be set to forget the last commits; and nobody waits for ever for one who hangs.
SELECT set_config('search_path', %(search_path)s, true), set_config('enable_sort', 'off', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
       set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)

-- name: lock
SELECT pg_advisory_xact_lock(key) FROM unnest(%(keys)s::bigint[]) AS key

-- name: transaction_id
SELECT pg_current_xact_id_if_assigned()::text

-- name: transaction_status
SELECT pg_xact_status(%(transaction)s::xid8)

-- name: session
SELECT s.number, s.redactions, s.salt, s.snapshots, s.newest_at, s.newest_id,
       s.session_id, r.snapshot_id, r.revision, r.record
FROM sessions s LEFT JOIN snapshots r ON r.tenant = s.tenant AND r.snapshot_id = s.newest_id
WHERE s.tenant = %(tenant)s AND s.session_id = %(session_id)s

-- name: row
SELECT s.number, s.redactions, s.salt, s.snapshots, s.newest_at, s.newest_id,
       s.session_id, r.snapshot_id, r.revision, r.record
FROM snapshots r JOIN sessions s ON s.number = r.session
WHERE r.tenant = %(tenant)s AND r.snapshot_id = %(snapshot_id)s

-- name: row_alone
SELECT session, snapshot_id, revision, record
FROM snapshots
WHERE tenant = %(tenant)s AND snapshot_id = %(snapshot_id)s

-- name: latest_of_agent
SELECT snapshot_id, revision, record
FROM snapshots
WHERE session = %(session)s AND agent_id = %(agent_id)s
ORDER BY created_at DESC, snapshot_id DESC
LIMIT 1

-- name: newest
SELECT snapshot_id, revision, record
FROM snapshots
WHERE session = %(session)s
ORDER BY created_at DESC, snapshot_id DESC
LIMIT 1

-- name: keyed
SELECT snapshot_id FROM snapshots WHERE tenant = %(tenant)s AND idempotency_key = %(idempotency_key)s

-- name: rows
SELECT snapshot_id, revision, record FROM snapshots WHERE session = %(session)s

-- name: count
SELECT count(*) FROM snapshots WHERE session = %(session)s

-- name: row_ids
SELECT snapshot_id FROM snapshots WHERE session = %(session)s LIMIT %(limit)s

-- name: page
SELECT snapshot_id, revision, record
FROM snapshots
WHERE session = %(session)s
  AND (%(after_at)s::bigint IS NULL OR (created_at, snapshot_id) < (%(after_at)s, %(after_id)s))
  AND (%(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s))
  AND (%(agent_id)s::text IS NULL OR agent_id = %(agent_id)s)
  AND (%(since)s::bigint IS NULL OR created_at >= %(since)s)
  AND (%(until)s::bigint IS NULL OR created_at < %(until)s)
ORDER BY created_at DESC, snapshot_id DESC
LIMIT %(limit)s

-- name: sessions
-- LATERAL ... LIMIT: the newest rows are looked up one by one, and not joined with all of the tenant's.
SELECT s.number, s.redactions, s.salt, s.snapshots, s.newest_at, s.newest_id,
       s.session_id, r.snapshot_id, r.revision, r.record
FROM sessions s CROSS JOIN LATERAL (
    SELECT * FROM snapshots WHERE tenant = s.tenant AND snapshot_id = s.newest_id LIMIT 1
) r
WHERE s.tenant = %(tenant)s AND s.newest_at IS NOT NULL
  AND (%(after_at)s::bigint IS NULL OR (s.newest_at, s.session_id) < (%(after_at)s, %(after_id)s))
  AND (%(statuses)s::text[] IS NULL OR r.status = ANY(%(statuses)s))
  AND (%(agent_id)s::text IS NULL OR r.agent_id = %(agent_id)s)
  AND (%(since)s::bigint IS NULL OR s.newest_at >= %(since)s)
  AND (%(until)s::bigint IS NULL OR s.newest_at < %(until)s)
ORDER BY s.newest_at DESC, s.session_id DESC
LIMIT %(limit)s

-- name: masks
SELECT digest, replacement FROM masks WHERE session = %(session)s

-- name: length
SELECT first + size FROM runs WHERE session = %(session)s AND line = %(line)s ORDER BY first DESC LIMIT 1

-- name: length_of
-- Not a join: to plan one takes the server three times as long as all of this.
SELECT first + size FROM runs
WHERE session = (SELECT number FROM sessions WHERE tenant = %(tenant)s AND session_id = %(session_id)s)
  AND line = %(line)s
ORDER BY first DESC LIMIT 1

-- name: messages
-- Runs are in their order and apart: of those that begin before `start` only the last one can reach beyond it.
SELECT first, size, value FROM runs
WHERE session = %(session)s AND line = %(line)s AND first < %(stop)s AND first >= coalesce((
    SELECT before.first FROM runs AS before
    WHERE before.session = %(session)s AND before.line = %(line)s AND before.first <= %(start)s
    ORDER BY before.first DESC LIMIT 1
), %(start)s)
ORDER BY first

-- name: blobs
SELECT address, body FROM blobs WHERE session = %(session)s AND address = ANY(%(addresses)b::bytea[])

-- name: note
SELECT value FROM notes WHERE tenant = %(tenant)s AND name = %(name)s

-- name: add_session
INSERT INTO sessions (tenant, session_id, redactions, salt)
VALUES (%(tenant)s, %(session_id)s, %(redactions)s, %(salt)b)
RETURNING number

-- name: put_mark
UPDATE sessions SET redactions = %(redactions)s, salt = %(salt)b WHERE number = %(session)s

-- name: put_newest
UPDATE sessions SET snapshots = %(snapshots)s, newest_at = %(newest_at)s, newest_id = %(newest_id)s
WHERE number = %(session)s

-- name: put_row
INSERT INTO snapshots
    (tenant, snapshot_id, session, created_at, status, agent_id, idempotency_key, revision, record)
VALUES
    (%(tenant)s, %(snapshot_id)s, %(session)s, %(created_at)s, %(status)s, %(agent_id)s, %(idempotency_key)s,
     %(revision)s, %(record)b)
ON CONFLICT (tenant, snapshot_id) DO UPDATE
SET created_at = excluded.created_at, status = excluded.status, agent_id = excluded.agent_id,
    idempotency_key = excluded.idempotency_key, revision = excluded.revision, record = excluded.record
WHERE snapshots.session = excluded.session

-- name: drop_rows
DELETE FROM snapshots
WHERE tenant = %(tenant)s AND session = %(session)s AND snapshot_id = ANY(%(snapshot_ids)s::text[])

-- name: new_line
SELECT nextval('line_numbers')

-- name: put_run
-- What most changes write.
INSERT INTO runs (session, line, first, size, value)
VALUES (%(session)s, %(line)s, %(first)s, %(size)s, %(value)b)

-- name: put_runs
INSERT INTO runs (session, line, first, size, value)
SELECT %(session)s, line, first, size, value
FROM unnest(%(lines)s::bigint[], %(firsts)s::integer[], %(sizes)s::integer[], %(values)b::bytea[])
     AS given (line, first, size, value)

-- name: replace_runs
UPDATE runs SET value = given.value
FROM unnest(%(lines)s::bigint[], %(firsts)s::integer[], %(values)b::bytea[]) AS given (line, first, value)
WHERE runs.session = %(session)s AND runs.line = given.line AND runs.first = given.first

-- name: put_blobs
INSERT INTO blobs (session, address, body)
SELECT %(session)s, address, body FROM unnest(%(addresses)b::bytea[], %(bodies)b::bytea[]) AS given (address, body)
ON CONFLICT DO NOTHING

-- name: drop_masks
DELETE FROM masks WHERE session = %(session)s

-- name: put_masks
INSERT INTO masks (session, digest, replacement)
SELECT %(session)s, digest, replacement
FROM unnest(%(digests)b::bytea[], %(replacements)b::bytea[]) AS given (digest, replacement)

-- name: drop_runs
DELETE FROM runs USING unnest(%(lines)s::bigint[], %(firsts)s::integer[]) AS gone (line, first)
WHERE runs.session = %(session)s AND runs.line = gone.line AND runs.first = gone.first

-- name: extents
SELECT line, first, size, ''::bytea FROM runs WHERE session = %(session)s ORDER BY line, first

-- name: runs
SELECT line, first, size, value FROM runs WHERE session = %(session)s ORDER BY line, first

-- name: some_runs
SELECT runs.line, runs.first, runs.size, runs.value
FROM runs JOIN unnest(%(lines)s::bigint[], %(firsts)s::integer[]) AS asked (line, first)
     ON runs.line = asked.line AND runs.first = asked.first
WHERE runs.session = %(session)s

-- name: addressed
SELECT line, first, size, value FROM runs
WHERE session = %(session)s AND length(value) > 0 AND get_byte(value, 0) IN (0, 3, 4)

-- name: keep_blobs
DELETE FROM blobs WHERE session = %(session)s AND NOT address = ANY(%(addresses)b::bytea[])

-- name: drop_session
WITH rows AS (DELETE FROM snapshots WHERE session = %(session)s),
     bodies AS (DELETE FROM runs WHERE session = %(session)s),
     large AS (DELETE FROM blobs WHERE session = %(session)s),
     taken_back AS (DELETE FROM masks WHERE session = %(session)s)
DELETE FROM sessions WHERE number = %(session)s

-- name: put_note
INSERT INTO notes (tenant, name, value) VALUES (%(tenant)s, %(name)s, %(value)b)
ON CONFLICT (tenant, name) DO UPDATE SET value = excluded.value

-- name: drop_note
DELETE FROM notes WHERE tenant = %(tenant)s AND name = %(name)s

-- name: notify
SELECT pg_notify(%(channel)s, payload) FROM unnest(%(payloads)s::text[]) AS payload

-- name: ask_scrub
INSERT INTO scrubs (transaction) VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING

-- name: pending_scrubs
SELECT EXISTS (SELECT FROM scrubs)

-- name: ripe_scrubs
-- Those older than every transaction under way: whatever they removed, nobody can still see.
SELECT transaction::text FROM scrubs
WHERE NOT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND greatest(age(backend_xmin), age(backend_xid)) >= age(transaction::xid)
)

-- name: drop_scrubs
DELETE FROM scrubs WHERE transaction = ANY(%(transactions)s::text[]::xid8[])
