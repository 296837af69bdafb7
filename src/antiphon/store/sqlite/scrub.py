"""Leaves no byte of what was forgotten in the database file and its log."""

from __future__ import annotations

import logging
import threading

from antiphon.errors import SessionStoreError
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.driver import Connection
from antiphon.store.sqlite.slot import Slot

_log = logging.getLogger(__name__)

_REBUILD, _EMPTY_LOG = 1, 2  # what is left to do; see the table `note`

_LEFT = "SELECT body FROM note WHERE tenant = 0 AND name = 'scrub'"

_PATIENCE_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


class Scrubber:
    """Rebuilds the file and empties the log.

    Overwriting what is deleted (`secure_delete`) is not enough: when SQLite balances a tree, cells move and leave copies
    behind on pages that are in use. `VACUUM` writes every page anew. The log can only be emptied when nobody reads an older
    state; while somebody does, this is tried again on a thread, and by whoever opens the database next.

    Args:
        database: The file.
        slot: The connection that writes.
    """

    def __init__(self, database: Database, slot: Slot) -> None:
        self._database, self._slot = database, slot
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def want(self, db: Connection) -> None:
        """Note, in the transaction that forgets something, that its bytes are to be removed."""
        db.run("INSERT OR REPLACE INTO note (tenant, name, body) VALUES (0, 'scrub', ?)", (_REBUILD,))

    def begin(self) -> None:
        """Remove them; on a thread where that has to wait for readers."""
        if not self._attempt(_PATIENCE_S):
            self._go_on()

    def resume(self) -> None:
        """Finish what another process had to leave."""
        with self._slot.taken() as db:
            left = db.rows(_LEFT)
        if left:
            self._go_on()

    def wait(self, timeout: float | None = None) -> None:
        """Return when nothing is left to do, or after so many seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def stop(self) -> None:
        """Try once more, and then no more for now."""
        with self._lock:
            self._stopped.set()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
            self._attempt(0)  # whoever was in the way may have let go since the last time

    def _go_on(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._stopped = threading.Event()
                self._thread = threading.Thread(
                    target=self._work, args=(self._stopped,), name="antiphon-sqlite-scrub", daemon=True
                )
                self._thread.start()

    def _work(self, stopped: threading.Event) -> None:
        pause = _FIRST_PAUSE_S
        while not stopped.wait(pause) and not self._attempt(0):
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _attempt(self, patience: float) -> bool:
        """Whether everything was removed."""
        try:
            with self._database.lock.held(), self._slot.taken() as db:
                return self._scrub(db, patience)
        except SessionStoreError as error:
            _log.warning("forgotten words cannot be removed from %r yet: %s", self._database.path, error)
            return False

    def _scrub(self, db: Connection, patience: float) -> bool:
        left, path = db.rows(_LEFT), self._database.path
        if not left:
            return True
        if left[0][0] == _REBUILD:
            db.run("VACUUM")
            db.run("UPDATE note SET body = ? WHERE tenant = 0 AND name = 'scrub'", (_EMPTY_LOG,))
        self._database.set_patience(db, patience)
        try:
            is_busy = db.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        finally:
            self._database.set_patience(db)
        if is_busy:
            if patience:
                _log.warning("somebody reads an older state of %r: forgotten words stay in its log until then", path)
            return False
        db.run("DELETE FROM note WHERE tenant = 0 AND name = 'scrub'")
        return True
