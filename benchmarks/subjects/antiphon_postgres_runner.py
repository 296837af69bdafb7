"""The runner over `PostgresSessionStore`, with a server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.testing.postgres import PostgresServer, find_binaries
from benchmarks.child import main
from benchmarks.runs import runner_cases


@contextmanager
def _server(_: str) -> Iterator[str]:
    server = PostgresServer()
    server.start()
    try:
        yield server.dsn
    finally:
        server.close()


if __name__ == "__main__":
    main(runner_cases(_server) if find_binaries() else {})
