-- The newest snapshot of one agent, where agents have names.

CREATE INDEX snapshot_agent ON snapshot (session, agent, created_at, id) WHERE agent IS NOT NULL;
