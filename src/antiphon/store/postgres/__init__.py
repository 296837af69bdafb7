"""Sessions in PostgreSQL."""

from antiphon.store.postgres.connections import Pool
from antiphon.store.postgres.session_store import PostgresSessionStore, open_url

__all__ = ["Pool", "PostgresSessionStore", "open_url"]
