"""The store in PostgreSQL against the suite that defines a store."""

from collections.abc import Callable, Iterator

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from antiphon.clock import Clock  # noqa: E402
from antiphon.store import SessionStore  # noqa: E402
from antiphon.store.postgres import PostgresSessionStore  # noqa: E402
from antiphon.testing.store_contract import SessionStoreContract  # noqa: E402


class TestPostgres(SessionStoreContract):
    @pytest.fixture
    def open_store(self, postgres_dsn: str, schema: str) -> Callable[[], SessionStore]:
        return lambda: PostgresSessionStore(postgres_dsn, schema=schema)

    @pytest.fixture
    def reopen(self, open_store: Callable[[], SessionStore]) -> Callable[[], SessionStore]:
        return open_store

    @pytest.fixture
    def open_at(self, postgres_dsn: str, schema: str) -> Callable[[Clock], SessionStore]:
        return lambda clock: PostgresSessionStore(postgres_dsn, schema=schema, clock=clock)


class TestPostgresThroughAPool(SessionStoreContract):
    @pytest.fixture
    def pool(self, postgres_dsn: str) -> Iterator[object]:
        from psycopg_pool import ConnectionPool

        with ConnectionPool(postgres_dsn, min_size=1, max_size=3, open=True) as pool:
            yield pool
            assert not pool.closed

    @pytest.fixture
    def open_store(self, pool: object, schema: str) -> Callable[[], SessionStore]:
        return lambda: PostgresSessionStore(pool, schema=schema)

    @pytest.fixture
    def reopen(self, open_store: Callable[[], SessionStore]) -> Callable[[], SessionStore]:
        return open_store
