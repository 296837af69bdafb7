"""psycopg, and what it raises in this library's words."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Protocol, TypeAlias

from antiphon.errors import ContendedError, MissingExtraError, SessionStoreError, StoreSchemaError

try:
    import psycopg
    from psycopg import errors
    from psycopg.rows import TupleRow, tuple_row
except ImportError as missing:
    raise MissingExtraError("psycopg", "postgres") from missing

Connection: TypeAlias = "psycopg.Connection[Any]"
Cursor: TypeAlias = "psycopg.Cursor[TupleRow]"


class Pool(Protocol):
    """What a store asks of a pool that it is handed; `psycopg_pool.ConnectionPool` fulfils it."""

    def getconn(self, timeout: float | None = None) -> Any:
        """A connection for a while."""
        ...

    def putconn(self, conn: Any) -> None:
        """Give it back."""
        ...

    def check(self) -> None:
        """Part with connections that are broken."""
        ...


@contextmanager
def translated() -> Generator[None]:
    """Raise the driver's errors as ours.

    Raises:
        StoreSchemaError: If a table is not there, or not as it should be.
        ContendedError: If another transaction was in the way for too long.
        SessionStoreError: For everything else.
    """
    try:
        yield
    except (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName) as error:
        raise StoreSchemaError(f"PostgreSQL: {said(error)}: was the store's schema dropped?") from error
    except (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure) as error:
        raise ContendedError(f"PostgreSQL: {said(error)}") from error
    except psycopg.Error as error:
        raise SessionStoreError(f"PostgreSQL: {said(error)}") from error


def said(error: psycopg.Error) -> str:
    """The server's or the driver's words, in one line; never a row's contents, which stand in the detail."""
    told = error.diag.message_primary or str(error) or type(error).__name__
    return " ".join(told.split())


def execute(connection: Connection, statement: bytes, arguments: dict[str, Any] | None = None) -> Cursor:
    """Run a statement, whatever the connection's owner has set for its rows."""
    cursor = connection.cursor(binary=True, row_factory=tuple_row)
    cursor.execute(statement, arguments)
    return cursor


def is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Whether the connection has ended, and not merely a statement failed."""
    return connection.closed or isinstance(error, (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow))


def load_statements() -> dict[str, bytes]:
    """The statements of `schema/postgres/statements.sql` by name."""
    text = files("antiphon.store").joinpath("schema/postgres/statements.sql").read_text("utf-8")
    found: dict[str, bytes] = {}
    for part in text.split("-- name: ")[1:]:
        name, _, statement = part.partition("\n")
        found[name.strip()] = statement.strip().encode()
    return found


STATEMENTS = load_statements()
