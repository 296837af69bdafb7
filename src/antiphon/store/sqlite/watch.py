"""Hears of changes that other connections and processes make."""

from __future__ import annotations

import threading

from antiphon.errors import SessionStoreError
from antiphon.store.backend import Wake
from antiphon.store.sqlite.slot import Slot

_LOOK_S = 0.01
_TROUBLE_S = 1.0  # how long to leave alone a database that cannot be asked


class Watch:
    """Asks again and again whether anybody has committed, until it is stopped, on a thread of its own.

    Args:
        slot: A connection for this alone.
        wake: Called after the first look, since nobody looked before, and after each that finds something new.

    Attributes:
        slot: The connection.
    """

    def __init__(self, slot: Slot, wake: Wake) -> None:
        self.slot, self._wake = slot, wake
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="antiphon-sqlite-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more. Does not wait for the thread: this is called on event loops."""
        self._stopped.set()

    def join(self) -> None:
        """Return when the connection is closed."""
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether its thread is still there."""
        return self._thread.is_alive()

    def _work(self) -> None:
        seen: tuple[int, int] | None = None
        while True:
            try:
                with self.slot.taken() as db:
                    version = self.slot.opened, db.rows("PRAGMA data_version")[0][0]
            except SessionStoreError:
                version = None  # whoever waits shall see the error, not wait for ever
            if version is None or version != seen:
                self._wake(None, None)
            seen = version
            if self._stopped.wait(_TROUBLE_S if version is None else _LOOK_S):
                break
        self.slot.close()
