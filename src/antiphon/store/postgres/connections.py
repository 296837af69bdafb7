"""Connections for short whiles: from a pool that somebody else owns, or a few of one's own."""

from __future__ import annotations

import inspect
import os
import weakref
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from antiphon.errors import SessionRowError
from antiphon.store.postgres.driver import Connection, Pool

_MOST_IDLE = 4

# A network that swallows packets must not hold a thread for the two hours that TCP would wait.
_PATIENCE: dict[str, str] = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "application_name": "antiphon",
}

_inherited: list[Connection] = []
"""A parent's connections in a forked child: closed here, they would end there."""


def settle_dsn(dsn: str) -> str:
    """A connection string with bounds for waiting where it sets none.

    Raises:
        SessionRowError: If it cannot be read. It is not shown: it may hold a password.
    """
    try:
        given = conninfo_to_dict(dsn)
        return make_conninfo("", **{**_PATIENCE, **given})
    except (psycopg.Error, UnicodeError):
        # Not chained: the driver's message quotes the string.
        raise SessionRowError("the PostgreSQL URL cannot be read: write postgresql://user@host/database") from None


class Connections:
    """Lends connections, in autocommit mode, to one thread at a time each.

    Args:
        source: A connection string, or a pool. A pool's connections go back to it after each use, and it is never
            closed here.
    """

    def __init__(self, source: str | Pool) -> None:
        self._pool = None if isinstance(source, str) else _checked(source)
        self.dsn = settle_dsn(source) if isinstance(source, str) else None
        self._idle: deque[Connection] = deque()  # no lock: one that a fork caught would stay locked in the child
        self._owner = os.getpid()
        weakref.finalize(self, _close_all, self._idle, self._owner)

    @contextmanager
    def borrow(self) -> Generator[Connection]:
        """A connection; given back as it was, or closed when it is of no more use.

        Raises:
            psycopg.OperationalError: If there is none to be had.
        """
        connection = self._take()
        autocommit = connection.autocommit
        try:
            if not autocommit:
                connection.autocommit = True
            yield connection
        finally:
            if connection.info.transaction_status == TransactionStatus.IDLE and connection.autocommit != autocommit:
                connection.autocommit = autocommit
            self._give_back(connection)

    def refresh(self) -> None:
        """Part with connections that may have ended; called when one of them has."""
        if self._pool is not None:
            self._pool.check()
        else:
            self.close()

    def close(self) -> None:
        """Close those of one's own."""
        self._part_with_inherited()
        _close_all(self._idle, self._owner)

    def open_another(self) -> Connection:
        """A connection for long, in autocommit mode, that is the caller's to close: none of a pool's."""
        if self.dsn is not None:
            return psycopg.connect(self.dsn, autocommit=True, prepare_threshold=None)
        dsn, arguments = self._of_pool()
        arguments["autocommit"] = True
        return psycopg.connect(settle_dsn(dsn), **arguments)

    @property
    def server(self) -> tuple[Any, ...]:
        """Equal for stores of one server and database."""
        if self.dsn is not None:
            return (self.dsn,)
        dsn, arguments = self._of_pool()
        return settle_dsn(dsn), *sorted((name, repr(value)) for name, value in arguments.items())

    def _of_pool(self) -> tuple[str, dict[str, Any]]:
        """What a pool connects with: either may be a function (psycopg_pool 3.3)."""
        dsn: Any = getattr(self._pool, "conninfo", "")
        arguments: Any = getattr(self._pool, "kwargs", None)
        dsn = dsn() if callable(dsn) else dsn
        arguments = arguments() if callable(arguments) else arguments
        return str(dsn or ""), dict(cast("dict[str, Any]", arguments or {}))

    def _take(self) -> Connection:
        if self._pool is not None:
            lent: Connection = self._pool.getconn()
            return lent
        self._part_with_inherited()
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return self.open_another()

    def _give_back(self, connection: Connection) -> None:
        if self._pool is not None:
            self._pool.putconn(connection)  # which discards it, if it is in a transaction or has ended
        elif connection.info.transaction_status == TransactionStatus.IDLE and len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _part_with_inherited(self) -> None:
        if self._owner != os.getpid():
            _inherited.extend(self._idle)
            self._idle.clear()
            self._owner = os.getpid()
            weakref.finalize(self, _close_all, self._idle, self._owner)


def _close_all(idle: deque[Connection], owner: int) -> None:
    if owner == os.getpid():
        while idle:
            idle.pop().close()


def _checked(pool: Any) -> Pool:
    found: Any = getattr(pool, "getconn", None)
    if found is None or not hasattr(pool, "putconn") or inspect.iscoroutinefunction(found):
        raise SessionRowError(
            f"{type(pool).__name__} is neither a connection string nor a psycopg_pool.ConnectionPool: an asynchronous "
            "pool belongs to one event loop, and a store serves them all"
        )
    return cast("Pool", pool)
