-- What lists and "the latest" walk along.

CREATE INDEX sessions_newest ON sessions (tenant, newest_at DESC, session_id DESC) WHERE newest_at IS NOT NULL;

CREATE INDEX snapshots_recency ON snapshots (session, created_at DESC, snapshot_id DESC);

CREATE INDEX snapshots_of_agent ON snapshots (session, agent_id, created_at DESC, snapshot_id DESC)
    WHERE agent_id IS NOT NULL;
