"""Connections to SQLite, as far as the store needs them: a seam, so that tests can cut the power beneath one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from antiphon.errors import CorruptStoreError, SessionRowError, SessionStoreError, StoreSchemaError

Value: TypeAlias = str | bytes | int | None


class Connection(Protocol):
    """A connection, for one thread at a time. It begins no transaction by itself."""

    @property
    def failure(self) -> SessionStoreError | None:
        """The first error that SQLite told: afterwards only closing is safe."""
        ...

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """What a statement gives."""
        ...

    def run(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Carry out a statement and return how many rows it changed."""
        ...

    def run_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        """Carry out a statement for each row of values."""
        ...

    def close(self) -> None:
        """Let go of the file; a transaction under way is taken back. Raises nothing."""
        ...


class Driver(Protocol):
    """Makes connections."""

    def connect(self, path: str, patience: float) -> Connection:
        """Open the database file, which is there.

        Args:
            path: The file.
            patience: How long a statement waits for a lock of others, in seconds.

        Raises:
            SessionStoreError: If it cannot be opened.
        """
        ...


class StandardDriver:
    """The standard library's SQLite."""

    def connect(self, path: str, patience: float) -> Connection:
        return StandardConnection(path, patience)


class StandardConnection:
    """A connection of the standard library."""

    def __init__(self, path: str, patience: float) -> None:
        self.path = path
        self.failure: SessionStoreError | None = None
        self._is_open = False
        try:
            self._db = sqlite3.connect(
                path, timeout=patience, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._is_open = True

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def run(self, statement: str, values: Sequence[Value] = ()) -> int:
        try:
            return self._db.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def run_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        try:
            self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        self._is_open = False
        try:
            self._db.close()
        except sqlite3.Error as error:
            self._failed(error)

    def __del__(self) -> None:
        if self._is_open:
            self.close()

    def _failed(self, error: sqlite3.Error) -> SessionStoreError:
        failure = failure_of(cast("int", getattr(error, "sqlite_errorcode", 1)), str(error), self.path)
        self.failure = self.failure or failure
        return failure


def failure_of(code: int, told: str, path: str) -> SessionStoreError:
    """SQLite's error as one of ours.

    Args:
        code: SQLite's result code, extended or not.
        told: Its words.
        path: The database file.
    """
    match code & 0xFF:  # primary result codes: https://sqlite.org/rescode.html
        case 11:  # SQLITE_CORRUPT
            return CorruptStoreError(f"the database {path!r} is damaged: {told}")
        case 26:  # SQLITE_NOTADB
            return StoreSchemaError(f"{path!r} is not a database of SQLite: use another path")
        case 13:  # SQLITE_FULL
            return SessionStoreError(f"there is no room left for the database {path!r}: {told}")
        case 18:  # SQLITE_TOOBIG
            return SessionRowError(f"a value is larger than SQLite takes: {told}")
        case 5 | 6:  # SQLITE_BUSY, SQLITE_LOCKED
            return SessionStoreError(f"another program keeps the database {path!r} locked: {told}")
        case _:
            return SessionStoreError(f"the database {path!r} cannot be used: {told}")
