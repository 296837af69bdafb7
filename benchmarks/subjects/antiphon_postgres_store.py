"""`PostgresSessionStore`, on a server of its own on the same machine that flushes every commit."""

from __future__ import annotations

import os
from typing import LiteralString

import psycopg

from antiphon.store.line_store import LineStore
from antiphon.store.postgres.session_store import PostgresSessionStore
from antiphon.testing.postgres import PostgresServer, find_binaries
from benchmarks.child import main
from benchmarks.own_stores import StoreShelf, own_cases

_SCHEMA = "bench"


class PostgresShelf(StoreShelf):
    """What is written and waited for is what the server says of its log; its CPU counts, too."""

    async def open(self) -> None:
        self._asked_s = 0.0
        self._server = PostgresServer()
        self._server.start()
        self._asking = psycopg.connect(self._server.dsn, autocommit=True)
        self._dsn = self._server.dsn
        await super().open()

    async def close(self) -> None:
        await super().close()
        if hasattr(self, "_server"):
            self._asking.close()
            self._server.close()

    def _made(self) -> LineStore:
        return PostgresSessionStore(self.elsewhere, schema=_SCHEMA)

    @property
    def elsewhere(self) -> str:
        return getattr(self, "_dsn", self.folder)

    def written(self) -> int:
        return self._number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")

    def servers(self) -> list[int]:
        return _children(self._server.pid or 0)

    def cpu(self) -> float:
        begin = super().cpu()
        taken = begin - self._asked_s + sum(map(_cpu_of, self.servers()))
        self._asked_s += super().cpu() - begin  # to find this out takes time, too, which is nobody's
        return taken

    def at_rest(self) -> int:
        return self._number(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'",
            _SCHEMA,
        )

    def _number(self, query: LiteralString, *values: str) -> int:
        found = self._asking.execute(query, values).fetchone()
        return 0 if found is None else int(found[0] or 0)


def _children(parent: int) -> list[int]:
    """The processes that this one started."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(name))
    return found


def _cpu_of(process: int) -> float:
    """Seconds that a process has run: to the nanosecond, where /proc/PID/stat counts ticks of 10 ms."""
    try:
        with open(f"/proc/{process}/schedstat", encoding="utf-8") as counters:
            return int(counters.read().split()[0]) / 1e9
    except OSError:  # it has ended
        return 0.0


if __name__ == "__main__":
    main(own_cases(PostgresShelf) if find_binaries() else {})
