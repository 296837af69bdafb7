"""Places for stores that commands name by URL."""

import itertools
import os

import pytest

from tests.store.conftest import postgres_server

__all__ = ["database", "postgres_server"]

KINDS = ["sqlite", "file", "postgresql"]
_numbers = itertools.count(1)


@pytest.fixture
def database(postgres_server):
    """The URL of a database that is empty, and gone after the test."""
    import psycopg
    from psycopg import sql

    name = sql.Identifier(f"cli_{os.getpid()}_{next(_numbers)}")
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        yield postgres_server.dsn.replace("/postgres?", f"/{name.as_string(None)[1:-1]}?")
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.fixture
def make_url(request, tmp_path):
    """Makes the URL of an empty store of a kind."""

    def make(kind):
        return request.getfixturevalue("database") if kind == "postgresql" else f"{kind}:{tmp_path / 'sessions'}"

    return make
