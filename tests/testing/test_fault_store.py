"""A store behind faults that are not there is a store."""

from collections.abc import Callable

import pytest

from antiphon.clock import Clock
from antiphon.store import InMemorySessionStore, SessionStore
from antiphon.testing import FaultStore, SessionStoreContract


class TestFaultStore(SessionStoreContract):
    @pytest.fixture
    def open_store(self) -> Callable[[], SessionStore]:
        return lambda: FaultStore(InMemorySessionStore())

    @pytest.fixture
    def open_at(self) -> Callable[[Clock], SessionStore]:
        return lambda clock: FaultStore(InMemorySessionStore(clock=clock))
