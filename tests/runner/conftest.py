"""Places for stores that several processes share."""

from tests.store.conftest import postgres_dsn, postgres_server, schema

__all__ = ["postgres_dsn", "postgres_server", "schema"]
