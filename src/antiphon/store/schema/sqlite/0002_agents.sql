-- The newest row of one agent, where agents have names.

CREATE INDEX snapshot_agent ON snapshot (session, agent, created_at) WHERE agent IS NOT NULL;
