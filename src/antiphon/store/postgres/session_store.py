"""Sessions in PostgreSQL."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.errors import SessionRowError
from antiphon.store.base import EXPIRES_AFTER
from antiphon.store.core import StoreCore
from antiphon.store.line_store import LineStore
from antiphon.store.postgres.backend import Erasure, PostgresBackend
from antiphon.store.postgres.driver import Pool
from antiphon.store.tenants import Prefix

DEFAULT_SCHEMA = "antiphon"
_LONGEST_SCHEMA = 63  # PostgreSQL cuts longer names


class PostgresSessionStore(LineStore):
    """A session store in a PostgreSQL database (13 or newer), for many processes on many machines.

    It makes its tables in a schema of their own, and brings them up to date, when it is made; the server must answer
    then. Afterwards a lost server fails each call with `SessionStoreError`, and the same object works again when the
    server is back. Connections are used for single, short transactions, so that a pooler in between may hand them out by
    transaction. Statuses that others change come by LISTEN/NOTIFY, over one connection a process and database that is
    opened when somebody subscribes.

    A redaction or deletion leaves no old word in any row. From the tables' files the words go by `erasure`: `"vacuum"`
    frees their place, to be written over; `"rewrite"` writes the tables anew (VACUUM FULL: everybody waits meanwhile),
    which leaves none in the files. Either happens once no transaction can see the old rows any more, after a restart
    too. The server's own WAL, replicas, archives and backups are its operator's.

    Args:
        dsn_or_pool: A connection string, `postgresql://user@host/database` for instance, or a `psycopg_pool.ConnectionPool`,
            which is never closed by the store.
        prefix: The tenant, or a function that gives it for each operation.
        schema: The schema of the tables.
        listen_dsn: A connection string for notifications, where `dsn_or_pool` leads through a pooler.
        poll_interval: Seconds between two looks at the rows that somebody waits for, in case no notification comes
            through.
        erasure: What becomes of redacted words in the tables' files.
        clock: Decides whether a row has expired.
        expires_after: Seconds without a heartbeat after which a row in flight reads as expired.

    Raises:
        SessionStoreError: If the server does not answer.
        StoreSchemaError: If the schema is somebody else's or a newer version's.
        SessionRowError: If an argument makes no sense.
    """

    def __init__(
        self,
        dsn_or_pool: str | Pool,
        *,
        prefix: Prefix = None,
        schema: str = DEFAULT_SCHEMA,
        listen_dsn: str | None = None,
        poll_interval: float = 5.0,
        erasure: Erasure = "vacuum",
        clock: Clock = SYSTEM_CLOCK,
        expires_after: float = EXPIRES_AFTER,
    ) -> None:
        if not schema or len(schema.encode()) > _LONGEST_SCHEMA or "\0" in schema:
            raise SessionRowError(f"schema={schema!r} is not a name of 1 to {_LONGEST_SCHEMA} bytes without NUL")
        if not poll_interval > 0:
            raise SessionRowError(f"poll_interval={poll_interval!r} is not a positive number of seconds")
        if erasure not in ("vacuum", "rewrite"):
            raise SessionRowError(f"erasure={erasure!r} is neither 'vacuum' nor 'rewrite'")
        backend = PostgresBackend(
            dsn_or_pool, schema=schema, listen_dsn=listen_dsn, poll_interval=poll_interval, erasure=erasure
        )
        core = StoreCore(backend, name="antiphon-postgres", clock=clock, expires_after=expires_after)
        super().__init__(core, prefix=prefix)


def open_url(url: str, **options: Any) -> PostgresSessionStore:
    """For `open_store`: a connection string, which may name the `schema` among its parameters.

    Raises:
        SessionRowError: If the schema is named twice, or cannot be read.
    """
    dsn, schema = split_schema(url)
    if schema is not None:
        if options.get("schema", schema) != schema:
            raise SessionRowError(
                f"the URL names schema={schema!r}, and the argument schema={options['schema']!r}: give one"
            )
        options["schema"] = schema
    return PostgresSessionStore(dsn, **options)


def split_schema(url: str) -> tuple[str, str | None]:
    """A URL without its parameter `schema`, which libpq would refuse, and what it says. All else stays as it is.

    Raises:
        SessionRowError: If it is named more than once, or its percent encoding is wrong.

    >>> split_schema("postgresql://ann@host/database?connect_timeout=5&schema=talks&sslmode=require")
    ('postgresql://ann@host/database?connect_timeout=5&sslmode=require', 'talks')
    """
    scheme, slashes, rest = url.partition("://")
    # A user's name and password end with the first @ before any slash, and may hold a question mark, as libpq reads them.
    start = rest.find("@", 0, rest.find("/") if "/" in rest else None) + 1
    place, mark, query = rest[start:].partition("?")
    pairs = query.split("&")
    found = [pair.partition("=")[2] for pair in pairs if pair.partition("=")[0] == "schema"]
    if not slashes or not mark or not found:
        return url, None
    if len(found) > 1:
        raise SessionRowError("the PostgreSQL URL names its schema more than once")
    try:
        schema = unquote(found[0], errors="strict")
    except UnicodeDecodeError as error:
        raise SessionRowError("the schema in the PostgreSQL URL is not UTF-8, percent-encoded") from error
    left = "&".join(pair for pair in pairs if pair.partition("=")[0] != "schema")
    return f"{scheme}://{rest[:start]}{place}{mark if left else ''}{left}", schema
