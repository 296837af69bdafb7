"""Sessions in a SQLite database."""

from antiphon.store.sqlite.database import Synchronous
from antiphon.store.sqlite.store import SQLiteSessionStore, open_url

__all__ = ["SQLiteSessionStore", "Synchronous", "open_url"]
