"""Whether a store is there, without making one."""

from __future__ import annotations

from contextlib import closing

import psycopg

from antiphon.store.postgres.connections import settle_dsn
from antiphon.store.postgres.driver import execute, translated

_LOOK = b"SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s)"


def is_there(dsn: str, *, schema: str = "antiphon") -> bool:
    """Whether a database has a store's schema. To open a store would make it.

    Raises:
        SessionRowError: If the connection string cannot be read.
        SessionStoreError: If the database cannot be reached.
    """
    with translated(), closing(psycopg.connect(settle_dsn(dsn), autocommit=True)) as connection:
        row = execute(connection, _LOOK, {"schema": schema}).fetchone()
    return row is not None and bool(row[0])
