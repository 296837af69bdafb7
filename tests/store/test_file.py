"""The store in files against the suite that defines a store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.clock import Clock
from antiphon.store import SessionStore
from antiphon.store.file import FileSessionStore
from antiphon.testing import UnsyncedFileSystem
from antiphon.testing.store_contract import SessionStoreContract
from antiphon.testing.store_suite.laws import LawContract


class TestFile(SessionStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], SessionStore]:
        return lambda: FileSessionStore(tmp_path / "sessions")

    @pytest.fixture
    def reopen(self, open_store: Callable[[], SessionStore]) -> Callable[[], SessionStore]:
        return open_store

    @pytest.fixture
    def open_at(self, tmp_path: Path) -> Callable[[Clock], SessionStore]:
        return lambda clock: FileSessionStore(tmp_path / "sessions", clock=clock)


class TestFileOnACountingDisk(LawContract):
    @pytest.fixture
    def disk(self) -> UnsyncedFileSystem:
        return UnsyncedFileSystem()

    @pytest.fixture
    def open_store(self, tmp_path: Path, disk: UnsyncedFileSystem) -> Callable[[], SessionStore]:
        return lambda: FileSessionStore(tmp_path / "sessions", filesystem=disk)

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], SessionStore]:
        return lambda: FileSessionStore(tmp_path / "sessions")

    @pytest.fixture
    def bytes_written(self, disk: UnsyncedFileSystem) -> Callable[[], int]:
        return lambda: disk.bytes_written
