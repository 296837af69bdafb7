"""The schema, from whatever version is there to the newest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files

from psycopg import errors, sql

from antiphon.errors import StoreSchemaError
from antiphon.store.postgres.driver import Connection, execute

OLDEST_SERVER = 13

_STEP = re.compile(r"\A\d{4}_\w+\.sql\Z")
_WAIT = "5min"
"""How long one opener waits for another's migration, or a migration for those who use a table."""


def load_steps() -> tuple[str, ...]:
    """The migrations in their order; after the first n of them the schema has version n."""
    folder = files("antiphon.store").joinpath("schema/postgres")
    names = sorted(entry.name for entry in folder.iterdir() if _STEP.match(entry.name))
    return tuple(folder.joinpath(name).read_text("utf-8") for name in names)


STEPS = load_steps()


def lock_key(*names: str) -> int:
    """A number for an advisory lock; the first name says what it is about."""
    digest = hashlib.sha256("\0".join(("antiphon", *names)).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def search_path(schema: str) -> str:
    """The setting with which a transaction finds the tables of a schema, and nobody's temporary ones of their names."""
    return sql.SQL("{}, pg_temp").format(sql.Identifier(schema)).as_string(None)


def enter_schema(schema: str) -> bytes:
    """The statement that makes this setting for a transaction."""
    return b"SET LOCAL search_path TO " + search_path(schema).encode()


def migrate(connection: Connection, schema: str, steps: Sequence[str] = STEPS) -> None:
    """Bring a schema to the newest version, or make it. Openers that meet wait for one another.

    A process with an older version of this library either goes on as before, or is refused by a table's new name.

    Args:
        connection: In autocommit mode.
        schema: Its name.
        steps: The migrations.

    Raises:
        StoreSchemaError: If the schema is somebody else's or a newer version's, or the server cannot hold one.
    """
    if connection.info.server_version < OLDEST_SERVER * 10_000:
        raise StoreSchemaError(
            f"the server is PostgreSQL {connection.info.server_version // 10_000}: {OLDEST_SERVER} or newer is needed"
        )
    encoding = connection.info.parameter_status("server_encoding")  # the server tells it with each connection
    if encoding != "UTF8":
        raise StoreSchemaError(f"the database has the encoding {encoding}: UTF8 is needed")
    version = 0
    with suppress(errors.UndefinedTable):
        version = _told_version(connection, schema, len(steps))
    if version == len(steps):
        return
    with connection.transaction():
        execute(connection, b"SELECT set_config('lock_timeout', %(wait)s, true)", {"wait": _WAIT})
        execute(connection, b"SELECT pg_advisory_xact_lock(%(key)s)", {"key": lock_key("schema", schema)})
        version = _version(connection, schema, len(steps))
        if version == 0:
            _make(connection, schema)
        connection.execute(enter_schema(schema))
        for step in steps[version:]:
            connection.execute(step.encode(), prepare=False)  # several statements, whatever the pool has set
        execute(connection, b"UPDATE store_version SET version = %(version)s", {"version": len(steps)})


def _version(connection: Connection, schema: str, newest: int) -> int:
    """The schema's version; 0 when it is not there, or empty."""
    # From the catalogue itself: `to_regclass` may answer from a cache that is older than the lock waited for.
    there = (
        b"SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        b" WHERE n.nspname = %(schema)s AND c.relname = 'store_version'"
    )
    return 0 if _one(connection, there, {"schema": schema}) is None else _told_version(connection, schema, newest)


def _told_version(connection: Connection, schema: str, newest: int) -> int:
    """The version of a schema that is there."""
    table = sql.Identifier(schema, "store_version")
    version = _one(connection, sql.SQL("SELECT max(version) FROM {}").format(table).as_bytes(None))
    if not isinstance(version, int):
        raise StoreSchemaError(f"the schema {schema!r} has a table store_version that is not ours: use another schema")
    if version > newest:
        raise StoreSchemaError(
            f"the schema {schema!r} has version {version}, and this is made for {newest}: upgrade Antiphon"
        )
    return version


def _make(connection: Connection, schema: str) -> None:
    name = sql.Identifier(schema)
    # Asked first: to "create if it does not exist" takes the right to create.
    if _one(connection, b"SELECT oid FROM pg_namespace WHERE nspname = %(name)s", {"name": schema}) is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
    taken = execute(
        connection,
        b"SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s"
        b" AND c.relname = ANY('{sessions,snapshots,messages,runs,blobs,masks,notes}') ORDER BY c.relname LIMIT 1",
        {"schema": schema},
    ).fetchone()
    if taken is not None:
        raise StoreSchemaError(f"the schema {schema!r} has a table {taken[0]!r} that is not ours: use another schema")
    connection.execute(
        sql.SQL("CREATE TABLE {} (version integer NOT NULL)").format(sql.Identifier(schema, "store_version"))
    )
    connection.execute(sql.SQL("INSERT INTO {} VALUES (0)").format(sql.Identifier(schema, "store_version")))


def _one(connection: Connection, statement: bytes, arguments: dict[str, str] | None = None) -> object:
    found = execute(connection, statement, arguments).fetchone()
    return None if found is None else found[0]
