-- Indexes in the order in which rows come: their pages are left full, and they can be walked either way.

DROP INDEX sessions_newest;
CREATE INDEX sessions_newest ON sessions (tenant, newest_at, session_id) WHERE newest_at IS NOT NULL;

DROP INDEX snapshots_recency;
CREATE INDEX snapshots_recency ON snapshots (session, created_at, snapshot_id);

DROP INDEX snapshots_of_agent;
CREATE INDEX snapshots_of_agent ON snapshots (session, agent_id, created_at, snapshot_id) WHERE agent_id IS NOT NULL;
