"""The store in PostgreSQL against random histories."""

import itertools

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from hypothesis import HealthCheck, settings  # noqa: E402
from hypothesis.stateful import run_state_machine_as_test  # noqa: E402

from antiphon.store.postgres import PostgresSessionStore  # noqa: E402
from antiphon.testing.store_suite.model import StoreMachine  # noqa: E402

_numbers = itertools.count(1)


@pytest.mark.timeout(150)
def test_any_history_reads_back_to_the_bit_in_every_row(postgres_dsn, schema):
    class Machine(StoreMachine):
        schemas: dict[str, str] = {}

        def open(self, place):
            name = self.schemas.setdefault(str(place), f"{schema} model {next(_numbers)}")
            return PostgresSessionStore(postgres_dsn, schema=name)

    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=6, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
    finally:
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            for name in Machine.schemas.values():
                connection.execute(
                    psycopg.sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(psycopg.sql.Identifier(name))
                )
