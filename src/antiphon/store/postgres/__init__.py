"""Sessions in PostgreSQL."""

# First of all: where psycopg is missing, it says what to install.
from antiphon.store.postgres.driver import Pool  # isort: split

from antiphon.store.postgres.session_store import PostgresSessionStore, open_url

__all__ = ["Pool", "PostgresSessionStore", "open_url"]
