"""The store in SQLite against the suite that defines a store, and what is its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.clock import Clock
from antiphon.store import SessionStore
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.testing.store_contract import SessionStoreContract


class TestSQLite(SessionStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], SessionStore]:
        return lambda: SQLiteSessionStore(tmp_path / "sessions.db")

    @pytest.fixture
    def reopen(self, open_store: Callable[[], SessionStore]) -> Callable[[], SessionStore]:
        return open_store

    @pytest.fixture
    def open_at(self, tmp_path: Path) -> Callable[[Clock], SessionStore]:
        return lambda clock: SQLiteSessionStore(tmp_path / "sessions.db", clock=clock)
