"""`SQLiteSessionStore`; every save is flushed to the disk."""

from __future__ import annotations

import os

from antiphon.store.line_store import LineStore
from antiphon.store.sqlite.store import SQLiteSessionStore
from benchmarks.child import main
from benchmarks.own_stores import StoreShelf, own_cases


class SQLiteShelf(StoreShelf):
    """One database."""

    def _made(self) -> LineStore:
        return SQLiteSessionStore(os.path.join(self.folder, "sessions.db"))

    async def settle(self) -> None:
        self._store.close()  # the last one to close has everything moved out of the log


if __name__ == "__main__":
    main(own_cases(SQLiteShelf))
