"""A connection that is there when it is needed."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from antiphon.store.sqlite.database import Database, Identity
from antiphon.store.sqlite.driver import Connection

_inherited: list[Connection] = []


class Slot:
    """A place for one connection: opened when it is needed, again after an error or when the file was replaced.

    Args:
        database: The file.

    Attributes:
        lock: Held while the connection is used.
        opened: How often one was opened.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.lock = threading.RLock()
        self.opened = 0
        self._db: Connection | None = None
        self._identity: Identity | None = None

    @contextmanager
    def taken(self) -> Generator[Connection]:
        """Use the connection. One that has failed is closed afterwards.

        Raises:
            SessionStoreError: If it cannot be opened.
        """
        with self.lock:
            if self._db is not None and self._database.identity() != self._identity:
                self.close()
            if self._db is None:
                self._db, self._identity = self._database.open()
                self.opened += 1
            db = self._db
            try:
                yield db
            finally:
                if db.failure is not None:
                    self.close()

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        with self.lock:
            db, self._db = self._db, None
            if db is not None:
                db.close()

    @contextmanager
    def stilled(self, patience: float) -> Generator[None]:
        """Closed, and not opened by another thread meanwhile; unless it cannot be had within so many seconds."""
        if not self.lock.acquire(timeout=patience):
            yield
            return
        try:
            self.close()
            yield
        finally:
            self.lock.release()

    def renew(self) -> None:
        """In a forked child: forget what could not be stilled, without touching the file."""
        if self._db is not None:
            _inherited.append(self._db)  # or it would be closed when it is collected
            self._db, self.lock = None, threading.RLock()
