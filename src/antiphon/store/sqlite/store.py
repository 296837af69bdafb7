"""Sessions in a SQLite database: the embedded default."""

from __future__ import annotations

import os
from typing import Any, get_args

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.errors import SessionRowError
from antiphon.store.base import EXPIRES_AFTER
from antiphon.store.core import StoreCore
from antiphon.store.line_store import LineStore
from antiphon.store.sqlite.backend import SQLiteBackend
from antiphon.store.sqlite.database import Database, Synchronous
from antiphon.store.sqlite.driver import Driver, StandardDriver
from antiphon.store.tenants import Prefix


class SQLiteSessionStore(LineStore):
    """A session store in one file on a local disk, for any number of processes of this machine.

    Beside the file stand its log (`-wal`, `-shm`) and a lock (`-lock`); all of them are this user's only.

    Args:
        path: The database file. It is made, with its folder, when it is not there.
        prefix: The tenant, or a function that gives it for each operation.
        synchronous: `FULL` waits for the disk at each commit: what was acknowledged survives a power cut. With `NORMAL`
            the newest commits may be lost then, in `OFF` all may.
        patience: How long to wait for other processes, in seconds.
        clock: Decides whether a row has expired.
        expires_after: Seconds without a heartbeat after which a row in flight reads as expired.
        driver: Makes connections; for tests.

    Raises:
        SessionStoreError: If the file cannot be made or opened.
        StoreSchemaError: If it is something else's, or a newer version's.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        prefix: Prefix = None,
        synchronous: Synchronous = "FULL",
        patience: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
        expires_after: float = EXPIRES_AFTER,
        driver: Driver | None = None,
    ) -> None:
        if synchronous not in get_args(Synchronous):
            raise SessionRowError(f"synchronous={synchronous!r} is none of {', '.join(get_args(Synchronous))}")
        database = Database(_file(path), driver or StandardDriver(), synchronous=synchronous, patience=patience)
        core = StoreCore(SQLiteBackend(database), name="antiphon-sqlite", clock=clock, expires_after=expires_after)
        super().__init__(core, prefix=prefix)


def open_url(url: str, **options: Any) -> SQLiteSessionStore:
    """For `open_store`: `sqlite:<path>`, or `sqlite:///<path from the root>`.

    Raises:
        SessionRowError: If a host stands where there is none.
    """
    path = url.partition(":")[2]
    if path.startswith("//") and not path.startswith("///"):
        host = path[2:].partition("/")[0]
        raise SessionRowError(
            f"sqlite: names the host {host!r}: write sqlite:<path>, or sqlite:///<path from the root>"
        )
    return SQLiteSessionStore(path.removeprefix("//"), **options)


def _file(path: str | os.PathLike[str]) -> str:
    given = os.fspath(path)
    if not isinstance(given, str) or not given or given == ":memory:" or "\0" in given:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SessionRowError(f"path={path!r} names no file; for a store without one use InMemorySessionStore")
    return os.path.abspath(given)
